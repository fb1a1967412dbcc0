"""Workloads of fleets over HTTP: who may tell what, and what is shown."""

from __future__ import annotations

from typing import Any

import httpx2
from tests.server.runners import Runner
from tests.server.running import Running

from interlock.remote.household import RemoteOrchestrator
from interlock.store.records import Query
from interlock.systems.fleet.spec import TASK
from interlock.wire.workloads import Happened, WorkloadFact
from interlock.worker.http import HttpOrchestrator


async def driving(client: httpx2.AsyncClient) -> tuple[Runner, dict[str, Any]]:
    """A runner that drives a fleet."""
    await client.post("/api/jobs", json={"task": TASK})
    runner = Runner(client)
    return runner, await runner.grant()


def facts(runner: Runner, grant: dict[str, Any], *happened: str, job_id: str = "") -> dict[str, Any]:
    job = job_id or grant["job_id"]
    mine = grant["job_id"]
    said = [
        {"workload_id": f"{mine}_1_{n}", "job_id": job, "happened": each, "agent": f"a{n}:1"}
        for n, each in enumerate(happened)
    ]
    return {"token": grant["token"], "runner_id": runner.name, "facts": said}


async def test_what_a_driver_hears_of_its_agents_is_listed_and_journalled(client: httpx2.AsyncClient) -> None:
    runner, grant = await driving(client)
    said = facts(runner, grant, "running", "ready")
    assert (await client.post("/api/runner/workloads", json=said)).json() == {"facts": 2}
    page = (await client.get("/api/workloads", params={"job": grant["job_id"]})).json()
    assert {each["agent"]: each["state"] for each in page["workloads"]} == {
        "a0:1": "RUNNING",
        "a1:1": "READY",
    }
    running = (await client.get("/api/workloads", params={"state": "running"})).json()["workloads"]
    assert [each["agent"] for each in running] == ["a0:1"]
    one = running[0]["id"]
    assert (await client.get(f"/api/workloads/{one}")).json()["job_id"] == grant["job_id"]
    history = (await client.get(f"/api/workloads/{one}/history")).json()["entries"]
    assert [(s["from"], s["to"]) for entry in history for s in entry["steps"]] == [
        ("IDLE", "READY"),
        ("READY", "RUNNING"),
    ]


async def test_only_the_live_lease_of_the_job_that_drives_speaks_for_its_agents(
    client: httpx2.AsyncClient,
) -> None:
    runner, grant = await driving(client)
    _, other = await driving(client)
    strange = facts(runner, grant, "ready", job_id=other["job_id"])
    refused = await client.post("/api/runner/workloads", json=strange)
    assert (refused.status_code, refused.json()["code"]) == (404, "unknown_workload")
    forged = {**facts(runner, grant, "ready"), "token": grant["token"][:-4] + "0000"}
    assert (await client.post("/api/runner/workloads", json=forged)).json()["code"] == "UNKNOWN_LEASE"
    await client.post(f"/api/jobs/{grant['job_id']}/cancel", json={})
    await runner.say("cancel-ack", grant["token"])
    late = await client.post("/api/runner/workloads", json=facts(runner, grant, "ready"))
    assert late.status_code == 409
    assert (await client.get("/api/workloads")).json()["workloads"] == []


async def test_what_is_not_there_or_cannot_be_is_told_with_what_there_is(client: httpx2.AsyncClient) -> None:
    missing = await client.get("/api/workloads/nowhere")
    assert (missing.status_code, missing.json()["code"]) == (404, "unknown_workload")
    wrong = await client.get("/api/workloads", params={"state": "resting"})
    assert (wrong.status_code, wrong.json()["code"]) == (422, "unknown_state")
    assert "RUNNING" in wrong.json()["allowed"]


async def test_a_worker_and_a_program_find_the_same_over_http(
    server: Running, client: httpx2.AsyncClient
) -> None:
    runner, grant = await driving(client)
    port = HttpOrchestrator(server.url, names=iter("abcdef").__next__)
    await port.connect()
    name = f"{grant['job_id']}_1_0"
    told = WorkloadFact(workload_id=name, job_id=grant["job_id"], happened=Happened.RUNNING, agent="a:1")
    await port.tell_workloads(grant["token"], runner.name, [told])
    await port.disconnect()
    reach = RemoteOrchestrator(server.url)
    await reach.connect()
    try:
        (found,), _ = await reach.here.workloads.find(Query(kind="workload", parent=grant["job_id"]))
        assert found == await reach.here.workloads.get(name)
        assert (found.state, found.agent) == ("RUNNING", "a:1")
        assert len(await reach.here.workloads.history(name)) == 1
    finally:
        await reach.disconnect()
