"""Workloads of fleets over HTTP: who may tell what, and what is shown."""

from __future__ import annotations

import httpx2
import msgspec
import pytest
from tests.server.loads import ASKED, driving, facts, finished, said_of
from tests.server.runners import Runner, done
from tests.server.running import Running

from interlock.remote.services import RemoteOrchestrator
from interlock.store.records import Query
from interlock.systems.fleet.spec import job_of as driving_job
from interlock.systems.fleet.workload_file import read_workload
from interlock.wire.workloads import Happened, WorkloadFact, WorkloadSpec
from interlock.worker.http import HttpOrchestrator
from interlock.workloads import drive_workload


async def test_agent_states_reported_by_a_controller_are_listed_and_journalled(
    client: httpx2.AsyncClient,
) -> None:
    runner, grant = await driving(client)
    report = facts(runner, grant, "running", "ready")
    assert (await client.post("/api/runner/workloads", json=report)).json() == {"facts": 2}
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


async def test_agent_states_are_accepted_only_under_the_live_lease_of_the_workload_job(
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


async def test_an_unknown_workload_returns_404_and_an_unknown_state_422_with_the_allowed_states(
    client: httpx2.AsyncClient,
) -> None:
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
    fact = WorkloadFact(workload_id=name, job_id=grant["job_id"], happened=Happened.RUNNING, agent="a:1")
    await port.report_workloads(grant["token"], runner.name, [fact])
    await port.disconnect()
    reach = RemoteOrchestrator(server.url)
    await reach.connect()
    try:
        (found,), _ = await reach.services.workloads.find(Query(kind="workload", parent=grant["job_id"]))
        assert found == await reach.services.workloads.get(name)
        assert (found.state, found.agent) == ("RUNNING", "a:1")
        assert len(await reach.services.workloads.history(name)) == 1
    finally:
        await reach.disconnect()


async def test_a_workload_is_started_by_the_server_for_a_worker_to_drive(client: httpx2.AsyncClient) -> None:
    checked = await client.post("/api/workload-jobs", json={"workload": ASKED, "check_only": True})
    assert (checked.status_code, "id" in checked.json()) == (201, False)
    spec = read_workload(checked.json()["file"], "load.yml")
    assert (spec.kind, spec.agents, spec.duration_s) == ("sleep", ("a.example:7167", "b.example:7168"), 30.0)
    started = (await client.post("/api/workload-jobs", json={"workload": ASKED})).json()
    job = (await client.get(f"/api/jobs/{started['id']}")).json()
    same = drive_workload.spec(msgspec.convert(job["input"]["workload"], WorkloadSpec))
    assert (job["task"], job["queue"], job["state"]) == (same.task, same.queue, "PENDING")
    assert driving_job(msgspec.convert(job["input"]["workload"], WorkloadSpec)) == msgspec.structs.replace(
        same, description="checkout"
    )
    (listed,) = (await client.get("/api/workload-jobs")).json()["workloads"]
    assert (listed["id"], listed["name"], listed["agents"]) == (started["id"], "checkout", 2)


async def test_a_workload_that_its_kind_does_not_take_is_refused_before_anything_is_started(
    client: httpx2.AsyncClient,
) -> None:
    kinds = {each["kind"]: each for each in (await client.get("/api/workload-kinds")).json()["kinds"]}
    assert {"command", "http", "python", "sleep"} <= set(kinds)
    assert "operation_s" in str(kinds["sleep"]["json_schema"])
    for wrong, word in (
        ({"spec": {"operation_s": "long"}}, "operation_s"),
        ({"spec": {"operation_s": -1}}, "between 0 and 3600"),
        ({"duration_s": 1e9}, "duration is 1e+09"),
        ({"agents": []}, "0 agents"),
        ({"thresholds": {"p42": 1.0}}, "there is no threshold 'p42'"),
    ):
        refused = await client.post("/api/workload-jobs", json={"workload": {**ASKED, **wrong}})
        assert (refused.status_code, refused.json()["code"]) == (422, "invalid_workload"), refused.text
        assert word in refused.json()["error"]
    assert (await client.get("/api/workload-jobs")).json()["workloads"] == []


async def test_the_seconds_of_a_workload_are_read_from_its_log_while_it_runs_and_then_from_its_result(
    client: httpx2.AsyncClient,
) -> None:
    started = (await client.post("/api/workload-jobs", json={"workload": ASKED})).json()["id"]
    runner = Runner(client)
    grant = await runner.grant(queues=["workloads"])
    lines = [said_of(second, 100.0 + second, errors=second // 2) for second in range(1, 6)]
    assert (await runner.say("heartbeat", grant["token"], log=lines)).status_code == 200
    report = facts(runner, grant, "running")
    report["facts"][0] |= {"rate": 51.5, "offset_ms": 5_000.25, "uncertainty_ms": 0.5, "began_ms": 0.75}
    assert (await client.post("/api/runner/workloads", json=report)).status_code == 200
    one = (await client.get(f"/api/workload-jobs/{started}")).json()
    (agent,) = one["agents"]
    assert [agent[name] for name in ("rate", "offset_ms", "uncertainty_ms", "began_ms")] == [
        51.5, 5_000.25, 0.5, 0.75,
    ]  # fmt: skip
    assert one["spec"]["thresholds"] == {"p99_ms": 5.0}
    found = (await client.get(f"/api/workload-jobs/{started}/seconds")).json()
    assert [(each["second"], each["operations"]) for each in found["seconds"]] == [
        (n, 100 + n) for n in range(1, 6)
    ]
    assert [each["errors"] for each in found["seconds"]] == [0, 1, 0, 1, 0]
    later = (await client.get(f"/api/workload-jobs/{started}/seconds", params={"after": 3})).json()
    assert [each["second"] for each in later["seconds"]] == [4, 5]
    early = await client.get(f"/api/workload-jobs/{started}/percentiles")
    assert (early.status_code, early.json()["code"]) == (404, "unknown_workload")
    await runner.say("complete", grant["token"], **done(finished()))
    over = (await client.get(f"/api/workload-jobs/{started}")).json()
    assert (over["job"]["verdict"], over["job"]["missed"]) == ("COMPLETE", 1)
    assert "seconds" not in over["result"]
    assert [(each["name"], each["passed"]) for each in over["result"]["thresholds"]] == [
        ("p99_ms", False),
        ("rate", True),
    ]
    ended = (await client.get(f"/api/workload-jobs/{started}/seconds")).json()
    assert (ended["ended"], len(ended["seconds"])) == (True, 10)
    curve = (await client.get(f"/api/workload-jobs/{started}/percentiles")).json()
    by_percentile = {round(each["percentile"], 3): each["ms"] for each in curve["points"]}
    assert by_percentile[90.0] == pytest.approx(900 * 9 / 1_000, rel=0.01)
    assert by_percentile[99.0] == pytest.approx(curve["latencies"]["p99_ms"])


async def test_a_job_that_drives_no_fleet_is_no_workload(server: Running, client: httpx2.AsyncClient) -> None:
    other = await server.submit()
    for path in ("", "/seconds", "/percentiles"):
        assert (await client.get(f"/api/workload-jobs/{other}{path}")).status_code == 404
