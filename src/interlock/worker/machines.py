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
from interlock.lifecycles.durations import Durations
from interlock.lifecycles.lease import LEASE
from interlock.lifecycles.process import PROCESS
from interlock.lifecycles.task import TASK
from interlock.lifecycles.worker import WORKER
from interlock.machine import Event, EventRef, Moved, Step
from interlock.machine.cascade import Cascade, EventRules, Owner, Part, Refusal, Root, Wiring, each, order, to
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

    def dissolve_cohorts(self) -> None:
        """Make separate tasks of all waiting jobs in cohorts."""
        ...


class Machines(Cascade):
    """The process and its tasks, in memory: they are not stored, so they have no journal."""

    __slots__ = (
        "_claim_effects",
        "_claimed",
        "_durations",
        "_listens",
        "_watch",
        "actions",
        "clock",
        "process",
        "tasks",
    )

    def __init__(
        self,
        slots: int,
        durations: Durations,
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
        self._durations = durations
        self._watch, self._listens = watch, watch.listens

    def begin(self, running: Any) -> None:
        """Claim a new task."""
        first = self._claimed
        running.state, running.data = first.state, first.data
        if self._listens:
            self._report(TASK, running, first.steps)
        if self._claim_effects.consequences:
            self._follow(self._claim_effects, running)
            self.settle()

    def lease_ended(self, running: Any, state: lease.LeaseState) -> None:
        """Apply that the server has ended the lease of a task."""
        self.follow_step(LEASE, LEASE_ENDS[state], running)

    # As every cascade, but with log and metrics instead of a journal. Deadlines are watched elsewhere: those
    # of leases by the renewer, those of the process by its loop, each by its own clock.

    def take(self, machine: AnyMachine, part: Part, event: Event, owner: Owner) -> Refusal:
        """Send an event to one part, and carry out the consequences at once."""
        decision = machine.decide(part.state, part.data, event)
        if not isinstance(decision, Moved):
            self._watch.refused(decision, owner.grant if machine is TASK else None)
            return decision
        part.state, part.data = decision.state, decision.data
        steps = decision.steps
        if self._listens:
            self._report(machine, owner, steps)
        if decision.effects:
            self._watch.announce(decision.effects)
        effects = self.wiring.known.get(id(steps))
        if effects is None or effects.steps is not steps:
            effects = self.wiring.effects_of(machine, steps)
        if effects.consequences:
            self._follow(effects, owner)
            self.settle()
        return None

    def settle(self) -> None:
        """Carry out waiting consequences, each with its own before the next one."""
        waiting, self._waiting = self._waiting, []
        for consequence, owner in waiting:
            consequence.deliver(self, owner)

    def _report(self, machine: AnyMachine, owner: Owner, steps: tuple[Step[Any], ...]) -> None:
        if machine is TASK:
            owner.moved(self._watch, steps)
        else:
            self._watch.process_moved(steps)

    def parts(self) -> Iterator[tuple[AnyMachine, Any, Any]]:
        """Return the process and its tasks."""
        yield PROCESS, self.process, None
        for running in self.tasks:
            yield TASK, running, running

    def seconds(self, setting: str) -> float:
        """Return how long a timer runs, by the settings."""
        return float(getattr(self._durations, setting))

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
    own_timers=(PROCESS, TASK),
    notes={TASK: ((task.REPORTING, task.ShutdownRequested), *task.ENDED)},
    durations=Durations.__struct_fields__,
)
Machines.wiring = Terminated.wiring = WIRING
