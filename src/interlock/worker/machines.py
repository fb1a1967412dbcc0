"""The machines of a worker process: the process and its tasks, which change together.

An event goes to the process (`WorkerProcess.send`) or to a task (`RunningTask.send`). The tables decide, and
`WIRING` maps the couplings to their targets: the process and its tasks at once, leases by a message to the
server.
Effects outside of the machines follow from their steps: `TaskActions` carries them out.

All of this happens in the event loop. Only `Terminated` is used in other threads, too.

Why: decision 0374.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Any, Protocol

from interlock.lifecycles import lease, process, task, worker
from interlock.lifecycles.couplings import COUPLINGS, Deliverer, Recipient
from interlock.lifecycles.durations import DURATIONS
from interlock.lifecycles.lease import LEASE
from interlock.lifecycles.process import PROCESS
from interlock.lifecycles.task import TASK
from interlock.lifecycles.worker import WORKER
from interlock.machine import Deadline, Event, EventRef, Moved, Refused, Step
from interlock.machine.cascade import (
    Cascade,
    EventRules,
    Owner,
    Part,
    Root,
    StepEffects,
    Timers,
    Wiring,
    each,
    order,
    to,
)
from interlock.machine.couplings import AnyMachine
from interlock.machine.events import type_of
from interlock.wire.runner import Grant
from interlock.worker.host import Shutdown
from interlock.worker.telemetry import Observer


class TaskPart(Part, Protocol):
    """A task of this process, or a cohort of tasks in one state; it is its own owner."""

    owed: type[Event] | None

    @property
    def grant(self) -> Grant:
        """Its lease, or one of its leases."""
        ...

    @property
    def count(self) -> int:
        """Number of tasks that it represents."""
        ...

    def moved(self, watch: Observer, steps: Sequence[Step[Any]], /) -> None:
        """Report its steps."""
        ...

    @property
    def begun(self) -> bool:
        """Whether its handler has begun."""
        ...

    @property
    def counts_as_failed(self) -> bool:
        """Whether it has ended with a failure of its own."""
        ...


class TaskActions(Protocol):
    """Carries out the effects of task steps, without sending further events."""

    def acknowledge(self, running: Any, /) -> None:
        """Acknowledge a lease that was only granted."""
        ...

    def interrupted(self, running: Any, /) -> None:
        """Tell a task to stop and save its work."""
        ...

    def ended(self, running: Any, step: Step[Any], /) -> None:
        """Release a task that has ended; stop its handler if it still runs."""
        ...

    def kill(self) -> None:
        """Kill all running handlers."""
        ...

    def dissolve_cohorts(self) -> None:
        """Make separate tasks of all waiting jobs in cohorts."""
        ...


class Machines(Cascade):
    """The process and its tasks, in memory: they are not stored, so they have no journal."""

    __slots__ = (
        "_claim_effects",
        "_claimed",
        "_watch",
        "actions",
        "clock",
        "is_reported",
        "process",
        "tasks",
        "timers",
    )
    in_memory = True

    def __init__(
        self,
        slots: int,
        *,
        watch: Observer,
        clock: Callable[[], datetime],
        actions: TaskActions,
    ) -> None:
        super().__init__(clock())
        self.clock: Callable[[], datetime] = clock
        """Clock for events, since a process lives long."""
        self.process: Root = Root(process.STARTING, process.Process(slots=slots))
        self.tasks: dict[Any, None] = {}
        """All unfinished tasks and cohorts, in order of arrival."""
        claimed = TASK.decide(TASK.initial, task.TaskData(), task.claim_requested)
        assert isinstance(claimed, Moved)
        self._claimed = claimed
        """The first decision about every task, which is the same for all: claimed."""
        self._claim_effects = self.wiring.effects_of(TASK, claimed.steps)
        self.actions: TaskActions = actions
        self.timers: dict[Deadline, None] = {}
        """The timers of the process that run."""
        self._watch = watch
        self.is_reported: bool = watch.listens

    def begin(self, running: Any) -> None:
        """Claim a new task."""
        first = self._claimed
        running.state, running.data = first.state, first.data
        if self.is_reported:
            self.report(self._claim_effects, running)
        if self._claim_effects.consequences:
            self._follow(self._claim_effects, running)
            self.settle()

    def lease_ended(self, running: Any, state: lease.LeaseState) -> None:
        """Apply that the server has ended the lease of a task."""
        self.follow_step(LEASE, LEASE_ENDS[state], running)

    # Log and metrics take the place of a journal. The deadlines of the process are watched by its loop, those
    # of leases by the renewer, each by a clock of its own.

    def report(self, effects: StepEffects, owner: Owner) -> None:
        """Report steps to log and metrics."""
        if effects.machine is TASK:
            owner.moved(self._watch, effects.steps)
        else:
            self._watch.process_moved(effects.steps)

    def report_refusal(self, refused: Refused[Any], owner: Owner) -> None:
        """Log and count a refusal."""
        self._watch.refused(refused, owner.grant if refused.machine == TASK.name else None)

    def carry_out(self, effect: object, _: Owner) -> None:
        """Kill handlers, or publish the shutdown report."""
        if isinstance(effect, process.KillHandlers):
            self.actions.kill()
        else:
            self._watch.announce((effect,))

    def set_timers(self, ended: Timers, started: Timers, _: Owner) -> None:
        """Note which timers of the process run, for its loop."""
        for deadline in ended:
            self.timers.pop(deadline, None)
        self.timers.update(dict.fromkeys(started))

    def expire(self, deadline: Deadline) -> None:
        """Send the event of a timer of the process that has expired."""
        self.timers.pop(deadline, None)
        self.send_to(PROCESS, self.process, self.timer_event(deadline, None))

    def parts(self) -> Iterator[tuple[AnyMachine, Any, Any]]:
        """Return the process and its tasks."""
        yield PROCESS, self.process, None
        for running in self.tasks:
            yield TASK, running, running

    def seconds(self, setting: str) -> float:
        """Raise: the loop of the process knows how long its timers run."""
        raise KeyError(setting)

    def entered(self, step: Step[Any], owner: Any) -> None:
        """Carry out the effects of a task step outside of the machines."""
        if step.target is task.REPORTING:
            self.actions.interrupted(owner)
        else:
            self.actions.ended(owner, step)


class Terminated(Cascade):
    """The termination of a worker by the supervisor, applied to its process in any thread."""

    __slots__ = ("shutdown",)

    def __init__(self, shutdown: Shutdown, now: datetime) -> None:
        super().__init__(now)
        self.shutdown: Shutdown = shutdown

    def follow(self) -> None:
        """Follow the couplings of a termination.

        An order to terminate means TERMINATED, whichever final state the record is in.
        """
        self.follow_step(WORKER, _step(WORKER, worker.RUNNING, worker.Terminate), None)

    def parts(self) -> tuple[tuple[AnyMachine, Any, Any], ...]:
        """Return nothing: the machines are in the event loop."""
        return ()

    def seconds(self, setting: str) -> float:
        """Raise: there are no timers."""
        raise KeyError(setting)


def _step(machine: AnyMachine, source: Any, event: EventRef) -> Step[Any]:
    """Return the step of an event in a state of an observed machine."""
    name = type_of(event).name
    return next(step for step in machine.steps_from(source) if step.event == name)


LEASE_ENDS = {
    lease.EXPIRED: _step(LEASE, lease.ACTIVE, lease.Expire),
    lease.REVOKED: _step(LEASE, lease.ACTIVE, lease.revoke),
}
"""The lease steps for each end reported by the server."""

_SUCCEEDED = process.TaskEnded(succeeded=True)
_FAILED = process.TaskEnded(failed=True)
_NEITHER = process.TaskEnded()


# Targets of couplings


def _tasks(machines: Machines, _: Owner) -> list[tuple[TaskPart, TaskPart]]:
    machines.actions.dissolve_cohorts()
    return [(running, running) for running in machines.tasks]


def _waiting_tasks(machines: Machines, _: Owner) -> list[tuple[TaskPart, TaskPart]]:
    machines.actions.dissolve_cohorts()
    return [(running, running) for running in machines.tasks if not running.begun]


def _acknowledge(machines: Machines, running: TaskPart) -> None:
    if not running.grant.acknowledged:  # otherwise the claim itself has acknowledged it
        machines.actions.acknowledge(running)


def _owe_completion(_: Machines, running: TaskPart) -> None:
    running.owed = lease.Complete


def _owe_release(_: Machines, running: TaskPart) -> None:
    running.owed = lease.Release


def _hurry(terminated: Terminated, _: Owner) -> None:
    """Request immediate shutdown, like a signal.

    The loop sends it to the machine.
    """
    terminated.shutdown.hurry()


def _how_it_ended(_: Machines, running: TaskPart) -> process.TaskEnded:
    if running.state is task.COMPLETED:
        return _SUCCEEDED if running.count == 1 else process.TaskEnded(succeeded=True, tasks=running.count)
    return _FAILED if running.counts_as_failed else _NEITHER


WIRING = Wiring(
    (PROCESS, TASK),
    COUPLINGS,
    {
        (Recipient.ITS_PROCESS, process.TaskEnded): to(PROCESS, lambda machines, _: machines.process),
        (Recipient.ITS_PROCESS, process.shutdown_requested): order(_hurry),
        Recipient.ITS_TASK: to(TASK, lambda _, running: running),
        Recipient.ITS_TASKS: each(TASK, _tasks),
        Recipient.WAITING_TASKS: each(TASK, _waiting_tasks),
        (Recipient.ITS_LEASE, lease.Ack): order(_acknowledge),
        (Recipient.ITS_LEASE, lease.Complete): order(_owe_completion),
        (Recipient.ITS_LEASE, lease.Release): order(_owe_release),
    },
    deliverer=Deliverer.WORKER,
    events=EventRules(
        made={
            process.TaskEnded: _how_it_ended,
            task.ShutdownRequested: lambda machines, _: task.ShutdownRequested(at=machines.clock()),
        }
    ),
    own_timers=(TASK,),
    notes={TASK: ((task.REPORTING, task.ShutdownRequested), *task.ENDED)},
    durations=DURATIONS,
)
Machines.wiring = Terminated.wiring = WIRING
