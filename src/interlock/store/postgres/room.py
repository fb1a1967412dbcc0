"""How many calls have a connection at once: few at rest, more when calls wait, fewer when that is over.

A program at rest looks for several things at the same moment, each in a millisecond. Those take turns. Only
calls that have waited for a while make room for one more, and only use over time keeps it.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable

GROW_AFTER_S = 0.05
"""How long the first in line waits before there is room for one more."""
MEASURE_S = 10.0
"""Over how long it is measured how much room is used."""
SPARE = 2
"""How much room there is for what is used on average."""


class Room:
    """Places for calls. `on_fewer` is called with how many there are when they have become fewer."""

    def __init__(self, most: int, on_fewer: Callable[[int], None]) -> None:
        self.allowed = 1
        self._most = most
        self._on_fewer = on_fewer
        self._taken = 0
        self._waiting: deque[tuple[asyncio.Future[None], float]] = deque()
        self._growing: asyncio.TimerHandle | None = None
        self._measuring: asyncio.TimerHandle | None = None
        self._used_s = self._changed_at = 0.0

    async def enter(self, deadline: float) -> None:
        """Take a place; raise TimeoutError when there is none by the deadline."""
        if self._taken < self.allowed and not self._waiting:
            self._take(1)
            return
        loop = asyncio.get_running_loop()
        waiter = loop.create_future()
        self._waiting.append((waiter, loop.time()))
        if self._growing is None and self.allowed < self._most:
            self._growing = loop.call_later(GROW_AFTER_S, self._grow)
        try:
            async with asyncio.timeout_at(deadline):
                await waiter
        except BaseException:
            if waiter.done() and not waiter.cancelled():
                self.leave()  # it was given a place at the same moment
            raise

    def leave(self) -> None:
        """Give a place to the next in line."""
        self._take(-1)
        self._hand_over()

    def close(self) -> None:
        """Measure no more."""
        for timer in (self._growing, self._measuring):
            if timer is not None:
                timer.cancel()

    def _take(self, number: int) -> None:
        now = asyncio.get_running_loop().time()
        self._used_s += self._taken * (now - self._changed_at)
        self._changed_at = now
        self._taken += number

    def _hand_over(self) -> None:
        while self._waiting and self._taken < self.allowed:
            waiter, _ = self._waiting.popleft()
            if not waiter.done():
                self._take(1)
                waiter.set_result(None)

    def _grow(self) -> None:
        loop = asyncio.get_running_loop()
        self._growing = None
        while self._waiting and self._waiting[0][0].done():
            self._waiting.popleft()
        if not self._waiting or self.allowed >= self._most:
            return
        due = self._waiting[0][1] + GROW_AFTER_S
        if due <= loop.time():
            self.allowed += 1
            due = loop.time() + GROW_AFTER_S
            self._hand_over()
            if self._measuring is None:
                self._begin_measuring(loop)
        self._growing = loop.call_at(due, self._grow)

    def _begin_measuring(self, loop: asyncio.AbstractEventLoop) -> None:
        self._take(0)
        self._used_s = 0.0
        self._measuring = loop.call_later(MEASURE_S, self._measure, loop.time())

    def _measure(self, since: float) -> None:
        loop = asyncio.get_running_loop()
        self._measuring = None
        self._take(0)
        wanted = max(1, math.ceil(SPARE * self._used_s / (loop.time() - since)))
        if wanted < self.allowed:
            self.allowed = wanted
            self._on_fewer(wanted)
        if self.allowed > 1:
            self._begin_measuring(loop)
