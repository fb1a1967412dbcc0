"""The task that drives a fleet, as workers of a world have it: production's drive over a world's wires.

Left out of it are the files that are drawn of a result: nothing is decided in them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import cast

from grpc import aio

from interlock.errors import InterlockError
from interlock.systems.fleet.coverage import Verdict
from interlock.systems.fleet.drive import SLACK_S, STOP_S
from interlock.systems.fleet.line import Line
from interlock.systems.fleet.lines import ANSWER_S, EXCHANGES, Reference
from interlock.systems.fleet.outcome import WorkloadResult
from interlock.systems.fleet.recorder import LAST_WORDS_S
from interlock.systems.fleet.spec import TASK, WorkloadSpec
from interlock.systems.fleet.workloads import workload_id_of
from interlock.verify.worlds.casts.streams import WireChannel
from interlock.verify.worlds.fleets import Tour
from interlock.verify.worlds.judge_fleet import Counted, FleetJudge
from interlock.verify.worlds.scheduler import Loop
from interlock.verify.worlds.stage import Process
from interlock.wire.fleet.errors import SkewTooLarge
from interlock.worker.context import Context
from interlock.worker.tasks import Registry
from interlock.workloads import Watcher, driven, prepared, worth

SIGHTS = {
    Verdict.COMPLETE: "a workload completes on every agent",
    Verdict.DEGRADED: "agents begin further apart than they should, and the result says so",
    Verdict.PARTIAL: "an agent is lost, and the others go on",
    Verdict.FAILED: "a workload is given up because too many agents are lost",
    Verdict.ABORTED: "a workload is stopped before its end",
}


def teach(registry: Registry, judge: FleetJudge) -> None:
    """Whoever has this registry can drive a fleet."""

    async def drive_here(workload: WorkloadSpec, *, ctx: Context) -> WorkloadResult:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, Loop)
        driving = Controlling(loop.owner, judge).drive(workload, ctx)
        result: WorkloadResult = await loop.create_task(driving)  # which the loop ends with its process
        return result

    registry.task(name=TASK, executor="async")(drive_here)


class Controlling:
    """One drive in one process, with the judge reading along."""

    def __init__(self, process: Process, judge: FleetJudge) -> None:
        self._process = process
        self._judge = judge
        self._watcher = process.stage.watcher

    async def drive(self, workload: WorkloadSpec, ctx: Context) -> WorkloadResult:
        """Drive it as a job does, and have it judged."""
        tour = Tour(
            self._process,
            ctx.job_id,
            _names(workload, ctx),
            begun_s=self._process.stage.schedule.now,
            within_s=longest_s(workload),
        )
        driving = prepared(workload, ctx, Watcher(), self._line, self._reference())
        self._judge.drive_begins(tour)
        try:
            result = await driven(driving, ctx)
        except InterlockError as refusal:
            skewed = isinstance(refusal, SkewTooLarge)
            self._watcher.saw("clocks are not known well enough" if skewed else "too few agents are there")
            self._judge.drive_ends(tour)
            self._judge.refused(tour, refusal.sentence)
            raise
        self._judge.drive_ends(tour)
        self._tell(tour, result)
        return worth(result, ctx)

    def _tell(self, tour: Tour, result: WorkloadResult) -> None:
        self._watcher.saw(SIGHTS[result.verdict])
        counts = [
            Counted(
                one.workload_id,
                one.status == "COMPLETED",
                one.operations,
                one.latencies.count,
                left_out=one.left_out,
            )
            for one in result.agents
        ]
        self._judge.result(tour, counts, result.operations, result.latencies.count)
        if result.start_bound_ms is not None:
            self._judge.began_together(tour, result.start_bound_ms / 1e3)

    def _line(self, agent: str, reference: Reference) -> Line:
        channel = WireChannel(self._process, place_of(agent), self._judge.troubles)
        return Line(agent, reference, channel=cast(aio.Channel, channel))

    def _reference(self) -> Reference:
        return Reference(
            wall_ns=lambda: round(self._process.local().timestamp() * 1e9),
            monotonic_ns=lambda: round(self._process.loop.time() * 1e9),
        )


def longest_s(spec: WorkloadSpec) -> float:
    """How long a drive may take, step by step, when every answer comes as late as it may."""
    offset_s = EXCHANGES * ANSWER_S
    prepare_s = spec.ready_within_s + offset_s
    begin_s = offset_s + ANSWER_S
    follow_s = spec.lead_s + spec.duration_s + SLACK_S
    return prepare_s + spec.ready_within_s + begin_s + follow_s + ANSWER_S + STOP_S + LAST_WORDS_S


def place_of(agent: str) -> str:
    """Where an agent lives, by its address."""
    return agent.partition(":")[0]


def _names(workload: WorkloadSpec, ctx: Context) -> Mapping[str, str]:
    name = partial(workload_id_of, ctx.job_id, ctx.fence)
    return {place_of(agent): name(number) for number, agent in enumerate(workload.agents)}
