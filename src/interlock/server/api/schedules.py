"""Routes of schedules: create, list, show, pause, resume, run, backfill and delete them.

A schedule belongs to the queue of its jobs: for a token that is confined to other queues it is not there.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from interlock.errors import (
    InvalidJob,
    InvalidSchedule,
    RequestIdReused,
    ScheduleExists,
    TerminalState,
    TooLarge,
    UnknownSchedule,
)
from interlock.lifecycles.schedule import SCHEDULE
from interlock.server.api.visibility import place_asked, place_told
from interlock.server.messages import (
    Cursor,
    HistoryPage,
    HistoryQuery,
    Limit,
    Reason,
    RequestId,
    entry_view,
)
from interlock.server.routes import Call, Confined, Handler, Link, Route
from interlock.store.records import Key
from interlock.systems.access.principals import NotAllowed, Role
from interlock.systems.schedules.schedules import Schedules, unknown
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


class SchedulesQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which page of which schedules."""

    state: Literal["", "active", "paused", "ended"] = ""
    limit: Limit = 100
    cursor: Cursor = ""


class NextQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many fire times."""

    count: Annotated[int, Meta(ge=1, le=MAX_NEXT)] = 10


class NewSchedule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A schedule to create, or to change."""

    name: Annotated[str, Meta(pattern=NAME)]
    schedule: ScheduleSpec
    replace: bool = False
    """Change the schedule of that name where there is one; this needs the role operator."""
    source: Annotated[str, Meta(max_length=60)] = ""
    request_id: RequestId | None = None


class ScheduleChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Why a schedule is paused, resumed, run or deleted."""

    reason: Reason = ""
    request_id: RequestId | None = None


class BackfillRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A range of fire times that have passed."""

    since: Annotated[str, Meta(min_length=1, max_length=40)]
    """From this time on; without an offset it is meant in the time zone of the schedule."""
    until: Annotated[str, Meta(min_length=1, max_length=40)]
    """Before this time."""
    queued: bool = False
    """Submit the jobs one after the other, instead of all at once."""
    reason: Reason = ""
    request_id: RequestId | None = None


async def list_schedules(call: Call) -> SchedulePage:
    """A page of them, as far as they can be seen."""
    asked: SchedulesQuery = call.query
    states = (asked.state,) if asked.state else ()
    views, cursor = await _schedules(call).find(
        states=states, limit=asked.limit, cursor=await place_asked(call)
    )
    seen = tuple(view for view in views if call.principal.sees(view.spec.job.queue))
    return SchedulePage(schedules=seen, cursor=await place_told(call, cursor))


async def create_schedule(call: Call) -> ScheduleView:
    """Create it; or change it, where that is asked for."""
    asked: NewSchedule = call.body
    call.principal.need_queues([asked.schedule.job.queue])
    act = _schedules(call).create
    if asked.replace:
        call.principal.need(Role.OPERATOR)
        if call.principal.scoped:
            await _seen_if_there(call, asked.name)
        act = _schedules(call).put
    return await act(
        asked.name, asked.schedule, source=asked.source, actor=call.actor, request_id=call.request_id
    )


async def get_schedule(call: Call) -> ScheduleView:
    """A schedule as it stands; in a queue that is not seen it is not there."""
    name = _shaped(call)
    view = await _schedules(call).get(name)
    if not call.principal.sees(view.spec.job.queue):
        raise unknown(name)
    return view


async def _named(call: Call) -> str:
    """Return the name of the schedule that is to be changed; of a repeat it may be gone."""
    return (await get_schedule(call)).name if call.principal.scoped else _shaped(call)


def _shaped(call: Call) -> str:
    name = call.path["schedule"]
    if not re.fullmatch(NAME, name):
        raise unknown(name)
    return name


async def get_next(call: Call) -> FireTimes:
    """Its next fire times."""
    view = await get_schedule(call)
    return FireTimes(times=await _schedules(call).next(view.name, call.query.count))


async def get_history(call: Call) -> HistoryPage:
    """What the journal says about a schedule, oldest first."""
    view, asked = await get_schedule(call), call.query
    feed = await call.parts.store.history(
        Key(SCHEDULE.name, view.name), after_version=asked.after, limit=asked.limit
    )
    full = len(feed.entries) == asked.limit
    return HistoryPage(
        entries=tuple(map(entry_view, feed.entries)), after=feed.entries[-1].version if full else None
    )


def tell(verb: str) -> Handler:
    """Return a handler that pauses, resumes or deletes a schedule."""

    async def handle(call: Call) -> ScheduleView:
        asked: ScheduleChange = call.body or ScheduleChange()
        name = await _named(call)
        act = getattr(_schedules(call), verb)
        told: ScheduleView = await act(
            name, reason=asked.reason, actor=call.actor, request_id=call.request_id
        )
        return told

    return handle


async def run(call: Call) -> FireView:
    """Submit a job of it now."""
    asked: ScheduleChange = call.body or ScheduleChange()
    name = await _named(call)
    return await _schedules(call).run(name, reason=asked.reason, actor=call.actor, request_id=call.request_id)


async def backfill(call: Call) -> Backfilled:
    """Submit the jobs of fire times that have passed."""
    asked: BackfillRequest = call.body
    name = await _named(call)
    return await _schedules(call).backfill(
        name,
        asked.since,
        asked.until,
        queued=asked.queued,
        reason=asked.reason,
        actor=call.actor,
        request_id=call.request_id,
    )


async def _seen_if_there(call: Call, name: str) -> None:
    try:
        view = await _schedules(call).get(name)
    except UnknownSchedule:
        return
    call.principal.need_queues([view.spec.job.queue])


def _schedules(call: Call) -> Schedules:
    return call.parts.runtime.schedules


_NAMED = {"schedule": "The name of a schedule."}
_NIGHTLY = {"cron": "0 2 * * 1-5", "tz": "Europe/Berlin", "job": {"task": "shop.report", "queue": "reports"}}


def _tell(verb: str, summary: str) -> Route:
    return Route(
        method="POST",
        path=f"/api/schedules/{{schedule}}/{verb}",
        name=f"{verb}Schedule",
        summary=summary,
        handler=tell(verb),
        role=Role.OPERATOR,
        confined=Confined.HIDES,
        parameters=_NAMED,
        bodies=(ScheduleChange,),
        body_required=False,
        repeatable=True,
        fires=(SCHEDULE.name, verb),
        answer=ScheduleView,
        errors=(UnknownSchedule, TerminalState, RequestIdReused),
        example={"reason": "the warehouse is being moved", "request_id": f"{verb}-17"},
    )


ROUTES = (
    Route(
        method="GET",
        path="/api/schedules",
        name="listSchedules",
        summary="List schedules, newest first, each with its next fire and its last job.",
        handler=list_schedules,
        role=Role.VIEWER,
        confined=Confined.HIDES,
        query=SchedulesQuery,
        answer=SchedulePage,
        links=(Link("listSchedules", "cursor", "$response.body#/cursor"),),
    ),
    Route(
        method="POST",
        path="/api/schedules",
        name="createSchedule",
        summary="Create a schedule; with `replace`, or change the one of that name.",
        handler=create_schedule,
        role=Role.SUBMITTER,
        confined=Confined.NAMES,
        bodies=(NewSchedule,),
        repeatable=True,
        answer=ScheduleView,
        status=201,
        errors=(InvalidSchedule, InvalidJob, TooLarge, ScheduleExists, RequestIdReused, NotAllowed),
        example={"name": "nightly-report", "schedule": _NIGHTLY, "request_id": "nightly-1"},
        links=(Link("getSchedule", "schedule", "$response.body#/name"),),
    ),
    Route(
        method="GET",
        path="/api/schedules/{schedule}",
        name="getSchedule",
        summary="Show a schedule: when it fires, its last jobs and what became of them.",
        handler=get_schedule,
        role=Role.VIEWER,
        confined=Confined.HIDES,
        parameters=_NAMED,
        answer=ScheduleView,
        errors=(UnknownSchedule,),
    ),
    Route(
        method="GET",
        path="/api/schedules/{schedule}/next",
        name="getNextFires",
        summary="Show the next fire times of a schedule.",
        handler=get_next,
        role=Role.VIEWER,
        confined=Confined.HIDES,
        parameters=_NAMED,
        query=NextQuery,
        answer=FireTimes,
        errors=(UnknownSchedule,),
    ),
    Route(
        method="GET",
        path="/api/schedules/{schedule}/history",
        name="getScheduleHistory",
        summary="Show everything that has happened to a schedule.",
        handler=get_history,
        role=Role.VIEWER,
        confined=Confined.HIDES,
        parameters=_NAMED,
        query=HistoryQuery,
        answer=HistoryPage,
        errors=(UnknownSchedule,),
    ),
    _tell("pause", "Submit nothing until the schedule is resumed; missed fires are not caught up with."),
    _tell("resume", "Submit jobs again, from the next fire on."),
    _tell("delete", "End a schedule; jobs that it has submitted go on."),
    Route(
        method="POST",
        path="/api/schedules/{schedule}/run",
        name="runSchedule",
        summary="Submit a job of a schedule now.",
        handler=run,
        role=Role.SUBMITTER,
        confined=Confined.HIDES,
        parameters=_NAMED,
        bodies=(ScheduleChange,),
        body_required=False,
        repeatable=True,
        fires=(SCHEDULE.name, "run_now"),
        answer=FireView,
        status=201,
        errors=(UnknownSchedule, TerminalState, RequestIdReused),
        example={"reason": "the data came late", "request_id": "run-17"},
        links=(Link("getJob", "job_id", "$response.body#/job_id"),),
    ),
    Route(
        method="POST",
        path="/api/schedules/{schedule}/backfill",
        name="backfillSchedule",
        summary="Submit the jobs of past fire times that have none.",
        handler=backfill,
        role=Role.SUBMITTER,
        confined=Confined.HIDES,
        parameters=_NAMED,
        bodies=(BackfillRequest,),
        repeatable=True,
        answer=Backfilled,
        status=201,
        errors=(UnknownSchedule, InvalidSchedule, TerminalState, RequestIdReused),
        example={"since": "2026-01-01", "until": "2026-02-01", "queued": True, "request_id": "january"},
    ),
)
