"""Over HTTP a repeat under a request id gets the first answer to the byte, of every route that takes one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, NamedTuple

import httpx2
import pytest
from tests.server.loads import ASKED
from tests.server.running import Running
from tests.server.test_openapi import failed_job, waiting_approval

from interlock.server.api import ROUTES
from interlock.systems.catalogue import CATALOGUE
from interlock.wire.access import Role

PLAN = {"workflow": "ci", "plan": {"jobs": [{"name": "a", "task": "t"}]}}
FORK = {**PLAN, "source": {"ref": "refs/pull/7/head", "sha": "5f" * 20, "from_fork": True}}
WORKERS = "/api/workers"
HELD = "/api/supervisor/workers"


class Api:
    """Somebody with a token, and what they have made."""

    def __init__(self, server: Running, client: httpx2.AsyncClient, runner: httpx2.AsyncClient) -> None:
        self.server, self.client, self.runner = server, client, runner

    async def post(self, path: str, **body: Any) -> Any:
        answer = await self.client.post(path, json=body)
        assert answer.status_code < 300, answer.text
        return answer.json()

    async def job(self) -> str:
        return str((await self.post("/api/jobs", task="t"))["id"])

    async def ended_job(self) -> str:
        job_id = await self.job()
        await self.post(f"/api/jobs/{job_id}/cancel")
        return job_id

    async def worker(self, *verbs: str) -> str:
        worker_id = (await self.runner.post(WORKERS, json={"name": "anna"})).json()["id"]
        for verb in verbs:
            await self.post(f"{WORKERS if verb == 'start' else HELD}/{worker_id}/{verb}")
        return str(worker_id)

    async def run(self, spec: dict[str, Any] = PLAN, *, ended: bool = False) -> str:
        runs = self.server.parts.runtime.runs
        run_id = str((await self.post("/api/runs", **spec))["id"])
        await runs.keep()
        if ended:
            await runs.cancel(run_id)
            await runs.keep()
        return run_id

    async def simulation(self, *statuses: str) -> str:
        await self.post("/api/simulations", run_id="flu", task="flu")
        for status in statuses:
            await self.post("/api/simulations/flu/transition", status=status)
        return "flu"

    async def change(self) -> None:
        """Change whatever there is, as far as it can be changed."""
        for worker in (await self.client.get(WORKERS)).json()["workers"]:
            await self.client.post(f"{HELD}/{worker['id']}/terminate")
        for each in (await self.client.get("/api/jobs")).json()["jobs"]:
            await self.client.post(f"/api/jobs/{each['id']}/cancel")
        for status in ("interrupted", "cancelled"):
            await self.client.post("/api/simulations/flu/transition", json={"status": status})
        for each in (await self.client.get("/api/runs")).json()["runs"]:
            await self.client.post(f"/api/runs/{each['id']}/cancel")
        await self.client.post("/api/schedules/nightly/delete")
        await self.server.parts.runtime.runs.keep()

    async def prune(self) -> None:
        """Remove everything that has ended."""
        for name, kind in CATALOGUE.items():
            if kind.ended:
                states = sorted(kind.ended)
                await self.server.parts.store.prune(kind=name, states=states, older_than=timedelta(0))


class Repeat(NamedTuple):
    """One route: what there has to be before, and what is asked then."""

    name: str
    ask: Callable[[Api], Awaitable[tuple[str, dict[str, Any]]]]


def _about(path: str, make: Callable[[Api], Awaitable[str]], **body: Any) -> Any:
    async def ask(api: Api) -> tuple[str, dict[str, Any]]:
        return path.format(await make(api)), body

    return ask


async def _nothing(_: Api) -> str:
    return ""


async def _token(api: Api) -> str:
    await api.post("/api/tokens", name="spare", role="viewer")
    return "spare"


async def _paused_queue(api: Api) -> str:
    await api.post("/api/queues/pause", queue="mail")
    return ""


NIGHTLY = {"name": "nightly", "schedule": {"every": "1h", "job": {"task": "t"}}}


async def _schedule(api: Api) -> str:
    await api.post("/api/schedules", **NIGHTLY)
    return "nightly"


async def _paused_schedule(api: Api) -> str:
    await api.post(f"/api/schedules/{await _schedule(api)}/pause")
    return "nightly"


async def _limit(api: Api) -> str:
    await api.post("/api/limits", limit="vendor-x", spec={"max": 5})
    return "vendor-x"


async def _dead_letter(api: Api) -> str:
    return await failed_job(api.server)


async def _approval(api: Api) -> str:
    return await waiting_approval(api.server)


async def _batch(api: Api) -> str:
    made = await api.post("/api/batches", jobs=[{"task": "t"}])
    return str(made["batch_id"])


REPEATS = (
    Repeat("signalJob", _about("/api/jobs/{}/signals", Api.job, name="paid", data={"sum": 3})),
    Repeat("approveApproval", _about("/api/approvals/{}/approve", _approval, comment="fine")),
    Repeat("rejectApproval", _about("/api/approvals/{}/reject", _approval, comment="no")),
    Repeat("createBatch", _about("/api/batches", _nothing, jobs=[{"task": "t"}])),
    Repeat("addToBatch", _about("/api/batches/{}/jobs", _batch, jobs=[{"task": "t"}], close=True)),
    Repeat("cancelBatch", _about("/api/batches/{}/cancel", _batch)),
    Repeat("createSchedule", _about("/api/schedules", _nothing, **NIGHTLY)),
    Repeat("pauseSchedule", _about("/api/schedules/{}/pause", _schedule)),
    Repeat("resumeSchedule", _about("/api/schedules/{}/resume", _paused_schedule)),
    Repeat("deleteSchedule", _about("/api/schedules/{}/delete", _schedule)),
    Repeat("runSchedule", _about("/api/schedules/{}/run", _schedule)),
    Repeat(
        "backfillSchedule",
        _about("/api/schedules/{}/backfill", _schedule, since="2025-01-01", until="2025-01-01T03:00"),
    ),
    Repeat("setLimit", _about("/api/limits", _nothing, limit="vendor-x", spec={"max": 5})),
    Repeat("deleteLimit", _about("/api/limits/delete", _limit, limit="vendor-x")),
    Repeat("submitJobs", _about("/api/jobs", _nothing, task="t")),
    Repeat("cancelJob", _about("/api/jobs/{}/cancel", Api.job)),
    Repeat("retryJob", _about("/api/jobs/{}/retry", Api.ended_job)),
    Repeat("retryDeadLetter", _about("/api/dead-letters/{}/retry", _dead_letter, input={"x": 1})),
    Repeat("discardDeadLetter", _about("/api/dead-letters/{}/discard", _dead_letter)),
    Repeat(
        "actOnDeadLetters",
        _about("/api/dead-letters/actions", _dead_letter, filter="queue:letters", action="discard"),
    ),
    Repeat("actOnJobs", _about("/api/jobs/actions", Api.job, filter="state:pending", action="cancel")),
    Repeat("registerWorker", _about(WORKERS, _nothing, name="anna")),
    Repeat("startWorker", _about(f"{WORKERS}/{{}}/start", Api.worker)),
    Repeat("pauseWorker", _about(f"{HELD}/{{}}/pause", lambda api: api.worker("start"))),
    Repeat("resumeWorker", _about(f"{HELD}/{{}}/resume", lambda api: api.worker("start", "pause"))),
    Repeat("drainWorker", _about(f"{HELD}/{{}}/drain", lambda api: api.worker("start"))),
    Repeat("terminateWorker", _about(f"{HELD}/{{}}/terminate", lambda api: api.worker("start"))),
    Repeat(
        "actOnWorkers",
        _about(f"{HELD}/actions", lambda d: d.worker("start"), filter="state:running", action="pause"),
    ),
    Repeat("pauseQueue", _about("/api/queues/pause", _nothing, queue="mail")),
    Repeat("resumeQueue", _about("/api/queues/resume", _paused_queue, queue="mail")),
    Repeat("submitRun", _about("/api/runs", _nothing, **PLAN)),
    Repeat("cancelRun", _about("/api/runs/{}/cancel", Api.run)),
    Repeat("approveRun", _about("/api/runs/{}/approve", lambda api: api.run(FORK))),
    Repeat("declineRun", _about("/api/runs/{}/decline", lambda api: api.run(FORK))),
    Repeat("rerun", _about("/api/runs/{}/rerun", lambda api: api.run(ended=True))),
    Repeat("actOnRuns", _about("/api/runs/actions", Api.run, filter="workflow:ci", action="cancel")),
    Repeat("startSimulation", _about("/api/simulations", _nothing, run_id="flu", task="flu")),
    Repeat("pauseSimulation", _about("/api/simulations/{}/pause", lambda api: api.simulation("running"))),
    Repeat(
        "resumeSimulation",
        _about("/api/simulations/{}/resume", lambda api: api.simulation("running", "interrupted")),
    ),
    Repeat("cancelSimulation", _about("/api/simulations/{}/cancel", lambda api: api.simulation("running"))),
    Repeat(
        "transitionSimulation", _about("/api/simulations/{}/transition", Api.simulation, status="running")
    ),
    Repeat("startWorkload", _about("/api/workload-jobs", _nothing, workload=ASKED)),
    Repeat("revokeToken", _about("/api/tokens/{}/revoke", _token)),
)
SHOWN_ONCE = {"createToken", "rotateToken"}
"""A secret is stored nowhere, so a repeat is refused."""


def test_every_route_that_takes_a_request_id_is_in_the_table() -> None:
    repeatable = {route.name for route in ROUTES if route.repeatable}
    assert repeatable == {each.name for each in REPEATS} | SHOWN_ONCE


@pytest.mark.parametrize("repeat", REPEATS, ids=lambda each: each.name)
async def test_a_repeat_over_http_gets_the_first_answer_to_the_byte(server: Running, repeat: Repeat) -> None:
    admin, runner = [server.client(await server.token(role)) for role in (Role.ADMIN, Role.RUNNER)]
    api = Api(server, admin, runner)
    path, body = await repeat.ask(api)
    client = runner if repeat.name == "registerWorker" else admin
    first = await client.post(path, json={**body, "request_id": "order-17"})
    assert first.status_code < 300, first.text
    await api.change()
    again = await client.post(path, json=body, headers={"Idempotency-Key": "order-17"})
    assert (again.status_code, again.content) == (first.status_code, first.content)
    entries = (await server.parts.store.feed(after="", limit=1_000)).entries
    assert [entry for entry in entries if entry.note.request_id == "order-17"], "as the client has sent it"


@pytest.mark.parametrize("repeat", REPEATS, ids=lambda each: each.name)
async def test_a_repeat_gets_the_first_answer_also_when_the_record_was_pruned(
    server: Running, repeat: Repeat
) -> None:
    admin, runner = [server.client(await server.token(role)) for role in (Role.ADMIN, Role.RUNNER)]
    api = Api(server, admin, runner)
    path, body = await repeat.ask(api)
    client = runner if repeat.name == "registerWorker" else admin
    first = await client.post(path, json={**body, "request_id": "order-17"})
    assert first.status_code < 300, first.text
    await api.change()
    await api.prune()
    again = await client.post(path, json={**body, "request_id": "order-17"})
    assert (again.status_code, again.content) == (first.status_code, first.content)
    stranger = await client.post(path, json={**body, "request_id": "another"})
    assert stranger.status_code in (201, 200, 404, 409), stranger.text


async def test_the_same_id_for_another_bulk_is_refused(server: Running) -> None:
    api = Api(server, server.client(), server.client())
    await api.job()
    body = {"filter": "state:pending", "action": "cancel", "request_id": "order-17"}
    assert (await api.client.post("/api/jobs/actions", json=body)).status_code == 200
    other = await api.client.post("/api/jobs/actions", json={**body, "filter": "queue:mail"})
    assert (other.status_code, other.json()["code"]) == (409, "request_id_reused")
    assert other.json()["facts"]["request_id"] == "order-17"


async def test_a_confined_token_gets_the_first_answer_also_when_the_job_was_pruned(server: Running) -> None:
    client = server.client(await server.token(Role.ADMIN, "confined", queues=("mine",)))
    api = Api(server, client, client)
    job_id = await server.submit(queue="mine")
    path, body = f"/api/jobs/{job_id}/cancel", {"request_id": "order-17"}
    first = await client.post(path, json=body)
    assert first.status_code == 200, first.text
    await api.prune()
    again = await client.post(path, json=body)
    assert (again.status_code, again.content) == (first.status_code, first.content)
    assert (await client.post(path, json={"request_id": "another"})).status_code == 404
