"""Clocks for tests: one that a test moves by hand, and an event loop on virtual time.

`JumpingClock` moves only when a test moves it. `VirtualTime` replaces the clock of an event loop: when
every task waits, it jumps to the next timer, so an hour takes no longer than its events, in the
same order each time. Threads, processes and sockets take real time: the virtual clock stops for up
to `HANDLER_S` of real time while a handler runs in a thread or a process, and for up to `SOCKET_S` while
only a socket is open.

Why: decision 0286.
"""

from __future__ import annotations

import asyncio
import re
import selectors
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias, TypeVar

_LENGTH = re.compile(r"(-?\d+(?:\.\d+)?)\s*(us|ms|s|m|h|d)")
_SECONDS = {"us": 0.000001, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}


class JumpingClock:
    """A clock that only a test moves, forward or back.

    >>> clock = JumpingClock(datetime(2026, 1, 1, tzinfo=UTC))
    >>> clock.jump("2h").isoformat()
    '2026-01-01T02:00:00+00:00'
    """

    def __init__(self, start: datetime | None = None) -> None:
        if start is not None and start.tzinfo is None:
            raise ValueError(f"The time {start.isoformat()} has no time zone.")
        self._now = start if start is not None else datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self._now

    def jump(self, by: str | float | timedelta) -> datetime:
        """Move the clock by a timedelta, by seconds, or by words.

        Words are for example "2h", "-90s" or "1.5d".
        """
        self._now += timedelta(seconds=seconds_of(by))
        return self._now


def seconds_of(by: str | float | timedelta) -> float:
    """Return a length of time in seconds."""
    if isinstance(by, timedelta):
        return by.total_seconds()
    if not isinstance(by, str):
        return by
    match = _LENGTH.fullmatch(by.strip())
    if match is None:
        raise ValueError(f"{by!r} is not a duration; write it like 90s, 5m, 2h or 1.5d.")
    return float(match[1]) * _SECONDS[match[2]]


HANDLER_S = 10.0
SOCKET_S = 1.0
TURNS = 10
"""Number of waits into which the real time is split: a machine that pauses for longer uses up one."""
FINE_S = 0.000_001
"""Two times that are closer than this are equal."""
MOST_S = 10 * 365 * 86_400.0
"""Limit of virtual time: a wait of more than ten years never ends."""

Events: TypeAlias = list[tuple[selectors.SelectorKey, int]]
T = TypeVar("T")


class NothingComes(Exception):
    """A task waits for an event that never happens."""


class VirtualTime:
    """The clock of one event loop, while it is installed.

    With `alone` it starts at 0, and waiting for an event outside of the loop is an error.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, *, alone: bool = False) -> None:
        self._loop: Any = loop
        self._selector = _selector_of(loop)
        self._wait: Callable[[float | None], Events] = self._selector.select
        self._files = len(self._selector.get_map())
        self._alone = alone
        self.now: float = 0.0 if alone else loop.time()
        self._began = self.now
        self._patient = True
        self._before = 0
        self.elsewhere: Callable[[], int] = lambda: 0
        """Return the number of handlers that run outside of the loop."""

    def time(self) -> float:
        """Return the virtual time."""
        return self.now

    @contextmanager
    def in_place(self) -> Iterator[VirtualTime]:
        """Install this clock in the loop while the context lasts."""
        loop = vars(self._loop)
        fine = loop["_clock_resolution"]
        # After some months a float cannot distinguish times that are as close as a real clock's resolution.
        loop.update(time=self.time, _clock_resolution=FINE_S)
        self._selector.select = self._select
        try:
            yield self
        finally:
            loop["_clock_resolution"] = fine
            del loop["time"], self._selector.select

    def _select(self, timeout: float | None = None) -> Events:
        """Return the events of sockets; without any, advance to the next timer."""
        ready = timeout is not None and timeout <= 0  # the loop has work: nothing outside is waited for
        events = self._wait(0) or ([] if ready else self._held_up())
        if events:
            self._patient = True
        elif timeout is None:
            return self._woken()
        else:
            self._jump(timeout)
        return events

    def _woken(self) -> Events:
        """Wait for an event outside of the loop, when no timer is set."""
        if self._alone:
            raise NothingComes("Every task waits, and none for a time.")
        return self._wait(None)

    def _held_up(self) -> Events:
        """Wait for handlers and sockets outside of the loop.

        If an earlier wait was in vain, this does not wait.
        """
        turn_s = self._patience_s() / TURNS
        for _ in range(TURNS if turn_s else 0):
            if events := self._wait(turn_s):
                return events
        return []

    def _patience_s(self) -> float:
        handlers, sockets = self.elsewhere(), max(0, len(self._selector.get_map()) - self._files)
        if handlers + sockets > self._before:
            self._patient = True
        self._before = handlers + sockets
        patient, self._patient = self._patient, False
        return (HANDLER_S if handlers else SOCKET_S if sockets else 0.0) if patient else 0.0

    def _jump(self, seconds: float) -> None:
        self.now += max(0.0, seconds)
        if self.now > self._began + MOST_S:
            self._began = self.now  # the cleanup after this has the same limit again
            raise NothingComes("Ten years have passed in this test without the awaited event.")


def run_virtually(main: Coroutine[Any, Any, T]) -> T:
    """Run like `asyncio.run`, on virtual time that starts at 0.

    There are no sockets and no threads. The same program then does the same at the same times in every run.
    """
    with asyncio.Runner() as runner, VirtualTime(runner.get_loop(), alone=True).in_place():
        return runner.run(main)


def _selector_of(loop: asyncio.AbstractEventLoop) -> Any:
    selector = getattr(loop, "_selector", None)
    if not isinstance(selector, selectors.BaseSelector):
        raise TypeError(
            f"Time cannot be moved in a {type(loop).__name__}: that takes one of asyncio's own event loops. "
            "For these tests, use asyncio's default policy."
        )
    return selector
