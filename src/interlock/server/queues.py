"""The list of queues, found with a bounded number of small reads.

No index names a queue, so no query counts or searches by queue. Few pending jobs are counted themselves; with
many, the backlog comes from the figures, which are a few seconds old. While these have not caught up, as
after a start, there are at least the jobs that were read, and `capped` says so. An answer is cached for two
seconds, so many dashboards cost as much as one.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from interlock.lifecycles import job
from interlock.lifecycles.job import JOB, JobState
from interlock.lifecycles.worker import PAUSED, WORKER
from interlock.store.records import Query, Record
from interlock.systems.figures.figures import by_queue
from interlock.systems.figures.series import Backlog
from interlock.systems.orchestrator.explanation import LIVING_WORKERS
from interlock.systems.orchestrator.queues import hold_fields
from interlock.systems.runtime import Runtime
from interlock.systems.supervisor.aggregate import view_of
from interlock.wire.figures import Figure
from interlock.wire.jobs import QueueHold, QueueView
from interlock.wire.workers import WorkerView

FRESH_S = 2.0
ANSWERS = 64
WORKERS = 500
"""Maximum number of workers to examine; with more, workers are not reported."""
JOBS = 200
"""Number of oldest jobs of a state to examine; up to this number they are counted exactly."""
FIRST, LIGHT = 5, 65_536
"""Byte limit of the first jobs below which the others are read too: inputs may be large."""
SEARCHED, EXAMINED = 10, 2_000
"""Number of queues whose oldest jobs are searched for, and of pending jobs that each search examines."""
QUEUES = 500
LATELY_MIN = 60


class OldestJobs(msgspec.Struct, frozen=True):
    """The oldest jobs of a state."""

    records: tuple[Record, ...]
    all: bool
    """Whether these are all."""


class QueuesInput(msgspec.Struct, frozen=True, kw_only=True):
    """The input of the list of queues."""

    pending: OldestJobs
    running: OldestJobs
    now: datetime
    searched: tuple[Record, ...] = ()
    """The oldest pending jobs of queues that have none among `pending`."""
    backlog: Backlog = {}
    """Backlog from the figures."""
    complete: bool = True
    """Whether the figures have counted the journal to its end, but for the last seconds."""
    lately: dict[str, Figure] | None = None
    """Latest figures; None if no server has counted yet."""
    holds: tuple[QueueHold, ...] = ()
    workers: tuple[WorkerView, ...] | None = None
    """None if there are too many workers, or the principal may not see them."""
    among: frozenset[str] = frozenset()
    """The visible queues; empty for all."""


class KnownQueues(msgspec.Struct, frozen=True):
    """The queues, and how far their pending jobs are known."""

    queues: tuple[QueueView, ...]
    all: bool
    """Whether all pending jobs were read: where none is ready then, there is none."""
    now: datetime


class QueueBoard:
    """Lists the queues of one server's store, with a short cache."""

    def __init__(self, runtime: Runtime, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._runtime = runtime
        self._monotonic = monotonic
        self._answers: dict[frozenset[str], tuple[float, KnownQueues]] = {}
        self._alone = asyncio.Lock()

    async def take(self, among: frozenset[str] = frozenset()) -> tuple[QueueView, ...]:
        """Return all queues, or those of a scoped token."""
        return (await self.look(among)).queues

    async def look(self, among: frozenset[str] = frozenset()) -> KnownQueues:
        """Return the queues, and how far their pending jobs are known."""
        async with self._alone:
            known = self._answers.get(among)
            if known is not None and self._monotonic() < known[0] + FRESH_S:
                return known[1]
            seen = await self._look(among)
            found = KnownQueues(tuple(views_of(seen)), seen.pending.all, seen.now)
            self._answers.pop(among, None)
            while len(self._answers) >= ANSWERS:
                del self._answers[next(iter(self._answers))]
            self._answers[among] = (self._monotonic(), found)
            return found

    def forget(self) -> None:
        """Clear the cache, as after a queue was paused."""
        self._answers.clear()

    async def _look(self, among: frozenset[str]) -> QueuesInput:
        runtime = self._runtime
        now = await runtime.engine.clock.now()
        parts = await runtime.figures.recent(now)
        pending, running = await self._oldest_jobs(job.PENDING), await self._oldest_jobs(job.RUNNING)
        backlog = await runtime.figures.backlog()
        return QueuesInput(
            now=now,
            pending=pending,
            running=running,
            searched=() if pending.all else await self._oldest_of(_unseen(backlog, pending)),
            backlog=backlog,
            complete=(pending.all and running.all) or await runtime.figures.is_complete(now),
            lately=by_queue(parts, now, LATELY_MIN) if parts else None,
            holds=tuple(await runtime.queues.paused()),
            workers=None if among else await self._workers(),
            among=among,
        )

    async def _oldest_jobs(self, state: JobState) -> OldestJobs:
        store = self._runtime.store
        query = Query(kind=JOB.name, states=(state,), newest_first=False, limit=FIRST)
        first = await store.find(query)
        if not first.cursor or sum(record.size for record in first.records) > LIGHT:
            return OldestJobs(first.records, not first.cursor)
        query = msgspec.structs.replace(query, cursor=first.cursor, limit=JOBS - FIRST)
        rest = await store.find(query)
        return OldestJobs((*first.records, *rest.records), not rest.cursor)

    async def _oldest_of(self, queues: Iterable[str]) -> tuple[Record, ...]:
        """Return the oldest pending jobs of these queues that a search finds."""
        found: list[Record] = []
        for queue in queues:
            states = (job.PENDING,)
            query = Query(kind=JOB.name, states=states, queue=queue, newest_first=False, limit=FIRST)
            page = await self._runtime.store.find(msgspec.structs.replace(query, within=EXAMINED))
            found += page.records
        return tuple(found)

    async def _workers(self) -> tuple[WorkerView, ...] | None:
        page = await self._runtime.store.find(Query(kind=WORKER.name, states=LIVING_WORKERS, limit=WORKERS))
        return None if page.cursor else tuple(map(view_of, page.records))


def views_of(seen: QueuesInput) -> list[QueueView]:
    """Return the queues with jobs, workers, a pause, or recent activity. Pure."""
    counted = [{name: both[place] for name, both in seen.backlog.items()} for place in (0, 1)]
    read = (_read(seen.pending, counted[0]), _read(seen.running, counted[1]))
    pending, running = (each.numbers for each in read)
    behind = read[0].behind | read[1].behind
    holds = {hold.name: hold for hold in seen.holds}
    served = {queue for worker in seen.workers or () for queue in worker.queues}
    names = {*pending, *running, *holds, *served, *(seen.lately or ())}
    waiting = (*seen.pending.records, *seen.searched)
    oldest, ready = _oldest(waiting), _oldest_ready(waiting, seen.now)
    return [
        QueueView(
            name=name,
            pending=pending.get(name, 0),
            running=running.get(name, 0),
            capped=not seen.complete or name in behind,
            oldest_created_at=oldest.get(name) if pending.get(name) else None,
            oldest_ready_at=None if name in holds else ready.get(name),
            lately=None if seen.lately is None else seen.lately.get(name, Figure()),
            **hold_fields(holds.get(name)),
            **_served(name, seen.workers),
        )
        for name in sorted(names)
        if name and (not seen.among or name in seen.among)
    ][:QUEUES]


class _Numbers(NamedTuple):
    numbers: dict[str, int]
    behind: frozenset[str] = frozenset()
    """Queues of which the figures have counted fewer jobs than were read."""


def _read(jobs: OldestJobs, counted: dict[str, int]) -> _Numbers:
    """Return the number of jobs in each queue.

    It is exact if all jobs were read, otherwise from the figures. The figures may not have counted jobs yet
    that were read: there are at least those.
    """
    read: dict[str, int] = Counter(record.queue or "" for record in jobs.records)
    if jobs.all:
        return _Numbers(read)
    names = (*read, *(name for name, number in counted.items() if number))
    numbers = {name: max(read.get(name, 0), counted.get(name, 0)) for name in names}
    return _Numbers(numbers, frozenset(name for name in read if read[name] > counted.get(name, 0)))


def _unseen(backlog: Backlog, pending: OldestJobs) -> list[str]:
    """Return the queues with the largest backlogs that were not read.

    No pending job of them was read.
    """
    seen = {record.queue for record in pending.records}
    queues = [name for name, numbers in backlog.items() if name and numbers[0] and name not in seen]
    return sorted(queues, key=lambda name: -backlog[name][0])[:SEARCHED]


def _oldest(records: Iterable[Record]) -> dict[str, datetime]:
    oldest: dict[str, datetime] = {}
    for record in records:
        oldest.setdefault(record.queue or "", record.created_at)
    return oldest


def _oldest_ready(records: Iterable[Record], now: datetime) -> dict[str, datetime]:
    """Return since when the oldest ready job of each queue is ready."""
    oldest: dict[str, datetime] = {}
    for record in records:
        queue, at = record.queue or "", record.ready_at
        if at is not None and at <= now:
            oldest[queue] = min(at, oldest.get(queue, at))
    return oldest


def _served(name: str, workers: Iterable[WorkerView] | None) -> dict[str, Any]:
    if workers is None:
        return {}
    takes = (worker for worker in workers if not worker.draining and worker.state != PAUSED)
    mine = [worker for worker in takes if name in worker.queues]
    return {
        "workers": len(mine),
        "slots": sum(worker.capacity for worker in mine),
        "busy": sum(min(worker.active, worker.capacity) for worker in mine),
    }
