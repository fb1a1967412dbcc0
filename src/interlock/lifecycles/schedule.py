"""A schedule: it submits a job at each of its fire times.

Invariants:

* Each fire time is decided about once, by the store's clock, in the commit that creates its jobs,
  whichever schedulers find the schedule due, and however many do.
* PAUSED submits nothing when due. Fires that pass meanwhile are not caught up with.
* A schedule with no further fire ends by itself, once no fire of it waits.
* Submitted jobs stay counted, and the last fire is never taken back.

The fire times are computed outside (`wire/calendar.py`), and are part of the events.

Why: decision 0391.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

import msgspec

from interlock.lifecycles.durations import Timed, deadline
from interlock.lifecycles.owners import Owner
from interlock.machine import (
    STAY,
    Across,
    Always,
    Kind,
    Machine,
    Tone,
    end,
    event,
    ignore,
    on,
    refuse,
    state,
)


class ScheduleState(StrEnum):
    """States of a schedule."""

    ACTIVE = "active"
    PAUSED = "paused"
    ENDED = "ended"


ACTIVE, PAUSED, ENDED = ScheduleState.ACTIVE, ScheduleState.PAUSED, ScheduleState.ENDED
OPEN = (ACTIVE, PAUSED)


class Schedule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Data of a schedule."""

    next_at: datetime | None = None
    """Next fire time."""
    due_at: datetime | None = None
    """Time of the next action: the next fire with jitter, or sooner while a fire waits."""
    last_at: datetime | None = None
    """The last fire time that was decided about."""
    submitted: int = 0
    skipped: int = 0
    waiting: tuple[datetime, ...] = ()
    """Fires that wait for the previous job to end."""
    live: tuple[str, ...] = ()
    """Jobs of it that had not ended at the last check."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timetable(Timed):
    """Base of events with new fire times."""

    next_at: datetime | None = None
    due_at: datetime | None = None


@event(Kind.TIMER, by=Owner.CLOCK)
class Due(Timetable):
    """A fire time has come, or a waiting fire is to be checked."""

    last_at: datetime | None = None
    submitted: int = 0
    skipped: int = 0
    waiting: tuple[datetime, ...] = ()
    live: tuple[str, ...] = ()


@event(Kind.COMMAND, by=Owner.USER)
class Pause(Timed):
    """Pause: submit nothing when due."""


@event(Kind.COMMAND, by=Owner.USER)
class Resume(Timetable):
    """Submit jobs again, from the next fire on."""


@event(Kind.COMMAND, by=Owner.USER)
class Edit(Timetable):
    """The specification has changed; a schedule that has ended starts again."""


@event(Kind.COMMAND, by=Owner.USER)
class RunNow(Timed):
    """Submit a job at once."""

    live: tuple[str, ...] = ()


@event(Kind.COMMAND, by=Owner.USER)
class Backfill(Timed):
    """Submit jobs for fire times that have passed."""

    submitted: int = 0
    waiting: tuple[datetime, ...] = ()
    due_at: datetime | None = None


@event(Kind.COMMAND, by=Owner.USER)
class Delete(Timed):
    """End the schedule."""


def is_due(schedule: Schedule, fired: Due) -> bool:
    """it is not due yet"""
    return schedule.due_at is not None and fired.at >= schedule.due_at


def goes_on(schedule: Schedule, timetable: Timetable) -> bool:
    """there is no further fire time"""
    return timetable.due_at is not None


def fires(schedule: Schedule, fired: Due) -> Schedule:
    """Record submitted and skipped fires."""
    return msgspec.structs.replace(
        schedule,
        next_at=fired.next_at,
        due_at=fired.due_at,
        last_at=max(filter(None, (schedule.last_at, fired.last_at)), default=None),
        submitted=schedule.submitted + fired.submitted,
        skipped=schedule.skipped + fired.skipped,
        waiting=fired.waiting,
        live=fired.live,
    )


def finishes(schedule: Schedule, fired: Due) -> Schedule:
    """Record submitted and skipped fires, and end the timetable."""
    return msgspec.structs.replace(fires(schedule, fired), next_at=None, due_at=None, waiting=())


def stops(schedule: Schedule, request: Timed) -> Schedule:
    """Clear the timetable; fires that wait are kept."""
    return msgspec.structs.replace(schedule, next_at=None, due_at=None)


def is_over(schedule: Schedule, request: Timed) -> Schedule:
    """Clear the timetable and the fires that wait."""
    return msgspec.structs.replace(schedule, next_at=None, due_at=None, waiting=())


def is_set(schedule: Schedule, timetable: Timetable) -> Schedule:
    """Set the timetable."""
    return msgspec.structs.replace(schedule, next_at=timetable.next_at, due_at=timetable.due_at)


def runs(schedule: Schedule, request: RunNow) -> Schedule:
    """Count a job submitted by hand, which a later fire may have to wait for."""
    return msgspec.structs.replace(schedule, submitted=schedule.submitted + 1, live=request.live)


def fills(schedule: Schedule, request: Backfill) -> Schedule:
    """Record backfilled jobs and the fires that wait."""
    return msgspec.structs.replace(
        schedule,
        submitted=schedule.submitted + request.submitted,
        waiting=request.waiting,
        due_at=schedule.due_at and (request.due_at or schedule.due_at),
    )


NEXT_FIRE = deadline(
    Due, "schedule_look_s", since="its next fire time; while a fire waits, since it was last looked at"
)

_OVER = "it has ended; edit it to begin again"

# fmt: off
SCHEDULE = Machine[ScheduleState, Schedule](
    "schedule",
    "Submits a job at each of its fire times.",
    initial=ACTIVE,
    spine=(ACTIVE, ENDED),
    stop=(Delete,),
    states=(
        state(ACTIVE, "Submits a job when it is due.", turn=Owner.CLOCK, within=NEXT_FIRE),
        state(PAUSED, "Submits nothing until it is resumed.", turn=Owner.USER, tone=Tone.WAITING),
        end(ENDED, "Has no further fire, or was deleted.", tone=Tone.STOPPED),
    ),
    rows=(
        on(Due, ACTIVE, STAY, owner=Owner.ORCHESTRATOR, when=(is_due, goes_on), then=fires, arms=NEXT_FIRE,
           why="Its fire time has come; another one will."),
        on(Due, ACTIVE, ENDED, owner=Owner.ORCHESTRATOR, when=is_due, then=finishes,
           why="That was its last fire."),
        on(Pause, ACTIVE, PAUSED, owner=Owner.ORCHESTRATOR, then=stops, why="A user pauses it."),
        on(Resume, PAUSED, ACTIVE, owner=Owner.ORCHESTRATOR, when=goes_on, then=is_set,
           why="It continues with its next fire."),
        on(Resume, PAUSED, ENDED, owner=Owner.ORCHESTRATOR, then=is_over,
           why="Its last fire time passed while it was paused."),
        on(Edit, ACTIVE, STAY, owner=Owner.ORCHESTRATOR, when=goes_on, then=is_set, arms=NEXT_FIRE,
           why="It fires at other times, or submits another job."),
        on(Edit, PAUSED, STAY, owner=Owner.ORCHESTRATOR, why="It stays paused, with another specification."),
        on(Edit, ENDED, ACTIVE, owner=Owner.ORCHESTRATOR, when=goes_on, then=is_set, leaves_terminal=True,
           why="It starts again under its old name."),
        on(RunNow, OPEN, STAY, owner=Owner.ORCHESTRATOR, then=runs,
           why="An additional job does not change the next fire."),
        on(Backfill, OPEN, STAY, owner=Owner.ORCHESTRATOR, then=fills,
           why="The past does not change the next fire."),
        on(Delete, OPEN, ENDED, owner=Owner.ORCHESTRATOR, then=is_over,
           why="It is deleted; its jobs continue."),

        ignore(Pause, PAUSED, why="it is paused"),
        ignore(Resume, ACTIVE, why="it is not paused"),
        ignore(Due, (PAUSED, ENDED), why="it does not fire"),
        ignore(Delete, ENDED, why="it has ended"),
        *(refuse(each, ENDED, why=_OVER) for each in (Pause, Resume, RunNow, Backfill)),
    ),
    invariants=(
        Always(
            "it has a deadline exactly while it is active",
            lambda state, schedule: (schedule.due_at is not None) == (state is ACTIVE),
        ),
        Always(
            "it knows a next fire only while it is active",
            lambda state, schedule: schedule.next_at is None or state is ACTIVE,
        ),
        Always(
            "no fire waits when it has ended",
            lambda state, schedule: state is not ENDED or not schedule.waiting,
        ),
        Across(
            "the number of submitted jobs never decreases",
            lambda _, before, __, after: after.submitted >= before.submitted
            and after.skipped >= before.skipped,
        ),
        Across(
            "the last fire is never taken back",
            lambda _, before, __, after: before.last_at is None
            or (after.last_at is not None and after.last_at >= before.last_at),
        ),
    ),
)
# fmt: on
