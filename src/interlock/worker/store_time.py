"""The store's time as a worker knows it: told when it connects, and counted on from there.

It stamps what is information only (log lines, when a task began). Whether a lease has run out is
judged by the store, and before that by the worker's own monotonic clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

FINE_S = 0.001
"""Two moments closer than this may be the same one: making a datetime costs more than it is worth."""


def local_time() -> datetime:
    """What the clock of this machine shows."""
    return datetime.now(UTC)


class StoreTime:
    """What the store's clock shows, nearly. Until it was told, the clock of this machine."""

    def __init__(
        self,
        monotonic: Callable[[], float] = time.monotonic,
        local: Callable[[], datetime] = local_time,
    ) -> None:
        self._monotonic = monotonic
        self._at = self._shown_at = monotonic()
        self._told = self._shown = local()

    def __call__(self) -> datetime:
        now = self._monotonic()
        if now - self._shown_at >= FINE_S:
            self._shown = max(self._shown, self._told + timedelta(seconds=now - self._at))
            self._shown_at = now
        return self._shown

    def learn(self, told: datetime) -> None:
        """The store has just said so. The time that was shown does not go back by it."""
        self._told, self._at = told, self._monotonic()
        self._shown_at = float("-inf")
