"""People: they submit, wait, cancel, have things done again, ask why, and repeat what was not answered."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec

from interlock.errors import InterlockError
from interlock.lifecycles import job
from interlock.lifecycles.job import JobState
from interlock.systems.runtime import Runtime
from interlock.verify.worlds.casts.requests import Errands, surely
from interlock.verify.worlds.judge import Judge
from interlock.verify.worlds.judge_trees import BRANCH
from interlock.verify.worlds.plan import HOUR_S, JobKind, World
from interlock.verify.worlds.stage import Process
from interlock.verify.worlds.storage import SharedStore, StoreLink
from interlock.wire.jobs import JobSpec

LOST = "what was acknowledged is there"
EXPLAINED = "what has not ended is explained"
SAME = "a request that comes twice is answered as before"
TOLD = "who waits for the end of a job is told of it once it has ended"


class Submission(msgspec.Struct, frozen=True):
    """What somebody will want, and when; drawn before anything happens."""

    at_s: float
    number: int
    kind: JobKind
    seconds: float
    ends: tuple[str, ...]
    named: bool
    """Whether it is asked for under a request id."""


def submissions(world: World, seed: int, until_s: float) -> Iterator[Submission]:
    """Everything that people will submit, in the order of time: by day, by night, and in bursts."""
    drawn = random.Random(f"{seed}/people")
    weights = [kind.weight for kind in world.kinds]
    number, at = 0, 0.0
    arrivals = world.arrivals
    most = max(arrivals.by_day_per_h, arrivals.by_night_per_h)
    per_s = (most + arrivals.bursts_per_day / 24.0) / HOUR_S
    while per_s:
        at += drawn.expovariate(per_s)
        if at >= until_s:
            return
        burst = drawn.random() < arrivals.bursts_per_day / 24.0 / HOUR_S / per_s
        now = arrivals.by_day_per_h if (at / HOUR_S) % 24 < 12 else arrivals.by_night_per_h
        if not burst and drawn.random() >= now / most:
            continue
        for _ in range(arrivals.burst if burst else 1):
            number += 1
            (kind,) = drawn.choices(world.kinds, weights)
            ends = tuple(drawn.choice(kind.ends) for _ in range(8))
            yield Submission(at, number, kind, drawn.uniform(*kind.seconds), ends, drawn.random() < 0.8)


class PeopleCast:
    """Everybody who wants something done."""

    def __init__(self, store: SharedStore, judge: Judge, until_s: float) -> None:
        self._store = store
        self._judge = judge
        self._until_s = until_s
        self.acknowledged: dict[int, str] = {}
        self.unknown: set[int] = set()
        """Whoever asked for these was never answered."""
        self._waiting: Counter[str] = Counter()

    @property
    def waiting(self) -> list[str]:
        """The jobs for whose ends somebody waits; for one that a fail-over has lost one may wait for ever."""
        gone = self._judge.forgotten
        return [name for name in self._waiting if name not in gone or self._judge.state_of(name)]

    def waits(self, job_id: str, people: int) -> None:
        """So many more wait for it, or fewer."""
        self._waiting[job_id] += people
        if not self._waiting[job_id]:
            del self._waiting[job_id]

    async def live(self, process: Process) -> None:
        """Submit one after the other, and look after each."""
        stage = process.stage
        runtime = Runtime(StoreLink(process, self._store), stage.world.settings, process.host)
        errands = Errands(process)
        for each in submissions(stage.world, stage.seed, self._until_s):
            await asyncio.sleep(each.at_s - stage.schedule.now)
            errands.begin(Errand(self, process, runtime, self._judge).run(each))
        await asyncio.Event().wait()


class Errand:
    """One submission and what its submitter wants of it later."""

    def __init__(self, people: PeopleCast, process: Process, runtime: Runtime, judge: Judge) -> None:
        self._people = people
        self._process = process
        self._here = runtime
        self._judge = judge
        self._watcher = process.stage.watcher

    async def run(self, asked: Submission) -> None:
        """Submit it, and see to the rest."""
        drawn = random.Random(f"{self._process.stage.seed}/{asked.number}")
        job_id = await self._submit(asked, None, drawn)
        if job_id is None:
            return
        for child in range(asked.kind.children):
            number = 1_000_000 + 100 * asked.number + child
            below = msgspec.structs.replace(asked, number=number, seconds=asked.seconds / 2)
            await asyncio.sleep(drawn.random() * asked.seconds)  # the parent may have ended by then
            await self._submit(below, job_id, drawn)
        if drawn.random() < asked.kind.cancels:
            await asyncio.sleep(drawn.random() * 2.0 * asked.seconds)
            await self._cancel(job_id, drawn)
        if drawn.random() < asked.kind.awaited:
            await self._wait(job_id)
        if drawn.random() < 0.1:
            await self._why(job_id)
        if drawn.random() < asked.kind.again:
            await self._again(job_id)

    async def _submit(self, asked: Submission, parent: str | None, drawn: random.Random) -> str | None:
        spec, number = spec_of(self._process.stage.world, asked, parent), asked.number
        request_id = f"s{number}" if asked.named else None
        jobs = self._here.jobs
        try:
            made = await surely(
                self._process,
                lambda: jobs.submit(spec, actor="people", request_id=request_id),
                again=asked.named,
            )
            if asked.named and drawn.random() < 0.1:  # somebody has pressed the button twice
                same = await surely(
                    self._process, lambda: jobs.submit(spec, actor="people", request_id=request_id)
                )
                self._same(made, same, number)
        except InterlockError:
            return None  # its parent has ended
        if made is None:
            self._people.unknown.add(number)
            return None
        self._people.acknowledged[number] = made
        if number not in self._judge.made and made not in self._judge.forgotten:
            self._watcher.broke(LOST, f"submission {number} was acknowledged as {made}", made)
        return made

    def _same(self, made: str | None, again: str | None, number: int) -> None:
        if None not in (made, again) and made != again and made not in self._judge.forgotten:
            self._watcher.broke(SAME, f"submission {number} is {made}, then {again}", made or "")

    async def _cancel(self, job_id: str, drawn: random.Random) -> None:
        self._judge.asked.add(job_id)
        request_id = f"c{job_id}" if drawn.random() < 0.8 else None
        try:
            await surely(
                self._process, lambda: self._here.jobs.cancel(job_id, actor="people", request_id=request_id)
            )
        except InterlockError:
            return  # it has ended
        self._watcher.saw("somebody cancels")

    async def _wait(self, job_id: str) -> None:
        """Until it has ended; whoever is told so is told the truth."""
        self._people.waits(job_id, 1)
        try:
            record = await surely(self._process, lambda: self._here.waiting.ended(job_id))
        finally:
            self._people.waits(job_id, -1)
        if record is None:
            return
        self._watcher.saw("somebody has waited for an end")
        if JobState(record.state) not in job.ENDED:
            self._watcher.broke(TOLD, f"{job_id} is {record.state}", job_id)

    async def _why(self, job_id: str) -> None:
        try:
            told = await surely(self._process, lambda: self._here.jobs.explain(job_id))
        except InterlockError:
            return  # it was pruned
        if told is not None and not told.sentence:
            self._watcher.broke(EXPLAINED, f"{job_id} is {told.state}", job_id)

    async def _again(self, job_id: str) -> None:
        try:
            await surely(
                self._process, lambda: self._here.jobs.retry(job_id, actor="people", request_id=f"r{job_id}")
            )
        except InterlockError:
            return  # it has not ended, or is gone


def spec_of(world: World, asked: Submission, parent: str | None) -> JobSpec:
    """The job as it is submitted."""
    kind = asked.kind
    arguments: dict[str, Any] = {
        "number": asked.number,
        "seconds": asked.seconds,
        "ends": list(asked.ends),
    }
    if kind.breadth:
        arguments |= {"breadth": kind.breadth, "levels": kind.levels, "if_fails": kind.if_fails}
    return JobSpec(
        task=BRANCH if kind.breadth else "work",
        input=msgspec.Raw(msgspec.json.encode(arguments)),
        priority=kind.priority,
        labels=kind.labels,
        worker_count=kind.shards,
        parent_job_id=parent,
        delay_s=kind.delay_s,
        timeout_s=kind.timeout_s,
        job_timeout_s=kind.job_timeout_s,
        retry=world.retry_rules(kind),
        losses=kind.losses,
    )
