"""The store's time, without asking each time.

Deciders need the store's time, and a round trip for each decision would double its cost. This clock asks
periodically, and in between adds the local monotonic time. It may be late, by a round trip at most, but is
never ahead: a ready record must not seem to be in the future. That is safe, because time limits are checked
again by the store itself. Where the store reports its time anyway, as with each claim, the clock compares: if
the store's clock was set ahead, a lease that is counted from the old time might have ended already.

Why: decisions 0115 and 0135.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Protocol

from interlock.store.contract import Store

JUMP_S = 1.0
"""Clocks of a host that drift by more than this between two reads were set, or stalled."""
_AT_MOST = 0.9999
"""Rate at which a local clock is counted, so that a slightly fast one does not get ahead."""


class Clock(Protocol):
    """The clock for deciders."""

    async def now(self) -> datetime:
        """Return the store's time, approximately."""
        ...

    def known(self) -> datetime | None:
        """Return the time if the store need not be asked."""
        ...

    def estimate(self) -> datetime:
        """Return the time without asking the store, even if that is due."""
        ...

    def observe(self, store_time: datetime) -> None:
        """Compare with a time that the store has reported."""
        ...


class StoreClock:
    """An estimate of the store's clock that is renewed every `resync_s` seconds.

    It is also renewed when the clock of this host, `wall`, has jumped: the host was suspended, or its clock
    was set. The monotonic clock does not show that, and the store's clock may be the same one.
    """

    def __init__(
        self,
        store: Store,
        *,
        resync_s: float = 5.0,
        monotonic: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] | None = None,
    ) -> None:
        self._store = store
        self._resync_s = resync_s
        self._monotonic = monotonic
        self._wall = wall or monotonic
        self._read_at = float("-inf")
        self._apart_s = 0.0
        """The difference of the two clocks of this host at that time."""
        self._store_time = datetime.min.replace(tzinfo=UTC)
        self._latest = self._store_time

    async def now(self) -> datetime:
        """Return the time, which never decreases; ask the store if it is old."""
        known = self.known()
        if known is not None:
            return known
        await self._read()
        return self.estimate()

    def known(self) -> datetime | None:
        """Return the time; None if the last answer of the store is old."""
        now = self._monotonic()
        if now - self._read_at > self._resync_s or abs(self._wall() - now - self._apart_s) > JUMP_S:
            return None
        return self.estimate()

    def estimate(self) -> datetime:
        """Return the time without asking the store, even if that is due.

        For answers about a decision, which has asked it.
        """
        passed = timedelta(seconds=(self._monotonic() - self._read_at) * _AT_MOST)
        self._latest = max(self._latest, self._store_time + passed)
        return self._latest

    def observe(self, store_time: datetime) -> None:
        """Ask the store the next time, if its clock is ahead of the estimate."""
        passed_s = (self._monotonic() - self._read_at) * _AT_MOST
        if (store_time - self._store_time).total_seconds() > passed_s + JUMP_S:
            self._read_at = float("-inf")

    async def _read(self) -> None:
        # The answer was true between request and response; by now it is at least that late.
        apart_s = self._wall() - self._monotonic()  # a jump during the request is detected the next time
        self._store_time = await self._store.now()
        self._read_at, self._apart_s = self._monotonic(), apart_s
