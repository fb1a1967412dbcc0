"""Queues over HTTP: what each has, from bounded reads, and pausing one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.server.runners import Runner, done
from tests.server.running import FOR_EVER_S, Running, running

from interlock import Interlock
from interlock.remote.services import RemoteOrchestrator
from interlock.server import queues
from interlock.server.queues import OldestJobs, QueuesInput, views_of
from interlock.store.records import Record
from interlock.systems import overview
from interlock.systems.figures import figures
from interlock.wire.access import Role
from interlock.wire.jobs import JobSpec

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
NONE = OldestJobs((), True)


@pytest.fixture
async def server(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Running]:
    """A server that counts when it is told to, and looks at its queues with every request."""
    monkeypatch.setattr(figures, "EVERY_S", FOR_EVER_S)
    monkeypatch.setattr(queues, "FRESH_S", 0.0)
    async with running() as one:
        one.parts.runtime.figures._spacing = timedelta(seconds=-FOR_EVER_S)
        await one.parts.runtime.figures.round()
        yield one


def waiting(queue: str, age_s: float) -> Record:
    at = NOW - timedelta(seconds=age_s)
    return Record(
        kind="job",
        id=f"j_{queue}_{age_s}",
        state="PENDING",
        version=1,
        body=b"{}",
        queue=queue,
        created_at=at,
        updated_at=at,
    )


async def listed(client: httpx2.AsyncClient) -> dict[str, dict[str, Any]]:
    return {queue["name"]: queue for queue in (await client.get("/api/queues")).json()["queues"]}


async def test_a_queue_shows_its_pending_jobs_workers_slots_and_the_figures_of_the_last_hour(
    server: Running, client: httpx2.AsyncClient
) -> None:
    runner = Runner(client)
    await server.submit(queue="mail")
    await runner.say("complete", (await runner.grant(queues=["mail"]))["token"], **done())
    oldest = await server.submit(queue="mail")
    await server.submit(queue="mail")
    worker = {"name": "w", "queues": ["mail", "idle"], "capacity": 4}
    assert (await client.post("/api/workers", json=worker)).status_code == 201
    await server.parts.runtime.figures.round()
    found = await listed(client)
    mail, idle = found["mail"], found["idle"]
    assert (mail["pending"], mail.get("running", 0), mail["workers"], mail["slots"]) == (2, 0, 1, 4)
    assert mail["oldest_created_at"] == (await client.get(f"/api/jobs/{oldest}")).json()["created_at"]
    assert (mail["lately"]["submitted"], mail["lately"]["completed"]) == (3, 1)
    assert mail["lately"]["wait_p95_s"] is not None
    assert (idle.get("pending", 0), idle["workers"]) == (0, 1)


def test_many_jobs_are_not_counted_but_taken_from_the_figures() -> None:
    some = OldestJobs((waiting("mail", 90), waiting("mail", 80), waiting("ci", 70)), False)
    backlog = {"mail": (40_000, 3), "ci": (2, 0), "far": (7, 0), "": (5, 5)}
    found = {
        each.name: each
        for each in views_of(QueuesInput(now=NOW, pending=some, running=NONE, backlog=backlog))
    }
    assert {name: each.pending for name, each in found.items()} == {"mail": 40_000, "ci": 2, "far": 7}
    assert {each.running for each in found.values()} == {0}  # all that run were looked at: there are none
    assert found["mail"].oldest_created_at == NOW - timedelta(seconds=90)
    assert found["far"].oldest_created_at is None  # it is not known without a search
    assert found["mail"].workers is None


async def test_large_inputs_are_not_read_to_count_them(
    server: Running, client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queues, "LIGHT", 10)
    for _ in range(queues.FIRST + 1):
        await server.submit(queue="mail")
    mail = (await listed(client))["mail"]  # nothing was counted yet
    assert (mail["pending"], mail["capped"]) == (queues.FIRST, True)
    await server.parts.runtime.figures.round()
    mail = (await listed(client))["mail"]
    assert (mail["pending"], mail.get("capped", False)) == (queues.FIRST + 1, False)


async def test_a_server_that_was_just_started_does_not_show_a_long_queue_as_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:///{tmp_path / 'jobs.db'}"
    async with running(url) as before:
        await before.parts.runtime.figures.round()
    async with Interlock(url) as il:  # no server counts these
        await il.submit_many([JobSpec(task="shop.send", queue="mail")] * (queues.JOBS + 50))

    async def busy(*_: object) -> int:
        return 0

    monkeypatch.setattr(figures.Figures, "round", busy)
    async with running(url) as after:
        mail = (await listed(after.client()))["mail"]
        assert (mail["pending"], mail["capped"]) == (queues.JOBS, True)
        monkeypatch.undo()
        after.parts.runtime.figures._spacing = timedelta(seconds=-FOR_EVER_S)
        await after.parts.runtime.figures.round()
        after.parts.queue_board.forget()
        mail = (await listed(after.client()))["mail"]
        assert (mail["pending"], mail.get("capped", False)) == (queues.JOBS + 50, False)


async def test_a_queue_can_be_paused_and_resumed_and_shows_the_actor_and_the_reason(
    server: Running, client: httpx2.AsyncClient
) -> None:
    await server.submit(queue="mail")
    body = {"queue": "mail", "reason": "the mail server is away", "request_id": "p-1"}
    held = await client.post("/api/queues/pause", json=body)
    assert (held.status_code, held.json()["state"]) == (200, "paused"), held.text
    mail = (await listed(client))["mail"]
    assert (mail["state"], mail["reason"], mail["paused_by"]) == (
        "paused",
        "the mail server is away",
        held.json()["by"],
    )
    assert mail["paused_at"] == held.json()["at"]
    runner = Runner(client)
    assert await runner.grants(queues=["mail"]) == []
    assert (await client.post("/api/queues/resume", json={"queue": "mail"})).json()["state"] == "open"
    assert len(await runner.grants(queues=["mail"])) == 1
    assert "paused_at" not in (await listed(client))["mail"]


async def test_the_overview_reports_a_paused_queue_with_jobs_instead_of_a_missing_worker(
    server: Running, client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overview, "FRESH_S", 0.0)
    await server.submit(queue="mail")
    await client.post("/api/queues/pause", json={"queue": "mail", "reason": "the mail server is away"})
    await server.parts.runtime.figures.round()
    (finding,) = (await client.get("/api/overview")).json()["findings"]
    assert finding["code"] == "queue_paused"
    expected = "The queue mail was paused by local: the mail server is away. Waiting: 1 job."
    assert finding["sentence"] == expected
    assert finding["remedy"]["command"] == "interlock queue resume mail"
    await client.post("/api/queues/resume", json={"queue": "mail"})
    (finding,) = (await client.get("/api/overview")).json()["findings"]
    assert finding["code"] == "no_worker"


async def test_a_program_lists_pauses_and_resumes_queues_through_the_server(server: Running) -> None:
    await server.submit(queue="mail")
    remote = RemoteOrchestrator(server.url)
    await remote.connect()
    try:
        assert (await remote.services.queues.pause("mail", reason="away")).state == "paused"
        (mail,) = await remote.services.queues.list()
        assert (mail.name, mail.state, mail.pending, mail.reason) == ("mail", "paused", 1, "away")
        assert (await remote.services.queues.resume("mail")).state == "open"
    finally:
        await remote.disconnect()


async def test_only_operators_pause_and_only_queues_that_they_see(server: Running) -> None:
    admin = await server.token(Role.ADMIN)
    viewer = server.client(await server.token(Role.VIEWER))
    mine = server.client(await server.token(Role.OPERATOR, "mailer", queues=("mail",)))
    body = {"queue": "mail"}
    assert (await viewer.post("/api/queues/pause", json=body)).status_code == 403
    assert (await mine.post("/api/queues/pause", json={"queue": "ci"})).status_code == 403
    assert (await mine.post("/api/queues/pause", json=body)).status_code == 200
    await server.submit(queue="ci")
    assert list(await listed(mine)) == ["mail"]
    assert "workers" not in (await listed(mine))["mail"]
    assert set(await listed(server.client(admin))) == {"mail", "ci"}
