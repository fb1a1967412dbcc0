"""People who put load on a fleet: they submit jobs that drive it, several at once, and stop some of them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator

import msgspec

from interlock.errors import InterlockError
from interlock.systems.fleet.coverage import Policy
from interlock.systems.fleet.spec import PORT, WorkloadSpec
from interlock.systems.runtime import Runtime
from interlock.verify.worlds.casts.families import DrawnLoad
from interlock.verify.worlds.casts.requests import Errands, surely
from interlock.verify.worlds.judge import Judge
from interlock.verify.worlds.plan import HOUR_S, WorkloadKind, World
from interlock.verify.worlds.stage import Process
from interlock.verify.worlds.storage import SharedStore, StoreLink
from interlock.workloads import drive_workload


class LoadTest(msgspec.Struct, frozen=True):
    """A workload that somebody will want, and when; drawn before anything happens."""

    at_s: float
    number: int
    kind: WorkloadKind
    spec: WorkloadSpec


def load_tests(world: World, seed: int, until_s: float) -> Iterator[LoadTest]:
    """Every workload that people will want, in the order of time."""
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


def _spec(world: World, kind: WorkloadKind, number: int, drawn: random.Random) -> WorkloadSpec:
    places = drawn.sample(world.fleet, drawn.randint(*kind.agents))
    return WorkloadSpec(
        kind=DrawnLoad.kind,
        name=f"load {number}",
        spec={"ends": {place: drawn.choice(kind.ends) for place in places}},
        agents=tuple(f"{place}:{PORT}" for place in places),
        duration_s=round(drawn.uniform(*kind.seconds), 1),
        lead_s=round(drawn.uniform(*kind.lead_s), 1),
        skew_limit_s=kind.skew_limit_s,
        policy=Policy(kind.policy),
    )


class TesterCast:
    """Everybody who puts load on the fleet."""

    def __init__(self, store: SharedStore, judge: Judge, until_s: float) -> None:
        self._store = store
        self._judge = judge
        self._until_s = until_s

    async def live(self, process: Process) -> None:
        """Have one workload after the other driven, and stop some."""
        stage = process.stage
        runtime = Runtime(StoreLink(process, self._store), stage.world.settings, process.host)
        errands = Errands(process)
        for test in load_tests(stage.world, stage.seed, self._until_s):
            await asyncio.sleep(test.at_s - stage.schedule.now)
            errands.begin(self._drive(process, runtime, test))
        await asyncio.Event().wait()

    async def _drive(self, process: Process, runtime: Runtime, test: LoadTest) -> None:
        drawn, jobs = random.Random(f"{process.stage.seed}/load/{test.number}"), runtime.jobs
        spec = drive_workload.options(queue="default").spec(test.spec)
        asked = f"load{test.number}"
        job_id = await surely(process, lambda: jobs.submit(spec, actor="testers", request_id=asked))
        if job_id is None or drawn.random() >= test.kind.cancels:
            return
        await asyncio.sleep(drawn.random() * 1.2 * (test.spec.lead_s + test.spec.duration_s))
        self._judge.asked.add(job_id)
        try:
            await surely(process, lambda: jobs.cancel(job_id, actor="testers", request_id=f"{asked}.stop"))
        except InterlockError:
            return  # it has ended
