"""Simulations over HTTP: the same refusals as on the store, and events that follow the state."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest
from tests.server.listeners import listening
from tests.server.runners import Runner
from tests.server.running import ANY_PORT, Running, running
from tests.waiting import PATIENCE_S

from interlock.cli.nouns.simulation_watch import looks_at
from interlock.client import Interlock
from interlock.errors import (
    AlreadyThere,
    GuardRefused,
    SimulationExists,
    TransitionRefused,
    UnknownSimulation,
    UnknownState,
    VersionChanged,
)
from interlock.remote.services import RemoteOrchestrator
from interlock.wire.runner import ClaimRequest
from interlock.wire.simulations import Beat, Begin, Paused, SimulationSpec, SimulationView
from interlock.worker.http import HttpOrchestrator

EXAMPLE = {"task": "flu", "scenario_name": "Flu", "total_steps": 10, "run_id": "flu"}

EVENTS = "/api/simulations/flu/events"


async def said(runner: Runner, token: str, **word: Any) -> dict[str, Any]:
    body = {"token": token, "runner_id": runner.name, "word": word}
    answer = await runner.client.post("/api/runner/simulation", json=body)
    assert answer.status_code == 200, answer.text
    orders: dict[str, Any] = answer.json()
    return orders


async def test_a_simulation_from_the_request_to_its_result(client: httpx2.AsyncClient) -> None:
    made = await client.post("/api/simulations", json=EXAMPLE)
    assert (made.status_code, made.json()["status"]) == (201, "pending")
    runner = Runner(client)
    token = (await runner.grant())["token"]
    async with listening(client, at=EVENTS) as stream:
        assert (await said(runner, token, word="begin"))["go_on"]
        await said(runner, token, word="beat", step=3, checkpoint=[3], dangers=[[1, 3, "beds are full"]])
        response = await client.post("/api/simulations/flu/pause", json={"reason": "lunch"})
        assert (response.status_code, response.json()["status"]) == (200, "pause_requested")
        assert (await said(runner, token, word="beat", step=4))["pause"]
        await said(runner, token, word="paused", step=4, checkpoint=[4])
        kinds: list[str] = []
        while "paused" not in kinds:
            event = await stream.event()
            if event.kind:
                kinds.append(event.kind)
                if event.kind == "danger":
                    assert event.data["text"] == "step 3: beds are full"
                if event.kind == "paused":  # by the time that it is told, it is so
                    assert (await client.get("/api/simulations/flu")).json()["status"] == "paused"
        relevant = [name for name in kinds if name not in ("step", "created")]  # a moment earlier is told too
        assert relevant == ["started", "danger", "pause_requested", "paused"]
        cursor = stream.cursor
    await runner.say("complete", token, outcome={"outcome": "succeeded", "result": None})
    resumed = await client.post("/api/simulations/flu/resume")
    assert (resumed.json()["status"], resumed.json()["resuming"]) == ("paused", True)
    again = (await runner.grant())["token"]
    orders = await said(runner, again, word="begin")
    assert (orders["step"], orders["checkpoint"]) == (4, [4])
    await said(runner, again, word="completed", step=10, result={"ill": 7})
    done = (await client.get("/api/simulations/flu")).json()
    assert (done["status"], done["result"], done["danger_count"]) == ("completed", {"ill": 7}, 1)
    async with listening(client, cursor, at=EVENTS) as stream:
        later = []
        while "completed" not in later:
            event = await stream.event()
            later += [event.kind] if event.kind not in ("", "step") else []
    assert later == ["resume_requested", "resumed", "completed"]
    history = (await client.get("/api/simulations/flu/history")).json()["entries"]
    steps = [step for entry in history for step in entry.get("steps", ())]
    assert [step["to"] for step in steps if step["machine"] == "simulation"] == [
        "running", "running", "paused", "running", "completed",
    ]  # fmt: skip


async def test_a_refused_simulation_command_returns_409_with_the_current_status(
    client: httpx2.AsyncClient,
) -> None:
    await client.post("/api/simulations", json=EXAMPLE)
    cases = (("pause", "pending"), ("cancel", None), ("pause", "cancelled"), ("resume", "cancelled"))
    for verb, status in cases:
        answer = await client.post(f"/api/simulations/flu/{verb}")
        if status is None:
            assert answer.json()["status"] == "cancelled"
            continue
        problem = answer.json()
        assert (answer.status_code, problem["facts"]["state"]) == (409, status)
        assert status in problem["error"]
    unknown = await client.get("/api/simulations/nothing")
    assert (unknown.status_code, unknown.json()["code"]) == (404, "unknown_simulation")
    wrong = await client.post("/api/simulations", json={"task": "flu", "priority": "urgent"})
    assert (wrong.status_code, wrong.json()["code"]) == (422, "invalid_simulation")
    assert (await client.get("/api/simulations", params={"status": "sleeping"})).status_code == 422


async def test_lists_filter_before_they_page(client: httpx2.AsyncClient) -> None:
    for number in range(4):
        spec = {"run_id": f"r{number}", "scenario_name": "Model", "priority": "high" if number % 2 else "low"}
        await client.post("/api/simulations", json=spec)
    await client.post("/api/simulations/r1/cancel")
    first = (await client.get("/api/simulations", params={"limit": 2, "status": "pending"})).json()
    assert [each["run_id"] for each in first["simulations"]] == ["r3", "r2"]
    params = {"limit": 2, "status": "pending", "cursor": first["cursor"]}
    second = (await client.get("/api/simulations", params=params)).json()["simulations"]
    assert [each["run_id"] for each in second] == ["r0"]
    wanted = {"priority": "high", "status": "pending,cancelled", "text": "MODEL"}
    found = (await client.get("/api/simulations", params=wanted)).json()["simulations"]
    assert [each["run_id"] for each in found] == ["r3", "r1"]


async def test_a_program_does_the_same_over_a_server(server: Running) -> None:
    async with Interlock(server.url) as il:
        handle = await il.simulations.start(SimulationSpec(task="flu", run_id="flu"))
        assert (await handle.view()).status == "pending"
        (view,), _ = await il.simulations.find(statuses=("pending",))
        assert view.run_id == "flu"
        with pytest.raises(TransitionRefused, match="pending"):
            await handle.pause()
        with pytest.raises(AlreadyThere, match="already waits for a worker"):
            await handle.resume()
        ended = await handle.cancel(reason="no")
        assert ended.status == "cancelled"
        assert (await handle.wait(timeout_s=60)).status == "cancelled"
        entries = await il.simulations.history("flu")
        assert [entry.version for entry in entries if entry.kind == "simulation"] == [1, 2]
        with pytest.raises(UnknownSimulation):
            await il.simulations.get("nothing")


async def test_a_worker_can_execute_and_pause_a_simulation_over_http(server: Running) -> None:
    manager = server.parts.runtime.simulations
    await manager.create_run(SimulationSpec(task="flu", run_id="flu"))
    port = HttpOrchestrator(server.url, names=lambda: "claim-1")
    await port.connect()
    try:
        (grant,) = await port.claim(ClaimRequest(runner_id="r#1", limit=1))
        begun = await port.simulate(grant.token, "r#1", Begin())
        assert (begun.go_on, begun.run_id, begun.status) == (True, "flu", "running")
        await manager.pause("flu")
        assert (await port.simulate(grant.token, "r#1", Beat(step=2, checkpoint=msgspec.Raw(b"[2]")))).pause
        ended = await port.simulate(grant.token, "r#1", Paused(step=2, checkpoint=msgspec.Raw(b"[2]")))
        assert (ended.go_on, ended.status) == (True, "paused")
        late = await port.simulate(grant.token, "r#1", Beat(step=3))
        assert not late.go_on
    finally:
        await port.disconnect()


async def test_a_watcher_waits_for_a_server_that_is_restarted(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/served.db"
    async with running(url) as server:
        host, port_number = server.address
        await server.parts.runtime.simulations.create_run(SimulationSpec(task="flu", run_id="flu"))
        reach = RemoteOrchestrator(server.url)
        await reach.connect()
        looks = looks_at(reach, "flu")
        assert (await anext(looks)).status == "pending"
    try:
        seen = asyncio.ensure_future(_until(looks, "cancelled"))
        again = msgspec.structs.replace(ANY_PORT, port=port_number)
        async with running(url, again) as server:
            assert server.address == (host, port_number)
            await server.parts.runtime.simulations.cancel("flu")
            async with asyncio.timeout(PATIENCE_S):
                assert await seen == "cancelled"
    finally:
        await looks.aclose()
        await reach.disconnect()


async def _until(looks: AsyncIterator[SimulationView], status: str) -> str:
    async for view in looks:
        if view.status == status:
            return view.status
    return ""


@pytest.mark.parametrize("where", ["store", "server"])
async def test_a_program_drives_a_simulation_by_hand(where: str, server: Running, tmp_path: Path) -> None:
    url = server.url if where == "server" else f"sqlite:///{tmp_path}/by-hand.db"
    async with Interlock(url) as il:
        sims = il.simulations
        made = await sims.create_run(SimulationSpec(run_id="hand", scenario_name="By hand"), request_id="r1")
        assert (made.status, made.job_id, made.version) == ("pending", "", 1)
        with pytest.raises(SimulationExists, match="There is a simulation hand already") as taken:
            await sims.create_run(SimulationSpec(run_id="hand"))
        assert (taken.value.code, taken.value.status) == ("simulation_exists", 409)
        begun = await sims.transition("hand", "running", worker_id="cluster-7", expected_version=1)
        assert (begun.status, begun.worker_id, begun.version) == ("running", "cluster-7", 2)
        updated = await sims.heartbeat("hand", "cluster-7", 17)
        assert (updated.current_step, updated.version) == (17, 2)
        with pytest.raises(GuardRefused, match="another worker executes it"):
            await sims.heartbeat("hand", "cluster-8", 18)
        with pytest.raises(VersionChanged, match="in version 2, not in version 1"):
            await sims.transition("hand", "completed", expected_version=1)
        with pytest.raises(UnknownState):
            await sims.transition("hand", "sleeping")
        assert await sims.check_stale_runs() == []
        gone = await sims.transition("hand", "interrupted", error="the cluster was drained")
        assert (gone.status, gone.error) == ("interrupted", "the cluster was drained")
        refusals = [entry.note.refusal for entry in await sims.history("hand") if entry.note.refusal]
        assert len(refusals) == 1


async def test_a_simulation_without_a_recent_heartbeat_is_listed_as_stale(client: httpx2.AsyncClient) -> None:
    await client.post("/api/simulations", json={"run_id": "hand"})
    moved = {"status": "running", "worker_id": "w1", "request_id": "r1"}
    assert (await client.post("/api/simulations/hand/transition", json=moved)).status_code == 200
    stale = await client.get("/api/stale-simulations", params={"timeout_s": "1e-6"})
    assert stale.json() == {"run_ids": ["hand"]}
    assert (await client.get("/api/stale-simulations")).json() == {"run_ids": []}
    refused = await client.post("/api/simulations/hand/heartbeat", json={"worker_id": "w2", "step": 1})
    assert (refused.status_code, refused.json()["code"]) == (409, "guard_refused")
    bad = await client.post("/api/simulations/hand/heartbeat", json={"worker_id": "w1", "step": -1})
    assert bad.status_code == 422


async def test_a_resume_over_http_may_name_the_queue(client: httpx2.AsyncClient) -> None:
    await client.post("/api/simulations", json=EXAMPLE)
    again = await client.post("/api/simulations/flu/resume")
    assert (again.status_code, again.json()["code"]) == (409, "already_there")
    moved = await client.post("/api/simulations/flu/resume", json={"queue": "gpu"})
    assert (moved.status_code, moved.json()["queue"]) == (200, "gpu")
    wrong = await client.post("/api/simulations/flu/resume", json={"queue": "a b\n"})
    assert (wrong.status_code, wrong.json()["code"]) == (422, "invalid_simulation")
