"""One reader of the journal for everybody in this process: metrics, and whoever watches live."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TypeAlias

from interlock.store.contract import Store
from interlock.store.records import Entry
from interlock.systems.orchestrator.waiters import waker

PAGE = 1_000
EVERY_S = 1.0
"""How often to look although nobody has woken us: a wake-up may be lost, and then this is the price."""
GATHER_S = 0.05
"""How long to gather after a wake-up, so that a busy store is not asked for each commit."""

Reader: TypeAlias = Callable[[Sequence[Entry], bool], None]
"""Is told what is new, and whether something was missed before it. Must not raise or wait."""


class Following:
    """Reads what is committed, by anybody, from when it was started."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._readers: list[Reader] = []
        self._cursor = ""
        self._news = asyncio.Event()
        self._unsubscribe: Callable[[], None] | None = None

    @property
    def cursor(self) -> str:
        """Up to where it has read."""
        return self._cursor

    def add(self, reader: Reader) -> Callable[[], None]:
        """Tell somebody as well; returns how to stop that."""
        self._readers.append(reader)

        def remove() -> None:
            with suppress(ValueError):
                self._readers.remove(reader)

        return remove

    async def start(self) -> None:
        """Begin with what is committed from now on."""
        self._unsubscribe = self._store.subscribe(waker(self._news))
        self._cursor = await self._store.latest()

    def stop(self) -> None:
        """Be woken no more."""
        if self._unsubscribe is not None:
            self._unsubscribe()

    async def round(self) -> int:
        """Read what is new; answers how much that was."""
        self._news.clear()
        feed = await self._store.feed(self._cursor, limit=PAGE)
        self._cursor = feed.cursor or self._cursor
        if feed.entries or feed.gap:
            for reader in tuple(self._readers):
                reader(feed.entries, feed.gap)
        return len(feed.entries)

    async def pause(self, seconds: float) -> None:
        """Until there may be news, or for so long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._news.wait()
            await asyncio.sleep(GATHER_S)
