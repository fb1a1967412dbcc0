"""The two clocks of a worker on a host that may stand still.

A host that is suspended, overcommitted or out of memory lets a process stand still for seconds or hours.
Leases go on meanwhile, by the store's clock: whether one can still be trusted is judged by `since_boot`.
Deadlines that give a handler the chance to stop by itself do not: they are counted by `AwakeTime`, so that
a handler with five seconds to save its work has them also when the host stands still for ten.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

STANDSTILL_S = 1.0
"""A pulse that is this late means that the process stood still meanwhile."""
FORGIVEN_S = 60.0
"""How much of one standstill is not counted, at most, so that every deadline comes."""
_SHORTEST_S = 0.01
_BOOTTIME = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def since_boot() -> float:
    """Return seconds on a monotonic clock that, unlike `time.monotonic`, counts a suspended host's sleep."""
    return time.clock_gettime(_BOOTTIME)


class AwakeTime:
    """A monotonic clock that stands still with the process.

    The watchdog thread calls `pulse` several times a second. Without pulses it is an ordinary clock.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._last: tuple[float, float] | None = None
        """The last pulse, and how much of the time before it is not counted; replaced in one step."""

    def __call__(self) -> float:
        """Return seconds; never goes back."""
        now, last = self._monotonic(), self._last
        return now if last is None else now - last[1] - _standstill_s(now - last[0])

    def pulse(self) -> None:
        """Note that the process is running."""
        now, last = self._monotonic(), self._last
        self._last = (now, 0.0 if last is None else last[1] + _standstill_s(now - last[0]))

    def call_later(self, delay_s: float, act: Callable[..., object], *arguments: Any) -> None:
        """Call `act` in the running event loop when this clock has counted `delay_s`."""
        loop, until = asyncio.get_running_loop(), self() + delay_s

        def due() -> None:
            left_s = until - self()
            if left_s > 0:
                loop.call_later(max(left_s, _SHORTEST_S), due)
            else:
                act(*arguments)

        loop.call_later(delay_s, due)


def _standstill_s(since_pulse_s: float) -> float:
    return min(max(0.0, since_pulse_s - STANDSTILL_S), FORGIVEN_S)
