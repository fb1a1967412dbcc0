"""Many things that may take equally long, watched by one timer.

A timer of its own for each request is made, sorted in, cancelled and cleared away a few milliseconds
later, thousands of times a second, and hardly ever goes off. What may take equally long ends in the
order in which it began: so it is enough to watch whoever is the first in line.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from types import TracebackType
from typing import Any, Self


class Within:
    """A stretch of one task that has to end in time; like `asyncio.timeout`, and to be used once."""

    __slots__ = ("_cancelling", "_deadlines", "_task", "_until", "expired", "origin", "size")

    def __init__(self, deadlines: Deadlines, origin: str = "") -> None:
        self._deadlines = deadlines
        self.origin = origin
        """The address that it is for, where that matters."""
        self.size = 0
        """How many bytes it holds."""
        self.expired = False
        """Its time was over before it was done."""

    def __enter__(self) -> Self:
        self._task: asyncio.Task[Any] = _own_task()
        self._cancelling = self._task.cancelling()
        self._until = self._deadlines.begin(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        if not self.expired:
            self._deadlines.end(self)
        elif self._task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise TimeoutError from error

    def is_over(self, now: float) -> bool:
        """Whether its time is; then it is told so."""
        if now < self._until:
            return False
        self.give_up()
        return True

    def give_up(self) -> None:
        """End it as if its time were over."""
        self.expired = True
        self._task.cancel()

    def grow(self, size: int) -> None:
        """Count bytes that arrived."""
        self.size += size
        self._deadlines.grown(self, size)

    @property
    def until(self) -> float:
        """When its time is over, by the clock of the loop."""
        return self._until


class Deadlines:
    """All that may take so many seconds."""

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        self._running: dict[Within, None] = {}
        self._timer: asyncio.TimerHandle | None = None

    def __call__(self, origin: str = "") -> Within:
        """One stretch more, from when it is entered."""
        return Within(self, origin)

    def begin(self, stretch: Within) -> float:
        """Watch it; answers until when."""
        loop = asyncio.get_running_loop()
        until = loop.time() + self.limit_s
        self._running[stretch] = None
        if self._timer is None:
            self._timer = loop.call_at(until, self._look, loop)
        return until

    def end(self, stretch: Within) -> None:
        """It is done. The timer stays: it is the next one's as well, and finds out when there is none."""
        del self._running[stretch]

    def grown(self, stretch: Within, size: int) -> None:
        """A stretch holds more; nothing to do where that is not limited."""

    def close(self) -> None:
        """Watch nothing any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        """End what is over; the first that is not says when to look again."""
        self._timer = None
        for stretch in list(self._running):
            if not stretch.is_over(loop.time()):
                self._timer = loop.call_at(stretch.until, self._look, loop)
                return
            self.end(stretch)


class Places(Deadlines):
    """A limited number of stretches that hold a limited number of bytes.

    Where there is no room for one more, the oldest stretch of the address that has the most is given up:
    what arrives at once gets in, however many others do not go on.
    """

    def __init__(self, limit_s: float, most: int, most_bytes: int) -> None:
        super().__init__(limit_s)
        self._most = most
        self._most_bytes = most_bytes
        self._bytes = 0

    def begin(self, stretch: Within) -> float:
        """Watch it, in place of another one where there is none left."""
        if len(self._running) >= self._most:
            self._make_room(stretch)
        return super().begin(stretch)

    def grown(self, stretch: Within, size: int) -> None:
        """Make room for what arrived."""
        self._bytes += size
        while self._bytes > self._most_bytes and len(self._running) > 1:
            self._make_room(stretch)

    def end(self, stretch: Within) -> None:
        """It is done, and holds nothing any more."""
        super().end(stretch)
        self._bytes -= stretch.size

    def _make_room(self, wanted: Within) -> None:
        others = [stretch for stretch in self._running if stretch is not wanted]
        numbers = Counter(stretch.origin for stretch in others)
        most = max(numbers.values())
        oldest = next(stretch for stretch in others if numbers[stretch.origin] == most)
        self.end(oldest)
        oldest.give_up()


def _own_task() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    if task is None:
        raise RuntimeError("only a task can run out of time")
    return task
