"""Schedules over HTTP.

The server knows the actor by the token, so an `actor` that is named here is not passed on.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from interlock.api import schedules as api
from interlock.api.messages import MAX_PAGE
from interlock.remote.history import history_of
from interlock.remote.http_client import ApiClient
from interlock.store.records import Entry
from interlock.systems.schedules.fires import iso
from interlock.wire.schedules import Backfilled, FireView, ScheduleSpec, ScheduleView


class HttpSchedules:
    """The schedules behind a server."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client

    async def create(
        self,
        name: str,
        spec: ScheduleSpec,
        *,
        source: str = "",
        actor: str = "",
        request_id: str | None = None,
    ) -> ScheduleView:
        """Create a schedule; one of that name must not exist, or must have ended."""
        sent = api.NewSchedule(name=name, schedule=spec, source=source, request_id=request_id)
        return await self._client.call(api.CREATE_SCHEDULE, sent)

    async def put(
        self,
        name: str,
        spec: ScheduleSpec,
        *,
        source: str = "",
        actor: str = "",
        request_id: str | None = None,
    ) -> ScheduleView:
        """Create or replace a schedule, unless the specification is equal."""
        sent = api.NewSchedule(name=name, schedule=spec, source=source, replace=True, request_id=request_id)
        return await self._client.call(api.CREATE_SCHEDULE, sent)

    async def pause(
        self, name: str, *, reason: str = "", actor: str = "", request_id: str | None = None
    ) -> ScheduleView:
        """Pause a schedule: it submits nothing until it is resumed."""
        sent = api.ScheduleChange(reason=reason, request_id=request_id)
        return await self._client.call(api.PAUSE_SCHEDULE, sent, schedule=name)

    async def resume(
        self, name: str, *, reason: str = "", actor: str = "", request_id: str | None = None
    ) -> ScheduleView:
        """Resume a schedule, from the next fire on."""
        sent = api.ScheduleChange(reason=reason, request_id=request_id)
        return await self._client.call(api.RESUME_SCHEDULE, sent, schedule=name)

    async def delete(
        self, name: str, *, reason: str = "", actor: str = "", request_id: str | None = None
    ) -> ScheduleView:
        """End a schedule; jobs that it has submitted continue."""
        sent = api.ScheduleChange(reason=reason, request_id=request_id)
        return await self._client.call(api.DELETE_SCHEDULE, sent, schedule=name)

    async def run(
        self, name: str, *, reason: str = "", actor: str = "", request_id: str | None = None
    ) -> FireView:
        """Submit a job of the schedule now."""
        sent = api.ScheduleChange(reason=reason, request_id=request_id)
        return await self._client.call(api.RUN_SCHEDULE, sent, schedule=name)

    async def backfill(
        self,
        name: str,
        since: str | datetime,
        until: str | datetime,
        *,
        queued: bool = False,
        dry_run: bool = False,
        reason: str = "",
        actor: str = "",
        request_id: str | None = None,
    ) -> Backfilled:
        """Submit the jobs of past fire times that have none."""
        first, last = (each if isinstance(each, str) else iso(each) for each in (since, until))
        sent = api.BackfillRequest(
            since=first, until=last, queued=queued, dry_run=dry_run, reason=reason, request_id=request_id
        )
        return await self._client.call(api.BACKFILL_SCHEDULE, sent, schedule=name)

    async def get(self, name: str) -> ScheduleView:
        """Return a schedule."""
        return await self._client.call(api.GET_SCHEDULE, schedule=name)

    async def find(
        self, *, states: Sequence[str] = (), limit: int = 100, cursor: str = ""
    ) -> tuple[list[ScheduleView], str]:
        """Return a page of schedules, newest first, and the next cursor."""
        state: Any = states[0] if len(states) == 1 else ""
        query = api.SchedulesQuery(state=state, limit=min(limit, MAX_PAGE), cursor=cursor)
        page = await self._client.call(api.LIST_SCHEDULES, query)
        return [view for view in page.schedules if not states or view.state in states], page.cursor

    async def next(self, name: str, count: int = 10) -> tuple[datetime, ...]:
        """Return the next fire times."""
        query = api.NextQuery(count=count)
        return (await self._client.call(api.GET_NEXT_FIRES, query, schedule=name)).times

    async def history(self, name: str) -> list[Entry]:
        """Return the journal of a schedule, oldest first."""
        return await history_of(self._client, api.GET_SCHEDULE_HISTORY, schedule=name)
