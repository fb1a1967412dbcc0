"""A process: the worker as it sees itself. It connects, polls for work, backs off, and shuts down in order.

Invariants:

* It takes tasks only while it is running, and only with a connection; never more than it has slots.
* A signal is never lost: a request to shut down takes effect in every state, at once or as soon as the
  present operation returns; a second request makes it no faster.
* It exits within 30 seconds of the request, with its connection released, even if its tasks continue.
* A broken connection costs the tasks in progress, never the process.
* The backoff grows while there is no work and is reset only when some was found.

Why: decisions 0012 and 0016.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

import msgspec

from interlock.lifecycles.durations import Timed, deadline
from interlock.lifecycles.owners import Owner
from interlock.machine import (
    STAY,
    Across,
    Always,
    Event,
    Kind,
    Machine,
    Tone,
    command,
    end,
    event,
    ignore,
    on,
    signal,
    state,
    timer,
)


class ProcessState(StrEnum):
    """States of a worker process."""

    STARTING = "starting"
    CONNECTING = "connecting"
    RECOVERING = "recovering"
    RUNNING = "running"
    BACKING_OFF = "backing_off"
    SHUTTING_DOWN = "shutting_down"
    STOPPED = "stopped"


STARTING, CONNECTING, RECOVERING = ProcessState.STARTING, ProcessState.CONNECTING, ProcessState.RECOVERING
RUNNING, BACKING_OFF = ProcessState.RUNNING, ProcessState.BACKING_OFF
SHUTTING_DOWN, STOPPED = ProcessState.SHUTTING_DOWN, ProcessState.STOPPED
UP = (STARTING, CONNECTING, RECOVERING, RUNNING, BACKING_OFF)


class Process(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Data of a worker process."""

    connected: bool = False
    slots: int = 1
    active_tasks: int = 0
    backoff_count: int = 0
    last_recovery_at: datetime | None = None
    shutdown_requested: bool = False
    processed: int = 0
    failed: int = 0

    @property
    def free_slots(self) -> int:
        """Number of free slots."""
        return self.slots - self.active_tasks


def accepts_tasks(state: ProcessState, process: Process) -> bool:
    """Return whether a task may be started now."""
    return state is RUNNING and not process.shutdown_requested and process.free_slots > 0


@event(Kind.COMMAND, by=Owner.PROCESS)
class RecoveryComplete(Timed):
    """The process has searched for expired leases of other workers."""


@event(Kind.COMMAND, by=Owner.PROCESS)
class PollCycleComplete(Event):
    """A poll found work and started this number of tasks."""

    started: int = 0


@event(Kind.CONSEQUENCE, by=Owner.TASK)
class TaskEnded(Event):
    """Tasks of this process have ended; one that neither succeeded nor failed was abandoned."""

    succeeded: bool = False
    failed: bool = False
    tasks: int = 1
    """Number of tasks with this outcome, as in a cohort."""


@event(Kind.COMMAND, by=Owner.PROCESS)
class ShutdownComplete(Event):
    """Every task has ended or was returned to the queue."""


initialized: Event = command("initialized", "Logging, metrics and tracing are set up.", by=Owner.PROCESS)
connected: Event = command("connected", "The store answers.", by=Owner.PROCESS)
connection_failed: Event = command("connection_failed", "The store does not answer.", by=Owner.PROCESS)
no_tasks_available: Event = command("no_tasks_available", "A poll found nothing to do.", by=Owner.PROCESS)
backoff_complete: Event = timer(
    "backoff_complete", "The pause is over, or new work has arrived.", by=Owner.CLOCK
)
shutdown_requested: Event = signal(
    "shutdown_requested", "SIGTERM, SIGINT, or the supervisor.", by=Owner.SYSTEM
)
soft_deadline: Event = timer("soft_deadline", "The grace period of running tasks is over.", by=Owner.CLOCK)
saving_deadline: Event = timer(
    "saving_deadline", "The time of running tasks to save their work is over.", by=Owner.CLOCK
)
shutdown_deadline: Event = timer("shutdown_deadline", "The shutdown deadline has passed.", by=Owner.CLOCK)
error: Event = signal("error", "The connection broke.", by=Owner.SYSTEM)


class ReportShutdown(msgspec.Struct, frozen=True):
    """Publish the final metrics before the process exits."""

    processed: int
    failed: int
    forced: bool


class KillHandlers(msgspec.Struct, frozen=True):
    """Kill the handlers that still run."""


def no_task_active(process: Process, request: Event) -> bool:
    """tasks are still active"""
    return process.active_tasks == 0


def within_slots(process: Process, polled: PollCycleComplete) -> bool:
    """more tasks were started than there are free slots"""
    return polled.started <= process.free_slots


def some_task_active(process: Process, ended: TaskEnded) -> bool:
    """no task is active that could have ended"""
    return 0 < ended.tasks <= process.active_tasks


def connects(process: Process, happened: Event) -> Process:
    """Record the connection to the store."""
    return msgspec.structs.replace(process, connected=True)


def disconnects(process: Process, happened: Event) -> Process:
    """Record the loss of the connection.

    The couplings abandon every task that relied on it.
    """
    return msgspec.structs.replace(process, connected=False)


def leaves(process: Process, happened: Event) -> Process:
    """Release the connection and all active tasks."""
    return msgspec.structs.replace(process, connected=False, active_tasks=0)


def recovered(process: Process, happened: RecoveryComplete) -> Process:
    """Record the time of the last search for expired leases."""
    return msgspec.structs.replace(process, last_recovery_at=happened.at)


def backs_off(process: Process, happened: Event) -> Process:
    """Increase the backoff."""
    return msgspec.structs.replace(process, backoff_count=process.backoff_count + 1)


def starts_tasks(process: Process, polled: PollCycleComplete) -> Process:
    """Count the active tasks; only finding work resets the backoff."""
    active = process.active_tasks + polled.started
    count = 0 if polled.started else process.backoff_count
    return msgspec.structs.replace(process, active_tasks=active, backoff_count=count)


def counts_task(process: Process, ended: TaskEnded) -> Process:
    """Free the slots of ended tasks and count their outcomes."""
    return msgspec.structs.replace(
        process,
        active_tasks=process.active_tasks - ended.tasks,
        processed=process.processed + ended.succeeded * ended.tasks,
        failed=process.failed + ended.failed * ended.tasks,
    )


def asked_to_go(process: Process, happened: Event) -> Process:
    """Record the request to shut down; no task is started any more."""
    return msgspec.structs.replace(process, shutdown_requested=True)


def report_shutdown(process: Process, happened: Event) -> ReportShutdown:
    """Return the final metrics."""
    return ReportShutdown(process.processed, process.failed, isinstance(happened, type(shutdown_deadline)))


def kill_handlers(process: Process, happened: Event) -> KillHandlers:
    """Kill the handlers that still run."""
    return KillHandlers()


SHUTDOWN_DEADLINE = deadline(shutdown_deadline, "shutdown_deadline_s", since="the request")
SOFT_DEADLINE = deadline(soft_deadline, "shutdown_soft_s", since="the request")
SAVING_DEADLINE = deadline(
    saving_deadline,
    "shutdown_saving_s",
    since="the request: at 60 % of the time from shutdown_soft_s to shutdown_deadline_s",
)
BACKOFF = deadline(backoff_complete, "backoff_cap_s")

# fmt: off
PROCESS = Machine[ProcessState, Process](
    "process",
    "A worker from the inside: it connects, polls for work, backs off, and shuts down gracefully.",
    initial=STARTING,
    spine=(STARTING, CONNECTING, RECOVERING, RUNNING, SHUTTING_DOWN, STOPPED),
    stop=(shutdown_requested,),
    states=(
        state(STARTING, "Sets up logging, metrics and tracing.", turn=Owner.PROCESS),
        state(CONNECTING, "Opens its connection, and retries with backoff.", turn=Owner.PROCESS),
        state(RECOVERING, "Looks for expired leases of others.", turn=Owner.PROCESS),
        state(RUNNING, "Polls for tasks and executes them.", turn=Owner.PROCESS),
        state(BACKING_OFF, "Found no work; waits before the next poll.",
              turn=Owner.PROCESS, within=BACKOFF, tone=Tone.WAITING),
        state(SHUTTING_DOWN, "Starts nothing; waits for its tasks to end.",
              turn=Owner.PROCESS, within=SHUTDOWN_DEADLINE),
        end(STOPPED, "Exited, with its connection released.", tone=Tone.STOPPED),
    ),
    rows=(
        on(initialized, STARTING, CONNECTING, owner=Owner.PROCESS,
           why="Logging, metrics and tracing are ready."),
        on(connected, CONNECTING, RECOVERING, owner=Owner.PROCESS, then=connects,
           why="Lost work is recovered before new work is taken."),
        on(connection_failed, CONNECTING, CONNECTING, owner=Owner.PROCESS, then=backs_off,
           why="It reconnects with increasing pauses."),
        on(RecoveryComplete, RECOVERING, RUNNING, owner=Owner.PROCESS, then=recovered,
           why="Lost work has returned to the queue."),
        on(PollCycleComplete, RUNNING, RUNNING, owner=Owner.PROCESS, when=within_slots, then=starts_tasks,
           why="There was work, so it polls again at once."),
        on(no_tasks_available, RUNNING, BACKING_OFF, owner=Owner.PROCESS, then=backs_off,
           why="An empty queue is polled with backoff."),
        on(backoff_complete, BACKING_OFF, RECOVERING, owner=Owner.PROCESS,
           why="No other worker may be left to recover lost work."),
        on(error, (RECOVERING, RUNNING), CONNECTING, owner=Owner.PROCESS, then=disconnects,
           why="Without a connection no lease can be renewed: abandon the tasks and reconnect."),
        on(shutdown_requested, UP, SHUTTING_DOWN, owner=Owner.PROCESS, then=asked_to_go,
           arms=SOFT_DEADLINE, why="No further task is started."),
        on(ShutdownComplete, SHUTTING_DOWN, STOPPED, owner=Owner.PROCESS, when=no_task_active,
           then=leaves, emits=report_shutdown, why="Every task has ended or was returned to the queue."),
        on(shutdown_deadline, SHUTTING_DOWN, STOPPED, owner=Owner.PROCESS, then=leaves,
           emits=report_shutdown, why="The shutdown must not take longer."),

        on(TaskEnded, (*UP[1:], SHUTTING_DOWN), STAY, owner=Owner.PROCESS,
           when=some_task_active, then=counts_task, why="A slot is free again."),
        on(soft_deadline, SHUTTING_DOWN, STAY, owner=Owner.PROCESS, arms=SAVING_DEADLINE,
           why="Running tasks are asked to save a checkpoint and to release their leases."),
        on(saving_deadline, SHUTTING_DOWN, STAY, owner=Owner.PROCESS, emits=kill_handlers,
           why="Outcomes have to be reported before the shutdown deadline."),

        ignore(TaskEnded, STARTING, why="no task was started yet"),
        ignore(error, (STARTING, CONNECTING), why="there is no connection that could break"),
        ignore(error, BACKING_OFF, why="recovery comes next and will detect the broken connection"),
        ignore(error, SHUTTING_DOWN,
               why="it is shutting down; work that cannot be released expires with its lease"),
        ignore(backoff_complete, (STARTING, CONNECTING, RECOVERING, RUNNING, SHUTTING_DOWN),
               why="it is not backing off; the timer is left over"),
        ignore(shutdown_requested, SHUTTING_DOWN,
               why="it is shutting down already; a second signal changes nothing"),
        *(ignore(early, UP, why="no shutdown was requested") for early in
          (soft_deadline, saving_deadline, shutdown_deadline)),
        *(ignore(late, STOPPED, why="the process has stopped") for late in
          (TaskEnded, error, backoff_complete, shutdown_requested, soft_deadline, saving_deadline,
           shutdown_deadline)),
    ),
    invariants=(
        Always(
            "a running or recovering process has a connection",
            lambda state, process: state not in (RUNNING, RECOVERING) or process.connected,
        ),
        Always(
            "a stopped process has released its connection and its tasks",
            lambda state, process: state is not STOPPED
            or (not process.connected and process.active_tasks == 0),
        ),
        Always(
            "there is at most one active task per slot",
            lambda _, process: 0 <= process.active_tasks <= process.slots,
        ),
        Always(
            "a process shuts down only after a request",
            lambda state, process: state not in (SHUTTING_DOWN, STOPPED) or process.shutdown_requested,
        ),
        Across(
            "no task is started while shutting down",
            lambda state, before, _, after: state is not SHUTTING_DOWN
            or after.active_tasks <= before.active_tasks,
        ),
    ),
)
# fmt: on
