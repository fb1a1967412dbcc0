"""Routes of schedules: create, list, show, pause, resume, run, backfill and delete them.

A schedule belongs to the queue of its jobs: for a token that is confined to other queues it is not there.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable

from interlock.api import schedules as api
from interlock.api.messages import HistoryPage
from interlock.errors import UnknownSchedule
from interlock.lifecycles.schedule import SCHEDULE
from interlock.server.api.visibility import cursor_of_place, place_of_cursor
from interlock.server.history import history_of
from interlock.server.routes import Call, handles
from interlock.store.records import Key
from interlock.systems.schedules.schedules import ScheduleService, unknown
from interlock.wire.access import Role
from interlock.wire.schedules import NAME, Backfilled, FireTimes, FireView, SchedulePage, ScheduleView


@handles(api.LIST_SCHEDULES)
async def list_schedules(call: Call) -> SchedulePage:
    """Return a page of schedules that the principal may see."""
    query: api.SchedulesQuery = call.query
    states = (query.state,) if query.state else ()
    views, cursor = await _schedules(call).find(
        states=states, limit=query.limit, cursor=await place_of_cursor(call)
    )
    seen = tuple(view for view in views if call.principal.sees(view.spec.job.queue))
    return SchedulePage(schedules=seen, cursor=await cursor_of_place(call, cursor))


@handles(api.CREATE_SCHEDULE)
async def create_schedule(call: Call) -> ScheduleView:
    """Create a schedule, or update it on request."""
    body: api.NewSchedule = call.body
    call.principal.need_queues([body.schedule.job.queue])
    act = _schedules(call).create
    if body.replace:
        call.principal.need(Role.OPERATOR)
        if call.principal.scoped:
            await _seen_if_there(call, body.name)
        act = _schedules(call).put
    return await act(
        body.name, body.schedule, source=body.source, actor=call.actor, request_id=call.request_id
    )


@handles(api.GET_SCHEDULE)
async def get_schedule(call: Call) -> ScheduleView:
    """Return a schedule; raise `UnknownSchedule` if its queue is not visible."""
    name = _shaped(call)
    view = await _schedules(call).get(name)
    if not call.principal.sees(view.spec.job.queue):
        raise unknown(name)
    return view


async def _named(call: Call) -> str:
    """Return the name of the schedule to change.

    A repeated request may name one that is gone.
    """
    return (await get_schedule(call)).name if call.principal.scoped else _shaped(call)


def _shaped(call: Call) -> str:
    name = call.path["schedule"]
    if not re.fullmatch(NAME, name):
        raise unknown(name)
    return name


@handles(api.GET_NEXT_FIRES)
async def get_next(call: Call) -> FireTimes:
    """Return the next fire times of a schedule."""
    view = await get_schedule(call)
    return FireTimes(times=await _schedules(call).next(view.name, call.query.count))


@handles(api.GET_SCHEDULE_HISTORY)
async def get_history(call: Call) -> HistoryPage:
    """Return the journal of a schedule, oldest first."""
    return await history_of(call.parts.store, call.query, Key(SCHEDULE.name, (await get_schedule(call)).name))


def change_handler(verb: str) -> Callable[[Call], Awaitable[ScheduleView]]:
    """Return a handler that pauses, resumes or deletes a schedule."""

    async def handle(call: Call) -> ScheduleView:
        body: api.ScheduleChange = call.body or api.ScheduleChange()
        name = await _named(call)
        act = getattr(_schedules(call), verb)
        view: ScheduleView = await act(name, reason=body.reason, actor=call.actor, request_id=call.request_id)
        return view

    return handle


@handles(api.RUN_SCHEDULE)
async def run(call: Call) -> FireView:
    """Submit a job of the schedule now."""
    body: api.ScheduleChange = call.body or api.ScheduleChange()
    name = await _named(call)
    return await _schedules(call).run(name, reason=body.reason, actor=call.actor, request_id=call.request_id)


@handles(api.BACKFILL_SCHEDULE)
async def backfill(call: Call) -> Backfilled:
    """Submit jobs for past fire times."""
    body: api.BackfillRequest = call.body
    name = await _named(call)
    return await _schedules(call).backfill(
        name,
        body.since,
        body.until,
        queued=body.queued,
        dry_run=body.dry_run,
        reason=body.reason,
        actor=call.actor,
        request_id=call.request_id,
    )


async def _seen_if_there(call: Call, name: str) -> None:
    try:
        view = await _schedules(call).get(name)
    except UnknownSchedule:
        return
    call.principal.need_queues([view.spec.job.queue])


def _schedules(call: Call) -> ScheduleService:
    return call.parts.runtime.schedules


for _operation, _verb in (
    (api.PAUSE_SCHEDULE, "pause"),
    (api.RESUME_SCHEDULE, "resume"),
    (api.DELETE_SCHEDULE, "delete"),
):
    handles(_operation)(change_handler(_verb))
