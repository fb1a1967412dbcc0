"""Schedules: create, list, show, pause, resume, run, backfill and delete them."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from interlock.api.messages import (
    Cursor,
    HistoryPage,
    HistoryQuery,
    Input,
    Limit,
    Reason,
    ReasonedRequest,
    RequestId,
)
from interlock.api.operation import Link, Operation, QueueConfinement, id_of
from interlock.errors import (
    InvalidJob,
    InvalidSchedule,
    NotAllowed,
    RequestIdReused,
    ScheduleExists,
    TerminalState,
    TooLarge,
    UnknownSchedule,
)
from interlock.lifecycles.schedule import SCHEDULE
from interlock.wire.access import (
    Role,
)
from interlock.wire.schedules import (
    MAX_NEXT,
    NAME,
    Backfilled,
    FireTimes,
    FireView,
    SchedulePage,
    ScheduleSpec,
    ScheduleView,
)


class SchedulesQuery(Input, frozen=True, kw_only=True):
    """Filter and page of schedules."""

    state: Annotated[
        Literal["", "active", "paused", "ended"], Meta(description="Only schedules in this state.")
    ] = ""
    limit: Limit = 100
    cursor: Cursor = ""


class NextQuery(Input, frozen=True, kw_only=True):
    """Number of fire times."""

    count: Annotated[int, Meta(ge=1, le=MAX_NEXT, description="Number of fire times.")] = 10


class NewSchedule(Input, frozen=True, kw_only=True):
    """A schedule to create, or to change."""

    name: Annotated[str, Meta(pattern=NAME)]
    schedule: ScheduleSpec
    replace: bool = False
    """Change the schedule of that name where there is one; this needs the role operator."""
    source: Annotated[str, Meta(max_length=60)] = ""
    request_id: RequestId | None = None


class ScheduleChange(ReasonedRequest, frozen=True, kw_only=True):
    """Reason why a schedule is paused, resumed, run or deleted."""


class BackfillRequest(Input, frozen=True, kw_only=True):
    """A range of fire times that have passed."""

    since: Annotated[str, Meta(min_length=1, max_length=40)]
    """Start of the range; without an offset it is in the time zone of the schedule."""
    until: Annotated[str, Meta(min_length=1, max_length=40)]
    """End of the range, exclusive."""
    queued: bool = False
    """Submit the jobs one after the other, instead of all at once."""
    dry_run: bool = False
    """Return the fire times that would get a job, and submit nothing."""
    reason: Reason = ""
    request_id: RequestId | None = None


_NAMED = id_of("schedule", UnknownSchedule, "schedule", meaning="The name of a schedule.")
_NIGHTLY = {"cron": "0 2 * * 1-5", "tz": "Europe/Berlin", "job": {"task": "shop.report", "queue": "reports"}}


def _change(verb: str, summary: str) -> Operation[ScheduleChange, ScheduleView]:
    return Operation(
        name=f"{verb}Schedule",
        request=f"POST /api/schedules/{{schedule}}/{verb}",
        summary=summary,
        role=Role.OPERATOR,
        confined=QueueConfinement.HIDES,
        parameters=_NAMED,
        input=ScheduleChange,
        output=ScheduleView,
        fires=(SCHEDULE.name, verb),
        errors=(UnknownSchedule, TerminalState, RequestIdReused),
        example={"reason": "the warehouse is being moved", "request_id": f"{verb}-17"},
    )


LIST_SCHEDULES = Operation(
    name="listSchedules",
    request="GET /api/schedules",
    summary="List schedules, newest first, each with its next fire and its last job.",
    role=Role.VIEWER,
    confined=QueueConfinement.HIDES,
    input=SchedulesQuery,
    output=SchedulePage,
    links=(Link("listSchedules", "cursor", "$response.body#/cursor"),),
)

CREATE_SCHEDULE = Operation(
    name="createSchedule",
    request="POST /api/schedules",
    summary="Create a schedule; with `replace`, change an existing one of that name.",
    role=Role.SUBMITTER,
    confined=QueueConfinement.NAMES,
    input=NewSchedule,
    output=ScheduleView,
    status=201,
    errors=(InvalidSchedule, InvalidJob, TooLarge, ScheduleExists, RequestIdReused, NotAllowed),
    example={"name": "nightly-report", "schedule": _NIGHTLY, "request_id": "nightly-1"},
    links=(Link("getSchedule", "schedule", "$response.body#/name"),),
)

GET_SCHEDULE = Operation(
    name="getSchedule",
    request="GET /api/schedules/{schedule}",
    summary="Show a schedule: when it fires, its last jobs and their outcomes.",
    role=Role.VIEWER,
    confined=QueueConfinement.HIDES,
    parameters=_NAMED,
    output=ScheduleView,
    errors=(UnknownSchedule,),
)

GET_NEXT_FIRES = Operation(
    name="getNextFires",
    request="GET /api/schedules/{schedule}/next",
    summary="Show the next fire times of a schedule.",
    role=Role.VIEWER,
    confined=QueueConfinement.HIDES,
    parameters=_NAMED,
    input=NextQuery,
    output=FireTimes,
    errors=(UnknownSchedule,),
)

GET_SCHEDULE_HISTORY = Operation(
    name="getScheduleHistory",
    request="GET /api/schedules/{schedule}/history",
    summary="Show the history of a schedule.",
    role=Role.VIEWER,
    confined=QueueConfinement.HIDES,
    parameters=_NAMED,
    input=HistoryQuery,
    output=HistoryPage,
    errors=(UnknownSchedule,),
)

PAUSE_SCHEDULE = _change(
    "pause", "Pause a schedule until it is resumed; fires missed meanwhile are not caught up."
)

RESUME_SCHEDULE = _change("resume", "Resume a schedule, from its next fire on.")

DELETE_SCHEDULE = _change("delete", "Delete a schedule; jobs that it has submitted continue.")

RUN_SCHEDULE = Operation(
    name="runSchedule",
    request="POST /api/schedules/{schedule}/run",
    summary="Submit a job of a schedule now.",
    role=Role.SUBMITTER,
    confined=QueueConfinement.HIDES,
    parameters=_NAMED,
    input=ScheduleChange,
    output=FireView,
    fires=(SCHEDULE.name, "run_now"),
    status=201,
    errors=(UnknownSchedule, TerminalState, RequestIdReused),
    example={"reason": "the data came late", "request_id": "run-17"},
    links=(Link("getJob", "job_id", "$response.body#/job_id"),),
)

BACKFILL_SCHEDULE = Operation(
    name="backfillSchedule",
    request="POST /api/schedules/{schedule}/backfill",
    summary="Submit the jobs of past fire times that have none; dry_run only lists these times.",
    role=Role.SUBMITTER,
    confined=QueueConfinement.HIDES,
    parameters=_NAMED,
    input=BackfillRequest,
    output=Backfilled,
    status=201,
    errors=(UnknownSchedule, InvalidSchedule, TerminalState, RequestIdReused),
    example={"since": "2026-01-01", "until": "2026-02-01", "queued": True, "request_id": "january"},
)
