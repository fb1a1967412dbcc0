"""Workers over HTTP: the addresses, the answers, and who may say what."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import httpx2
import pytest
from tests.server.running import FOR_EVER_S, Running
from tests.waiting import PATIENCE_S, until

from interlock.errors import TerminalState, UnknownWorker
from interlock.remote.services import RemoteOrchestrator
from interlock.store.records import Key, Query, Record
from interlock.systems.supervisor.workers import Workers
from interlock.wire.access import Role
from interlock.wire.workers import WorkerOrders


async def registered(client: httpx2.AsyncClient, **spec: Any) -> dict[str, Any]:
    answer = await client.post("/api/workers", json={"workspace_id": "ci", **spec})
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made


async def test_the_worker_routes_cover_the_lifecycle_from_registration_to_termination(
    client: httpx2.AsyncClient,
) -> None:
    made = await registered(client, name="builder", capacity=2)
    assert (made["state"], made["workspace_id"], made["id"][:2]) == ("IDLE", "ci", "w_")
    at, held = f"/api/workers/{made['id']}", f"/api/supervisor/workers/{made['id']}"
    assert (await client.post(f"{at}/start")).json()["state"] == "RUNNING"
    paused = await client.post(f"{held}/pause", json={"reason": "look at it"})
    assert (paused.json()["state"], paused.json()["reason"]) == ("PAUSED", "look at it")
    orders = (await client.post(f"{at}/heartbeat", json={"active": 1})).json()
    assert (orders["state"], orders["take"]) == ("PAUSED", False)
    assert (await client.post(f"{held}/resume", json={})).json()["state"] == "RUNNING"
    ended = (await client.post(f"{held}/terminate", json={"reason": "enough"})).json()
    assert (ended["state"], ended["outcome"]) == ("TERMINATED", "TERMINATED")
    assert (await client.get(f"{at}/orders")).json()["stop"] == "terminate"
    history = (await client.get(f"{at}/history")).json()["entries"]
    transitions = [(s["from"], s["to"]) for entry in history for s in entry.get("steps", [])]
    assert transitions == [
        ("IDLE", "RUNNING"),
        ("RUNNING", "PAUSED"),
        ("PAUSED", "RUNNING"),
        ("RUNNING", "TERMINATED"),
    ]
    assert {entry["actor"] for entry in history} == {"local"}


@pytest.mark.usefixtures("waiting_for_ever")
async def test_a_worker_that_is_terminated_while_it_waits_for_work_is_given_none(server: Running) -> None:
    """Its claim waits at the server, and was the first to be given what comes."""
    client = server.client()
    made = await registered(client, name="builder")
    await client.post(f"/api/workers/{made['id']}/start")
    body = {"runner_id": "builder", "worker_id": made["id"], "queues": ["default"], "wait_s": FOR_EVER_S}
    waiting = asyncio.create_task(client.post("/api/runner/lease", json=body))
    await until(lambda: server.parts.long_poll.waiting == 1, "the worker waits for work")
    await client.post(f"/api/supervisor/workers/{made['id']}/terminate", json={})
    job_id = await server.submit()
    assert (await waiting).json()["grants"] == []
    job = (await client.get(f"/api/jobs/{job_id}")).json()
    assert (job["attempts"][-1]["state"], job.get("losses", 0)) == ("QUEUED", 0)


async def test_a_worker_command_not_allowed_in_its_state_returns_409_with_the_state_and_allowed_events(
    client: httpx2.AsyncClient,
) -> None:
    made = await registered(client)
    held = f"/api/supervisor/workers/{made['id']}"
    refused = await client.post(f"{held}/pause", json={})
    problem = refused.json()
    assert (refused.status_code, problem["facts"]["state"]) == (409, "IDLE")
    assert "start_task" in problem["allowed"]
    assert "In IDLE the worker accepts" in problem["todo"]
    assert (await client.post("/api/supervisor/workers/w_nobody/pause")).status_code == 404
    assert (await client.post(f"{held}/pause", json={"reason": 5})).status_code == 422
    assert (await client.post("/api/workers", json={"capacity": 0})).status_code == 422
    assert (await client.post("/api/workers", json={"workspace": "typo"})).status_code == 422


async def test_twenty_pauses_at_once_have_one_winner_and_with_one_id_one_effect(server: Running) -> None:
    client = server.client(limits=httpx2.Limits(max_connections=20))
    made = await registered(client)
    await client.post(f"/api/workers/{made['id']}/start")
    path = f"/api/supervisor/workers/{made['id']}/pause"
    answers = await asyncio.gather(*[client.post(path, json={}) for _ in range(20)])
    assert sorted(answer.status_code for answer in answers) == [200] + [409] * 19
    await client.post(f"/api/supervisor/workers/{made['id']}/resume")
    answers = await asyncio.gather(*[client.post(path, json={"request_id": "p"}) for _ in range(20)])
    assert {(answer.status_code, answer.json()["state"]) for answer in answers} == {(200, "PAUSED")}
    entries = (await client.get(f"/api/workers/{made['id']}/history")).json()["entries"]
    pauses = [s for entry in entries for s in entry.get("steps", []) if s["event"] == "pause"]
    assert len(pauses) == 2


async def test_workers_are_found_by_a_filter(client: httpx2.AsyncClient) -> None:
    first = await registered(client, name="a", labels=["gpu"])
    second = await registered(client, name="b", workspace_id="farm")
    await client.post(f"/api/workers/{second['id']}/start")

    async def found(q: str) -> list[str]:
        answer = await client.get("/api/workers", params={"q": q})
        assert answer.status_code == 200, answer.text
        return [view["id"] for view in answer.json()["workers"]]

    assert await found("") == [second["id"], first["id"]]
    assert await found("state:idle") == [first["id"]]
    assert await found("-state:idle") == [second["id"]]
    assert await found("label:gpu name:a") == [first["id"]]
    assert await found("workspace:farm,ci") == [second["id"], first["id"]]
    assert await found(f"id:{first['id']} since:1h") == [first["id"]]
    assert await found("queue:default") == [second["id"], first["id"]]
    assert await found("name:c") == []
    wrong = await client.get("/api/workers", params={"q": "color:x"})
    assert (wrong.status_code, wrong.json()["code"]) == (422, "bad_filter")
    assert "workspace" in wrong.json()["allowed"]


@pytest.fixture
def waiting_for_orders(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let whoever waits for orders wait for as long as it takes."""
    workers = server.parts.runtime.workers
    orders = workers.orders

    async def patient(worker_id: str, *, wait_s: float = 0.0, **options: Any) -> WorkerOrders:
        return await orders(worker_id, wait_s=FOR_EVER_S if wait_s >= 1 else wait_s, **options)

    monkeypatch.setattr(workers, "orders", patient)


@pytest.mark.usefixtures("waiting_for_orders")
async def test_orders_are_answered_when_they_are_given_and_not_before(server: Running) -> None:
    client = server.client()
    made = await registered(client)
    await client.post(f"/api/workers/{made['id']}/start")
    waiting = asyncio.create_task(
        client.get(f"/api/workers/{made['id']}/orders", params={"after": 0, "wait_s": 20})
    )
    await client.post(f"/api/supervisor/workers/{made['id']}/pause", json={"give_back": True})
    orders = (await waiting).json()
    assert (orders["state"], orders["give_back"], orders["number"]) == ("PAUSED", True, 1)
    still = await client.get(f"/api/workers/{made['id']}/orders", params={"after": 1, "wait_s": 0.01})
    assert still.json() == orders


@pytest.mark.usefixtures("waiting_for_orders")
async def test_a_worker_that_waits_for_orders_is_loaded_again_only_after_its_own_record_changes(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = server.client()
    first, second = [await registered(client, name=name) for name in ("anna", "berta")]
    for made in (first, second):
        await client.post(f"/api/workers/{made['id']}/start")
    while await server.parts.following.round():
        pass
    looked: list[str] = []
    waits, load = asyncio.Event(), server.parts.store.load

    async def loaded(keys: Sequence[Key]) -> list[Record | None]:
        looked.extend(key.id for key in keys)
        waits.set()
        return await load(keys)

    monkeypatch.setattr(server.parts.store, "load", loaded)
    request = client.get(f"/api/workers/{first['id']}/orders", params={"after": 0, "wait_s": 20})
    waiting = asyncio.create_task(request)
    await waits.wait()
    for number in range(20):
        await client.post(f"/api/workers/{second['id']}/heartbeat", json={"processed": number})
        await server.parts.following.round()
    assert looked.count(first["id"]) == 1
    elsewhere = Workers(server.parts.runtime.engine)
    await elsewhere.pause(first["id"], reason="at another server")
    await server.parts.following.round()
    assert (await waiting).json()["reason"] == "at another server"
    assert server.parts.worker_wakeups.waiting == 0


async def test_only_the_token_that_registered_a_worker_can_send_its_heartbeats_and_leave(
    server: Running,
) -> None:
    mine = server.client(await server.token(Role.RUNNER, "mine"))
    other = server.client(await server.token(Role.RUNNER, "other"))
    made = await registered(mine)
    assert (await mine.post(f"/api/workers/{made['id']}/heartbeat")).status_code == 200
    assert (await other.post(f"/api/workers/{made['id']}/heartbeat")).status_code == 404
    assert (await other.post(f"/api/workers/{made['id']}/leave")).status_code == 404
    assert (await mine.post(f"/api/workers/{made['id']}/leave")).json()["state"] == "COMPLETED"


async def test_a_token_that_is_confined_to_queues_registers_for_those_only(server: Running) -> None:
    confined = server.client(await server.token(Role.RUNNER, "c", queues=("mail",)))
    refused = await confined.post("/api/workers", json={"queues": ["default"]})
    assert (refused.status_code, refused.json()["code"]) == (403, "not_allowed")
    assert (await confined.post("/api/workers", json={"queues": ["mail"]})).status_code == 201


async def test_people_hold_workers_through_a_server_as_through_a_store(server: Running) -> None:
    made = await registered(server.client(), name="anna", incarnation="1")
    await server.client().post(f"/api/workers/{made['id']}/start")
    port = RemoteOrchestrator(server.url)
    await port.connect()
    try:
        workers = port.services.workers
        (found,), _ = await workers.find(Query(kind="worker", parent="anna", states=("RUNNING",)))
        assert found.id == made["id"]
        assert (await workers.pause(found.id, reason="look", give_back=True)).give_back
        assert (await workers.resume(found.id, request_id="r")).state == "RUNNING"
        assert (await workers.drain(found.id)).draining
        assert (await workers.terminate(found.id)).state == "TERMINATED"
        with pytest.raises(TerminalState, match="TERMINATED"):
            await workers.resume(found.id)
        with pytest.raises(UnknownWorker):
            await workers.get("../jobs")
        history = await workers.history(found.id)
        assert [s.event for entry in history for s in entry.note.steps] == [
            "start_task",
            "pause",
            "resume",
            "terminate",
        ]
    finally:
        await port.disconnect()


@pytest.mark.usefixtures("waiting_for_orders")
async def test_a_server_that_shuts_down_responds_at_once_to_a_worker_that_waits_for_orders(
    server: Running,
) -> None:
    client = server.client()
    made = await registered(client)
    request = client.get(f"/api/workers/{made['id']}/orders", params={"after": 0, "wait_s": 30})
    waiting = asyncio.create_task(request)
    server.parts.hang_up()
    async with asyncio.timeout(PATIENCE_S):
        assert (await waiting).json()["state"] == "IDLE"
