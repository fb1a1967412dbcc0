"""One lane of a load: operations one after another, each when it is due.

Both ways to follow a lane are the same seven lines, one for operations that are awaited and one for
those that block. They are the hot path of everything that is measured, so nothing is shared that would
have to be called.
"""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import suppress
from typing import Protocol

from interlock.agent.counting import Counting
from interlock.agent.port import BlockingOperation, Operation
from interlock.agent.words import told_briefly

CUT_OFF = "it had not ended when the time was over"
BREATH_NS = 5_000_000
"""After so long without a pause others get a turn: samples, and whoever wants it to stop."""


class Due(Protocol):
    """What gives out operations."""

    counting: Counting

    def now_ns(self) -> int:
        """The monotonic clock."""
        ...

    def due(self) -> int | None:
        """When the next operation is due, 0 for at once; None when none should be begun."""
        ...


class Lane:
    """Does one operation at a time, and counts it unless it was closed meanwhile."""

    def __init__(self, load: Due) -> None:
        self._load = load
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
        load, now_ns = self._load, self._load.now_ns
        rested_ns = now_ns()
        while (due_ns := load.due()) is not None:
            wait_ns = due_ns - now_ns()
            if wait_ns > 0:
                await asyncio.sleep(wait_ns / 1e9)
                rested_ns = now_ns()
            self._since_ns = began_ns = now_ns() if wait_ns > 0 or not due_ns else due_ns
            size, error = None, None
            try:
                size = await operation()
            except Exception as caught:  # noqa: BLE001 - an operation that fails is counted as failed
                error = told_briefly(caught)
            ended_ns = now_ns()
            self._count(ended_ns - began_ns, size, error)
            if ended_ns - rested_ns > BREATH_NS:
                await asyncio.sleep(0)
                rested_ns = ended_ns

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
        load, now_ns = self._load, self._load.now_ns
        while (due_ns := load.due()) is not None:
            wait_ns = due_ns - now_ns()
            if wait_ns > 0:
                time.sleep(wait_ns / 1e9)
            self._since_ns = began_ns = now_ns() if wait_ns > 0 or not due_ns else due_ns
            size, error = None, None
            try:
                size = operation()
            except Exception as caught:  # noqa: BLE001 - an operation that fails is counted as failed
                error = told_briefly(caught)
            self._count(now_ns() - began_ns, size, error)

    def _count(self, took_ns: int, size: int | None, error: str | None) -> None:
        with self._counting:
            if not self._closed:
                self._load.counting.note(took_ns, size, error)
            self._since_ns = 0


def _resolve(ended: asyncio.Future[None]) -> None:
    if not ended.done():
        ended.set_result(None)
