"""A simulation: a stepped execution that can be paused and resumed and survives its worker.

Invariants:

* Its state has one source: this record. Events follow the state, never lead it.
* It stops only between steps: pausing and cancelling while it runs are requests, which its worker
  honours at the next step. A request is cleared with the next transition.
* A silent worker does not end it: it becomes interrupted, and can be resumed elsewhere.
* Only messages of its own worker are accepted, and only while it runs; two resumes make one execution.

Why: decisions 0044 and 0045.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

import msgspec

from interlock.lifecycles.durations import DEFAULTS, Timed, deadline
from interlock.lifecycles.owners import Owner
from interlock.machine import STAY, Across, Always, Kind, Machine, Tone, end, event, ignore, on, refuse, state


class SimulationState(StrEnum):
    """States of a simulation."""

    PENDING = "pending"
    RUNNING = "running"
    PAUSED = "paused"
    COMPLETED = "completed"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    CANCELLED = "cancelled"


PENDING, RUNNING, PAUSED = SimulationState.PENDING, SimulationState.RUNNING, SimulationState.PAUSED
COMPLETED, FAILED = SimulationState.COMPLETED, SimulationState.FAILED
INTERRUPTED, CANCELLED = SimulationState.INTERRUPTED, SimulationState.CANCELLED
ENDED = (COMPLETED, FAILED, CANCELLED)
STANDING = (PENDING, PAUSED, INTERRUPTED)
"""States in which no worker executes it."""


class SimulationData(msgspec.Struct, frozen=True, kw_only=True):
    """Data of a simulation."""

    created_at: datetime
    current_step: int = 0
    started_at: datetime | None = None
    paused_at: datetime | None = None
    completed_at: datetime | None = None
    worker_id: str | None = None
    last_heartbeat: datetime | None = None
    error: str | None = None
    pause_requested: bool = False
    cancel_requested: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FromWorker(Timed):
    """Base of messages of a worker about a simulation."""

    worker_id: str


@event(Kind.COMMAND, by=Owner.WORKER)
class Start(FromWorker):
    """A worker starts it."""


@event(Kind.COMMAND, by=Owner.WORKER)
class Resume(FromWorker):
    """A worker continues after the last completed step."""


@event(Kind.MESSAGE, by=Owner.WORKER)
class Heartbeat(FromWorker):
    """Its worker is alive and has reached this step."""

    step: int


@event(Kind.MESSAGE, by=Owner.WORKER)
class Pause(FromWorker):
    """Its worker has stopped between two steps, as requested."""

    step: int


@event(Kind.MESSAGE, by=Owner.WORKER)
class Complete(FromWorker):
    """Its worker has completed the last step."""

    step: int


@event(Kind.MESSAGE, by=Owner.WORKER)
class Fail(FromWorker):
    """A step has failed."""

    error: str


@event(Kind.COMMAND, by=Owner.USER)
class RequestPause(Timed):
    """Stop after the present step."""


@event(Kind.COMMAND, by=Owner.USER)
class Cancel(Timed):
    """Stop for good."""


@event(Kind.CONSEQUENCE, by=Owner.ORCHESTRATOR)
class Interrupt(Timed):
    """Its worker is known to be gone."""

    reason: str = ""


@event(Kind.TIMER, by=Owner.CLOCK)
class HeartbeatLost(Timed):
    """Its worker has been silent for too long."""

    silence_s: float = DEFAULTS.simulation_silence_s

    @property
    def reason(self) -> str:
        """The reason of the interruption as text."""
        return f"no heartbeat of its worker for {self.silence_s:g} s"


def from_its_worker(simulation: SimulationData, message: FromWorker) -> bool:
    """another worker executes it"""
    return message.worker_id == simulation.worker_id


def asked_for(simulation: SimulationData, message: Pause) -> bool:
    """no pause or cancel was requested"""
    return simulation.pause_requested or simulation.cancel_requested


def silent_for_long(simulation: SimulationData, fired: HeartbeatLost) -> bool:
    """its worker was heard after this timer was set"""
    last_beat = simulation.last_heartbeat or simulation.started_at
    return last_beat is None or fired.at >= last_beat + timedelta(seconds=fired.silence_s)


def begins(simulation: SimulationData, message: FromWorker) -> SimulationData:
    """Assign it to this worker."""
    return msgspec.structs.replace(
        _answered(simulation),
        worker_id=message.worker_id,
        started_at=simulation.started_at or message.at,
        last_heartbeat=message.at,
        paused_at=None,
        error=None,
        cancel_requested=False,
    )


def beats(simulation: SimulationData, message: Heartbeat) -> SimulationData:
    """Record the step and the time; a late heartbeat does not reduce the step."""
    return msgspec.structs.replace(
        simulation, current_step=_reached(simulation, message), last_heartbeat=message.at
    )


def pauses(simulation: SimulationData, message: Pause) -> SimulationData:
    """Record the pause after this step."""
    step = _reached(simulation, message)
    return msgspec.structs.replace(
        _answered(simulation), paused_at=message.at, current_step=step, worker_id=None
    )


def completes(simulation: SimulationData, message: Complete) -> SimulationData:
    """Record the time of completion."""
    step = _reached(simulation, message)
    return msgspec.structs.replace(_answered(simulation), completed_at=message.at, current_step=step)


def fails(simulation: SimulationData, message: Fail) -> SimulationData:
    """Record the error and the time of the end."""
    return msgspec.structs.replace(_answered(simulation), completed_at=message.at, error=message.error)


def is_cancelled(simulation: SimulationData, request: Cancel) -> SimulationData:
    """Record the cancellation and its time."""
    return msgspec.structs.replace(_answered(simulation), completed_at=request.at, worker_id=None, error=None)


def is_interrupted(simulation: SimulationData, happened: Interrupt | HeartbeatLost) -> SimulationData:
    """Clear the worker and record the reason.

    completed_at stays empty, because the simulation can be resumed.
    """
    return msgspec.structs.replace(
        _answered(simulation), worker_id=None, error=happened.reason or "no reason was given"
    )


def note_pause(simulation: SimulationData, request: RequestPause) -> SimulationData:
    """Record the request to pause, which its worker reads at the next step."""
    return msgspec.structs.replace(simulation, pause_requested=True)


def note_cancel(simulation: SimulationData, request: Cancel) -> SimulationData:
    """Record the request to cancel, which its worker reads at the next step."""
    return msgspec.structs.replace(simulation, cancel_requested=True)


def _answered(simulation: SimulationData) -> SimulationData:
    """Clear the request for a pause, as every transition does."""
    return msgspec.structs.replace(simulation, pause_requested=False)


def _reached(simulation: SimulationData, message: Heartbeat | Pause | Complete) -> int:
    """Return the highest step reported, as messages may be out of order."""
    return max(simulation.current_step, message.step)


SILENCE = deadline(HeartbeatLost, "simulation_silence_s", since="the last heartbeat, or the start")

_NO_WORKER = "no worker executes it"
_OVER = "it has ended"

# fmt: off
SIMULATION = Machine[SimulationState, SimulationData](
    "simulation",
    "A stepped execution that can be paused and resumed and survives its worker.",
    initial=PENDING,
    spine=(PENDING, RUNNING, COMPLETED),
    stop=(Cancel,),
    states=(
        state(PENDING, "Created; waits for a worker.", turn=Owner.WORKER),
        state(RUNNING, "A worker executes it step by step.", turn=Owner.WORKER, within=SILENCE),
        state(PAUSED, "Stopped between two steps until it is resumed.",
              turn=Owner.USER, tone=Tone.WAITING),
        state(INTERRUPTED, "Its worker is gone; it can be resumed.", turn=Owner.USER, tone=Tone.BAD),
        end(COMPLETED, "The last step is done."),
        end(FAILED, "A step has failed."),
        end(CANCELLED, "Cancelled by a user."),
    ),
    rows=(
        on(Start, PENDING, RUNNING, owner=Owner.SIMULATOR, then=begins, why="A worker took it."),
        on(Complete, RUNNING, COMPLETED, owner=Owner.SIMULATOR, when=from_its_worker, then=completes,
           why="There is no further step."),
        on(Fail, RUNNING, FAILED, owner=Owner.SIMULATOR, when=from_its_worker, then=fails,
           why="A step has raised an error."),
        on(Pause, RUNNING, PAUSED, owner=Owner.SIMULATOR, when=(from_its_worker, asked_for), then=pauses,
           why="Its worker has come to the end of a step."),
        on(Resume, (PAUSED, INTERRUPTED), RUNNING, owner=Owner.SIMULATOR, then=begins,
           why="A worker continues after the saved step; a second request finds it running."),
        on(HeartbeatLost, RUNNING, INTERRUPTED, owner=Owner.SIMULATOR, when=silent_for_long,
           then=is_interrupted, why="Its worker sends no heartbeats and counts as dead."),
        on(Interrupt, (RUNNING, PAUSED), INTERRUPTED, owner=Owner.SIMULATOR, then=is_interrupted,
           why="The state in the memory of its worker is lost."),
        on(Cancel, STANDING, CANCELLED, owner=Owner.SIMULATOR, then=is_cancelled,
           why="No worker executes it, so it ends at once."),

        on(Cancel, RUNNING, STAY, owner=Owner.SIMULATOR, then=note_cancel,
           why="Its worker stops at the next step: paused, then cancelled."),
        on(RequestPause, RUNNING, STAY, owner=Owner.SIMULATOR, then=note_pause,
           why="Its worker makes the transition, at the next step."),
        on(Heartbeat, RUNNING, STAY, owner=Owner.SIMULATOR, when=from_its_worker, then=beats, arms=SILENCE,
           why="A worker is executing it."),

        *(refuse(each, STANDING, why=_NO_WORKER) for each in (Heartbeat, Pause, Complete, Fail)),
        *(refuse(each, ENDED, why=_OVER) for each in (Heartbeat, Pause, Complete, Fail)),
        refuse(Cancel, ENDED, why=_OVER),
        ignore(Interrupt, (PENDING, INTERRUPTED), why="it has no worker to lose"),
        ignore(HeartbeatLost, STANDING, why="no worker executes it, so none is expected"),
        *(ignore(late, ENDED, why=_OVER) for late in (Interrupt, HeartbeatLost)),
    ),
    invariants=(
        Always(
            "a running simulation has a worker and was started",
            lambda state, sim: state is not RUNNING
            or (sim.worker_id is not None and sim.started_at is not None),
        ),
        Always(
            "completed_at is known exactly when it has ended",
            lambda state, sim: (sim.completed_at is not None) == (state in ENDED),
        ),
        Always(
            "a pause is only requested while it runs",
            lambda state, sim: not sim.pause_requested or state is RUNNING,
        ),
        Always("a failed one has an error", lambda state, sim: state is not FAILED or sim.error is not None),
        Across(
            "steps are never taken back",
            lambda _, before, __, after: after.current_step >= before.current_step,
        ),
        Across(
            "started_at is set once",
            lambda _, before, __, after: before.started_at in (None, after.started_at),
        ),
    ),
)
# fmt: on
