"""The same runs on every store, looked after from two sides at once: they end in the same states."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TypeAlias

import pytest
from tests.systems.orchestrator.house import done, failed
from tests.systems.runs.site import Site, plan, planned
from tests.waiting import pause, until

from interlock.errors import TransitionRefused
from interlock.store.contract import Store
from interlock.store.memory import MemoryStore
from interlock.store.records import Key
from interlock.systems.catalogue import CATALOGUE
from interlock.systems.orchestrator.body import given_of
from interlock.wire.jobs import SHELL
from interlock.wire.runner import Grant
from interlock.wire.runs import Plan, RunFilter, RunSpec, RunView, Source

Sites: TypeAlias = tuple[Site, Site]

LAYERS, WIDTH = 4, 5
MAIN = Source(ref="refs/heads/main")


@pytest.fixture(params=["memory", "sqlite", "postgres", "redis"])
async def sites(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Sites]:
    """Two orchestrators on one database, both of which answer news at once."""
    memory = MemoryStore(CATALOGUE)
    store: Callable[[], Store] | None = None
    url = "memory:"
    match request.param:
        case "memory":
            store = lambda: memory  # noqa: E731
        case "sqlite":
            url = f"sqlite:///{tmp_path / 'runs.db'}"
        case "postgres":
            url = request.getfixturevalue("postgres").new_database()
        case _:
            url = request.getfixturevalue("redis").url
    pair = Site(store=store, url=url), Site(store=store, url=url)
    for site in pair:
        await site.open(asking=False)
        site.runs.prompt = True
    yield pair
    for site in pair:
        await site.close()
    if request.param == "redis":
        request.getfixturevalue("redis").run("FLUSHALL")


def layered() -> Plan:
    """Layers of jobs, each of which needs all of the layer before."""
    names = [[f"{layer}.{number}" for number in range(WIDTH)] for layer in range(LAYERS)]
    return plan(
        *(
            planned(name, *(names[layer - 1] if layer else ()), required=name != "1.1")
            for layer in range(LAYERS)
            for name in names[layer]
        )
    )


async def crew(site: Site, runner: str, failing: dict[str, str]) -> None:
    """Does whatever there is; jobs that are called so in a run fail."""
    names: dict[str, tuple[str, str]] = {}
    while True:
        given = await site.claim(runner, limit=3)
        for grant in given:
            if grant.job_id not in names:
                (record,) = await site.store.load([Key("job", grant.job_id)])
                assert record is not None
                plan = given_of(record).plan
                assert plan is not None
                names[grant.job_id] = (record.parent or "", plan.name)
            run_id, name = names[grant.job_id]
            fails = failing.get(run_id) == name or name == "1.1"
            message = failed(grant, "compile", runner_id=runner) if fails else done(grant, runner_id=runner)
            await site.say(message)
        if not given:
            await pause()


async def reported(site: Site, run_id: str) -> RunView:
    async def is_reported() -> bool:
        return (await site.look(run_id)).state == "REPORTED"

    await until(is_reported, f"the run {run_id} is reported")
    return await site.look(run_id)


async def test_runs_end_alike_on_every_store(sites: Sites) -> None:
    here, there = sites
    good = [await here.runs.submit(RunSpec(plan=layered())) for _ in range(2)]
    bad = await there.runs.submit(RunSpec(plan=layered(), workflow="bad"))
    old = await here.runs.submit(RunSpec(plan=plan(planned("a", queue="idle")), source=MAIN))
    failing = {bad.id: "2.0"}
    crews = [asyncio.create_task(crew(site, f"runner{n}", failing)) for n, site in enumerate(sites)]
    try:
        for view in good:
            ended = await reported(there, view.id)
            assert (ended.outcome, ended.tally) == ("SUCCESS", {"COMPLETED": 19, "FAILED": 1})
        ended = await reported(here, bad.id)
        assert (ended.outcome, ended.culprit) == ("FAILED", "2.0")
        again = await there.runs.rerun(bad.id, "failed")
        ended = await reported(here, again.id)
        # What is optional and had failed is done again, and fails again.
        assert (ended.outcome, ended.tally) == ("SUCCESS", {"COMPLETED": 19, "FAILED": 1})
        once_more = await here.runs.rerun(bad.id, "failed")
        compared = await there.runs.compare(once_more.id)
        assert compared.green is not None
        assert (compared.green.id, compared.looked_at) == (again.id, 1)
        await reported(there, once_more.id)
        newer = await there.runs.submit(RunSpec(plan=plan(planned("a", queue="idle")), source=MAIN))
        assert (await reported(here, old.id)).superseded_by == newer.id
        await here.runs.cancel(newer.id)
        assert (await reported(there, newer.id)).outcome == "CANCELED"
        views = await asyncio.gather(
            *(site.runs.submit(RunSpec(plan=plan(planned("b"))), request_id="push") for site in sites * 5)
        )
        assert len({view.id for view in views}) == 1
        assert (await reported(here, views[0].id)).outcome == "SUCCESS"
    finally:
        for task in crews:
            task.cancel()
        await asyncio.gather(*crews, return_exceptions=True)
    found, _ = await here.runs.find(RunFilter(workflow="bad"))
    assert {view.id for view in found} == {bad.id, again.id, once_more.id}
    redone, _ = await there.runs.find(RunFilter(origin_run_id=bad.id))
    assert [view.id for view in redone] == [once_more.id, again.id]
    for site in sites:
        await site.runs.close()
    assert await here.all_faults() == []


async def test_exactly_one_of_many_concurrent_approvals_and_declines_of_a_run_is_accepted(
    sites: Sites,
) -> None:
    fork = Source(ref="refs/pull/7/head", sha="5f" * 20, from_fork=True)
    run = await sites[0].runs.submit(RunSpec(plan=plan(planned("a", task=SHELL)), source=fork))

    async def is_in(state: str) -> bool:
        await sites[1].recover()
        return (await sites[1].look(run.id)).state == state

    await until(lambda: is_in("AWAITING_APPROVAL"), "the run waits for an approval")
    words = [sites[n % 2].runs.approve(run.id, actor=f"operator {n}") for n in range(6)]
    words += [sites[n % 2].runs.decline(run.id, actor=f"operator {n}") for n in range(2)]
    results = await asyncio.gather(*words, return_exceptions=True)
    refused = [each for each in results if isinstance(each, BaseException)]
    assert all(isinstance(each, TransitionRefused) for each in refused), refused
    assert len(refused) == len(words) - 1
    view = await sites[0].look(run.id)
    if view.approvals:
        given: list[Grant] = []

        async def has_begun() -> bool:
            given.extend(await sites[0].claim(queues=("untrusted",)))
            return await is_in("RUNNING")

        await until(has_begun, "the job of the run has begun")
        assert len(given) == 1
    else:
        await until(lambda: is_in("REPORTED"), "the run is canceled")
    for site in sites:
        await site.runs.close()
    assert await sites[0].all_faults() == []
