"""Cohorts: similar jobs of one claim, executed in a loop and reported together.

Most jobs are one of many: claimed together, of the same task, with a handler that never waits. An object with
a state machine, a context and a report for each of them costs more than their handlers. So a claim becomes

    Cohort           similar jobs that wait to begin, in the order of the claim
    FinishedCohort   those that have succeeded in one slice of time, until their report is answered

To the task table a cohort is one task that counts as many: the table decides once for all of them. An
exceptional job leaves its cohort as a separate `RunningTask`: one that fails, logs or reports (log, progress,
checkpoint, cost), is cancelled, loses its lease, is released, or whose report is not accepted. Handlers that
wait are never in a cohort.

The event loop executes and reports a cohort (`Cohorts`). Meanwhile the renewer's thread renews the leases of
its jobs (`held`) and may stop one (`stop`), also while a handler blocks the event loop. `Cohort.lock` guards
the state of the current job that both threads share.

Why: decision 0395.
"""

from __future__ import annotations

import contextvars
import itertools
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec

from interlock.lifecycles import TASK, lease
from interlock.lifecycles.task import (
    ClaimSucceeded,
    ProcessingSucceeded,
    TaskData,
    TaskState,
    report_succeeded,
)
from interlock.machine import Event, Step
from interlock.wire.runner import Answer, Complete, Grant, Heard, Heartbeat, Message, Succeeded
from interlock.worker.context import CURRENT, Context
from interlock.worker.executors import AsyncExecutor, ExecutorLane, function_never_waits
from interlock.worker.machines import Machines
from interlock.worker.outcomes import NOTHING, Outcome, outcome_of, success_of
from interlock.worker.running_task import MAX_REPORT_BYTES, AnyTask, Ended, RunningTask
from interlock.worker.telemetry import Observer

if TYPE_CHECKING:
    from interlock.worker.environment import WorkerEnv

_ANY_OUTPUT = msgspec.Raw(b'"~any~output~"')
"""Placeholder for the results: the table decides independently of them."""


_WAITED = "a coroutine without any await has not ended with its first step"


def terms_of(grant: Grant) -> tuple[object, ...]:
    """Return the properties that adjacent grants of one cohort share."""
    plain = grant.acknowledged and not grant.untrusted and not grant.secrets
    return plain, grant.task, grant.ttl_s, grant.heartbeat_every_s, grant.timeout_s


class _Group(ABC):
    """Jobs with leases of the same terms, in one state: one task of the machines that counts as many."""

    __slots__ = (
        "ahead", "claimed_at", "data", "entered_at", "grants", "lane", "lock", "machines", "numbered", "owed",
        "renewed_at", "runner_id", "state", "task", "ttl_s",
    )  # fmt: skip

    state: TaskState
    data: TaskData

    def __init__(
        self,
        grants: list[Grant],
        task: AnyTask,
        lane: ExecutorLane,
        lock: threading.RLock,
        *,
        claimed_at: float,
        ttl_s: float,
        machines: Machines,
        runner_id: str,
    ) -> None:
        self.grants: list[Grant] = grants
        self.task: AnyTask = task
        self.lane: ExecutorLane = lane
        self.lock: threading.RLock = lock
        self.machines: Machines = machines
        self.runner_id: str = runner_id
        self.claimed_at: float = claimed_at
        self.entered_at: float = claimed_at
        self.renewed_at: float = claimed_at
        self.ttl_s: float = ttl_s
        self.ahead: bool = False
        self.numbered: int = 0
        """Number of messages sent about each of them, and the sequence number of the last one."""
        self.owed: type[Event] | None = None

    @property
    def timer_at(self) -> None:
        """None: the renewer watches their leases, by the monotonic clock."""
        return

    @property
    def counts_as_failed(self) -> bool:
        """False: a job that fails leaves its group."""
        return False

    def send(self, event: Event) -> bool:
        """Send an event to all of them; return whether the table accepted it."""
        return self.machines.send_to(TASK, self, event, self) is None

    def lease_ends_at(self) -> float:
        """Return when the leases end at the earliest, by the monotonic clock."""
        return self.renewed_at + self.ttl_s

    def keep_up_with(self, other: _Group) -> None:
        """Copy the renewals of another group; requires the lock."""
        self.numbered, self.renewed_at, self.ttl_s = other.numbered, other.renewed_at, other.ttl_s

    @abstractmethod
    def held(self) -> list[Grant]:
        """Return the grants renewed with this group, from any thread."""

    def heartbeats(self) -> tuple[list[Grant], list[Heartbeat]]:
        """Return the held grants and their heartbeats."""
        with self.lock:
            self.numbered = number = self.numbered + 1
            held = self.held()
        runner_id = self.runner_id
        return held, [Heartbeat(token=grant.token, runner_id=runner_id, sequence=number) for grant in held]

    def task_of(self, grant: Grant) -> RunningTask:
        """Return one of them as a separate task, in the common state.

        The caller holds the lock.
        """
        running = RunningTask(grant, self.runner_id, self.claimed_at, self.machines, begin=False)
        running.state, running.data = self.state, self.data
        running.renewed_at, running.ttl_s = self.renewed_at, self.ttl_s
        running.entered_at, running.next_number = self.entered_at, itertools.count(self.numbered + 1).__next__
        running.task, running.lane, running.ahead = self.task, self.lane, self.ahead
        self.machines.tasks[running] = None
        return running


class Cohort(_Group):
    """Similar jobs of one claim. Those before `position` have begun, those before `settled` have left."""

    __slots__ = ("context", "current", "done", "own", "position", "settled", "stops")
    sent = False
    entered_at: float

    def __init__(
        self,
        grants: list[Grant],
        task: AnyTask,
        lane: ExecutorLane,
        *,
        claimed_at: float,
        ahead: bool,
        of: Cohorts,
    ) -> None:
        # Reentrant, because a finalizer that logs can run while it is held.
        lock = threading.RLock()
        super().__init__(
            grants,
            task,
            lane,
            lock,
            claimed_at=claimed_at,
            ttl_s=grants[0].ttl_s,
            machines=of.machines,
            runner_id=of.runner_id,
        )
        self.ahead: bool = ahead
        self.position: int = 0
        self.settled: int = 0
        self.current: Grant | None = None
        """The job whose handler is being executed."""
        self.context: Context | None = None
        """The context of the current job, once its handler has used it."""
        self.own: RunningTask | None = None
        """The separate task of the current job, once its handler has logged or reported."""
        self.done: FinishedCohort | None = None
        """Jobs that have succeeded in this slice."""
        self.stops: dict[str, str] = {}
        """Stop reasons of jobs by id, from their leases."""
        self.machines.begin(self)

    @property
    def grant(self) -> Grant:
        """The current job, or the next one."""
        return self.current or self.grants[min(self.position, len(self.grants) - 1)]

    @property
    def count(self) -> int:
        """Number of jobs that wait to begin."""
        return len(self.grants) - self.position

    @property
    def begun(self) -> bool:
        """False: waiting jobs have not begun."""
        return False

    def waiting(self) -> list[Grant]:
        """Return the jobs that wait to begin."""
        return self.grants[self.position :]

    def held(self) -> list[Grant]:
        """Return the grants renewed with the cohort, from any thread."""
        held, own = self.grants[self.settled :], self.own
        return held if own is None else [grant for grant in held if grant is not own.grant]

    def moved(self, watch: Observer, steps: Sequence[Step[Any]]) -> None:
        """Report the steps of each of them."""
        since = [self.entered_at] * len(self.grants)
        self.entered_at = max(watch.tasks_moved(self.grants, steps, since), default=self.entered_at)

    def stop(self, job_id: str, reason: str) -> None:
        """Stop one job, from any thread; losing the lease overrides the rest."""
        with self.lock:
            known = self.stops.get(job_id)
            if known == "lost" or (known and reason != "lost"):
                return
            self.stops[job_id] = reason
            if self.current is not None and self.current.job_id == job_id and self.context is not None:
                (self.own or self.context).stop(reason)

    def end_current(self, now: float) -> bool:
        """Finish the current job after a success.

        Return False if it needs a separate task.
        """
        context = self.context
        if context is not None:
            context.finish_lines()
        with self.lock:
            if context is not None and (context.cost is not None or not context.quiet):
                return False
            if self.stops and self.grant.job_id in self.stops:
                return False
            if now >= self.renewed_at + self.ttl_s:
                return False
            self.current = None
        return True


class FinishedCohort(_Group):
    """Jobs of a cohort that have succeeded, with their results."""

    __slots__ = ("_first", "entered", "outcomes", "steps")
    sent = True

    def __init__(self, cohort: Cohort) -> None:
        super().__init__(
            [],
            cohort.task,
            cohort.lane,
            cohort.lock,
            claimed_at=cohort.claimed_at,
            ttl_s=cohort.ttl_s,
            machines=cohort.machines,
            runner_id=cohort.runner_id,
        )
        self._first = cohort.grant
        self.keep_up_with(cohort)
        self.state: TaskState = cohort.state
        self.data: TaskData = cohort.data
        self.entered_at: float = cohort.entered_at
        self.outcomes: list[Succeeded] = []
        self.steps: Sequence[Step[Any]] = ()
        """The steps of a job from the state of the cohort into this one."""
        self.entered: list[float] = []
        """Times at which the jobs entered their states, if observed."""

    @property
    def grant(self) -> Grant:
        """One of the jobs."""
        return self.grants[0] if self.grants else self._first

    @property
    def count(self) -> int:
        """Number of jobs."""
        return len(self.grants)

    @property
    def begun(self) -> bool:
        """True: their handlers have ended."""
        return True

    def held(self) -> list[Grant]:
        """Return all of them; from any thread."""
        return self.grants[:]

    def moved(self, watch: Observer, steps: Sequence[Step[Any]]) -> None:
        """Report the steps of each job.

        Jobs that have not begun report when they do.
        """
        if not self.grants:
            self.steps = steps
        self.entered = watch.tasks_moved(self.grants, steps, self.entered)

    def completions(self) -> list[Message]:
        """Return the completions of all jobs."""
        with self.lock:
            self.numbered: int = self.numbered + 1
            number = self.numbered
        runner_id = self.runner_id
        return [
            Complete(token=grant.token, runner_id=runner_id, sequence=number, outcome=outcome)
            for grant, outcome in zip(self.grants, self.outcomes, strict=True)
        ]

    def leave(self, place: int) -> RunningTask:
        """Return the job at this place as a separate task.

        Its report was not simply accepted.
        """
        outcome = self.outcomes.pop(place)
        self.entered_at = self.entered.pop(place) if self.entered else self.entered_at
        with self.lock:
            running = self.task_of(self.grants.pop(place))
        running.data = msgspec.structs.replace(self.data, output=outcome.result)
        running.outcome, running.owed = outcome, self.owed
        running.handler_ended = running.sent = True
        return running


class CohortMember(NamedTuple):
    """One job in a cohort, for the renewer."""

    cohort: Cohort
    grant: Grant


class RenewerPort(Protocol):
    """The renewer of leases, as cohorts use it."""

    def add(self, running: RunningTask | Cohort | FinishedCohort, /) -> None:
        """Renew this lease from now on."""

    def remove(self, running: RunningTask | Cohort | FinishedCohort, /) -> None:
        """Stop renewing this lease."""

    def nudge(self) -> None:
        """Schedule sending messages of handlers."""


class Cohorts:
    """Forms cohorts, executes them slice by slice, and makes tasks of jobs that leave."""

    def __init__(
        self,
        env: WorkerEnv,
        machines: Machines,
        lane: ExecutorLane,
        *,
        report: Callable[[FinishedCohort, Sequence[Message]], None],
        renewer: RenewerPort,
        context_for: Callable[[Grant, Callable[[], None]], Context],
        ended: Ended,
    ) -> None:
        self.machines: Machines = machines
        self.runner_id: str = env.runner_id
        assert isinstance(lane.executor, AsyncExecutor)
        self._lane, self._executor = lane, lane.executor
        self._report_all, self._renewer = report, renewer
        self._context_for, self._ended = context_for, ended
        self._now, self._monotonic = env.now, env.monotonic
        self._max_bytes = env.settings.max_result_bytes
        self._watch = env.watch if env.watch.listens else None
        self._mask = env.mask
        self._nothing = self._mask.outcome(NOTHING)
        self._traced = env.tracing is not None
        self._registry = env.registry

    # Forming

    def may_be_one(self, task: AnyTask, lane: ExecutorLane) -> bool:
        """Return whether jobs of this task can be a cohort; never if traced."""
        return lane is self._lane and not self._traced and function_never_waits(task.function)

    def form(self, grants: list[Grant], task: AnyTask, claimed_at: float, *, ahead: bool) -> None:
        """Queue these grants as a cohort."""
        cohort = Cohort(grants, task, self._lane, claimed_at=claimed_at, ahead=ahead, of=self)
        self.machines.tasks[cohort] = None
        self._renewer.add(cohort)
        self._lane.waiting.append(cohort)

    def dissolve(self, cohort: Cohort) -> list[RunningTask]:
        """Make a separate task of each waiting job, in its place."""
        return [self._leave(cohort, grant) for grant in cohort.waiting()]

    def dissolve_all(self) -> None:
        """Make separate tasks of all waiting jobs.

        The next event concerns each of them.
        """
        for cohort in [one for one in self._lane.waiting if type(one) is Cohort]:
            self.dissolve(cohort)

    def take_out(self, member: CohortMember) -> RunningTask | None:
        """Make a separate task of a waiting job; None if it has begun."""
        cohort, grant = member
        return self._leave(cohort, grant) if any(grant is one for one in cohort.waiting()) else None

    def _leave(self, cohort: Cohort, grant: Grant) -> RunningTask:
        waiting = self._lane.waiting
        with cohort.lock:
            running = cohort.task_of(grant)
            del cohort.grants[cohort.grants.index(grant, cohort.position)]
        if reason := cohort.stops.get(grant.job_id):
            running.stop(reason)
        self._renewer.add(running)
        waiting.insert(waiting.index(cohort), running)
        self._forget_if_empty(cohort)
        return running

    def _forget_if_empty(self, cohort: Cohort) -> None:
        if cohort.position == len(cohort.grants) and cohort.done is None:
            self._lane.waiting.remove(cohort)
            self.machines.tasks.pop(cohort, None)
            self._renewer.remove(cohort)

    # Executing

    def run(self, cohort: Cohort, until: float) -> None:
        """Execute handlers for a slice of time, and report the successes.

        The slice ends early when a job has to leave the cohort.
        """
        cohort.done = done = FinishedCohort(cohort)
        if not done.send(ClaimSucceeded(at=self._now(), ttl_s=cohort.ttl_s)):
            cohort.done = None
            self.dissolve(cohort)  # then the table decides about each job separately
            return
        outside = CURRENT.set(None)
        self._executor.current = cohort
        try:
            outcome = self._execute(cohort, done, until)
        finally:
            self._executor.current = None
            CURRENT.reset(outside)
        own = None if outcome is None else self._task_of_current(cohort, done)
        with cohort.lock:  # from here on their leases are renewed with `done`
            done.keep_up_with(cohort)
            cohort.settled = cohort.position
            cohort.current = cohort.context = cohort.own = cohort.done = None
            if done.grants:
                self._renewer.add(done)
        if done.grants:
            self._report(done)
        self._forget_if_empty(cohort)
        if own is not None and outcome is not None:
            self._ended(own, outcome)

    def _execute(self, cohort: Cohort, done: FinishedCohort, until: float) -> Outcome | None:
        """Execute handlers until one has to leave; return the outcome of that one."""
        watch, longest_s, size = self._watch, 0.0, 0
        alone = not (cohort.task.wants_context or self._registry.chain.wraps)
        execute = self._outcome if alone else self._outcome_in_context
        outcome: Outcome | None = None
        first, now = cohort.position, self._monotonic()
        while cohort.position < len(cohort.grants) and size < MAX_REPORT_BYTES:
            grant = cohort.grants[cohort.position]
            cohort.context, cohort.current = None, grant
            cohort.position += 1
            if watch is not None:
                done.entered.append(watch.task_moved(grant, done.steps, cohort.entered_at))
            outcome = execute(cohort, grant)
            now, before = self._monotonic(), now
            if now - before > longest_s:
                longest_s = now - before
            if type(outcome) is not Succeeded or not cohort.end_current(now):
                break
            done.grants.append(grant)
            done.outcomes.append(outcome)
            size += len(outcome.result)
            outcome = None
            if now > until:
                break
        self._lane.learn(longest_s, cohort.position - first)  # also one that leaves its cohort was quick
        return outcome

    def _outcome(self, cohort: Cohort, grant: Grant) -> Outcome:
        """Execute one handler that takes no context and never waits."""
        CURRENT.set(partial(self._context_of, cohort, grant))
        try:
            cohort.task.invoke(grant.input, None).send(None)
        except StopIteration as returned:
            return self._nothing if returned.value is None else self._success(returned.value)
        except BaseException as error:  # noqa: BLE001 - any exception of a handler is its outcome
            return outcome_of(error)
        raise AssertionError(_WAITED)

    def _outcome_in_context(self, cohort: Cohort, grant: Grant) -> Outcome:
        """Execute one handler with its context, and with the middleware around it."""
        CURRENT.set(partial(self._context_of, cohort, grant))
        context, chain = self._context_of(cohort, grant), self._registry.chain
        handler = partial(_returned, cohort.task, grant, context)
        try:
            # What middleware sets in context variables is for this job alone.
            value = contextvars.copy_context().run(chain.call, context, handler) if chain.wraps else handler()
        except BaseException as error:  # noqa: BLE001 - any exception of a handler is its outcome
            return outcome_of(error)
        return self._success(value)

    def _success(self, value: Any) -> Outcome:
        if value is None:
            return self._nothing
        outcome = success_of(value, max_bytes=self._max_bytes)
        if type(outcome) is Succeeded and len(outcome.result) < self._mask.shortest:
            return outcome
        return self._mask.outcome(outcome)

    def _context_of(self, cohort: Cohort, grant: Grant) -> Context:
        """Return the context for a handler; that of an ended one is ignored."""
        with cohort.lock:
            if grant is not cohort.current:
                return self._context_for(grant, _do_nothing)
            if cohort.context is None:
                cohort.context = self._context_for(grant, partial(self._message_added, cohort, grant))
                if reason := cohort.stops.get(grant.job_id):
                    cohort.context.stop(reason)
            return cohort.context

    def _message_added(self, cohort: Cohort, grant: Grant) -> None:
        """Make a separate task of a job that has logged or reported.

        Any thread may call this.
        """
        with cohort.lock:
            if grant is cohort.current and cohort.done is not None:
                self._task_of_current(cohort, cohort.done)
        self._renewer.nudge()

    def _task_of_current(self, cohort: Cohort, done: FinishedCohort) -> RunningTask:
        with cohort.lock:
            if cohort.own is None:
                assert cohort.current is not None
                context = self._context_of(cohort, cohort.current)
                if done.entered[len(done.grants) :]:
                    done.entered_at = done.entered.pop()
                done.keep_up_with(cohort)
                cohort.own = done.task_of(cohort.current)
                cohort.own.context = context
                if reason := cohort.stops.get(cohort.current.job_id):
                    cohort.own.stop(reason)
                self._renewer.add(cohort.own)
            return cohort.own

    # Reporting

    def _report(self, done: FinishedCohort) -> None:
        """Report the successes of a slice together."""
        self.machines.tasks[done] = None
        done.send(ProcessingSucceeded(at=self._now(), output=_ANY_OUTPUT))
        if done.owed is lease.Complete:
            self._report_all(done, done.completions())

    def answered(
        self, done: FinishedCohort, messages: Sequence[Message], answers: Sequence[Answer | None]
    ) -> Iterator[tuple[RunningTask, Message, Answer | None]]:
        """End the jobs with accepted reports; yield the others as tasks."""
        odd = [place for place, answer in enumerate(answers) if type(answer) is not Heard]
        left = [(done.leave(place), messages[place], answers[place]) for place in reversed(odd)]
        for running, _, _ in left:
            self._renewer.add(running)
        if done.grants:
            done.send(report_succeeded)
        else:
            self.machines.tasks.pop(done, None)
            self._renewer.remove(done)
        return reversed(left)


def _returned(task: AnyTask, grant: Grant, context: Context) -> Any:
    """Execute a handler that never waits, and return its result."""
    try:
        task.invoke(grant.input, context).send(None)
    except StopIteration as returned:
        return returned.value
    raise AssertionError(_WAITED)


def _do_nothing() -> None:
    """Do nothing: the handler has ended."""
