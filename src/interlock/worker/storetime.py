"""The store's time as a worker knows it: told when it connects, and counted on from there.

It stamps what is information only (log lines, when a task began). Whether a lease has run out is
judged by the store, and before that by the worker's own monotonic clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta


class StoreTime:
    """What the store's clock shows, nearly. Until it was told, the clock of this machine."""

    def __init__(
        self,
        monotonic: Callable[[], float] = time.monotonic,
        local: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._monotonic = monotonic
        self._at = monotonic()
        self._told = local()

    def __call__(self) -> datetime:
        return self._told + timedelta(seconds=self._monotonic() - self._at)

    def learn(self, told: datetime) -> None:
        """The store has just said so; it never goes back by that."""
        self._told, self._at = max(told, self()), self._monotonic()
