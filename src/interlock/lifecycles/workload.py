"""A workload: one coordinated load on one agent, from the RPC to idle again.

Invariants:

* An agent has one workload at a time. Busy is checked before anything else, so a bad request never
  touches a running workload.
* All agents of a run start at one instant; until then an abort ends it at once, with nothing to clean up.
* The agent is never IDLE while a process of its workload lives: an abort warns after 5 seconds and
  kills after 15, and only then does it end.
* Each workload ends with exactly one final status: COMPLETED, ERROR or ABORTED.
* Timers and aborts carry the workload's id: those of an old one cannot affect a new one.

Why: decisions 0037, 0041 and 0229.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, StrEnum

import msgspec

from interlock.lifecycles.durations import deadline
from interlock.lifecycles.owners import Owner
from interlock.machine import STAY, Always, Event, Kind, Machine, Tone, event, ignore, on, refuse, rest, state


class WorkloadState(StrEnum):
    """States of an agent with its workload."""

    IDLE = "IDLE"
    READY = "READY"
    RUNNING = "RUNNING"
    FAILED = "FAILED"
    ABORTING = "ABORTING"


IDLE, READY, RUNNING = WorkloadState.IDLE, WorkloadState.READY, WorkloadState.RUNNING
FAILED, ABORTING = WorkloadState.FAILED, WorkloadState.ABORTING
BUSY = (READY, RUNNING, FAILED, ABORTING)


class Status(IntEnum):
    """Status on the wire. ABORTING still sends RUNNING; the last message is marked as the last."""

    READY = 1
    RUNNING = 2
    ERROR = 3
    COMPLETED = 4
    ABORTED = 5


class WorkloadData(msgspec.Struct, frozen=True, kw_only=True):
    """Data of a workload; that of the last one stays readable until the next."""

    workload_id: str | None = None
    alive: bool = False
    """Whether it was started, and may still live. Preparations are killed before READY is left."""
    error: str | None = None
    final: Status | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OfWorkload(Event):
    """Base of events for one workload."""

    workload_id: str


@event(Kind.MESSAGE, by=Owner.CONTROLLER, name="RPC_RECEIVED")
class RpcReceived(OfWorkload):
    """The controller requests a workload; the agent has validated the request."""

    fault: str | None = None


@event(Kind.TIMER, by=Owner.CLOCK, name="START_TIME_REACHED")
class StartTimeReached(OfWorkload):
    """The common start has come, or the wait for it has ended."""

    told: bool = True
    """Whether the controller has set a start time."""


@event(Kind.TIMER, by=Owner.CLOCK, name="DURATION_ELAPSED")
class DurationElapsed(OfWorkload):
    """The workload has run for its duration, or has ended by itself before."""


@event(Kind.MESSAGE, by=Owner.AGENT, name="WORKLOAD_ERROR")
class WorkloadError(OfWorkload):
    """The workload has failed and no process of it is left."""

    error: str


@event(Kind.MESSAGE, by=Owner.CONTROLLER, name="ABORT_RECEIVED")
class AbortReceived(OfWorkload):
    """The controller aborts it."""


@event(Kind.SIGNAL, by=Owner.SYSTEM, name="CONTROLLER_DISCONNECT")
class ControllerDisconnect(OfWorkload):
    """The controller has disconnected, so the result has no receiver."""


@event(Kind.MESSAGE, by=Owner.AGENT, name="TASK_CANCELLED")
class TaskCancelled(OfWorkload):
    """The workload has stopped and cleaned up; no process of it is left."""


@event(Kind.TIMER, by=Owner.CLOCK, name="TIMEOUT_5S")
class Timeout5s(OfWorkload):
    """Five seconds have passed since the abort."""


@event(Kind.TIMER, by=Owner.CLOCK, name="TIMEOUT_15S")
class Timeout15s(OfWorkload):
    """Fifteen seconds have passed since the abort: its processes were killed, and survivors counted."""

    survivors: int = 0


@event(Kind.TIMER, by=Owner.CLOCK, name="ERROR_SENT")
class ErrorSent(OfWorkload):
    """The controller has received the error, or the wait for that has ended."""


class SendStatus(msgspec.Struct, frozen=True):
    """Send a status to the controller; `completed` marks the last message of a workload."""

    status: Status
    completed: bool = False
    error: str | None = None


class SpawnWorkload(msgspec.Struct, frozen=True):
    """Start the workload in its own process group."""

    workload_id: str


class CancelWorkload(msgspec.Struct, frozen=True):
    """Ask the workload to stop, or kill it with `forced`."""

    workload_id: str
    forced: bool = False


def is_valid(workload: WorkloadData, request: RpcReceived) -> bool:
    """the request is invalid"""
    return request.fault is None


def same_workload(workload: WorkloadData, message: OfWorkload) -> bool:
    """it is meant for another workload than the present one"""
    return message.workload_id == workload.workload_id


def was_told(workload: WorkloadData, reached: StartTimeReached) -> bool:
    """the controller has not set a start time"""
    return reached.told


def something_lives(workload: WorkloadData, message: OfWorkload) -> bool:
    """no process of the workload has been started"""
    return workload.alive


def all_killed(workload: WorkloadData, fired: Timeout15s) -> bool:
    """a process of the workload has survived the kill"""
    return fired.survivors == 0


def accepts(workload: WorkloadData, request: RpcReceived) -> WorkloadData:
    """Return a new record, without data of the last workload."""
    return WorkloadData(workload_id=request.workload_id)


def rejects(workload: WorkloadData, request: RpcReceived) -> WorkloadData:
    """Return a new record with the fault of the request."""
    return WorkloadData(workload_id=request.workload_id, error=request.fault, final=Status.ERROR)


def spawns(workload: WorkloadData, reached: StartTimeReached) -> WorkloadData:
    """Record that a process of it may live from now on."""
    return msgspec.structs.replace(workload, alive=True)


def is_not_wanted(workload: WorkloadData, reached: StartTimeReached) -> WorkloadData:
    """Record that it was never started, and why."""
    return msgspec.structs.replace(workload, error="no start was announced", final=Status.ABORTED)


def completes(workload: WorkloadData, ended: OfWorkload) -> WorkloadData:
    """Record its completion; no process of it lives."""
    return msgspec.structs.replace(workload, alive=False, final=Status.COMPLETED)


def fails(workload: WorkloadData, failed: WorkloadError) -> WorkloadData:
    """Keep the error; it stays on the record after the reset."""
    return msgspec.structs.replace(workload, alive=False, error=failed.error, final=Status.ERROR)


def is_aborted(workload: WorkloadData, ended: OfWorkload) -> WorkloadData:
    """Record its abort; no process of it lives."""
    return msgspec.structs.replace(workload, alive=False, final=Status.ABORTED)


def say_ready(workload: WorkloadData, cause: Event) -> SendStatus:
    """Return READY(1)."""
    return SendStatus(Status.READY)


def say_final(workload: WorkloadData, cause: Event) -> SendStatus:
    """Return the final status of this workload."""
    return SendStatus(workload.final or Status.ERROR, completed=True, error=workload.error)


def spawn(workload: WorkloadData, cause: OfWorkload) -> SpawnWorkload:
    """Start the workload."""
    return SpawnWorkload(cause.workload_id)


def ask_to_stop(workload: WorkloadData, cause: OfWorkload) -> CancelWorkload:
    """Ask it to stop and clean up."""
    return CancelWorkload(cause.workload_id)


def make_it_stop(workload: WorkloadData, cause: OfWorkload) -> CancelWorkload:
    """Kill it."""
    return CancelWorkload(cause.workload_id, forced=True)


START_WAIT = deadline(StartTimeReached, "start_wait_s", since="READY")
DURATION = deadline(DurationElapsed, "workload_duration_s", since="the common start")
ERROR_UNREAD = deadline(ErrorSent, "error_unread_s", since="the error")
ABORT_WARNING = deadline(Timeout5s, "abort_warning_s", since="the abort")
ABORT_KILL = deadline(Timeout15s, "abort_kill_s", since="the abort")

_NOTHING_TO_ABORT = "there is nothing to abort, or it is being aborted already; no timer is restarted"
_LEFT_OVER = "left over from a workload, or from a state, that is past"

# fmt: off
WORKLOAD = Machine[WorkloadState, WorkloadData](
    "workload",
    "A coordinated workload on one agent, from the RPC to idle again.",
    initial=IDLE,
    spine=(IDLE, READY, RUNNING),
    stop=(AbortReceived, ControllerDisconnect),
    states=(
        rest(IDLE, "Ready for a workload; requests are validated here, in well under 100 ms."),
        state(READY, "Valid and announced; waits for the common start.",
              turn=Owner.AGENT, within=START_WAIT, tone=Tone.WAITING),
        state(RUNNING, "The workload executes; its numbers go out every second.",
              turn=Owner.AGENT, within=DURATION),
        state(FAILED, "It has failed, and reports so to the controller.",
              turn=Owner.AGENT, within=ERROR_UNREAD, tone=Tone.BAD),
        state(ABORTING, "The workload is being stopped and cleaned up.", turn=Owner.AGENT, within=ABORT_KILL),
    ),
    rows=(
        on(RpcReceived, IDLE, READY, owner=Owner.AGENT, when=is_valid, then=accepts, emits=say_ready,
           why="The controller waits for every agent's READY."),
        on(RpcReceived, IDLE, FAILED, owner=Owner.AGENT, then=rejects, emits=say_final,
           why="An invalid request is reported as an error at once."),
        on(StartTimeReached, READY, RUNNING, owner=Owner.AGENT, when=(same_workload, was_told), then=spawns,
           emits=spawn, why="All agents start now."),
        on(StartTimeReached, READY, IDLE, owner=Owner.AGENT, when=same_workload, then=is_not_wanted,
           emits=say_final, why="A workload without an announced start must not start by itself."),
        on(DurationElapsed, RUNNING, IDLE, owner=Owner.AGENT, when=same_workload, then=completes,
           emits=say_final, why="Its duration is over."),
        on(WorkloadError, RUNNING, FAILED, owner=Owner.AGENT, when=same_workload, then=fails, emits=say_final,
           why="It has failed."),
        on(ErrorSent, FAILED, IDLE, owner=Owner.AGENT, when=same_workload,
           why="The agent resets itself after an error."),

        on(AbortReceived, READY, ABORTING, owner=Owner.AGENT, when=(same_workload, something_lives),
           emits=ask_to_stop, arms=ABORT_WARNING,
           why="Were something alive already it would have to be cleaned up; in READY nothing is."),
        on(AbortReceived, READY, IDLE, owner=Owner.AGENT, when=same_workload, then=is_aborted,
           emits=say_final, why="Nothing was started, so there is nothing to clean up."),
        on(ControllerDisconnect, READY, IDLE, owner=Owner.AGENT, when=same_workload, then=is_aborted,
           emits=say_final, why="Nothing was started, and the controller is lost."),
        on(AbortReceived, RUNNING, ABORTING, owner=Owner.AGENT, when=same_workload, emits=ask_to_stop,
           arms=ABORT_WARNING, why="It is asked to stop and to clean up."),
        on(ControllerDisconnect, RUNNING, ABORTING, owner=Owner.AGENT, when=same_workload, emits=ask_to_stop,
           arms=ABORT_WARNING, why="The controller is lost and could not stop it later."),
        on(TaskCancelled, ABORTING, IDLE, owner=Owner.AGENT, when=same_workload, then=is_aborted,
           emits=say_final, why="It has stopped by itself."),
        on(Timeout15s, ABORTING, IDLE, owner=Owner.AGENT, when=(same_workload, all_killed), then=is_aborted,
           emits=say_final, why="It was killed, and nothing of it is left."),

        on(Timeout5s, ABORTING, STAY, owner=Owner.AGENT, when=same_workload, emits=make_it_stop,
           why="The grace period is over; it is killed."),
        on(Timeout15s, ABORTING, STAY, owner=Owner.AGENT, when=same_workload, emits=make_it_stop,
           arms=ABORT_KILL, why="A process survived; the agent stays busy until it is gone."),

        refuse(RpcReceived, BUSY, why="the agent is busy; its workload is not touched"),
        *(ignore(abort, (IDLE, FAILED, ABORTING), why=_NOTHING_TO_ABORT)
          for abort in (AbortReceived, ControllerDisconnect)),
        ignore(StartTimeReached, (IDLE, RUNNING, FAILED, ABORTING), why=_LEFT_OVER),
        ignore(DurationElapsed, (IDLE, READY, FAILED, ABORTING), why=_LEFT_OVER),
        ignore(WorkloadError, (IDLE, READY, FAILED), why=_LEFT_OVER),
        ignore(WorkloadError, ABORTING, why="it is being stopped; that it fails meanwhile changes nothing"),
        ignore(TaskCancelled, (IDLE, READY, RUNNING, FAILED), why=_LEFT_OVER),
        *(ignore(late, (IDLE, READY, RUNNING, FAILED), why=_LEFT_OVER) for late in (Timeout5s, Timeout15s)),
        ignore(ErrorSent, (IDLE, READY, RUNNING, ABORTING), why=_LEFT_OVER),
    ),
    invariants=(
        Always(
            "an idle, ready or failed agent has nothing of a workload alive",
            lambda state, workload: state in (RUNNING, ABORTING) or not workload.alive,
        ),
        Always(
            "a workload has a final status exactly when it is over",
            lambda state, workload: state is IDLE or (workload.final is not None) == (state is FAILED),
        ),
    ),
)
# fmt: on
