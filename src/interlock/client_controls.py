"""The clients behind `Interlock.approvals`, `schedules`, `limits` and `dead_letters`.

They control which jobs run, and when.

approvals, cursor = await il.approvals.list()
for one in approvals:
    print(one.id, one.question)
await il.approvals.approve(approvals[0].id, comment="looks good")

await il.schedules.create("nightly-report", report, cron="0 2 * * 1-5", tz="Europe/Berlin")
for at in await il.schedules.next("nightly-report", 3):
    print(at)
await il.schedules.pause("nightly-report", reason="the warehouse is being moved")

await il.limits.set("vendor-x", max=5)
await il.submit(call_vendor, order=17, limits=["vendor-x"])
for key in (await il.limits.get("vendor-x")).keys:
    print(key.used, "of", key.max, "in use,", key.waiting, "waiting")

letters, cursor = await il.dead_letters.list("queue:mail since:1d")
for letter in letters:
    print(letter.id, letter.job.failure.error)
new_id = await il.dead_letters.retry(letters[0].id, input={"address": "a@b.example"})
await il.dead_letters.discard(letters[1].id, reason="the customer has left")
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Unpack

import msgspec

from interlock.errors import InterlockError, StoreUnavailable
from interlock.remote.interfaces import DeadLettersApi, LimitsApi, SchedulesApi, Services, WaitsApi
from interlock.store.records import Entry
from interlock.wire.filters import read_filter
from interlock.wire.jobs import DeadLetterView
from interlock.wire.limits import LimitSpec, LimitView
from interlock.wire.schedules import Backfilled, FireView, ScheduleSpec, ScheduleView
from interlock.wire.waits import ApprovalView
from interlock.worker.codec import Work, encode, spec_of, with_json
from interlock.worker.schedules import ScheduleOptions, schedule_spec


class ApprovalsClient:
    """The approvals in a store, or of a server before one."""

    def __init__(self, services: Callable[[], Services], actor: str) -> None:
        self._services = services
        self._actor = actor

    @property
    def _waits(self) -> WaitsApi:
        return self._services().waits

    async def list(
        self, *, ended: bool = False, job_id: str = "", limit: int = 100, cursor: str = ""
    ) -> tuple[Sequence[ApprovalView], str]:
        """Return a page of waiting approvals, newest first, and a cursor.

        The cursor leads to the next page. With `ended` the page has all approvals.
        """
        return await self._waits.find(ended=ended, job_id=job_id, limit=limit, cursor=cursor)

    async def get(self, approval_id: str) -> ApprovalView:
        """Return an approval by its id or that of its job.

        The id of a job is enough if only one of its approvals waits.
        """
        return await self._waits.get(approval_id)

    async def approve(
        self, approval_id: str, *, comment: str = "", request_id: str | None = None
    ) -> ApprovalView:
        """Approve a waiting job, which continues."""
        return await self._waits.approve(
            approval_id, comment=comment, actor=self._actor, request_id=request_id
        )

    async def reject(
        self, approval_id: str, *, comment: str = "", request_id: str | None = None
    ) -> ApprovalView:
        """Reject a request of a job; its handler gets the answer."""
        return await self._waits.reject(
            approval_id, comment=comment, actor=self._actor, request_id=request_id
        )


class SchedulesClient:
    """The schedules of a store, or of a server before one."""

    def __init__(self, services: Callable[[], Services], actor: str) -> None:
        self._services = services
        self._actor = actor

    @property
    def _schedules(self) -> SchedulesApi:
        return self._services().schedules

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
        """Create a schedule that submits this work.

        The work is a task, or `task.spec(...)` with its arguments. `when` is a cron expression or an
        interval; see `schedule_spec` for the rest: cron, every, at, tz, start, end, exclude, jitter,
        catch_up, catch_up_limit, overlap. With `update` an existing schedule of that name is changed;
        repeating the call has no effect.
        """
        if isinstance(work, ScheduleSpec):
            spec = msgspec.structs.replace(work, job=with_json(work.job))
        else:
            spec = schedule_spec(spec_of(work, (), {}), when, **how)
        act = self._schedules.put if update else self._schedules.create
        return await act(name, spec, actor=self._actor, request_id=request_id)

    async def get(self, name: str) -> ScheduleView:
        """Return a schedule with its last jobs."""
        return await self._schedules.get(name)

    async def list(
        self, *states: str, limit: int = 100, cursor: str = ""
    ) -> tuple[Sequence[ScheduleView], str]:
        """Return a page of schedules, newest first, and the next cursor."""
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
        """Submit the jobs of past fire times that have none.

        With `queued` they run one after the other. With `dry_run` return the fire times that would get a job,
        and submit nothing.
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
        """End a schedule; jobs that it has submitted continue."""
        return await self._schedules.delete(name, reason=reason, actor=self._actor, request_id=request_id)


class LimitsClient:
    """The limits of a store, or of a server before one."""

    def __init__(self, services: Callable[[], Services], actor: str) -> None:
        self._services = services
        self._actor = actor

    @property
    def _limits(self) -> LimitsApi:
        return self._services().limits

    async def set(
        self,
        name: str,
        *,
        max: int | None = None,  # noqa: A002 - as the limit calls it
        rate: int | None = None,
        period_s: float = 1.0,
        burst: int | None = None,
        description: str = "",
        request_id: str | None = None,
    ) -> LimitView:
        """Declare a limit, or change it.

        `name` is a key that jobs name (`vendor-x`), a pattern for many keys of which each has its own slots
        (`tenant:*`), or all jobs of a queue or task (`queue:imports`, `task:shop.tasks.call`). `max` jobs run
        at the same time; `rate` jobs start in each period, and up to `burst` (default: `rate`) at once.
        """
        spec = LimitSpec(max=max, rate=rate, period_s=period_s, burst=burst, description=description)
        return await self._limits.set(name, spec, actor=self._actor, request_id=request_id)

    async def delete(self, name: str, *, reason: str = "", request_id: str | None = None) -> LimitView:
        """Delete a limit; jobs that wait for it are admitted. Return it as it was."""
        return await self._limits.delete(name, reason=reason, actor=self._actor, request_id=request_id)

    async def get(self, name: str) -> LimitView:
        """Return a limit with the jobs that hold its slots, and how many wait."""
        return await self._limits.get(name)

    async def list(self) -> list[LimitView]:
        """Return all limits, by name, with the keys that are in use."""
        return await self._limits.list()


class DeadLettersClient:
    """The dead letters of a store, or of a server before one."""

    def __init__(self, services: Callable[[], Services], actor: str) -> None:
        self._services = services
        self._actor = actor

    @property
    def _letters(self) -> DeadLettersApi:
        return self._services().dead_letters

    async def list(
        self, wanted: str = "", *, limit: int = 100, cursor: str = ""
    ) -> tuple[Sequence[DeadLetterView], str]:
        """Return a page of open dead letters, newest first, and a cursor.

        An open dead letter is a failed job that was neither retried nor discarded. `wanted` is a filter, such
        as `"queue:mail since:1d"`. A page before the last may be short, or empty; only the cursor of the last
        page is empty.
        """
        return await self._letters.find(read_filter(wanted), limit=limit, cursor=cursor)

    async def get(self, job_id: str) -> DeadLetterView:
        """Return a dead letter, and the action taken on it."""
        return await self._letters.get(job_id)

    async def retry(
        self,
        job_id: str,
        *,
        input: object = None,  # noqa: A002 - as in the spec of a job
        reason: str = "",
        request_id: str | None = None,
    ) -> str:
        """Submit a dead letter again, perhaps with another `input`; return the id."""
        given = None if input is None else encode(input, "input")
        return await self._letters.retry(
            job_id, input=given, reason=reason, actor=self._actor, request_id=request_id
        )

    async def discard(
        self, job_id: str, *, reason: str = "", request_id: str | None = None
    ) -> DeadLetterView:
        """Discard a dead letter; its job stays failed."""
        return await self._letters.discard(job_id, reason=reason, actor=self._actor, request_id=request_id)

    async def retry_all(
        self, wanted: str, *, reason: str = "", limit: int = 1_000
    ) -> dict[str, str | InterlockError]:
        """Retry every matching dead letter.

        Return, by id, the id of the new job or the error that prevented it.
        """

        async def one(job_id: str) -> str:
            return await self.retry(job_id, reason=reason)

        return await self._with_each(wanted, limit, one)

    async def discard_all(
        self, wanted: str, *, reason: str = "", limit: int = 1_000
    ) -> dict[str, str | InterlockError]:
        """Discard every matching dead letter.

        Return, by id, its state or the error that prevented it.
        """

        async def one(job_id: str) -> str:
            return (await self.discard(job_id, reason=reason)).state

        return await self._with_each(wanted, limit, one)

    async def _with_each(self, wanted: str, limit: int, one: Any) -> dict[str, str | InterlockError]:
        """Look at all first: handled ones leave their page, so pages would shift."""
        ids: Any = []
        cursor = ""
        while len(ids) < limit:
            letters, cursor = await self.list(wanted, limit=limit - len(ids), cursor=cursor)
            ids += [letter.id for letter in letters]
            if not cursor:
                break
        done: dict[str, str | InterlockError] = {}
        for job_id in ids:
            try:
                done[job_id] = await one(job_id)
            except StoreUnavailable:
                raise
            except InterlockError as error:
                done[job_id] = error
        return done
