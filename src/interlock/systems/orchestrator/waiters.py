"""Waiting for jobs to end, any number of them, without asking again and again.

One reader follows the store's feed for everybody who waits: it costs as much as there is news, not
as much as there are waiters. When part of the feed was missed, everything awaited is loaded once.
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

POLL_S = 1.0
"""How often to look although nobody has woken us: a wake-up may be lost, and then this is the price."""
AFTER_FAILURE_S = 0.5


class JobWaiters:
    """Whoever waits for jobs in one store."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._awaited: dict[str, dict[asyncio.Future[Record], None]] = {}
        self._reader: asyncio.Task[None] | None = None
        self._news = asyncio.Event()
        self._unsubscribe: Callable[[], None] | None = None

    async def ended(self, job_id: str) -> Record:
        """The record of a job once it has ended. Raises nothing for one that never does: set a timeout."""
        future: asyncio.Future[Record] = asyncio.get_running_loop().create_future()
        self._awaited.setdefault(job_id, {})[future] = None
        try:
            self._start()
            await self._look([job_id])
            return await future
        finally:
            waiters = self._awaited.get(job_id, {})
            waiters.pop(future, None)
            if not waiters:
                self._awaited.pop(job_id, None)

    async def close(self) -> None:
        """Stop reading; whoever still waits is cancelled."""
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
        """As long as somebody waits: a store is not asked for news that nobody wants."""
        cursor = ""
        while self._awaited:
            try:
                cursor = await self._follow(cursor)
            except StoreUnavailable:
                await asyncio.sleep(AFTER_FAILURE_S)  # it may come back; who waits has a timeout
                continue
            await self._sleep()
        self._stop_listening()

    async def _follow(self, cursor: str) -> str:
        """Read what is new; answers up to where."""
        self._news.clear()
        if not cursor:
            cursor = await self._engine.store.latest()
            await self._look(list(self._awaited))
            return cursor
        while True:
            feed = await self._engine.store.feed(cursor)
            if feed.gap:
                await self._look(list(self._awaited))
            else:
                await self._look(dict.fromkeys(entry.id for entry in feed.entries if self._concerns(entry)))
            if not feed.entries:
                return feed.cursor or cursor
            cursor = feed.cursor

    async def _sleep(self) -> None:
        # Not wait_for: before Python 3.12 it can swallow a cancel that comes together with the news.
        with suppress(TimeoutError):
            async with asyncio.timeout(POLL_S):
                await self._news.wait()

    def _concerns(self, entry: Entry) -> bool:
        return entry.kind == JOB.name and entry.id in self._awaited

    async def _look(self, job_ids: Iterable[str]) -> None:
        keys = [Key(JOB.name, job_id) for job_id in job_ids]
        for start in range(0, len(keys), 500):
            for record in await self._engine.store.load(keys[start : start + 500]):
                if record is not None and JobState(record.state) in job.ENDED:
                    self._tell(record)

    def _tell(self, record: Record) -> None:
        for future in self._awaited.get(record.id, {}):
            if not future.done():
                future.set_result(record)


def waker(news: asyncio.Event) -> Callable[[], None]:
    """What sets an event from whichever thread; does nothing once its loop is gone.

    Nor while it is set: a busy store wakes for each commit, and each call from another thread is a write
    and a read of a socket, by which the loop wakes itself. So whoever waits clears it and then looks.
    """
    loop = asyncio.get_running_loop()

    def wake() -> None:
        if not news.is_set():
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(news.set)

    return wake
