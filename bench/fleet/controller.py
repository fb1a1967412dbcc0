"""What one controller needs for a fleet of fifty, against one of five: processor, wire, and how they start.

All agents are on this machine, ten to a process, and each workload is a process of its own; so the start
says more about how many processes two cores can begin at once than about clocks. What is not known of the
clocks is told apart: agents that are not late begin no further apart than that.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Sequence
from typing import TypeAlias

import msgspec

from bench.fleet.hosting import hosted
from bench.report import Line, Section
from bench.rounds import Figure, Pace
from interlock.systems.fleet.agent_client import Access, over_grpc
from interlock.systems.fleet.driver import Drive, Driver, DriverPorts
from interlock.wire.workloads import Verdict, WorkloadResult, WorkloadSpec

FEW, MANY = 5, 50
SECONDS, RATE = 10.0, 100.0
FENCES = itertools.count(1)

Measure: TypeAlias = "Callable[[Driven], float]"


class Driven(msgspec.Struct, frozen=True, kw_only=True):
    """One drive."""

    result: WorkloadResult
    processor_s: float
    """Of the controller, from the first question to the result."""


def run(pace: Pace) -> Section:
    """Drive both fleets in turns."""
    rounds = 1 if pace.store_rounds <= 3 else 3
    found: dict[str, list[Driven]] = {f"{FEW} agents": [], f"{MANY} agents": []}
    with hosted(MANY) as agents:
        for _ in range(rounds):
            for name, number in zip(found, (FEW, MANY), strict=True):
                found[name].append(asyncio.run(_drive(agents[:number])))
    return Section(
        f"Fleet: one controller, {SECONDS:g} s at {RATE:g} operations a second on each agent",
        f"{FEW} agents",
        lines=(
            _line("processor for each agent and second", "µs", found, _processor_us),
            _line("on the wire for each agent and second", "bytes", found, _bytes),
            _line("apart at the start, for all that is known of the clocks", "ms", found, _bound_ms),
            _line("apart at the start, in all", "ms", found, _spread_ms),
        ),
        notes=("Ten agents to a process, each workload a process of its own, all on this machine.",),
        missed=tuple(
            f"With {name} it came to {each.result.verdict}: {each.result.sentence}"
            for name, drives in found.items()
            for each in drives
            if each.result.verdict is not Verdict.COMPLETE
        ),
    )


async def _drive(agents: Sequence[str]) -> Driven:
    async def tell(_: object) -> None:
        """The store is measured elsewhere."""

    hands = DriverPorts(store_facts=tell, news=lambda _: None, log=lambda _, __: None)
    spec = WorkloadSpec(
        kind="sleep",
        spec={"operation_s": 0.001},
        agents=tuple(agents),
        duration_s=SECONDS,
        rate=RATE,
        lead_s=15.0,
        skew_limit_s=10.0,
        ready_within_s=30.0,
    )
    before = time.process_time()
    drive = Drive(spec, Driver(job_id="bench", fence=next(FENCES)), hands, over_grpc(Access()))
    result = await drive.run()
    return Driven(result=result, processor_s=time.process_time() - before)


def _line(measure: str, unit: str, found: dict[str, list[Driven]], figure: Measure) -> Line:
    return Line(measure, unit, {name: Figure(tuple(map(figure, each))) for name, each in found.items()})


def _processor_us(driven: Driven) -> float:
    return driven.processor_s * 1e6 / (driven.result.coverage.agents * SECONDS)


def _bytes(driven: Driven) -> float:
    return driven.result.received_bytes / (driven.result.coverage.agents * SECONDS)


def _bound_ms(driven: Driven) -> float:
    return driven.result.start_bound_ms or 0.0


def _spread_ms(driven: Driven) -> float:
    spread = driven.result.spread
    return spread.spread_ns / 1e6 if spread else 0.0
