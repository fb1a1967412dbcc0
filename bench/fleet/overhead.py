"""What an agent adds to operations at 10,000 a second, in processor time.

Operations are done for a real agent and bare, in turns of milliseconds, one after another in one thread.
The difference is what an operation costs more where it is done. What else is done because of it is added:
by other threads of its process (gathering the numbers, taking samples) for each operation and for each
second, and by the agent, which makes histograms of them and sends them on, for each second.

A machine that others keep busy has cold caches, and what is done once in 95 µs pays for that: there an
operation of the agent's costs more by a factor of four from one turn to the next. So the pairs of turns are
sorted by how long both took together, and the quickest quarter says what the agent costs by itself; all of
them say what it costs there.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
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
BARE, AGENT = "bare", "for the agent"
BLOCK, TURNS = 20, 500
EMPTY_BLOCK, EMPTY_TURNS = 500, 200


class Turns(msgspec.Struct, frozen=True, kw_only=True):
    """Many turns of one workload."""

    under: list[float]
    bare: list[float]
    """Microseconds for an operation, in each turn."""
    beside_s: float
    """What other threads of its process took."""
    agent_s: float
    wall_s: float
    operations: int


class Added(msgspec.Struct, frozen=True, kw_only=True):
    """Microseconds more for an operation."""

    quick: float
    all: float


def run(pace: Pace) -> Section:
    """Let both do the same, in turns."""
    steps = steps_for(OPERATION_S)
    working: list[Turns] = []
    empty: list[Turns] = []
    with TemporaryDirectory() as folder, running_agent(Path(folder) / "agent") as agent:
        note = Path(folder) / "note"
        for _ in range(pace.store_rounds):
            working.append(asyncio.run(_in_turns(agent, note, steps, BLOCK, TURNS)))
            empty.append(asyncio.run(_in_turns(agent, note, 0, EMPTY_BLOCK, EMPTY_TURNS)))
    return _section(working, empty)


def _section(working: list[Turns], empty: list[Turns]) -> Section:
    lines = (_line("an operation of 95 µs", working), _line("an empty operation", empty))
    added = [_added_us(line) for line in lines]
    gather_us = median(one.beside_s * 1e6 / one.operations for one in empty)
    beside = median((one.beside_s - gather_us * one.operations / 1e6) / one.wall_s for one in working)
    agent = median(one.agent_s / one.wall_s for one in working)
    shares = [added[0].quick * RATE / 1e6, gather_us * RATE / 1e6, max(0.0, beside), agent]
    where = ("where they are done", "gathering", "sampling", "in the agent")
    breakdown = ", ".join(f"{share:.2%} {place}" for share, place in zip(shares, where, strict=True))
    busy = sum(shares) + (added[0].all - added[0].quick) * RATE / 1e6
    missed = f"An agent adds {sum(shares):.1%} of a processor at {RATE:,}/s, and should add {AIM:.0%}."
    return Section(
        f"Fleet: one lane of one agent, {len(lines[0].figures[BARE].rounds):,} turns of {BLOCK} operations",
        BARE,
        lines=lines,
        notes=(
            *(
                f"{one.quick:.2f} µs more for {line.measure} in the quickest quarter, {one.all:.2f} µs in all"
                for line, one in zip(lines, added, strict=True)
            ),
            f"At {RATE:,}/s it adds {sum(shares):.2%} of a processor: {breakdown}.",
            f"With the caches of this machine as busy as they were it adds {busy:.2%}.",
        ),
        missed=() if sum(shares) < AIM else (missed,),
    )


def _line(measure: str, turns: list[Turns]) -> Line:
    under = Figure(tuple(each for one in turns for each in one.under))
    bare = Figure(tuple(each for one in turns for each in one.bare))
    return Line(measure, "µs of processor", {BARE: bare, AGENT: under})


def _added_us(line: Line) -> Added:
    pairs = zip(line.figures[AGENT].rounds, line.figures[BARE].rounds, strict=True)
    added = [ours - theirs for ours, theirs in sorted(pairs, key=sum)]
    return Added(quick=median(added[: max(1, len(added) // 4)]), all=median(added))


async def _in_turns(agent: AgentProcess, note: Path, steps: int, block: int, turns: int) -> Turns:
    arguments = {"note": str(note), "steps": steps, "block": block}
    agent_s, wall_s = await _under(agent, arguments, turns * (block + 1))
    measurements = json.loads(note.read_text())
    under, bare = ([each * 1e6 for each in measurements[name]] for name in ("under", "bare"))
    return Turns(
        under=under,
        bare=bare,
        beside_s=measurements["beside_s"],
        agent_s=agent_s,
        wall_s=wall_s,
        operations=len(under) * block,
    )


async def _under(agent: AgentProcess, arguments: dict[str, Any], operations: int) -> tuple[float, float]:
    """Let an agent do them; answers what the agent itself took from the start on, and how long that was."""
    spec = {"target": "bench.fleet.work:InTurns", "arguments": arguments, "path": [str(ROOT)]}
    request = wire.WorkloadRequest(
        workload_id=f"turns-{time.monotonic_ns()}",
        kind="python",
        spec=json.dumps(spec).encode(),
        max_operations=operations,
        start_at_unix_ns=time.time_ns(),
    )
    before_s = 0.0
    async with aio.insecure_channel(agent.address) as channel:
        async for stats in AgentStub(channel).RunWorkloadWithLiveStats(request):
            if stats.started_at_unix_ns and not before_s:
                before_s = _used_s(agent.pid)
    assert stats.operations == operations
    return _used_s(agent.pid) - before_s, stats.elapsed_ns / 1e9


def _used_s(pid: int) -> float:
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")
