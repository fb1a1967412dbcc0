"""Workloads of fleets as their controller tells of them: facts, lines of a log, and a result."""

from __future__ import annotations

from typing import Any

import httpx2
import msgspec
from tests.server.runners import Runner

from interlock.lifecycles.workload import Status
from interlock.systems.fleet import histograms
from interlock.systems.fleet.outcome import (
    LEVEL,
    WorkloadProgress,
    line_of,
)
from interlock.systems.fleet.spec import (
    TASK,
    covered,
    judged,
)
from interlock.wire.workloads import Latencies, Policy, SecondView, Verdict, WorkloadResult


async def driving(client: httpx2.AsyncClient) -> tuple[Runner, dict[str, Any]]:
    """A runner that drives a fleet."""
    await client.post("/api/jobs", json={"task": TASK})
    runner = Runner(client)
    return runner, await runner.grant()


def facts(runner: Runner, grant: dict[str, Any], *happened: str, job_id: str = "") -> dict[str, Any]:
    job = job_id or grant["job_id"]
    mine = grant["job_id"]
    entries = [
        {"workload_id": f"{mine}_1_{n}", "job_id": job, "happened": each, "agent": f"a{n}:1"}
        for n, each in enumerate(happened)
    ]
    return {"token": grant["token"], "runner_id": runner.name, "facts": entries}


def said_of(second: int, rate: float, errors: int = 0) -> list[Any]:
    """A line of the log of a job that drives a fleet, as it writes one every second."""
    live = WorkloadProgress(
        elapsed_s=second + 0.2,
        duration_s=30.0,
        running=2,
        agents=2,
        operations=int(rate) * second,
        errors=errors,
        rate=rate,
        latencies=Latencies(count=int(rate), p50_ms=5.0, p99_ms=9.0, max_ms=12.0),
    )
    return ["2026-01-01T00:00:00Z", LEVEL, line_of(live)]


def finished(name: str = "checkout", slow_ms: int = 9) -> dict[str, Any]:
    """What a job that drove two agents has returned."""
    measured = histograms.empty()
    for each in range(1, 1_001):
        measured.record_value(each * slow_ms * 1_000)
    latencies = histograms.latencies(measured)
    limits = judged({"p99_ms": 5.0, "rate": 10.0}, latencies, rate=100.0, operations=1_000, errors=0)
    result = WorkloadResult(
        verdict=Verdict.COMPLETE,
        sentence="All agents completed.",
        name=name,
        kind="sleep",
        policy="all",
        coverage=covered(Policy.ALL, [Status.COMPLETED]),
        duration_s=10.0,
        operations=1_000,
        errors=0,
        bytes=0,
        rate=100.0,
        latencies=latencies,
        seconds=tuple(
            SecondView(second=n, agents=1, operations=100, errors=0, latencies=latencies) for n in range(10)
        ),
        histogram=histograms.written(measured),
        thresholds=tuple(limits),
    )
    plain: dict[str, Any] = msgspec.to_builtins(result)
    return plain


ASKED: dict[str, Any] = {
    "kind": "sleep",
    "name": "checkout",
    "spec": {"operation_s": 0.01},
    "agents": ["a.example", "b.example:7168"],
    "duration_s": 30,
    "thresholds": {"p99_ms": 5.0},
}


async def started(client: httpx2.AsyncClient, name: str = "checkout") -> tuple[str, Runner, str]:
    """Start a workload and drive it by hand; return its id, its runner, and the token of its lease."""
    made = await client.post("/api/workload-jobs", json={"workload": {**ASKED, "name": name}})
    assert made.status_code == 201, made.text
    runner = Runner(client)
    grant = await runner.grant(queues=["workloads"])
    assert grant["job_id"] == made.json()["id"]
    lines = [said_of(second, 100.0 + 10 * second) for second in range(1, 6)]
    assert (await runner.say("heartbeat", grant["token"], log=lines)).status_code == 200
    body = facts(runner, grant, "running", "ready")
    body["facts"][0] |= {"rate": 51.5, "offset_ms": 5_000.25, "uncertainty_ms": 0.5, "began_ms": 0.75}
    assert (await client.post("/api/runner/workloads", json=body)).status_code == 200
    return grant["job_id"], runner, grant["token"]
