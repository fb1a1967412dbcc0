"""The list of queues, found with a bounded number of small reads.

No index names a queue, so no query counts or searches by queue. Few pending jobs are counted themselves; with
many, the backlog comes from the figures, which are a few seconds old. An answer is cached for two seconds, so
many dashboards cost as much as one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from interlock.lifecycles import job
from interlock.lifecycles.job import JOB, JobState
from interlock.lifecycles.worker import WORKER
from interlock.store.records import Query, Record
from interlock.systems.figures.figures import by_queue
from interlock.systems.figures.series import Backlog
from interlock.systems.orchestrator.explanation import LIVING_WORKERS
from interlock.systems.orchestrator.queues import hold_fields
from interlock.systems.supervisor.aggregate import view_of
from interlock.wire.figures import Figure
from interlock.wire.jobs import QueueHold, QueueView
from interlock.wire.workers import WorkerView

if TYPE_CHECKING:
    from interlock.server.parts import Parts

FRESH_S = 2.0
ANSWERS = 64
WORKERS = 500
"""Maximum number of workers to examine; with more, workers are not reported."""
JOBS = 200
"""Number of oldest jobs of a state to examine; up to this number they are counted exactly."""
FIRST, LIGHT = 5, 65_536
"""Byte limit of the first jobs below which the others are read too: inputs may be large."""
QUEUES = 500
LATELY_MIN = 60


class Some(msgspec.Struct, frozen=True):
    """The oldest jobs of a state."""

    records: tuple[Record, ...]
    all: bool
    """Whether these are all."""


class QueuesInput(msgspec.Struct, frozen=True, kw_only=True):
    """The input of the list of queues."""

    pending: Some
    running: Some
    backlog: Backlog = {}
    """Backlog from the figures."""
    lately: dict[str, Figure] | None = None
    """Latest figures; None if no server has counted yet."""
    holds: tuple[QueueHold, ...] = ()
    workers: tuple[WorkerView, ...] | None = None
    """None if there are too many workers, or the principal may not see them."""
    among: frozenset[str] = frozenset()
    """The visible queues; empty for all."""


class QueueBoard:
    """Lists the queues of one server's store, with a short cache."""

    def __init__(self, parts: Parts, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._parts = parts
        self._monotonic = monotonic
        self._answers: dict[frozenset[str], tuple[float, tuple[QueueView, ...]]] = {}
        self._alone = asyncio.Lock()

    async def take(self, among: frozenset[str] = frozenset()) -> tuple[QueueView, ...]:
        """Return all queues, or those of a scoped token."""
        async with self._alone:
            known = self._answers.get(among)
            if known is not None and self._monotonic() < known[0] + FRESH_S:
                return known[1]
            views = tuple(views_of(await self._look(among)))
            self._answers.pop(among, None)
            while len(self._answers) >= ANSWERS:
                del self._answers[next(iter(self._answers))]
            self._answers[among] = (self._monotonic(), views)
            return views

    def forget(self) -> None:
        """Clear the cache, as after a queue was paused."""
        self._answers.clear()

    async def _look(self, among: frozenset[str]) -> QueuesInput:
        runtime = self._parts.runtime
        now = await runtime.engine.clock.now()
        parts = await runtime.figures.recent(now)
        return QueuesInput(
            pending=await self._some(job.PENDING),
            running=await self._some(job.RUNNING),
            backlog=await runtime.figures.backlog(),
            lately=by_queue(parts, now, LATELY_MIN) if parts else None,
            holds=tuple(await runtime.queues.paused()),
            workers=None if among else await self._workers(),
            among=among,
        )

    async def _some(self, state: JobState) -> Some:
        store = self._parts.store
        query = Query(kind=JOB.name, states=(state,), newest_first=False, limit=FIRST)
        first = await store.find(query)
        if not first.cursor or sum(record.size for record in first.records) > LIGHT:
            return Some(first.records, not first.cursor)
        query = msgspec.structs.replace(query, cursor=first.cursor, limit=JOBS - FIRST)
        rest = await store.find(query)
        return Some((*first.records, *rest.records), not rest.cursor)

    async def _workers(self) -> tuple[WorkerView, ...] | None:
        page = await self._parts.store.find(Query(kind=WORKER.name, states=LIVING_WORKERS, limit=WORKERS))
        return None if page.cursor else tuple(map(view_of, page.records))


def views_of(seen: QueuesInput) -> list[QueueView]:
    """Return the queues with jobs, workers, a pause, or recent activity. Pure."""
    pending = _numbers(seen.pending, {name: both[0] for name, both in seen.backlog.items()})
    running = _numbers(seen.running, {name: both[1] for name, both in seen.backlog.items()})
    holds = {hold.name: hold for hold in seen.holds}
    served = {queue for worker in seen.workers or () for queue in worker.queues}
    names = {*pending, *running, *holds, *served, *(seen.lately or ())}
    oldest = _oldest(seen.pending.records)
    return [
        QueueView(
            name=name,
            pending=pending.get(name, 0),
            running=running.get(name, 0),
            oldest_created_at=oldest.get(name) if pending.get(name) else None,
            lately=None if seen.lately is None else seen.lately.get(name, Figure()),
            **hold_fields(holds.get(name)),
            **_served(name, seen.workers),
        )
        for name in sorted(names)
        if name and (not seen.among or name in seen.among)
    ][:QUEUES]


def _numbers(some: Some, counted: dict[str, int]) -> dict[str, int]:
    """Return the number of jobs in each queue: exact if all jobs were read, else from the figures."""
    if not some.all:
        return {name: number for name, number in counted.items() if number}
    numbers: dict[str, int] = {}
    for record in some.records:
        numbers[record.queue or ""] = numbers.get(record.queue or "", 0) + 1
    return numbers


def _oldest(records: Iterable[Record]) -> dict[str, datetime]:
    oldest: dict[str, datetime] = {}
    for record in records:
        oldest.setdefault(record.queue or "", record.created_at)
    return oldest


def _served(name: str, workers: Iterable[WorkerView] | None) -> dict[str, Any]:
    if workers is None:
        return {}
    mine = [worker for worker in workers if name in worker.queues and not worker.draining]
    return {
        "workers": len(mine),
        "slots": sum(worker.capacity for worker in mine),
        "busy": sum(min(worker.active, worker.capacity) for worker in mine),
    }
