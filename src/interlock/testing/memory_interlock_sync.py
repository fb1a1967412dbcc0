"""The same Interlock in memory for tests without asyncio.

    def test_a_letter_is_sent_again_when_the_post_office_is_closed() -> None:
        with in_memory_sync() as il:
            job_id = il.submit(send, "Hello")
            il.clock.jump("2h")
            assert il.job(job_id).state == "COMPLETED"

There is no thread: the worker works, and time passes, while the test calls something here that waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any, TypeVar

from interlock import sync
from interlock.store.memory import MemoryStore
from interlock.testing.faults import FaultyStore
from interlock.testing.memory_interlock import InMemory, in_memory
from interlock.worker.tasks import DEFAULT, Registry

T = TypeVar("T")


class SyncClock:
    """The time of the test."""

    def __init__(self, il: SyncInMemory) -> None:
        self._il = il

    @property
    def now(self) -> datetime:
        """What time it is."""
        return self._il.inner.clock.now

    def jump(self, by: str | float | timedelta) -> datetime:
        """Let time pass: "2h", "90s", seconds or a timedelta; whatever is due meanwhile happens."""
        return self._il.run(self._il.inner.clock.jump(by))


class SyncWorker:
    """The worker of the test."""

    def __init__(self, il: SyncInMemory) -> None:
        self._il = il

    def start(self) -> None:
        """Begin to work."""
        self._il.run(self._il.inner.worker.start())

    def stop(self) -> int:
        """Ask it to go, as SIGTERM does; its exit code."""
        return self._il.run(self._il.inner.worker.stop())

    def kill(self) -> None:
        """It dies without a word, as by `kill -9`."""
        self._il.run(self._il.inner.worker.kill())


class SyncInMemory(sync.Interlock):
    """The client of a test, with the clock and the worker. For one thread only."""

    def __init__(self, inner: InMemory, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__("memory:")
        self._inner = self.inner = inner
        self._own = loop
        self.clock = SyncClock(self)
        self.worker = SyncWorker(self)

    @property
    def store(self) -> MemoryStore:
        """Where everything is kept."""
        return self.inner.store

    @property
    def faulty(self) -> FaultyStore | None:
        """The store as the worker sees it, where there are faults."""
        return self.inner.faulty

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run something of asyncio's beside the worker."""
        return self._own.run_until_complete(coroutine)

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self.run(coroutine)


@contextmanager
def in_memory_sync(registry: Registry = DEFAULT, **options: Any) -> Iterator[SyncInMemory]:
    """The options are those of `in_memory`."""
    loop = asyncio.SelectorEventLoop()
    try:
        around = in_memory(registry, **options)
        inner = loop.run_until_complete(around.__aenter__())
        try:
            yield SyncInMemory(inner, loop)
        finally:
            loop.run_until_complete(around.__aexit__(None, None, None))
    finally:
        loop.close()
