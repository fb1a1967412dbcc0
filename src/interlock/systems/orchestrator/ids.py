"""Names for jobs and runs: `j_` or `r_` and twelve hex digits that sort by the time of submission.

48 bits are few, so they are spent with care: the time in steps of 1/128 ms, plus a small random
stride between two names of one process. Two processes that submit at the same instant seldom draw
the same name, and where they do the store says so and another is drawn.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

_ORIGIN = datetime(2024, 1, 1, tzinfo=UTC)
_TICK = timedelta(milliseconds=1) / 128
_STRIDE = 64
_AT_ONCE = 10
"""How many strides are drawn together: to ask for chance costs more than to make a name of it."""
_PLACES = [_STRIDE**place for place in range(_AT_ONCE)]
_LAST = 2**48 - 1


class JobIds:
    """Draws names; `below` is where chance comes from."""

    def __init__(self, below: Callable[[int], int], *, prefix: str = "j_") -> None:
        self._below = below
        self._prefix = prefix
        self._chances: list[int] = []
        self._latest = 0

    def draw(self, now: datetime) -> str:
        """A name that this process has not drawn before."""
        return self.draw_many(now, 1)[0]

    def draw_many(self, now: datetime, number: int) -> list[str]:
        """The same for so many, in their order."""
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
    """The number that a name begins with that is drawn at this time."""
    return int((at - _ORIGIN) / _TICK) & _LAST


def drawn_at(digits: int) -> datetime:
    """The time that the digits of a name stand for; in a bulk, names run ahead of the time."""
    return _ORIGIN + digits * _TICK
