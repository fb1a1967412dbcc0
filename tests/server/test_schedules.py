"""Schedules over HTTP: the same as on the store, by role, and within the queues of a token."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

import httpx2
import pytest
from tests.server.running import Running, running

from interlock import Interlock, task
from interlock.errors import InvalidSchedule, ScheduleExists, ServerRefused, UnknownSchedule
from interlock.server.settings import ServerSettings
from interlock.wire.access import Role
from interlock.wire.jobs import JobSpec
from interlock.worker.http import HttpOrchestrator
from interlock.worker.schedules import schedule_spec

NIGHTLY = {"cron": "0 2 * * 1-5", "tz": "Europe/Berlin", "job": {"task": "shop.report", "queue": "mail"}}


@pytest.fixture
async def server() -> AsyncIterator[Running]:
    async with running() as one:
        yield one


@task(name="shop.tasks.report", queue="mail")
def report(kind: str) -> None:
    """Nothing is done here."""


async def test_the_client_creates_edits_runs_backfills_and_deletes_schedules_through_a_server(
    server: Running,
) -> None:
    async with Interlock(server.url) as il:
        made = await il.schedules.create("nightly", report.spec("full"), "0 2 * * 1-5", tz="Europe/Berlin")
        assert (made.state, made.text) == ("active", "every weekday at 02:00 in Berlin")
        assert made.spec.job.queue == "mail"
        with pytest.raises(ScheduleExists):
            await il.schedules.create("nightly", report.spec("full"), every="1h")
        with pytest.raises(InvalidSchedule):
            await il.schedules.create("other", report.spec("full"), "0 2 * *")
        changed = await il.schedules.create("nightly", report.spec("brief"), every="1h", update=True)
        assert (changed.version, changed.text) == (2, "every hour")
        assert len(await il.schedules.next("nightly", 3)) == 3
        assert (await il.schedules.pause("nightly", reason="stocktaking")).reason == "stocktaking"
        fire = await il.schedules.run("nightly")
        assert (await il.job(fire.job_id)).schedule == "nightly"
        assert (await il.schedules.resume("nightly")).state == "active"
        until = made.created_at.replace(minute=0, second=0, microsecond=0) + timedelta(seconds=1)
        foreseen = await il.schedules.backfill("nightly", until - timedelta(hours=3), until, dry_run=True)
        assert (len(foreseen.fires), foreseen.jobs) == (3, ())
        done = await il.schedules.backfill("nightly", until - timedelta(hours=3), until)
        assert len(done.jobs) == 3
        assert [view.name for view in (await il.schedules.list("active"))[0]] == ["nightly"]
        view = await il.schedules.get("nightly")
        assert ([each.how for each in view.recent], view.submitted) == (["backfill"] * 3 + ["run"], 4)
        assert (await il.schedules.delete("nightly")).state == "ended"
        events = [step.event for entry in await il.schedules.history("nightly") for step in entry.note.steps]
        assert events == ["edit", "pause", "run_now", "resume", "backfill", "delete"]
        with pytest.raises(UnknownSchedule):
            await il.schedules.get("../jobs")


async def test_a_schedule_is_created_once_under_a_request_id(
    server: Running, client: httpx2.AsyncClient
) -> None:
    body = {"name": "nightly", "schedule": NIGHTLY, "request_id": "n1"}
    first = await client.post("/api/schedules", json=body)
    assert (first.status_code, first.json()["name"]) == (201, "nightly")
    assert (await client.post("/api/schedules", json=body)).json() == first.json()
    again = await client.post("/api/schedules", json={**body, "request_id": "n2"})
    assert (again.status_code, again.json()["code"]) == (409, "schedule_exists")


async def test_a_sweep_of_the_server_fires_a_due_schedule_and_submits_its_job(
    server: Running, client: httpx2.AsyncClient
) -> None:
    body = {"name": "tick", "schedule": {"every": "1h", "job": {"task": "tick"}}}
    await client.post("/api/schedules", json=body)
    server.jump(3_600)
    await server.parts.runtime.sweep()
    view = (await client.get("/api/schedules/tick")).json()
    assert (view["submitted"], view["recent"][0]["state"]) == (1, "PENDING")
    job = (await client.get(f"/api/jobs/{view['recent'][0]['job_id']}")).json()
    assert (job["schedule"], job["scheduled_for"]) == ("tick", view["last_at"])


async def test_a_submitter_creates_and_runs_schedules_and_only_an_operator_replaces_or_pauses_them() -> None:
    async with running(settings=ServerSettings(port=0, tokens_required=True)) as guarded:
        submitter = guarded.client(await guarded.token(Role.SUBMITTER))
        body = {"name": "nightly", "schedule": NIGHTLY}
        assert (await submitter.post("/api/schedules", json=body)).status_code == 201
        assert (await submitter.post("/api/schedules", json={**body, "replace": True})).status_code == 403
        assert (await submitter.post("/api/schedules/nightly/pause")).status_code == 403
        assert (await submitter.post("/api/schedules/nightly/run")).status_code == 201
        operator = guarded.client(await guarded.token(Role.OPERATOR))
        assert (await operator.post("/api/schedules", json={**body, "replace": True})).status_code == 201
        assert (await operator.post("/api/schedules/nightly/pause")).json()["state"] == "paused"
        viewer = guarded.client(await guarded.token(Role.VIEWER))
        assert (await viewer.post("/api/schedules/nightly/run")).status_code == 403
        assert len((await viewer.get("/api/schedules")).json()["schedules"]) == 1


async def test_a_schedule_of_another_queue_is_not_there() -> None:
    async with running(settings=ServerSettings(port=0, tokens_required=True)) as guarded:
        admin = guarded.client(await guarded.token(Role.ADMIN))
        await admin.post("/api/schedules", json={"name": "nightly", "schedule": NIGHTLY})
        confined = guarded.client(await guarded.token(Role.OPERATOR, "ci", queues=["ci"]))
        assert (await confined.get("/api/schedules")).json()["schedules"] == []
        for path in ("", "/next", "/history"):
            assert (await confined.get(f"/api/schedules/nightly{path}")).status_code == 404
        for verb in ("pause", "resume", "delete", "run"):
            assert (await confined.post(f"/api/schedules/nightly/{verb}")).status_code == 404
        taken = {"name": "nightly", "schedule": {"every": "1h", "job": {"task": "x", "queue": "ci"}}}
        assert (await confined.post("/api/schedules", json={**taken, "replace": True})).status_code == 403
        foreign = {"name": "mine", "schedule": NIGHTLY}
        assert (await confined.post("/api/schedules", json=foreign)).status_code == 403


async def test_a_worker_behind_a_server_registers_schedules_if_its_token_may() -> None:
    spec = schedule_spec(JobSpec(task="tick"), "15m")
    async with running(settings=ServerSettings(port=0, tokens_required=True)) as guarded:
        token = await guarded.token(Role.RUNNER)
        port = HttpOrchestrator(guarded.url, names=lambda: "n", token=token)
        await port.connect()
        with pytest.raises(ServerRefused, match="needs submitter"):
            await port.declare_schedule("tick", spec, "code")
        await port.disconnect()
    async with running() as open_to_all:
        port = HttpOrchestrator(open_to_all.url, names=lambda: "n")
        await port.connect()
        for _ in range(2):
            await port.declare_schedule("tick", spec, "code")
        view = await open_to_all.parts.runtime.schedules.get("tick")
        assert (view.version, view.source) == (1, "code")
        await port.disconnect()
