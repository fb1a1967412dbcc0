"""Clients: they submit jobs, runs and simulations, wait, cancel, retry and repeat unanswered requests."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from functools import partial
from typing import Any, TypeVar

import msgspec

from interlock.backoff import Backoff
from interlock.errors import Contended, DuplicateJob, InterlockError, StoreUnavailable
from interlock.lifecycles import run, simulation
from interlock.systems.runtime import Runtime
from interlock.wire.jobs import JobSpec, Unique
from interlock.wire.runs import Plan, PlannedJob, RunSpec
from interlock.wire.simulations import SimulationSpec, SimulationView
from interlock_verification.worlds.claims.episodes import CLIENT_REQUEST, UnexpectedError
from interlock_verification.worlds.claims.jobs import (
    AcknowledgedJob,
    ExplainedJob,
    RepeatedSubmission,
    ReportedEnd,
)
from interlock_verification.worlds.judge import Judge
from interlock_verification.worlds.judge_runs import RunJudge
from interlock_verification.worlds.judge_simulations import SimulationJudge
from interlock_verification.worlds.network import ActorProcess
from interlock_verification.worlds.storage import SharedStore, StoreLink
from interlock_verification.worlds.worlds import (
    BRANCH,
    BRIEF,
    HOUR_S,
    POSTAL,
    PRODUCTION,
    JobKind,
    RunKind,
    SimulationKind,
    World,
)

T = TypeVar("T")

PATIENCE_S = 1_500.0
"""Time for which a request is retried; its answer is stored for longer than that."""


class ClientTasks:
    """The concurrent work of a client; none of it may crash."""

    def __init__(self, process: ActorProcess) -> None:
        self._process = process
        self._under_way: dict[asyncio.Task[None], None] = {}

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Start another piece of work."""
        task = asyncio.create_task(work)
        self._under_way[task] = None
        task.add_done_callback(self._request_ended)

    def _request_ended(self, done: asyncio.Task[None]) -> None:
        del self._under_way[done]
        if not done.cancelled() and (error := done.exception()) is not None:
            self._process.network.watcher.check(UnexpectedError(CLIENT_REQUEST, repr(error)))


async def retry_until_answered(
    process: ActorProcess, attempt: Callable[[], Awaitable[T]], *, again: bool = True
) -> T | None:
    """Retry until there is an answer.

    It is None after the time limit, or if the attempt may not be repeated.
    """
    schedule = process.network.schedule
    until = schedule.now + PATIENCE_S
    backoff = Backoff(1.0, 60.0)
    while True:
        try:
            return await attempt()
        except (StoreUnavailable, Contended):
            pause_s = backoff.next_s()
            if not again or schedule.now + pause_s > until:
                return None
            await asyncio.sleep(pause_s)


class DrawnSubmission(msgspec.Struct, frozen=True):
    """A future submission, drawn in advance."""

    at_s: float
    number: int
    kind: JobKind
    seconds: float
    ends: tuple[str, ...]
    named: bool
    """Whether it has a request id."""


def submissions(world: World, seed: int, until_s: float) -> Iterator[DrawnSubmission]:
    """Yield all submissions in order of time: by day, by night, and in bursts."""
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
            yield DrawnSubmission(at, number, kind, drawn.uniform(*kind.seconds), ends, drawn.random() < 0.8)


class JobClientActor:
    """The clients that submit jobs."""

    def __init__(self, store: SharedStore, judge: Judge, until_s: float) -> None:
        self._store = store
        self._judge = judge
        self._until_s = until_s
        self.acknowledged: dict[int, str] = {}
        self.unknown: set[int] = set()
        """Submissions without an answer."""
        self._waiting: Counter[str] = Counter()

    @property
    def waiting(self) -> list[str]:
        """The jobs whose end is waited for; one that a fail-over has lost may be waited for forever."""
        gone = self._judge.forgotten
        return [name for name in self._waiting if name not in gone or self._judge.state_of(name)]

    def waits(self, job_id: str, people: int) -> None:
        """Count more or fewer waiting clients of a job."""
        self._waiting[job_id] += people
        if not self._waiting[job_id]:
            del self._waiting[job_id]

    async def live(self, process: ActorProcess) -> None:
        """Submit one job after the other, and handle each."""
        network = process.network
        runtime = Runtime(StoreLink(process, self._store), network.world.settings, process.host)
        tasks = ClientTasks(process)
        for each in submissions(network.world, network.seed, self._until_s):
            await asyncio.sleep(each.at_s - network.schedule.now)
            tasks.begin(JobClient(self, process, runtime, self._judge).run(each))
        await asyncio.Event().wait()


class JobClient:
    """One submission and the later requests about it."""

    def __init__(self, people: JobClientActor, process: ActorProcess, runtime: Runtime, judge: Judge) -> None:
        self._people = people
        self._process = process
        self._here = runtime
        self._judge = judge
        self._watcher = process.network.watcher

    async def run(self, submission: DrawnSubmission) -> None:
        """Submit the job, and make the later requests."""
        drawn = random.Random(f"{self._process.network.seed}/{submission.number}")
        job_id = await self._submit(submission, None, drawn)
        if job_id is None:
            return
        for child in range(submission.kind.children):
            number = 1_000_000 + 100 * submission.number + child
            below = msgspec.structs.replace(submission, number=number, seconds=submission.seconds / 2)
            await asyncio.sleep(drawn.random() * submission.seconds)  # the parent may have ended by then
            await self._submit(below, job_id, drawn)
        for value in range(1, submission.kind.signals + 1):
            await asyncio.sleep(drawn.random() * submission.seconds)
            if drawn.random() < 0.9:
                await self._signal(job_id, value)
        if drawn.random() < submission.kind.cancels:
            await asyncio.sleep(drawn.random() * 2.0 * submission.seconds)
            await self._cancel(job_id, drawn)
        if drawn.random() < submission.kind.awaited:
            await self._wait(job_id)
        if drawn.random() < 0.1:
            await self._why(job_id)
        if drawn.random() < submission.kind.again:
            await self._retry(job_id)

    async def _submit(
        self, submission: DrawnSubmission, parent: str | None, drawn: random.Random
    ) -> str | None:
        spec, number = spec_of(self._process.network.world, submission, parent), submission.number
        request_id = f"s{number}" if submission.named else None
        jobs = self._here.jobs
        try:
            answer = await retry_until_answered(
                self._process,
                lambda: jobs.submit_jobs([spec], actor="people", request_id=request_id),
                again=submission.named,
            )
            if answer is not None and answer[0].how != "created":
                self._judge.keys.refused()
                return None
            made = None if answer is None else answer[0].id
            if submission.named and drawn.random() < 0.1:  # the client sends it twice
                same = await retry_until_answered(
                    self._process, lambda: jobs.submit(spec, actor="people", request_id=request_id)
                )
                self._same(made, same, number)
        except DuplicateJob:
            self._judge.keys.refused()
            return None
        except InterlockError:
            return None  # its parent has ended
        if made is None:
            self._people.unknown.add(number)
            return None
        self._people.acknowledged[number] = made
        stored = number in self._judge.made or made in self._judge.forgotten
        self._watcher.check(AcknowledgedJob(made, stored), made)
        return made

    async def _signal(self, job_id: str, value: int) -> None:
        waits, data, request_id = self._here.waits, msgspec.Raw(b"%d" % value), f"g{job_id}.{value}"
        try:
            answer = await retry_until_answered(
                self._process,
                lambda: waits.signal(job_id, "go", data, actor="people", request_id=request_id),
            )
        except InterlockError:
            return  # it has ended, or is gone
        if answer is not None:
            self._judge.signals.sent(job_id, value, answer.number, answer.state)

    def _same(self, made: str | None, again: str | None, number: int) -> None:
        if made is not None and again is not None and made not in self._judge.forgotten:
            self._watcher.check(RepeatedSubmission(number, made, again), made)

    async def _cancel(self, job_id: str, drawn: random.Random) -> None:
        self._judge.cancels.add(job_id)
        request_id = f"c{job_id}" if drawn.random() < 0.8 else None
        try:
            await retry_until_answered(
                self._process, lambda: self._here.jobs.cancel(job_id, actor="people", request_id=request_id)
            )
        except InterlockError:
            return  # it has ended
        self._watcher.saw("a user cancels")

    async def _wait(self, job_id: str) -> None:
        """Wait for the end of the job, and check the answer."""
        self._people.waits(job_id, 1)
        try:
            record = await retry_until_answered(self._process, lambda: self._here.waiting.ended(job_id))
        finally:
            self._people.waits(job_id, -1)
        if record is None:
            return
        self._watcher.saw("a client has waited for a job")
        self._watcher.check(ReportedEnd(job_id, record.state), job_id)

    async def _why(self, job_id: str) -> None:
        try:
            explanation = await retry_until_answered(self._process, lambda: self._here.jobs.explain(job_id))
        except InterlockError:
            return  # it was pruned
        if explanation is not None:
            explained = ExplainedJob(job_id, str(explanation.state), explanation.sentence)
            self._watcher.check(explained, job_id)

    async def _retry(self, job_id: str) -> None:
        try:
            await retry_until_answered(
                self._process, lambda: self._here.jobs.retry(job_id, actor="people", request_id=f"r{job_id}")
            )
        except InterlockError:
            return  # it has not ended, or is gone


def _task_of(kind: JobKind) -> str:
    if kind.signals:
        return POSTAL
    return BRANCH if kind.breadth else BRIEF if kind.brief else "work"


def spec_of(world: World, submission: DrawnSubmission, parent: str | None) -> JobSpec:
    """Return the submitted spec."""
    kind = submission.kind
    arguments: dict[str, Any] = {
        "number": submission.number,
        "seconds": submission.seconds,
        "ends": list(submission.ends),
    }
    if kind.signals:
        arguments |= {"signals": kind.signals}
    if kind.breadth:
        arguments |= {"breadth": kind.breadth, "levels": kind.levels, "if_fails": kind.if_fails}
    return JobSpec(
        task=_task_of(kind),
        input=msgspec.Raw(msgspec.json.encode(arguments)),
        priority=kind.priority,
        labels=kind.labels,
        worker_count=kind.shards,
        parent_job_id=parent,
        delay_s=kind.delay_s,
        start_within_s=kind.start_within_s,
        unique=Unique(key=f"{kind.name} {submission.number % kind.keys}", policy=kind.policy)
        if kind.keys
        else None,
        limits=kind.limits,
        weight=kind.heavy,
        timeout_s=kind.timeout_s,
        job_timeout_s=kind.job_timeout_s,
        retry=world.retry_rules(kind),
        losses=kind.losses,
    )


LOOK_EVERY_S = 600.0
"""Polling interval of a client that waits for a run."""
DECIDED_WITHIN_S = 600.0
"""Maximum time for an operator to approve or decline a run."""
FIRST_NUMBER = 10_000_000
"""First number for jobs of runs."""


class DrawnRun(msgspec.Struct, frozen=True):
    """A future run, drawn in advance."""

    at_s: float
    number: int
    kind: RunKind
    spec: RunSpec


def drawn_runs(world: World, seed: int, until_s: float) -> Iterator[DrawnRun]:
    """Yield all runs in order of time."""
    drawn = random.Random(f"{seed}/submitters")
    weights = [kind.weight for kind in world.runs]
    per_s, number, at = world.arrivals.runs_per_day / 24.0 / HOUR_S, 0, 0.0
    while per_s and world.runs:
        at += drawn.expovariate(per_s)
        if at >= until_s:
            return
        number += 1
        (kind,) = drawn.choices(world.runs, weights)
        yield DrawnRun(at, number, kind, _spec(kind, number, drawn))


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
            task=BRIEF if kind.brief else "work",
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


class RunClientActor:
    """The clients that submit runs."""

    def __init__(self, store: SharedStore, judge: RunJudge, until_s: float) -> None:
        self._store = store
        self._judge = judge
        self._until_s = until_s
        self.submitted = 0

    async def live(self, process: ActorProcess) -> None:
        """Submit one run after the other, and handle each."""
        network = process.network
        runtime = Runtime(StoreLink(process, self._store), network.world.settings, process.host)
        runtime.runs.prompt = False  # the submitter leaves: servers and workers do the rest
        tasks = ClientTasks(process)
        for submission in drawn_runs(network.world, network.seed, self._until_s):
            await asyncio.sleep(submission.at_s - network.schedule.now)
            tasks.begin(self._see_to(submission, process, runtime))
        await asyncio.Event().wait()

    async def _see_to(self, submission: DrawnRun, process: ActorProcess, here: Runtime) -> None:
        drawn = random.Random(f"{process.network.seed}/run/{submission.number}")
        request_id = f"run{submission.number}"
        made = await retry_until_answered(
            process, lambda: here.runs.submit(submission.spec, request_id=request_id, actor="ci")
        )
        if made is None:
            return
        self.submitted += 1
        self._judge.acknowledged(submission.number, made.id)
        if submission.kind.deploys:
            await self._decide(process, here, made.id, drawn)
        if drawn.random() < submission.kind.cancels:
            await asyncio.sleep(drawn.random() * 2.0 * submission.kind.seconds[1])
            await self._cancel(process, here, made.id)
        if drawn.random() < submission.kind.again:
            await self._rerun_failed(process, here, made.id)

    async def _decide(self, process: ActorProcess, here: Runtime, run_id: str, drawn: random.Random) -> None:
        """Approve or decline a run after a while; some are forgotten."""
        chance, after_s = drawn.random(), drawn.random() * DECIDED_WITHIN_S
        await asyncio.sleep(after_s)
        if chance > 0.9:
            return
        try:
            while True:
                view = await retry_until_answered(process, lambda: here.runs.outline(run_id))
                if view is None or view.outcome is not None:
                    return
                if view.state == run.AWAITING_APPROVAL:
                    break
                await asyncio.sleep(LOOK_EVERY_S)
            if chance < 0.75:
                approve = lambda: here.runs.approve(run_id, actor="operator", request_id=f"y{run_id}")  # noqa: E731
                await retry_until_answered(process, approve)
                process.network.watcher.saw("a user approves a run")
            else:
                self._judge.cancels.add(run_id)
                decline = lambda: here.runs.decline(run_id, actor="operator", request_id=f"n{run_id}")  # noqa: E731
                await retry_until_answered(process, decline)
                process.network.watcher.saw("a user declines a run")
        except InterlockError:
            return  # it is decided, or gone

    async def _cancel(self, process: ActorProcess, here: Runtime, run_id: str) -> None:
        self._judge.cancels.add(run_id)
        try:
            await retry_until_answered(
                process, lambda: here.runs.cancel(run_id, actor="ci", request_id=f"c{run_id}")
            )
        except InterlockError:
            return  # it is decided
        process.network.watcher.saw("a user cancels a run")

    async def _rerun_failed(self, process: ActorProcess, here: Runtime, run_id: str) -> None:
        """Rerun the failed jobs once there is an outcome."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            try:
                view = await retry_until_answered(process, lambda: here.runs.outline(run_id))
                if view is not None and view.outcome is None:
                    continue
                again = lambda: here.runs.rerun(run_id, "failed", actor="ci", request_id=f"a{run_id}")  # noqa: E731
                if await retry_until_answered(process, again) is not None:
                    process.network.watcher.saw("a run is rerun")
            except InterlockError:
                pass  # it is gone, or all of it has succeeded
            return


class DrawnSimulation(msgspec.Struct, frozen=True):
    """A future simulation, drawn in advance."""

    at_s: float
    number: int
    kind: SimulationKind
    spec: SimulationSpec
    seconds: float
    """Its duration without faults."""


def drawn_simulations(world: World, seed: int, until_s: float) -> Iterator[DrawnSimulation]:
    """Yield all simulations in order of time."""
    drawn = random.Random(f"{seed}/players")
    weights = [kind.weight for kind in world.simulations]
    per_s, number, at = world.arrivals.simulations_per_day / 24.0 / HOUR_S, 0, 0.0
    while per_s and world.simulations:
        at += drawn.expovariate(per_s)
        if at >= until_s:
            return
        number += 1
        (kind,) = drawn.choices(world.simulations, weights)
        steps, seconds = drawn.randint(*kind.steps), drawn.uniform(*kind.seconds)
        fails_at = drawn.randint(1, steps) if drawn.random() < kind.fails else 0
        arguments = {"number": number, "steps": steps, "seconds": seconds, "fails_at": fails_at}
        spec = SimulationSpec(
            task=kind.name,
            input=msgspec.Raw(msgspec.json.encode(arguments)),
            total_steps=steps,
            losses=kind.losses,
        )
        yield DrawnSimulation(at, number, kind, spec, steps * seconds)


class SimulationClientActor:
    """The clients that start simulations."""

    def __init__(self, store: SharedStore, judge: SimulationJudge, until_s: float) -> None:
        self._store = store
        self._judge = judge
        self._until_s = until_s

    async def live(self, process: ActorProcess) -> None:
        """Start one simulation after the other, and handle each."""
        network = process.network
        runtime = Runtime(StoreLink(process, self._store), network.world.settings, process.host)
        tasks = ClientTasks(process)
        for submission in drawn_simulations(network.world, network.seed, self._until_s):
            await asyncio.sleep(submission.at_s - network.schedule.now)
            tasks.begin(SimulationClient(process, runtime, self._judge).play(submission))
        await asyncio.Event().wait()


class SimulationClient:
    """A client with one simulation."""

    def __init__(self, process: ActorProcess, runtime: Runtime, judge: SimulationJudge) -> None:
        self._process = process
        self._simulations = runtime.simulations
        self._judge = judge
        self._saw = process.network.watcher.saw
        self._requests = 0

    async def play(self, submission: DrawnSimulation) -> None:
        """Start it, perhaps pause or cancel it, and follow it to its end."""
        drawn = random.Random(f"{self._process.network.seed}/game/{submission.number}")
        request_id = f"game{submission.number}"
        made = await retry_until_answered(
            self._process,
            lambda: self._simulations.create_run(submission.spec, actor="players", request_id=request_id),
        )
        if made is None:
            return
        self._judge.acknowledged(submission.number, made.run_id)
        if drawn.random() < submission.kind.pauses:
            await asyncio.sleep(drawn.random() * 1.5 * submission.seconds)
            await self._pause(made.run_id)
        if drawn.random() < submission.kind.cancels:
            await asyncio.sleep(drawn.random() * 1.5 * submission.seconds)
            await self._cancel(made.run_id)
        await self._see_it_through(made.run_id, drawn)

    async def _pause(self, run_id: str) -> None:
        try:
            if await retry_until_answered(
                self._process, lambda: self._simulations.pause(run_id, request_id=self._request(run_id))
            ):
                self._saw("a user pauses a simulation")
        except InterlockError:
            return  # it does not run

    async def _cancel(self, run_id: str) -> None:
        self._judge.cancels.add(run_id)
        request_id = self._request(run_id)
        try:
            if await retry_until_answered(
                self._process, lambda: self._simulations.cancel(run_id, request_id=request_id)
            ):
                self._saw("a user cancels a simulation")
        except InterlockError:
            return  # it has ended

    async def _see_it_through(self, run_id: str, drawn: random.Random) -> None:
        """Poll the simulation until it has ended; resume it whenever stopped."""
        every_s = 2 * self._process.network.world.durations.simulation_silence_s
        while True:
            await asyncio.sleep(every_s * (0.5 + drawn.random()))
            try:
                view = await retry_until_answered(self._process, lambda: self._simulations.get_state(run_id))
                if view is not None and view.status in simulation.ENDED:
                    return
                if view is None or not _stands(view):
                    continue
                resume = partial(self._simulations.resume, run_id, request_id=self._request(run_id))
                resumed = await retry_until_answered(self._process, resume)
                if resumed is not None:
                    self._saw("a user resumes a simulation")
            except InterlockError:
                continue  # another process was faster; it will be polled again

    def _request(self, run_id: str) -> str:
        self._requests += 1
        return f"{run_id}.{self._requests}"


def _stands(view: SimulationView) -> bool:
    return view.status in simulation.STANDING and not view.resuming
