"""The tasks of one process: started when there is room, stopped when they must be, followed to their end.

A grant becomes a task that waits in the lane of its executor. When the lane has room it starts; when its
handler has ended, the report goes to the reporter; when the report was accepted the task ends, and the
process has a free slot. The task table decides each of these steps, and the effects on handlers and messages
follow from them (`acknowledge`, `interrupted`, `ended`: see `machines`).

Why: decision 0282.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from interlock.errors import UnknownTask
from interlock.lifecycles.lease import EXPIRED, REVOKED, LeaseState
from interlock.lifecycles.process import SHUTTING_DOWN
from interlock.lifecycles.task import (
    CLAIMING,
    PROCESSING,
    REPORTING,
    ClaimSucceeded,
    LeaseRenewed,
    ShutdownRequested,
    claim_failed,
    report_failed,
    report_succeeded,
)
from interlock.machine import Step
from interlock.processes.sandbox import NO_SANDBOX
from interlock.wire.runner import (
    MAX_TASKS,
    Ack,
    Answer,
    Complete,
    Failed,
    Grant,
    Heard,
    Heartbeat,
    Message,
    NotHeard,
    Stale,
    StaleCode,
    Succeeded,
)
from interlock.worker.cohorts import Cohort, CohortMember, Cohorts, FinishedCohort, terms_of
from interlock.worker.context import Context, HandlerServices
from interlock.worker.environment import WorkerEnv
from interlock.worker.executors import AHEAD_FOR_S, ExecutorLane, Lanes, Stopper
from interlock.worker.leases import RenewalResult, Renewer, Reporting, ReportQueue
from interlock.worker.machines import Machines, TaskPart
from interlock.worker.outcomes import Interrupted, Outcome
from interlock.worker.running_task import (
    AnyTask,
    PayloadHandoff,
    RunningTask,
    outcome_event,
    report_of,
)
from interlock.worker.settings import BATCHES
from interlock.worker.shell import NAME as SHELL_NAME
from interlock.worker.shell import SHELL

SLICE_S = 0.005
"""Maximum time of starting handlers before the event loop gets a turn."""


class _TaskPlace(NamedTuple):
    """A task of this worker: where it is executed, and whether similar jobs can be a cohort."""

    task: AnyTask | None
    lane: ExecutorLane | None
    may_be_one: bool


class TaskRunner:
    """The unfinished tasks of this process."""

    def __init__(
        self,
        env: WorkerEnv,
        services: HandlerServices,
        *,
        reporter: ReportQueue,
        renewer: Renewer,
        payloads: PayloadHandoff,
        ended: Callable[[], None],
        freed: Callable[[], None],
        left_behind: Callable[[], None],
    ) -> None:
        self._settings, self._registry = env.settings, env.registry
        self._runner_id = env.runner_id
        self._reporter, self._renewer = reporter, renewer
        self._payloads = payloads
        self._log, self._now = env.log, env.now
        self._on_end, self._freed = ended, freed
        self._stopper = Stopper(
            env.settings,
            env.log,
            awake=env.awake,
            left_behind=left_behind,
            freed=self._fill_soon_if_needed,
        )
        self._services = services
        self._tracing, self._monotonic = env.tracing, env.monotonic
        self.machines: Machines = Machines(env.settings.slots, watch=env.watch, clock=env.now, actions=self)
        self.active: dict[TaskPart, None] = self.machines.tasks
        """Unfinished tasks and cohorts."""
        self._lanes = Lanes(env.settings, env.monotonic)
        self.outside_the_loop: Callable[[], int] = self._lanes.outside_the_loop
        self.on_the_loop: Callable[[], str] = self._lanes["async"].on_the_loop
        self._prefetched: deque[tuple[float, RunningTask]] = deque()
        self._acknowledging: set[RunningTask] = set()
        self._filling = False
        self._fill_is_due = False
        self._warned = False
        self._unknown = 0
        """Number of grants of unknown tasks."""
        self._read_changes: int | None = None
        """The changes of the registry when it was read."""
        self._names: tuple[str, ...] | None = None
        self._task_places: dict[str, _TaskPlace] = {}
        self._slots_of_handlers = env.settings.slots_for(0)
        self._nudge, self._ended = renewer.nudge, self._handler_ended  # bound once, not once per task
        self._cohorts = Cohorts(
            env,
            self.machines,
            self._lanes["async"],
            report=reporter.put,
            renewer=renewer,
            context_for=self._context_for,
            ended=self._ended,
        )

    def count(self) -> int:
        """Return the number of tasks; from any thread."""
        return sum(one.count for one in list(self.active))

    def _context_for(self, grant: Grant, wake: Callable[[], None]) -> Context:
        return Context(grant, now=self._now, wake=wake, services=self._services)

    def dissolve_cohorts(self) -> None:
        """Make separate tasks of all waiting jobs in cohorts."""
        self._cohorts.dissolve_all()

    def _tasks_alone(self) -> list[RunningTask]:
        """Dissolve all cohorts; return every task that is not reported yet."""
        self.dissolve_cohorts()
        return [one for one in self.active if isinstance(one, RunningTask)]

    # Capacity

    def capacity(self) -> tuple[int, bool]:
        """Return how many more grants to claim, and whether they begin soon.

        Otherwise they are prefetched. Without answers to reports the tasks use up the slots.
        """
        batch = self._lanes.batch_ahead()
        room = self._lanes.room_ahead(len(self._acknowledging), batch)
        if not (begin := room > 0):
            room = self._settings.prefetch - len(self._prefetched)
        slots = self._slots_of_handlers + BATCHES * max(batch, self._settings.concurrency)
        active: int = self.machines.process.data.active_tasks
        return min(room, slots - active), begin

    def _room_now(self) -> int:
        return self._lanes.room(len(self._acknowledging))

    # From a grant to a handler

    def tasks(self) -> tuple[str, ...] | None:
        """Return the names of the tasks here; None if there are too many."""
        if self._read_changes != self._registry.changes:
            self._read_registry()
        return self._names

    def _read_registry(self) -> None:
        self._read_changes, names = self._registry.changes, self._registry.names()
        self._names = None if len(names) >= MAX_TASKS else tuple(sorted({*names, SHELL_NAME}))
        self._task_places.clear()

    def take(
        self, grants: Iterable[Grant], claimed_at: float, *, begin: bool = True, next_turn: bool = False
    ) -> int:
        """Accept grants; start those that can, and release others.

        Those that would wait too long are released. With `next_turn` they start after a turn of the event
        loop, in which the next claim is sent. Release grants of unknown tasks; return their number.
        """
        unknown, free = self._unknown, max(0, self._lanes.free())
        grants = list(grants)
        for some, ahead in ((grants[:free], False), (grants[free:], True)):
            for terms, alike in groupby(some, terms_of):
                self._take_alike(list(alike), claimed_at, plain=terms[0] is True, ahead=ahead)
        if begin and next_turn:
            asyncio.get_running_loop().call_soon(self._fill_soon_if_needed)
        elif begin:
            self.fill()
        if len(grants) > free:
            asyncio.get_running_loop().call_later(AHEAD_FOR_S, self._release_ahead, self._monotonic())
        return self._unknown - unknown

    def _take_alike(self, grants: list[Grant], claimed_at: float, *, plain: bool, ahead: bool) -> None:
        """Accept grants of the same task and terms, as a cohort if possible."""
        if self._read_changes != self._registry.changes:
            self._read_registry()
        name = grants[0].task
        task, lane, may_be_one = self._task_places.get(name) or self._place_of(name)
        if task is not None and may_be_one and plain and not self._registry.chain.waits:
            self._cohorts.form(grants, task, claimed_at, ahead=ahead)
            return
        for grant in grants:
            running = RunningTask(grant, self._runner_id, claimed_at, self.machines)
            running.task, running.lane, running.ahead = task, lane, ahead
            self.active[running] = None
            if grant.acknowledged:
                self._accept(running)
            else:
                self._prefetched.append((claimed_at, running))

    def _place_of(self, name: str) -> _TaskPlace:
        if name != SHELL_NAME and name not in self._registry:
            return _TaskPlace(None, None, may_be_one=False)
        task: AnyTask = SHELL if name == SHELL_NAME else self._registry.get(name)
        lane = self._lanes[task.executor_on(self._settings.executor)]
        self._task_places[name] = known = _TaskPlace(task, lane, self._cohorts.may_be_one(task, lane))
        return known

    def fill(self) -> None:
        """Start waiting tasks while there is room, with turns for the event loop."""
        self._fill_is_due = False
        self._filling = True
        now = self._monotonic()
        until = now + SLICE_S
        try:
            for lane in self._lanes.values():
                while lane.has_room:
                    if type(lane.waiting[0]) is Cohort:
                        self._cohorts.run(lane.waiting[0], until)
                    else:
                        self._begin(lane.waiting.popleft(), lane, now)
                    now = self._monotonic()
                    if now > until:
                        return
            if self._prefetched:
                self._acknowledge_prefetched()
        finally:
            self._filling = False
            self._fill_soon_if_needed()

    def _accept(self, running: RunningTask) -> None:
        self._renewer.add(running)
        if self._has_lane(running):
            running.lane.waiting.append(running)

    def _has_lane(self, running: RunningTask) -> bool:
        """Return whether this worker has its task; release it otherwise."""
        if running.lane is not None:
            return True
        name = running.grant.task
        self._unknown += 1
        error = UnknownTask(name, self._registry.names()).sentence
        self._log.warning("task_not_known", task_id=running.grant.job_id, task=name, error=error)
        self._release_unused(running, f"this worker has no task {name}")
        return False

    def _warn_of_unknown(self, running: RunningTask) -> None:
        """Log once that untrusted steps run without isolation from this worker."""
        if running.grant.untrusted and self._settings.sandbox.kind == NO_SANDBOX.kind and not self._warned:
            self._warned = True
            self._log.warning(
                "untrusted_steps_are_not_isolated",
                task_id=running.grant.job_id,
                todo="Start a worker for untrusted work with --isolate.",
            )

    def _begin(self, running: RunningTask, lane: ExecutorLane, now: float) -> None:
        self._warn_of_unknown(running)
        if running.state is CLAIMING:
            running.send(ClaimSucceeded(at=self._now(), ttl_s=running.ttl_s))
        running.context = self._context_for(running.grant, self._nudge)
        if running.task is not SHELL:
            running.chain = self._registry.chain
        if self._tracing is not None:
            running.span = self._tracing.span(running.grant)
        lane.running[running] = now
        lane.executor.begin(running, self._ended)

    def _acknowledge_prefetched(self) -> None:
        while self._prefetched and self._room_now() > 0:
            _, running = self._prefetched.popleft()
            if self._has_lane(running):
                running.send(ClaimSucceeded(at=self._now(), ttl_s=running.ttl_s))

    def acknowledge(self, running: RunningTask) -> None:
        """Acknowledge the lease; the handler starts when that is confirmed."""
        self._acknowledging.add(running)
        running.renewed_at = self._monotonic()
        self._reporter.put(running, (running.ack(),))

    def release_old(self) -> None:
        """Release grants that were prefetched half an ack window ago."""
        oldest = self._monotonic() - self._settings.durations.ack_window_s / 2
        while self._prefetched and self._prefetched[0][0] <= oldest:
            _, running = self._prefetched.popleft()
            self._release_unused(running)

    def _release_ahead(self, claimed_until: float) -> None:
        """Release waiting jobs that were claimed ahead by then.

        Other workers can start them.
        """
        for lane in self._lanes.values():
            ahead = [one for one in lane.waiting if one.ahead and one.claimed_at <= claimed_until]
            for cohort in [one for one in ahead if isinstance(one, Cohort)]:
                ahead += self._cohorts.dissolve(cohort)
            for running in ahead:
                if isinstance(running, RunningTask):
                    lane.waiting.remove(running)
                    self._release_unused(running)

    def _release_unused(self, running: RunningTask, why: str = "unused") -> None:
        """Release a job that has not started; that costs no retry."""
        running.send(claim_failed)
        self._reporter.put(running, (running.release(why),))

    # From the end of a handler to the end of its task

    def _handler_ended(self, running: RunningTask, outcome: Outcome) -> None:
        running.handler_ended = True
        running.lane.left(running, self._monotonic())
        if running.ended:
            self._give_back(running)
            self._freed()  # its end was reported earlier, without room
        else:
            self._settle(running, outcome)
        self._fill_soon_if_needed()

    def _settle(self, running: RunningTask, outcome: Outcome) -> None:
        """Report the outcome, unless the lease was lost."""
        running.handler_ended = True
        if running.context is not None and isinstance(outcome, Succeeded | Failed):
            outcome = running.context.mask.outcome(outcome)
        running.outcome = outcome
        if running.state is PROCESSING:
            if running.lost or self._monotonic() >= running.lease_ends_at():
                self._log.warning("lease_lost", task_id=running.grant.job_id, code="LEASE_EXPIRED")
                self._lost(running)
                return
            running.send(outcome_event(running, outcome, self._now()))
        self._report(running)

    def _report(self, running: RunningTask) -> None:
        ready, unsent = self._payloads.take_for_report(running)
        if ready and running.outcome is not None:
            self._reporter.put(running, report_of(running, running.outcome, unsent))

    def answered(
        self, owner: Reporting, messages: Sequence[Message], answers: Sequence[Answer | None]
    ) -> None:
        """Handle the answers to reports; None if the lease ended before."""
        if isinstance(owner, FinishedCohort):
            for running, message, answer in self._cohorts.answered(owner, messages, answers):
                self._reported(running, message, answer)
            return
        for message, answer in zip(messages, answers, strict=True):
            kind = type(message)
            if kind is Ack:
                self._acknowledged(owner, answer)
            elif owner.state is REPORTING and kind is not Heartbeat:
                self._reported(owner, message, answer)

    def _acknowledged(self, running: RunningTask, answer: Answer | None) -> None:
        self._acknowledging.discard(running)
        if running.state is not PROCESSING:
            return  # it was released while the acknowledgement was under way
        if isinstance(answer, Heard):
            self._accept(running)
        else:
            self._lost(running, answer)
        self._fill_soon_if_needed()

    def _reported(self, running: RunningTask, message: Message, answer: Answer | None) -> None:
        if isinstance(answer, Heard):
            running.send(report_succeeded)
        elif isinstance(answer, NotHeard) and _is_success(message):
            self._report_refusal(running, answer)
        else:
            error = "it could not be delivered in time" if answer is None else answer.error
            self._log.warning("report_failed", task_id=running.grant.job_id, error=error)
            running.send(report_failed)

    def _report_refusal(self, running: RunningTask, refused: NotHeard) -> None:
        """Report a failure, because the result was refused."""
        failed = Failed(
            error=f"The result was refused: {refused.error}", details=refused.todo, failure_class="user"
        )
        self._reporter.put(running, (running.complete(failed, None),))

    def _give_back(self, running: RunningTask) -> None:
        """Release an abandoned task that has stopped, if its lease is live.

        So another worker can start it.
        """
        if running.give_back and self._monotonic() < running.lease_ends_at():
            unsent = None if running.context is None else running.context.take()
            self._reporter.put(running, (running.release("connection lost", unsent),))

    # Stopping

    def renewed(self, results: Sequence[RenewalResult]) -> None:
        """Handle the answers to heartbeats; None if one was not delivered."""
        for renewed, answer in results:
            running = self._cohorts.take_out(renewed) if isinstance(renewed, CohortMember) else renewed
            if running is None or running.ended:
                continue
            if isinstance(answer, Stale) and not running.sent:
                self._log.warning("lease_lost", task_id=running.grant.job_id, code=str(answer.code))
                self._lost(running, answer)
            elif isinstance(answer, Heard):
                self._renewed(running, answer)
            if running.state is REPORTING and running.handler_ended and not running.sent:
                self._report(running)  # it has waited for this heartbeat

    def _renewed(self, running: RunningTask, answer: Heard) -> None:
        if running.state is PROCESSING:
            running.send(LeaseRenewed(at=self._now(), ttl_s=running.ttl_s))
        if answer.cancel_requested and not running.handler_ended:
            self._cancel(running)

    def _cancel(self, running: RunningTask) -> None:
        running.stop("cancel")
        if running.escalated:
            return
        running.escalated = True
        if running.begun:
            self._stopper.stop_gracefully(running)
            return
        self._remove_waiting(running)
        if running.state is CLAIMING:
            running.send(ClaimSucceeded(at=self._now(), ttl_s=running.ttl_s))
        self._settle(running, Interrupted())

    def _lost(self, running: RunningTask, answer: Answer | None = None) -> None:
        """Handle a lost lease: no message is accepted under it."""
        running.stop("lost")
        revoked = isinstance(answer, Stale) and answer.code is StaleCode.LEASE_REVOKED
        self._lose(running, REVOKED if revoked else EXPIRED)

    def _lose(self, running: RunningTask, ended: LeaseState) -> None:
        """Stop the task without a report."""
        if running.state is PROCESSING:
            self.machines.lease_ended(running, ended)
        elif running.state is CLAIMING:
            self._remove_waiting(running)
            running.send(claim_failed)
            if not running.lost:
                self._reporter.put(running, (running.release("connection lost"),))
        elif not running.handler_ended:  # it was told to save its work, and is still doing so
            running.stop("lost")
            self._stopper.stop(running)

    def revoked(self) -> None:
        """Drop all tasks: the worker was terminated, and its leases were revoked."""
        for running in self._tasks_alone():
            self._lose(running, REVOKED)

    def disconnected(self) -> None:
        """Drop tasks that were claiming or saving at a lost connection."""
        for running in self._tasks_alone():
            if running.state is not PROCESSING:
                self._lose(running, EXPIRED)

    def interrupt(self) -> None:
        """Release all tasks: running ones have to save their work."""
        for running in self._tasks_alone():
            running.send(ShutdownRequested(at=self._now()))

    def interrupted(self, running: RunningTask) -> None:
        """Request a handler to save its work; release a task without one."""
        running.stop("shutdown")
        if not running.begun:
            self._remove_waiting(running)
            running.handler_ended, running.outcome = True, Interrupted()
            # The message for its lease is a consequence of the same step, and decided after this.
            asyncio.get_running_loop().call_soon(self._report, running)
        elif self.machines.process.state is SHUTTING_DOWN:
            running.lane.executor.forward_stop(running)  # the process stops it later
        else:
            self._stopper.stop_gracefully(running)

    def ended(self, running: RunningTask, step: Step[Any]) -> None:
        """Remove an ended task; stop its handler or release its lease."""
        self.active.pop(running, None)
        self._renewer.remove(running)
        if step.source is PROCESSING:
            self._abandon(running)
        elif step.source is CLAIMING and step.event == ShutdownRequested.name:
            self._remove_waiting(running)
            self._reporter.put(running, (running.release("shutdown"),))
        self._on_end()

    def _abandon(self, running: RunningTask) -> None:
        """Stop a handler; release its lease afterwards if it may be live."""
        running.give_back = not running.lost
        running.stop("lost")
        if not running.begun:
            self._remove_waiting(running)
            running.handler_ended = True
        if running.lane is not None and running in running.lane.running:
            self._stopper.stop(running)
        elif running.handler_ended:
            self._give_back(running)

    def kill(self) -> None:
        """Kill all running handlers."""
        for running in self._tasks_alone():
            if not running.handler_ended and running.begun:
                running.lane.executor.kill(running)

    async def close(self) -> None:
        """Stop all handlers that can be stopped."""
        for lane in self._lanes.values():
            await lane.executor.close()

    def _remove_waiting(self, running: RunningTask) -> None:
        self._acknowledging.discard(running)
        if running.lane is not None and running in running.lane.waiting:
            running.lane.waiting.remove(running)
        self._prefetched = deque(entry for entry in self._prefetched if entry[1] is not running)

    def _fill_soon_if_needed(self) -> None:
        if self._filling or self._fill_is_due:
            return
        waiting = any(lane.has_room for lane in self._lanes.values())
        if waiting or (self._prefetched and self._room_now() > 0):
            self._fill_is_due = True
            asyncio.get_running_loop().call_soon(self._continue_filling)

    def _continue_filling(self) -> None:
        self.fill()
        if not any(lane.waiting for lane in self._lanes.values()):
            self._freed()  # there was no room while they waited, and it may be long until another task ends


def _is_success(message: Message) -> bool:
    return isinstance(message, Complete) and isinstance(message.outcome, Succeeded)
