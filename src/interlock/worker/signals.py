"""SIGTERM and SIGINT: a flag that is raised once and never lost.

The handler does nothing but note the moment and wake whoever waits: it can interrupt anything, so it
must not take a lock, write a log line or decide. Somebody who is asked twice is no faster.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from interlock.lifecycles.durations import Durations
from interlock.processes import early_signals
from interlock.worker.clocks import AwakeTime

HURRY_S = 5.0
"""How long everything may take that happens when there is no time."""


class Shutdown:
    """Whether somebody has asked this process to go, and since when."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.awake = AwakeTime(monotonic)
        """The clock of graceful shutdown."""
        self._wakes: list[Callable[[], None]] = []
        self.requested_at: float | None = None
        """By `awake`."""
        self.hurried = False
        """There is no time to let anything finish."""

    @property
    def requested(self) -> bool:
        """Whether somebody has asked."""
        return self.requested_at is not None

    def request(self) -> None:
        """Ask it to go; from a signal handler, from any thread, and as often as one likes."""
        if self.requested_at is None:
            self.requested_at = self.awake()
        for wake in self._wakes:
            wake()

    def hurry(self) -> None:
        """Ask it to go at once; from any thread, also when the event loop is blocked."""
        self.hurried = True
        self.request()

    def times(self, durations: Durations) -> tuple[float, float]:
        """How long what is active may go on, and how long everything may take."""
        if self.hurried:
            return 0.0, min(durations.shutdown_deadline_s, 0.8 * HURRY_S)
        return durations.shutdown_soft_s, durations.shutdown_deadline_s

    def subscribe(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Be woken by the request; at once when it was made already. Returns how to stop that."""
        self._wakes = [*self._wakes, wake]  # a new list: a signal may come while it is built
        if self.requested:
            wake()

        def stop() -> None:
            self._wakes = [other for other in self._wakes if other is not wake]

        return stop


@contextmanager
def heeding_signals(shutdown: Shutdown) -> Iterator[None]:
    """Signals ask for a shutdown while this lasts.

    The handlers are installed whatever the process number: PID 1 has no default ones, and a SIGTERM
    that nobody handles would simply be lost there.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # signals belong to the main thread; whoever runs a worker elsewhere asks it directly
        return

    def handle(_number: int, _frame: FrameType | None) -> None:
        shutdown.request()

    early_signals.has_begun()
    before = {number: signal.signal(number, handle) for number in early_signals.STOPPING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
