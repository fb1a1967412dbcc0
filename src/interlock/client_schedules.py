"""The client behind `Interlock.schedules`.

await il.schedules.create("nightly-report", report, cron="0 2 * * 1-5", tz="Europe/Berlin")
for at in await il.schedules.next("nightly-report", 3):
    print(at)
await il.schedules.pause("nightly-report", reason="the warehouse is being moved")
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Unpack

from interlock.remote.interfaces import Services
from interlock.remote.schedules import SchedulesApi
from interlock.store.records import Entry
from interlock.wire.schedules import Backfilled, FireView, ScheduleSpec, ScheduleView
from interlock.worker.codec import Work, spec_of, with_json
from interlock.worker.schedules import ScheduleOptions, schedule_spec


class SchedulesClient:
    """The schedules of a store, or of a server before one."""

    def __init__(self, here: Callable[[], Services], actor: str) -> None:
        self._here = here
        self._actor = actor

    @property
    def _schedules(self) -> SchedulesApi:
        return self._here().schedules

    async def create(
        self,
        name: str,
        work: Work | ScheduleSpec,
        when: str = "",
        /,
        *,
        update: bool = False,
        request_id: str | None = None,
        **how: Unpack[ScheduleOptions],
    ) -> ScheduleView:
        """Create a schedule that submits this work: a task, or `task.spec(...)` with its arguments.

        `when` is a cron expression or an interval; see `schedule_spec` for the rest: cron, every, at, tz,
        start, end, exclude, jitter, catch_up, catch_up_limit, overlap. With `update` an existing schedule of
        that name is changed; repeating the call has no effect.
        """
        spec = (
            work
            if isinstance(work, ScheduleSpec)
            else schedule_spec(with_json(spec_of(work, (), {})), when, **how)
        )
        act = self._schedules.put if update else self._schedules.create
        return await act(name, spec, actor=self._actor, request_id=request_id)

    async def get(self, name: str) -> ScheduleView:
        """Return a schedule with its last jobs."""
        return await self._schedules.get(name)

    async def list(
        self, *states: str, limit: int = 100, cursor: str = ""
    ) -> tuple[Sequence[ScheduleView], str]:
        """Return a page of schedules, newest first, and the cursor of the next one."""
        return await self._schedules.find(states=states, limit=limit, cursor=cursor)

    async def pause(self, name: str, *, reason: str = "", request_id: str | None = None) -> ScheduleView:
        """Pause a schedule; no job is submitted until it is resumed."""
        return await self._schedules.pause(name, reason=reason, actor=self._actor, request_id=request_id)

    async def resume(self, name: str, *, reason: str = "", request_id: str | None = None) -> ScheduleView:
        """Submit jobs again, from the next fire on."""
        return await self._schedules.resume(name, reason=reason, actor=self._actor, request_id=request_id)

    async def run(self, name: str, *, reason: str = "", request_id: str | None = None) -> FireView:
        """Submit a job of the schedule now."""
        return await self._schedules.run(name, reason=reason, actor=self._actor, request_id=request_id)

    async def backfill(
        self,
        name: str,
        since: str | datetime,
        until: str | datetime,
        *,
        queued: bool = False,
        dry_run: bool = False,
        reason: str = "",
        request_id: str | None = None,
    ) -> Backfilled:
        """Submit the jobs of past fire times that have none; with `queued` one after the other.

        With `dry_run` return the fire times that would get a job, and submit nothing.
        """
        return await self._schedules.backfill(
            name,
            since,
            until,
            queued=queued,
            dry_run=dry_run,
            reason=reason,
            actor=self._actor,
            request_id=request_id,
        )

    async def next(self, name: str, count: int = 10) -> tuple[datetime, ...]:
        """Return the next fire times."""
        return await self._schedules.next(name, count)

    async def history(self, name: str) -> Sequence[Entry]:
        """Return the history of a schedule, oldest first."""
        return await self._schedules.history(name)

    async def delete(self, name: str, *, reason: str = "", request_id: str | None = None) -> ScheduleView:
        """End a schedule; jobs that it has submitted go on."""
        return await self._schedules.delete(name, reason=reason, actor=self._actor, request_id=request_id)
