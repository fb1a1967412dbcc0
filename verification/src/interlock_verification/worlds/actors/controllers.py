"""The load tests of a world: the clients that submit them, and the task that drives the fleet."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator, Mapping
from functools import partial
from typing import cast

import msgspec
from grpc import aio

from interlock.agent.execution import KILLED_S
from interlock.errors import InterlockError, SkewTooLarge
from interlock.systems.fleet.agent_client import AgentConnection
from interlock.systems.fleet.driver import SLACK_S, STOP_S
from interlock.systems.fleet.member import ANSWER_S, EXCHANGES, ReferenceClock
from interlock.systems.fleet.spec import (
    PORT,
    TASK,
)
from interlock.systems.fleet.workloads import LAST_WORDS_S, workload_id_of
from interlock.systems.runtime import Runtime
from interlock.wire.workloads import Policy, Verdict, WorkloadResult, WorkloadSpec
from interlock.worker.context import Context
from interlock.worker.tasks import Registry
from interlock.workloads import Watcher, drive_workload, driven, prepared, worth
from interlock_verification.worlds.actors.agents import AgentActor, DrawnLoad, set_clocks
from interlock_verification.worlds.actors.clients import ClientTasks, retry_until_answered
from interlock_verification.worlds.actors.grpc_transport import WireChannel
from interlock_verification.worlds.claims.fleet import AgentTally
from interlock_verification.worlds.faults import Faults
from interlock_verification.worlds.judge import Judge
from interlock_verification.worlds.judge_fleet import FleetJudge, JudgedDrive
from interlock_verification.worlds.network import Actor, ActorProcess, WorldNetwork
from interlock_verification.worlds.scheduler import WorldLoop
from interlock_verification.worlds.storage import SharedStore, StoreLink
from interlock_verification.worlds.worlds import HOUR_S, FleetWorkload, World

EVENT_OF_VERDICT = {
    Verdict.COMPLETE: "a workload completes on every agent",
    Verdict.DEGRADED: "agents begin further apart than they should, and the result says so",
    Verdict.PARTIAL: "an agent is lost, and the others continue",
    Verdict.FAILED: "a workload is given up because too many agents are lost",
    Verdict.ABORTED: "a workload is stopped before its end",
}


def teach(registry: Registry, judge: FleetJudge) -> None:
    """Register the task that drives a fleet."""

    async def drive_here(workload: WorkloadSpec, *, ctx: Context) -> WorkloadResult:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, WorldLoop)
        driving = ObservedDrive(loop.owner, judge).drive(workload, ctx)
        result: WorkloadResult = await loop.create_task(driving)  # the loop ends it with its process
        return result

    registry.task(name=TASK, executor="async")(drive_here)


class ObservedDrive:
    """One drive in one process, observed by the judge."""

    def __init__(self, process: ActorProcess, judge: FleetJudge) -> None:
        self._process = process
        self._judge = judge
        self._watcher = process.network.watcher

    async def drive(self, workload: WorkloadSpec, ctx: Context) -> WorkloadResult:
        """Drive the workload as a job does, and have it judged."""
        drive = JudgedDrive(
            self._process,
            ctx.job_id,
            _names(workload, ctx),
            begun_s=self._process.network.schedule.now,
            within_s=longest_s(workload),
        )
        driving = prepared(workload, ctx, Watcher(), self._line, self._reference())
        self._judge.drive_begins(drive)
        try:
            result = await driven(driving, ctx)
        except InterlockError as refusal:
            skewed = isinstance(refusal, SkewTooLarge)
            self._watcher.saw(
                "clocks are not known well enough" if skewed else "too few agents are reachable"
            )
            self._judge.drive_ends(drive)
            self._judge.refused(drive, refusal.sentence)
            raise
        self._judge.drive_ends(drive)
        self._count_result(drive, result)
        return worth(result, ctx)

    def _count_result(self, drive: JudgedDrive, result: WorkloadResult) -> None:
        self._watcher.saw(EVENT_OF_VERDICT[result.verdict])
        counts = [
            AgentTally(
                one.workload_id,
                one.status == "COMPLETED",
                one.operations,
                one.latencies.count,
                left_out=one.left_out,
            )
            for one in result.agents
        ]
        self._judge.result(drive, counts, result.operations, result.latencies.count)
        if result.start_bound_ms is not None:
            self._judge.began_together(drive, result.start_bound_ms / 1e3)

    def _line(self, agent: str, reference: ReferenceClock) -> AgentConnection:
        channel = WireChannel(self._process, node_of(agent), self._judge.connection_faults)
        return AgentConnection(agent, reference, channel=cast(aio.Channel, channel))

    def _reference(self) -> ReferenceClock:
        return ReferenceClock(
            wall_ns=lambda: round(self._process.local().timestamp() * 1e9),
            monotonic_ns=lambda: round(self._process.loop.time() * 1e9),
        )


def longest_s(spec: WorkloadSpec) -> float:
    """Return the maximum duration of a drive.

    Every answer is as late as possible then.
    """
    offset_s = EXCHANGES * ANSWER_S
    prepare_s = spec.ready_within_s + offset_s
    begin_s = offset_s + ANSWER_S
    follow_s = spec.lead_s + spec.duration_s + SLACK_S
    return prepare_s + spec.ready_within_s + begin_s + follow_s + ANSWER_S + STOP_S + LAST_WORDS_S


def node_of(agent: str) -> str:
    """Return the node of an agent, from its address."""
    return agent.partition(":")[0]


def _names(workload: WorkloadSpec, ctx: Context) -> Mapping[str, str]:
    name = partial(workload_id_of, ctx.job_id, ctx.fence)
    return {node_of(agent): name(number) for number, agent in enumerate(workload.agents)}


class LoadTest(msgspec.Struct, frozen=True):
    """A future workload, drawn in advance."""

    at_s: float
    number: int
    kind: FleetWorkload
    spec: WorkloadSpec


def load_tests(world: World, seed: int, until_s: float) -> Iterator[LoadTest]:
    """Yield all workloads in order of time."""
    drawn = random.Random(f"{seed}/testers")
    weights = [kind.weight for kind in world.workloads]
    per_s, number, at = world.arrivals.workloads_per_h / HOUR_S, 0, 0.0
    while per_s and world.workloads:
        at += drawn.expovariate(per_s)
        if at >= until_s:
            return
        number += 1
        (kind,) = drawn.choices(world.workloads, weights)
        yield LoadTest(at, number, kind, _spec(world, kind, number, drawn))


def _spec(world: World, kind: FleetWorkload, number: int, drawn: random.Random) -> WorkloadSpec:
    nodes = drawn.sample(world.fleet, drawn.randint(*kind.agents))
    return WorkloadSpec(
        kind=DrawnLoad.kind,
        name=f"load {number}",
        spec={"ends": {node: drawn.choice(kind.ends) for node in nodes}},
        agents=tuple(f"{node}:{PORT}" for node in nodes),
        duration_s=round(drawn.uniform(*kind.seconds), 1),
        lead_s=round(drawn.uniform(*kind.lead_s), 1),
        skew_limit_s=kind.skew_limit_s,
        policy=Policy(kind.policy),
    )


class LoadClientActor:
    """The clients that run load tests."""

    def __init__(self, store: SharedStore, judge: Judge, until_s: float) -> None:
        self._store = store
        self._judge = judge
        self._until_s = until_s

    async def live(self, process: ActorProcess) -> None:
        """Submit one workload after the other, and stop some."""
        network = process.network
        runtime = Runtime(StoreLink(process, self._store), network.world.settings, process.host)
        tasks = ClientTasks(process)
        for test in load_tests(network.world, network.seed, self._until_s):
            await asyncio.sleep(test.at_s - network.schedule.now)
            tasks.begin(self._drive(process, runtime, test))
        await asyncio.Event().wait()

    async def _drive(self, process: ActorProcess, runtime: Runtime, test: LoadTest) -> None:
        drawn, jobs = random.Random(f"{process.network.seed}/load/{test.number}"), runtime.jobs
        spec = drive_workload.options(queue="default").spec(test.spec)
        request_id = f"load{test.number}"
        job_id = await retry_until_answered(
            process, lambda: jobs.submit(spec, actor="testers", request_id=request_id)
        )
        if job_id is None or drawn.random() >= test.kind.cancels:
            return
        await asyncio.sleep(drawn.random() * 1.2 * (test.spec.lead_s + test.spec.duration_s))
        self._judge.cancels.add(job_id)
        try:
            await retry_until_answered(
                process, lambda: jobs.cancel(job_id, actor="testers", request_id=f"{request_id}.stop")
            )
        except InterlockError:
            return  # it has ended


TESTERS = "testers"


def fleet_of(
    network: WorldNetwork,
    store: SharedStore,
    judge: Judge,
    registry: Registry,
    faults: Faults,
    until_s: float,
) -> Iterator[tuple[str, Actor]]:
    """Yield the nodes of a fleet with their actors.

    The registry learns to drive.
    """
    fleet = judge.fleet
    fleet.call_in, fleet.skew = network.schedule.call_in, faults.skew
    fleet.kill_s = network.world.durations.abort_kill_s + KILLED_S
    teach(registry, fleet)
    agents = {name: AgentActor(fleet, network.seed) for name in network.world.fleet}
    set_clocks(network, faults, agents, fleet, until_s - faults.quiet_at_end_s)
    yield from agents.items()
    yield TESTERS, LoadClientActor(store, judge, until_s)
