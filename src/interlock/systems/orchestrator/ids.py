"""Ids of jobs and runs: `j_` or `r_` and twelve hex digits that sort by the time of submission.

48 bits are few, so they are used carefully: the time in steps of 1/128 ms, plus a small random stride between
two ids of one process. Two processes that submit at the same instant seldom draw the same id, and if they do
the store reports it and another one is drawn.

Why: decision 0128.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

_ORIGIN = datetime(2024, 1, 1, tzinfo=UTC)
_TICK = timedelta(milliseconds=1) / 128
_STRIDE = 64
_AT_ONCE = 10
"""Number of strides drawn together, since random numbers are expensive."""
_PLACES = [_STRIDE**place for place in range(_AT_ONCE)]
_LAST = 2**48 - 1


Draw: TypeAlias = Callable[[datetime], str]
"""Draws the id of a record that is submitted now."""


class JobIds:
    """Draws ids; `below` is the random number generator."""

    def __init__(self, below: Callable[[int], int], *, prefix: str = "j_") -> None:
        self._below = below
        self._prefix = prefix
        self._chances: list[int] = []
        self._latest = 0

    def draw(self, now: datetime) -> str:
        """Return an id that this process has not drawn before."""
        return self.draw_many(now, 1)[0]

    def draw_many(self, now: datetime, number: int) -> list[str]:
        """Return several ids, in order."""
        ticks = int((now - _ORIGIN) / _TICK)
        names = []
        for _ in range(number):
            if not self._chances:
                drawn = self._below(_STRIDE**_AT_ONCE)
                self._chances = [drawn // each % _STRIDE for each in _PLACES]
            self._latest = max(self._latest + 1, ticks) + self._chances.pop()
            names.append(f"{self._prefix}{self._latest & _LAST:012x}")
        return names


def ticks_of(at: datetime) -> int:
    """Return the number with which ids drawn at this time begin."""
    return int((at - _ORIGIN) / _TICK) & _LAST


def drawn_at(digits: int) -> datetime:
    """Return the time of the digits of an id.

    In a bulk, ids run ahead of the time.
    """
    return _ORIGIN + digits * _TICK
