"""The journal behind a server, and the live events that say when there is news in it.

The stream of events is opened when somebody wants to be woken, and shared by all of them. When it
breaks it is opened again where it was; a token that may not follow events is not woken, and whoever
waits has to look now and then, as everybody does.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from interlock.errors import InterlockError, StoreUnavailable
from interlock.lifecycles.job import JOB
from interlock.lifecycles.run import RUN
from interlock.remote.answers import HistoryPage, JournalPage
from interlock.remote.http_client import ApiClient, Lines
from interlock.store.records import Feed, Key
from interlock.systems.access.principals import NotAllowed

MAX_PAGE = 1_000
AGAIN_S = 0.5


class HttpJournal:
    """What has happened, in order."""

    def __init__(self, asker: ApiClient) -> None:
        self._asker = asker
        self._wakes: set[Callable[[], None]] = set()
        self._following: asyncio.Task[None] | None = None
        self._cursor = ""

    async def latest(self) -> str:
        """A cursor after which only what is committed from now on is found: where a stream begins.

        None at all, which is empty, for somebody who may not follow everything.
        """
        try:
            async with self._asker.stream("/api/events", {}) as lines, aclosing(_ids(lines)) as ids:
                async for cursor in ids:
                    return cursor
        except NotAllowed:
            return ""
        raise StoreUnavailable(
            f"The server at {self._asker.server} has ended a stream before it began.", todo="Ask again."
        )

    async def feed(self, after: str = "", *, limit: int = 1_000) -> Feed:
        """The journal after a cursor."""
        page = await self._asker.get("/api/journal", JournalPage, after=after, limit=min(limit, MAX_PAGE))
        return Feed(tuple(each.entry() for each in page.entries), page.cursor, gap=page.gap)

    async def history(self, key: Key, *, after_version: int = 0, limit: int = 1_000) -> Feed:
        """The journal of one job, oldest first."""
        page = await self._asker.get(
            f"/api/jobs/{key.id}/history", HistoryPage, after=after_version, limit=min(limit, MAX_PAGE)
        )
        entries = tuple(each.entry() for each in page.entries)
        return Feed(entries, entries[-1].cursor if entries else "")

    def subscribe(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Be woken when there is news; returns how to stop that."""
        self._wakes.add(wake)
        if self._following is None or self._following.done():
            self._following = asyncio.create_task(self._follow(), name="live events")

        def leave() -> None:
            self._wakes.discard(wake)
            if not self._wakes and self._following is not None:
                self._following.cancel()

        return leave

    async def close(self) -> None:
        """Follow no more."""
        self._wakes.clear()
        if self._following is not None:
            self._following.cancel()
            await asyncio.wait([self._following])

    async def _follow(self) -> None:
        while True:
            try:
                await self._follow_once()
            except StoreUnavailable:
                self._wake()  # whoever waits looks, and meets the same
            except InterlockError:
                return
            await asyncio.sleep(AGAIN_S)

    async def _follow_once(self) -> None:
        headers = {"Last-Event-ID": self._cursor} if self._cursor else {}
        stream = self._asker.stream("/api/events", headers, kind=f"{JOB.name},{RUN.name}")
        async with stream as lines, aclosing(_ids(lines)) as ids:
            async for cursor in ids:
                self._cursor = cursor
                self._wake()

    def _wake(self) -> None:
        for wake in tuple(self._wakes):
            wake()


async def _ids(lines: Lines) -> AsyncGenerator[str, None]:
    """The cursors that a stream passes."""
    async for line in lines:
        if line.startswith("id:"):
            yield line.removeprefix("id:").strip()
