"""People who submit runs: they wait, cancel, supersede, and have done again what has not succeeded."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator

import msgspec

from interlock.errors import InterlockError
from interlock.lifecycles import run
from interlock.systems.runtime import Runtime
from interlock.verify.worlds.casts.requests import Errands, surely
from interlock.verify.worlds.judge_runs import RunJudge
from interlock.verify.worlds.plan import HOUR_S, PRODUCTION, RunKind, World
from interlock.verify.worlds.stage import Process
from interlock.verify.worlds.storage import SharedStore, StoreLink
from interlock.wire.runs import Plan, PlannedJob, RunSpec

LOOK_EVERY_S = 600.0
"""How often somebody who waits for a run looks at it."""
DECIDED_WITHIN_S = 600.0
"""How long an operator may take to approve a run or to decline it."""
FIRST_NUMBER = 10_000_000
"""Jobs of runs are numbered from here on."""


class Wish(msgspec.Struct, frozen=True):
    """A run that somebody will want, and when; drawn before anything happens."""

    at_s: float
    number: int
    kind: RunKind
    spec: RunSpec


def wishes(world: World, seed: int, until_s: float) -> Iterator[Wish]:
    """Every run that people will submit, in the order of time."""
    drawn = random.Random(f"{seed}/submitters")
    weights = [kind.weight for kind in world.runs]
    per_s, number, at = world.arrivals.runs_per_day / 24.0 / HOUR_S, 0, 0.0
    while per_s and world.runs:
        at += drawn.expovariate(per_s)
        if at >= until_s:
            return
        number += 1
        (kind,) = drawn.choices(world.runs, weights)
        yield Wish(at, number, kind, _spec(kind, number, drawn))


def _spec(kind: RunKind, number: int, drawn: random.Random) -> RunSpec:
    jobs: list[PlannedJob] = []
    for place in range(drawn.randint(*kind.jobs)):
        arguments = {
            "number": FIRST_NUMBER + 100 * number + place,
            "seconds": drawn.uniform(*kind.seconds),
            "ends": [drawn.choice(kind.ends) for _ in range(8)],
        }
        planned = PlannedJob(
            name=f"job {place}",
            task="work",
            input=msgspec.Raw(msgspec.json.encode(arguments)),
            needs=tuple(each.name for each in jobs if drawn.random() < kind.needs),
            required=drawn.random() >= kind.optional,
        )
        jobs.append(planned)
    if kind.deploys:
        jobs[-1] = msgspec.structs.replace(jobs[-1], environment=PRODUCTION)
    plan = Plan(jobs=tuple(jobs), fail_fast=kind.fail_fast, timeout_s=kind.timeout_s)
    group = kind.name if drawn.random() < kind.grouped else ""
    return RunSpec(workflow=kind.name, plan=plan, concurrency_group=group)


class SubmitterCast:
    """Everybody who wants something evaluated."""

    def __init__(self, store: SharedStore, judge: RunJudge, until_s: float) -> None:
        self._store = store
        self._judge = judge
        self._until_s = until_s
        self.submitted = 0

    async def live(self, process: Process) -> None:
        """Submit one after the other, and look after each."""
        stage = process.stage
        runtime = Runtime(StoreLink(process, self._store), stage.world.settings, process.host)
        runtime.runs.prompt = False  # whoever submits goes away: servers and workers see to the rest
        errands = Errands(process)
        for wish in wishes(stage.world, stage.seed, self._until_s):
            await asyncio.sleep(wish.at_s - stage.schedule.now)
            errands.begin(self._see_to(wish, process, runtime))
        await asyncio.Event().wait()

    async def _see_to(self, wish: Wish, process: Process, here: Runtime) -> None:
        drawn = random.Random(f"{process.stage.seed}/run/{wish.number}")
        request_id = f"run{wish.number}"
        made = await surely(process, lambda: here.runs.submit(wish.spec, request_id=request_id, actor="ci"))
        if made is None:
            return
        self.submitted += 1
        self._judge.acknowledged(wish.number, made.id)
        if wish.kind.deploys:
            await self._decide(process, here, made.id, drawn)
        if drawn.random() < wish.kind.cancels:
            await asyncio.sleep(drawn.random() * 2.0 * wish.kind.seconds[1])
            await self._cancel(process, here, made.id)
        if drawn.random() < wish.kind.again:
            await self._again(process, here, made.id)

    async def _decide(self, process: Process, here: Runtime, run_id: str, drawn: random.Random) -> None:
        """An operator approves it or declines it after a while; some are forgotten."""
        said, after_s = drawn.random(), drawn.random() * DECIDED_WITHIN_S
        await asyncio.sleep(after_s)
        if said > 0.9:
            return
        try:
            while True:
                view = await surely(process, lambda: here.runs.outline(run_id))
                if view is None or view.outcome is not None:
                    return
                if view.state == run.AWAITING_APPROVAL:
                    break
                await asyncio.sleep(LOOK_EVERY_S)
            if said < 0.75:
                approve = lambda: here.runs.approve(run_id, actor="operator", request_id=f"y{run_id}")  # noqa: E731
                await surely(process, approve)
                process.stage.watcher.saw("somebody approves a run")
            else:
                self._judge.asked.add(run_id)
                decline = lambda: here.runs.decline(run_id, actor="operator", request_id=f"n{run_id}")  # noqa: E731
                await surely(process, decline)
                process.stage.watcher.saw("somebody declines a run")
        except InterlockError:
            return  # it is decided, or gone

    async def _cancel(self, process: Process, here: Runtime, run_id: str) -> None:
        self._judge.asked.add(run_id)
        try:
            await surely(process, lambda: here.runs.cancel(run_id, actor="ci", request_id=f"c{run_id}"))
        except InterlockError:
            return  # it is decided
        process.stage.watcher.saw("somebody cancels a run")

    async def _again(self, process: Process, here: Runtime, run_id: str) -> None:
        """What has not succeeded is done again, once there is an outcome."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            try:
                view = await surely(process, lambda: here.runs.outline(run_id))
                if view is not None and view.outcome is None:
                    continue
                again = lambda: here.runs.rerun(run_id, "failed", actor="ci", request_id=f"a{run_id}")  # noqa: E731
                if await surely(process, again) is not None:
                    process.stage.watcher.saw("a run is done again")
            except InterlockError:
                pass  # it is gone, or everything of it has succeeded
            return
