"""What an agent adds to an operation: counted, measured, sampled and sent, against a bare loop.

Both do the same operations, one after another in one lane, and are compared by processor time: of the
process that does them from the first operation on, and for the agent of the agent itself as well.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from grpc import aio

from bench.fleet.work import steps_for
from bench.report import Line, Section
from bench.rounds import Figure, Pace
from interlock.testing.agent_process import AgentProcess, running_agent
from interlock.wire.fleet import fleet_pb2 as wire
from interlock.wire.fleet.fleet_pb2_grpc import AgentStub

ROOT = Path(__file__).parents[2]
OPERATION_S = 0.000_095
"""So long that one lane does about 10,000 a second."""
RATE = 10_000
AIM = 0.03
BARE, AGENT = "a bare loop", "the agent"
WORKING, EMPTY = "an operation of 95 µs", "an empty operation"
EMPTY_ONES = 20
"""So many times as many of those are done: the system counts processor time in hundredths of a second."""


def run(pace: Pace) -> Section:
    """Let both do the same, in turns."""
    operations = max(5_000, min(20_000, pace.jobs // 5))
    steps = {WORKING: steps_for(OPERATION_S), EMPTY: 0}
    used: dict[str, dict[str, list[float]]] = {name: {BARE: [], AGENT: []} for name in steps}
    with TemporaryDirectory() as folder, running_agent(Path(folder) / "agent") as agent:
        for number in range(pace.store_rounds + 1):
            for name, count in steps.items():
                note = Path(folder) / f"{number}-{count}"
                many = operations if count else EMPTY_ONES * operations
                used[name][BARE].append(_bare(note, count, many))
                used[name][AGENT].append(asyncio.run(_under(agent, note, count, many)))
    lines = tuple(
        Line(name, "µs of processor", {who: Figure(tuple(each[1:])) for who, each in both.items()})
        for name, both in used.items()
    )
    empty = lines[1].figures
    added = Figure(tuple(a - b for a, b in zip(empty[AGENT].rounds, empty[BARE].rounds, strict=True)))
    share = added.median * RATE / 1e6
    return Section(
        f"Fleet: one lane of one agent, {operations:,} operations a round",
        BARE,
        lines=lines,
        notes=(f"It adds {added.median:.2f} µs to an operation: at {RATE:,}/s {share:.1%} of a processor.",),
        missed=()
        if share < AIM
        else (f"An agent adds {share:.1%} at {RATE:,}/s, and should add {AIM:.0%}.",),
    )


def _bare(note: Path, steps: int, operations: int) -> float:
    program = f"from bench.fleet.work import bare; bare({str(note)!r}, {steps}, {operations})"
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True, timeout=300)
    return float(json.loads(note.read_text())["used_s"]) * 1e6 / operations


async def _under(agent: AgentProcess, note: Path, steps: int, operations: int) -> float:
    spec = {
        "target": "bench.fleet.work:Work",
        "arguments": {"note": str(note), "steps": steps},
        "path": [str(ROOT)],
    }
    request = wire.WorkloadRequest(
        workload_id=f"{note.name}-{time.monotonic_ns()}",
        kind="python",
        spec=json.dumps(spec).encode(),
        max_operations=operations,
        start_at_unix_ns=time.time_ns(),
    )
    agent_s = 0.0
    async with aio.insecure_channel(agent.address) as channel:
        async for stats in AgentStub(channel).RunWorkloadWithLiveStats(request):
            if stats.started_at_unix_ns and not agent_s:
                agent_s = _used_s(agent.pid)
    assert stats.operations == operations
    used_s = float(json.loads(note.read_text())["used_s"]) + _used_s(agent.pid) - agent_s
    return used_s * 1e6 / operations


def _used_s(pid: int) -> float:
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")
