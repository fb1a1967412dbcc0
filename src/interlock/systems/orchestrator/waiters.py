"""Waiting for jobs to end, any number of them, without polling each.

One reader follows the store's feed for all waiters: its cost depends on the number of changes, not of
waiters. When part of the feed was missed, all awaited jobs are loaded once.

Why: decision 0130.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress

from interlock.engine.unit_of_work import Engine
from interlock.errors import StoreUnavailable
from interlock.lifecycles import job
from interlock.lifecycles.job import JOB, JobState
from interlock.store.records import Entry, Key, Record
from interlock.systems.orchestrator.body import unknown_job

PAGE = 1_000
"""Number of entries of the feed that are read at once."""
POLL_S = 1.0
"""Polling interval, for the case that a notification is lost."""
AFTER_FAILURE_S = 0.5


class JobWaiters:
    """The waiters for jobs in one store."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._awaited: dict[str, dict[asyncio.Future[Record], None]] = {}
        self._reader: asyncio.Task[None] | None = None
        self._news = asyncio.Event()
        self._unsubscribe: Callable[[], None] | None = None

    async def ended(self, job_id: str) -> Record:
        """Return the record of a job once it has ended.

        It may wait forever: set a timeout. Raise `UnknownJob` at once if there is no such job.
        """
        future: asyncio.Future[Record] = asyncio.get_running_loop().create_future()
        self._awaited.setdefault(job_id, {})[future] = None
        try:
            self._start()
            if not await self._look([job_id]):
                raise unknown_job(job_id)
            return await future
        finally:
            waiters = self._awaited.get(job_id, {})
            waiters.pop(future, None)
            if not waiters:
                self._awaited.pop(job_id, None)

    async def close(self) -> None:
        """Stop reading; cancel all waiters."""
        self._stop_listening()
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.wait([self._reader])
        for waiters in list(self._awaited.values()):
            for future in waiters:
                future.cancel()

    def _start(self) -> None:
        if self._reader is None or self._reader.done():
            self._unsubscribe = self._engine.store.subscribe(waker(self._news))
            self._reader = asyncio.create_task(self._read(), name="waiting for jobs")

    def _stop_listening(self) -> None:
        if self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None

    async def _read(self) -> None:
        """Read while there are waiters."""
        cursor = ""
        while self._awaited:
            try:
                cursor = await self._follow(cursor)
            except StoreUnavailable:
                await asyncio.sleep(AFTER_FAILURE_S)  # the store may come back; the caller has a timeout
                continue
            # Not wait_for: before Python 3.12 it can swallow a cancellation that comes together with the
            # notification.
            with suppress(TimeoutError):
                async with asyncio.timeout(POLL_S):
                    await self._news.wait()
        self._stop_listening()

    async def _follow(self, cursor: str) -> str:
        """Read new entries; return the cursor."""
        self._news.clear()
        if not cursor:
            cursor = await self._engine.store.latest()
            await self._look(list(self._awaited))
            return cursor
        while True:
            feed = await self._engine.store.feed(cursor, limit=PAGE)
            if feed.gap:
                await self._look(list(self._awaited))
            elif over := dict.fromkeys(entry.id for entry in feed.entries if self._tells_of_end(entry)):
                await self._look(over)
            if len(feed.entries) < PAGE:  # what comes later is notified
                return feed.cursor or cursor
            cursor = feed.cursor

    def _tells_of_end(self, entry: Entry) -> bool:
        """Return whether an entry may be the end of an awaited job.

        An entry without steps may be one.
        """
        if entry.kind != JOB.name or entry.id not in self._awaited:
            return False
        steps = entry.note.steps
        return not steps or any(step.machine == JOB.name and step.target in job.ENDED for step in steps)

    async def _look(self, job_ids: Iterable[str]) -> int:
        """Load jobs, wake the waiters of ended ones, and return how many exist."""
        keys, there = [Key(JOB.name, job_id) for job_id in job_ids], 0
        for start in range(0, len(keys), 500):
            for record in await self._engine.store.load(keys[start : start + 500]):
                there += record is not None
                if record is not None and JobState(record.state) in job.ENDED:
                    for future in self._awaited.get(record.id, {}):
                        if not future.done():
                            future.set_result(record)
        return there


def waker(news: asyncio.Event) -> Callable[[], None]:
    """Return a function that sets an event from any thread.

    It does nothing once its loop is closed, or while the event is set: a busy store notifies for each commit,
    and each call from another thread writes to and reads from a socket to wake the loop. So a waiter clears
    the event and then reads.
    """
    loop = asyncio.get_running_loop()

    def wake() -> None:
        if not news.is_set():
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(news.set)

    return wake
