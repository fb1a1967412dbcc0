"""Schedules over HTTP; and what a store and a server both offer about them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Protocol, TypeVar

import msgspec

from interlock.remote.http_client import ApiClient, HistoryPage
from interlock.store.records import Entry
from interlock.systems.schedules.firing import iso
from interlock.systems.schedules.schedules import unknown
from interlock.wire.schedules import (
    NAME,
    Backfilled,
    FireTimes,
    FireView,
    SchedulePage,
    ScheduleSpec,
    ScheduleView,
)

MAX_PAGE = 1_000
T = TypeVar("T")


class SchedulesApi(Protocol):
    """Everything that people and programs do with schedules."""

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
        ...

    async def put(
        self,
        name: str,
        spec: ScheduleSpec,
        *,
        source: str = "",
        actor: str = "",
        request_id: str | None = None,
    ) -> ScheduleView:
        """Create a schedule, or change the one of that name; the same specification changes nothing."""
        ...

    async def pause(
        self, name: str, *, reason: str = "", actor: str = "", request_id: str | None = None
    ) -> ScheduleView:
        """Submit nothing until the schedule is resumed."""
        ...

    async def resume(
        self, name: str, *, reason: str = "", actor: str = "", request_id: str | None = None
    ) -> ScheduleView:
        """Submit jobs again, from the next fire on."""
        ...

    async def delete(
        self, name: str, *, reason: str = "", actor: str = "", request_id: str | None = None
    ) -> ScheduleView:
        """End a schedule; jobs that it has submitted go on."""
        ...

    async def run(
        self, name: str, *, reason: str = "", actor: str = "", request_id: str | None = None
    ) -> FireView:
        """Submit a job of the schedule now."""
        ...

    async def backfill(
        self,
        name: str,
        since: str | datetime,
        until: str | datetime,
        *,
        queued: bool = False,
        reason: str = "",
        actor: str = "",
        request_id: str | None = None,
    ) -> Backfilled:
        """Submit the jobs of past fire times that have none."""
        ...

    async def get(self, name: str) -> ScheduleView:
        """Return a schedule as it stands."""
        ...

    async def find(
        self, *, states: Sequence[str] = (), limit: int = 100, cursor: str = ""
    ) -> tuple[list[ScheduleView], str]:
        """Return a page of schedules, newest first, and the cursor of the next one."""
        ...

    async def next(self, name: str, count: int = 10) -> tuple[datetime, ...]:
        """Return the next fire times."""
        ...

    async def history(self, name: str) -> list[Entry]:
        """Return everything that has happened to a schedule, oldest first."""
        ...


class HttpSchedules:
    """The schedules behind a server. Who did it the server knows by the token."""

    def __init__(self, asker: ApiClient, *, names: Callable[[], str]) -> None:
        self._asker = asker
        self._names = names

    async def create(
        self,
        name: str,
        spec: ScheduleSpec,
        *,
        source: str = "",
        actor: str = "",  # noqa: ARG002 - the server knows who it is
        request_id: str | None = None,
    ) -> ScheduleView:
        """Create a schedule; one of that name must not exist, or must have ended."""
        return await self._put(name, spec, source, request_id, replace=False)

    async def put(
        self,
        name: str,
        spec: ScheduleSpec,
        *,
        source: str = "",
        actor: str = "",  # noqa: ARG002 - the server knows who it is
        request_id: str | None = None,
    ) -> ScheduleView:
        """Create a schedule, or change the one of that name; the same specification changes nothing."""
        return await self._put(name, spec, source, request_id, replace=True)

    async def _put(
        self, name: str, spec: ScheduleSpec, source: str, request_id: str | None, *, replace: bool
    ) -> ScheduleView:
        asked = {"name": name, "schedule": spec, "replace": replace, "source": source}
        return await self._post("/api/schedules", ScheduleView, asked, request_id)

    async def pause(
        self,
        name: str,
        *,
        reason: str = "",
        actor: str = "",  # noqa: ARG002 - the server knows who it is
        request_id: str | None = None,
    ) -> ScheduleView:
        """Submit nothing until the schedule is resumed."""
        return await self._post(f"{_path(name)}/pause", ScheduleView, {"reason": reason}, request_id)

    async def resume(
        self,
        name: str,
        *,
        reason: str = "",
        actor: str = "",  # noqa: ARG002 - the server knows who it is
        request_id: str | None = None,
    ) -> ScheduleView:
        """Submit jobs again, from the next fire on."""
        return await self._post(f"{_path(name)}/resume", ScheduleView, {"reason": reason}, request_id)

    async def delete(
        self,
        name: str,
        *,
        reason: str = "",
        actor: str = "",  # noqa: ARG002 - the server knows who it is
        request_id: str | None = None,
    ) -> ScheduleView:
        """End a schedule; jobs that it has submitted go on."""
        return await self._post(f"{_path(name)}/delete", ScheduleView, {"reason": reason}, request_id)

    async def run(
        self,
        name: str,
        *,
        reason: str = "",
        actor: str = "",  # noqa: ARG002 - the server knows who it is
        request_id: str | None = None,
    ) -> FireView:
        """Submit a job of the schedule now."""
        return await self._post(f"{_path(name)}/run", FireView, {"reason": reason}, request_id)

    async def backfill(
        self,
        name: str,
        since: str | datetime,
        until: str | datetime,
        *,
        queued: bool = False,
        reason: str = "",
        actor: str = "",  # noqa: ARG002 - the server knows who it is
        request_id: str | None = None,
    ) -> Backfilled:
        """Submit the jobs of past fire times that have none."""
        first, last = (each if isinstance(each, str) else iso(each) for each in (since, until))
        asked = {"since": first, "until": last, "queued": queued, "reason": reason}
        return await self._post(f"{_path(name)}/backfill", Backfilled, asked, request_id)

    async def get(self, name: str) -> ScheduleView:
        """Return a schedule as it stands."""
        return await self._asker.get(_path(name), ScheduleView)

    async def find(
        self, *, states: Sequence[str] = (), limit: int = 100, cursor: str = ""
    ) -> tuple[list[ScheduleView], str]:
        """Return a page of schedules, newest first, and the cursor of the next one."""
        asked = {"limit": min(limit, MAX_PAGE), "cursor": cursor}
        if len(states) == 1:
            asked["state"] = states[0]
        page = await self._asker.get("/api/schedules", SchedulePage, **asked)
        return [view for view in page.schedules if not states or view.state in states], page.cursor

    async def next(self, name: str, count: int = 10) -> tuple[datetime, ...]:
        """Return the next fire times."""
        return (await self._asker.get(f"{_path(name)}/next", FireTimes, count=count)).times

    async def history(self, name: str) -> list[Entry]:
        """Return everything that has happened to a schedule, oldest first."""
        entries: list[Entry] = []
        after: int | None = 0
        while after is not None:
            page = await self._asker.get(f"{_path(name)}/history", HistoryPage, after=after, limit=MAX_PAGE)
            entries += [each.entry() for each in page.entries]
            after = page.after
        return entries

    async def _post(self, path: str, answer: type[T], asked: dict[str, Any], request_id: str | None) -> T:
        body = msgspec.json.encode({**asked, "request_id": request_id or self._names()})
        return await self._asker.post(path, answer, body)


def _path(name: str) -> str:
    """Where a schedule is; a name that cannot be one must not lead elsewhere."""
    if not re.fullmatch(NAME, name):
        raise unknown(name)
    return f"/api/schedules/{name}"
