"""A worker: the supervisor's record of one worker.

Invariants:

* An operator can pause, resume and terminate it; a refusal names its reason.
* PAUSED takes no new work. It was RUNNING before, so resuming makes it RUNNING again.
* It can be terminated from every state, also after it has ended: the earlier outcome and its time
  stay readable. TERMINATED has no transition out of it.
* A silent worker does not stay live: the supervisor's timeout terminates it. One whose process was seen
  to die is terminated at once.

Why: decisions 0001 and 0004.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum

import msgspec

from interlock.lifecycles.durations import DEFAULTS, Timed, deadline
from interlock.lifecycles.owners import Owner
from interlock.machine import STAY, Across, Always, Kind, Machine, Tone, end, event, ignore, on, refuse, state

MAX_TRANSIENT_ERRORS = 3
TRANSIENT_WINDOW = timedelta(minutes=1)
"""Errors further apart than this are counted separately."""


class WorkerState(StrEnum):
    """States of a worker."""

    IDLE = "IDLE"
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    TERMINATED = "TERMINATED"


IDLE, RUNNING, PAUSED = WorkerState.IDLE, WorkerState.RUNNING, WorkerState.PAUSED
COMPLETED, FAILED, TERMINATED = WorkerState.COMPLETED, WorkerState.FAILED, WorkerState.TERMINATED
LIVING = (IDLE, RUNNING, PAUSED)
TAKING = (IDLE, RUNNING)
"""States in which it may receive new work."""
ENDED = (COMPLETED, FAILED, TERMINATED)


class Worker(msgspec.Struct, frozen=True, kw_only=True):
    """Data of a worker."""

    capacity: int = 1
    active: int = 0
    pending: int = 0
    transient_errors: int = 0
    last_error_at: datetime | None = None
    last_heartbeat_at: datetime | None = None
    started_at: datetime | None = None
    completed_at: datetime | None = None
    outcome: WorkerState | None = None
    """Outcome before a termination; kept when it is terminated afterwards."""


@event(Kind.COMMAND, by=Owner.ORCHESTRATOR)
class StartTask(Timed):
    """The worker receives its first task, or starts without one."""


@event(Kind.COMMAND, by=Owner.SUPERVISOR)
class Pause(Timed):
    """Pause: take no new work."""


@event(Kind.COMMAND, by=Owner.SUPERVISOR)
class Resume(Timed):
    """Take work again."""


@event(Kind.COMMAND, by=Owner.WORKER)
class CompleteTasks(Timed):
    """The worker has finished its tasks and leaves."""


@event(Kind.MESSAGE, by=Owner.WORKER)
class Heartbeat(Timed):
    """The worker is alive."""


@event(Kind.MESSAGE, by=Owner.WORKER)
class ErrorTransient(Timed):
    """An operation failed that may succeed when retried, such as one over the network."""


@event(Kind.MESSAGE, by=Owner.WORKER)
class ErrorUnrecoverable(Timed):
    """The worker cannot continue, and retrying would not help."""


@event(Kind.MESSAGE, by=Owner.WORKER)
class ResourcesExhausted(Timed):
    """The worker has run out of memory, disk or file handles."""


@event(Kind.TIMER, by=Owner.CLOCK)
class SupervisorTimeout(Timed):
    """The worker has been silent for too long."""

    silence_s: float = DEFAULTS.worker_silence_s


@event(Kind.SIGNAL, by=Owner.SYSTEM)
class ProcessDied(Timed):
    """The process of the worker was seen to have ended without a final message."""


@event(Kind.COMMAND, by=Owner.SUPERVISOR)
class Terminate(Timed):
    """Stop it in any state."""


def has_capacity(worker: Worker, request: StartTask) -> bool:
    """the worker has no free slot"""
    return worker.active < worker.capacity


def nothing_pending(worker: Worker, request: CompleteTasks) -> bool:
    """the worker still has tasks to do"""
    return worker.pending == 0 and worker.active == 0


def may_try_again(worker: Worker, error: ErrorTransient) -> bool:
    """three errors have occurred already"""
    return _errors_so_far(worker, error) < MAX_TRANSIENT_ERRORS


def silent_for_long(worker: Worker, fired: SupervisorTimeout) -> bool:
    """the worker was heard after this timer was set"""
    last_beat = worker.last_heartbeat_at
    return last_beat is None or fired.at >= last_beat + timedelta(seconds=fired.silence_s)


def starts(worker: Worker, request: StartTask) -> Worker:
    """Record the time of the start."""
    return msgspec.structs.replace(worker, started_at=request.at)


def counts_error(worker: Worker, error: ErrorTransient) -> Worker:
    """Count an error towards the three.

    One long after the last starts a new count.
    """
    errors = _errors_so_far(worker, error) + 1
    return msgspec.structs.replace(worker, transient_errors=errors, last_error_at=error.at)


def beats(worker: Worker, heartbeat: Heartbeat) -> Worker:
    """Record the heartbeat; a late one does not move the time back."""
    latest = max(heartbeat.at, worker.last_heartbeat_at or heartbeat.at)
    return msgspec.structs.replace(worker, last_heartbeat_at=latest)


def completes(worker: Worker, last: Timed) -> Worker:
    """Record the outcome and its time."""
    return msgspec.structs.replace(worker, outcome=COMPLETED, completed_at=last.at)


def fails(worker: Worker, last: Timed) -> Worker:
    """Record the outcome and its time; no task is active on it any more."""
    return msgspec.structs.replace(worker, outcome=FAILED, completed_at=last.at, active=0)


def is_terminated(worker: Worker, last: Timed) -> Worker:
    """Record the termination.

    If it had ended before, the earlier outcome is kept.
    """
    outcome, completed_at = worker.outcome or TERMINATED, worker.completed_at or last.at
    return msgspec.structs.replace(worker, outcome=outcome, completed_at=completed_at, active=0)


def _errors_so_far(worker: Worker, error: ErrorTransient) -> int:
    last = worker.last_error_at
    return 0 if last is None or error.at - last > TRANSIENT_WINDOW else worker.transient_errors


SILENCE = deadline(SupervisorTimeout, "worker_silence_s", since="the last heartbeat")

_OVER = "this worker has ended; a restarted process registers as a new one"
_NOT_AT_WORK = "it is not running, so the message is left over"

# fmt: off
WORKER = Machine[WorkerState, Worker](
    "worker",
    "The supervisor's record of one worker, from registration to end.",
    initial=IDLE,
    spine=(IDLE, RUNNING, COMPLETED),
    stop=(Terminate,),
    states=(
        state(IDLE, "Registered; has not had a task yet.", turn=Owner.ORCHESTRATOR, within=SILENCE),
        state(RUNNING, "Takes and executes tasks.", turn=Owner.WORKER, within=SILENCE),
        state(PAUSED, "Takes nothing new until it is resumed.",
              turn=Owner.SUPERVISOR, within=SILENCE, tone=Tone.WAITING),
        end(COMPLETED, "Finished its tasks and exited."),
        end(FAILED, "Stopped by an error."),
        end(TERMINATED, "Terminated, or counted as dead."),
    ),
    rows=(
        on(StartTask, IDLE, RUNNING, owner=Owner.SUPERVISOR, when=has_capacity, then=starts,
           why="Its first task makes it a running worker."),
        on(Pause, RUNNING, PAUSED, owner=Owner.SUPERVISOR, why="The supervisor pauses it."),
        on(ResourcesExhausted, RUNNING, PAUSED, owner=Owner.SUPERVISOR,
           why="It releases its leases and waits for an operator."),
        on(Resume, PAUSED, RUNNING, owner=Owner.SUPERVISOR, why="The cause of the pause is gone."),
        on(CompleteTasks, RUNNING, COMPLETED, owner=Owner.SUPERVISOR, when=nothing_pending, then=completes,
           why="Nothing is pending."),
        on(ErrorUnrecoverable, RUNNING, FAILED, owner=Owner.SUPERVISOR, then=fails,
           why="A retry would not help."),
        on(ErrorTransient, RUNNING, STAY, owner=Owner.SUPERVISOR, when=may_try_again, then=counts_error,
           why="It is retried, at most three times."),
        on(ErrorTransient, RUNNING, FAILED, owner=Owner.SUPERVISOR, then=fails,
           why="Four failures in a row are not transient."),
        on(Terminate, LIVING, TERMINATED, owner=Owner.SUPERVISOR, then=is_terminated,
           why="The supervisor's decision is final; its attempts return to the queue without costing a try."),
        on(Terminate, (COMPLETED, FAILED), TERMINATED, owner=Owner.SUPERVISOR, then=is_terminated,
           leaves_terminal=True, why="Its process must end; its record stays readable."),
        on(SupervisorTimeout, LIVING, TERMINATED, owner=Owner.SUPERVISOR, when=silent_for_long,
           then=is_terminated, why="It sends no heartbeats; its work continues elsewhere."),
        on(ProcessDied, LIVING, TERMINATED, owner=Owner.SUPERVISOR, then=is_terminated,
           why="Its process is dead; its work continues elsewhere at once."),

        on(Heartbeat, LIVING, STAY, owner=Owner.SUPERVISOR, then=beats, arms=SILENCE, why="It is alive."),

        ignore(ErrorTransient, (IDLE, PAUSED), why=_NOT_AT_WORK),
        ignore(ErrorUnrecoverable, (IDLE, PAUSED), why="no work is lost; silence or terminate ends it"),
        ignore(ResourcesExhausted, (IDLE, PAUSED), why=_NOT_AT_WORK),
        refuse(Heartbeat, ENDED, why=_OVER),
        *(ignore(late, ENDED, why=_OVER) for late in
          (ErrorTransient, ErrorUnrecoverable, ResourcesExhausted, SupervisorTimeout, ProcessDied)),
    ),
    invariants=(
        Always(
            "a paused worker was running before",
            lambda state, worker: state is not PAUSED or worker.started_at is not None,
        ),
        Always(
            "the outcome and its time are known exactly when it has ended",
            lambda state, worker: (worker.outcome is not None) == (worker.completed_at is not None)
            == (state in ENDED),
        ),
        Always(
            "a transient error is retried at most three times",
            lambda _, worker: worker.transient_errors <= MAX_TRANSIENT_ERRORS,
        ),
        Across(
            "terminating keeps the earlier outcome",
            lambda _, before, __, after: before.outcome in (None, after.outcome)
            and before.completed_at in (None, after.completed_at),
        ),
    ),
)
# fmt: on
