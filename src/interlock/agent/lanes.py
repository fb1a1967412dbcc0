"""One lane of a load: operations one after another, each when it is due.

Both ways to follow a lane are the same lines, one for operations that are awaited and one for those that
block. They are the hot path of everything that is measured, so nothing is shared that would have to be
called, and the clock is asked twice for an operation: when it begins, and when it has ended.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Protocol

from interlock.agent.counters import Counting
from interlock.agent.port import BlockingOperation, Operation
from interlock.agent.words import told_briefly

CUT_OFF = "it had not ended when the time was over"
BREATH_NS = 5_000_000
"""After so long without a pause others get a turn: samples, and whoever wants it to stop."""


class Due(Protocol):
    """What gives out operations."""

    counting: Counting
    numbers: Iterator[int]
    """Whoever takes the next one has that operation alone."""
    paced: bool
    """Whether an operation has a moment at which it is due; otherwise that is at once."""
    end_ns: int
    """From then on none should be begun; it may come nearer while others look."""

    def now_ns(self) -> int:
        """The monotonic clock."""
        ...

    def due_ns(self, number: int) -> int:
        """When an operation is due."""
        ...


class Lane:
    """Does one operation at a time, and counts it unless it was closed meanwhile."""

    def __init__(self, load: Due) -> None:
        self._load = load
        self.begun = 0
        """How many operations it has begun."""
        self._since_ns = 0
        self._closed = False
        self._counting = threading.Lock()

    def close(self, *, cut_off: bool) -> None:
        """Count nothing more, but for what is being done now, if it is `cut_off`."""
        with self._counting:
            if cut_off and self._since_ns and not self._closed:
                self._load.counting.note(self._load.now_ns() - self._since_ns, None, CUT_OFF)
            self._closed = True

    async def follow(self, operation: Operation) -> None:
        """Do operations that are awaited."""
        load, now_ns, note, counting = self._load, self._load.now_ns, self._load.counting.note, self._counting
        ended_ns = rested_ns = now_ns()
        while ended_ns < load.end_ns and (number := next(load.numbers, None)) is not None:
            began_ns = now_ns()
            if load.paced:
                wait_ns = self._wait_ns(number, began_ns)
                if wait_ns is None:
                    return
                began_ns += wait_ns
                if wait_ns > 0:
                    await asyncio.sleep(wait_ns / 1e9)
                    began_ns = rested_ns = now_ns()
            self._since_ns = began_ns
            self.begun += 1
            size, error = None, None
            try:
                size = await operation()
            except Exception as caught:  # noqa: BLE001 - an operation that fails is counted as failed
                error = told_briefly(caught)
            ended_ns = now_ns()
            with counting:
                if not self._closed:
                    note(ended_ns - began_ns, size, error)
                self._since_ns = 0
            if ended_ns - rested_ns > BREATH_NS:
                await asyncio.sleep(0)
                ended_ns = rested_ns = now_ns()

    def follow_in_thread(self, operation: BlockingOperation) -> asyncio.Future[None]:
        """Do operations that block; what is answered is done when the thread has ended."""
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[None] = loop.create_future()

        def follow() -> None:
            try:
                self._block(operation)
            finally:
                with suppress(RuntimeError):  # nobody waits any more
                    loop.call_soon_threadsafe(_resolve, ended)

        threading.Thread(target=follow, daemon=True).start()
        return ended

    def _block(self, operation: BlockingOperation) -> None:
        load, now_ns, note, counting = self._load, self._load.now_ns, self._load.counting.note, self._counting
        ended_ns = now_ns()
        while ended_ns < load.end_ns and (number := next(load.numbers, None)) is not None:
            began_ns = now_ns()
            if load.paced:
                wait_ns = self._wait_ns(number, began_ns)
                if wait_ns is None:
                    return
                began_ns += wait_ns
                if wait_ns > 0:
                    time.sleep(wait_ns / 1e9)
                    began_ns = now_ns()
            self._since_ns = began_ns
            self.begun += 1
            size, error = None, None
            try:
                size = operation()
            except Exception as caught:  # noqa: BLE001 - an operation that fails is counted as failed
                error = told_briefly(caught)
            ended_ns = now_ns()
            with counting:
                if not self._closed:
                    note(ended_ns - began_ns, size, error)
                self._since_ns = 0

    def _wait_ns(self, number: int, now_ns: int) -> int | None:
        """How long until an operation is due, less than 0 when it is late; None when it will not be."""
        due_ns = self._load.due_ns(number)
        return due_ns - now_ns if due_ns < self._load.end_ns else None


def _resolve(ended: asyncio.Future[None]) -> None:
    if not ended.done():
        ended.set_result(None)
