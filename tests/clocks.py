"""Moving the clock of a store, so that a lease or a deadline ends because a test says so.

PostgreSQL and Redis run with `libfaketime`, which reads from a file how far their time of day is off.
SQLite has the clock of each process that uses it; a commit with a later time moves it for all of them.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from interlock.store.contract import Store
from interlock.store.sqlite.store import SqliteStore
from interlock.testing import skewed_clock
from interlock.testing.servers import PostgresServer, RedisServer

_CLOCK = "clock"


class AskingClock:
    """The store's time, asked for each time: a clock that jumps cannot be guessed."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._last = datetime.min.replace(tzinfo=UTC)

    async def now(self) -> datetime:
        """Return the time of the store."""
        self._last = await self._store.now()
        return self._last

    def known(self) -> datetime | None:
        """Return nothing: it asks each time."""
        return None

    def estimate(self) -> datetime:
        """Return the time that was asked for last."""
        return self._last

    def observe(self, store_time: datetime) -> None:
        """Do nothing: it asks anyway."""


def movable(folder: Path) -> Mapping[str, str]:
    """Return the environment of a server whose clock can be moved: its parameter `around`."""
    # The unprivileged user of a server may not be able to read our virtual environment.
    library = Path(shutil.copy(skewed_clock.library(), folder))
    library.chmod(0o755)
    return {**skewed_clock.settable(folder / _CLOCK), "LD_PRELOAD": str(library)}


def move_server(server: PostgresServer | RedisServer, seconds: float) -> None:
    """Set the clock of a server that was made `movable` ahead; at once, for everybody."""
    clock, ahead_s = server.folder / _CLOCK, round(seconds)
    began_s = _redis_s(server) if isinstance(server, RedisServer) else 0.0
    skewed_clock.set_clock(clock, int(clock.read_text(encoding="ascii")) + ahead_s)
    # Valkey reads the time of day now and then, and between by the counter of the processor: a script that
    # is run within a millisecond may still see the clock as it was.
    while isinstance(server, RedisServer) and _redis_s(server) < began_s + ahead_s:
        pass


def move_sqlite(store: Store, seconds: float) -> None:
    """Set the clock of a SQLite store ahead; its next commit does so for all processes."""
    assert isinstance(store, SqliteStore)
    clock = store._clock
    clock._latest_us = clock.read() + round(seconds * 1_000_000)


def _redis_s(server: RedisServer) -> float:
    """Return the time that the scripts of a server see."""
    reply = server.run("EVAL", "return redis.call('TIME')", "0")
    assert isinstance(reply, list)
    seconds, microseconds = map(int, map(str, reply))
    return seconds + microseconds / 1_000_000
