"""Webhooks, reports and histories on every store, and across a crash."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from itertools import count
from pathlib import Path

import msgspec
import pytest
from tests.systems.runs.reports.receiver import Heard, Receiver, Says, receiving
from tests.systems.runs.reports.told import SOURCE, Told, notices, reporting, statuses
from tests.systems.runs.site import Site, planned
from tests.systems.runs.triggers.deliveries import push

from interlock.engine.clock import StoreClock
from interlock.systems.runs.trigger_events import Evaluation, Rule, TriggerSettings
from interlock.systems.runs.triggers import IdempotentSubmitter, Triggers
from interlock.systems.runs.webhook_security import Secret, github_signature
from interlock.systems.runs.workflows.git import WorkflowPlanner
from interlock.systems.settings import Settings
from interlock.testing.servers import PostgresServer, RedisServer
from interlock.wire.runs import Receipt

SECRET = Secret(b"the secret of github")
RULE = Rule(run=Evaluation(workflow="ci", definition="jobs: {test: {steps: [{run: make}]}}"))
_DATABASES = count(9)
STORES = ["memory", "sqlite", "postgres", "redis"]


@pytest.fixture(params=STORES)
async def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store of its own."""
    match request.param:
        case "memory":
            return "memory:"
        case "sqlite":
            return f"sqlite:///{tmp_path}/edges.db"
        case "postgres":
            server: PostgresServer = request.getfixturevalue("postgres")
            return server.new_database()
        case _:
            redis: RedisServer = request.getfixturevalue("redis")
            return redis.url.replace("db=0", f"db={next(_DATABASES)}")


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    """Somebody who is told."""
    async with receiving() as one:
        yield one


def _is_first(request: Heard, receiver: Receiver) -> bool:
    """Return whether this message is new; every receiver is down once."""
    return [one.body for one in receiver.heard if one.path == request.path].count(request.body) == 1


def triggers(site: Site) -> Triggers:
    """Webhooks of this site."""
    here = site.port.services
    here.runs.preparation.planners["workflow"] = WorkflowPlanner()
    settings = TriggerSettings(github_secrets=(SECRET,), rules=(RULE,))
    return Triggers(IdempotentSubmitter(here.runs), settings, StoreClock(here.store))


async def deliver(taking: Triggers, sender: str = "ann") -> Receipt:
    """A push, signed."""
    body = msgspec.json.encode(push(sender={"login": sender}))
    return await taking.github(
        {"x-github-event": "push", "x-hub-signature-256": github_signature(SECRET, body)}, body
    )


async def test_outcomes_are_delivered_and_flaky_jobs_detected_on_every_store(
    url: str, receiver: Receiver
) -> None:
    site = Told(reporting(receiver, first_pause_s=0.001), url=url)
    await site.open(asking=url == "memory:")
    receiver.otherwise = lambda request: Says(500 if _is_first(request, receiver) else 200)
    outcomes = []
    for failing in ((), ("test",)):
        run_id = await site.begin(planned("test"), workflow="ci", source=SOURCE, concurrency_group="")
        await site.finish(run_id, *failing)
        async with asyncio.timeout(120):
            while await site.state(run_id) != "REPORTED":
                site.clock.jump("1s")  # which only the store in memory minds
                await site.recover()
                await asyncio.sleep(0)
        outcomes.append((await site.look(run_id)).outcome)
        assert (await site.path(run_id)).count("REPORTED") == 1
    assert outcomes == ["SUCCESS", "FAILED"]
    assert statuses(receiver)[-1] == "failure"
    assert {"run.success", "run.failed"} <= set(notices(receiver))
    await site.recover()
    assert [job.job for job in (await site.runs.analyser.flaky()).jobs] == ["test"]
    assert await site.all_faults() == []
    await site.close()


async def test_fifty_deliveries_through_three_processes_make_one_run(url: str) -> None:
    number = 1 if url == "memory:" else 3
    sites = [await Site(Settings(), url=url).open(asking=url == "memory:") for _ in range(number)]
    taking = [triggers(site) for site in sites]
    receipts = await asyncio.gather(*[deliver(taking[nth % number], f"sender-{nth}") for nth in range(50)])
    assert len({receipt.run_id for receipt in receipts}) == 1
    runs, _ = await sites[0].runs.find()
    assert [run.id for run in runs] == [receipts[0].run_id]
    for site in sites:
        await site.close()


async def test_a_crash_after_the_insert_is_resumed_by_another_process(tmp_path: Path) -> None:
    """Whoever took the delivery dies before anything else is done: nothing of its memory is used."""
    url = f"sqlite:///{tmp_path}/crash.db"
    first = await Site(Settings(), url=url).open(asking=False)
    receipt = await deliver(triggers(first))
    assert (await first.look(receipt.run_id)).state == "CREATED"
    other = await Site(Settings(), url=url).open(asking=False)
    again = await deliver(triggers(other))
    await other.recover()
    assert again == receipt
    assert (await other.look(receipt.run_id)).state == "QUEUED"
    for site in (first, other):
        await site.close()
