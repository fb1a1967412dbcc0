"""The clock of a database: the host's, held so that it never goes back.

Not within one process: when the host's clock is set back, time goes on from where it was, at the
speed of the monotonic clock, so that deadlines still pass. Not between processes either: each
transaction begins no earlier than the latest one on record. The price is that a clock which was once
far ahead keeps the database ahead; every time it has given out stays in order.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


def _host_us() -> int:
    return time.time_ns() // 1_000


def _ticks_us() -> int:
    return time.monotonic_ns() // 1_000


class HeldClock:
    """Microseconds since 1970; shared by the threads of one store."""

    def __init__(
        self, host_us: Callable[[], int] = _host_us, ticks_us: Callable[[], int] = _ticks_us
    ) -> None:
        self._host_us = host_us
        self._ticks_us = ticks_us
        self._lock = threading.Lock()
        self._latest_us = 0
        self._latest_ticks_us = ticks_us()

    def read(self, not_before_us: int = 0) -> int:
        """The time, at least as late as any read before and as what is on record."""
        with self._lock:
            ticks_us = self._ticks_us()
            held_us = self._latest_us + ticks_us - self._latest_ticks_us
            self._latest_us = max(self._host_us(), held_us if self._latest_us else 0, not_before_us)
            self._latest_ticks_us = ticks_us
            return self._latest_us
