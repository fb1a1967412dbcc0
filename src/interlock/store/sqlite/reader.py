"""The thread that reads, and the one that notices what other processes commit.

With a write-ahead log readers see the last commit and hold nobody up. While somebody is subscribed,
the thread looks between its jobs whether the database has changed: SQLite tells that from a few bytes of
shared memory, and has no way to say so by itself.
"""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from queue import Empty

from interlock.errors import StoreUnavailable
from interlock.store.contract import Wake
from interlock.store.sqlite.failures import NOTHING, code_of, is_busy, late, not_open, store_error
from interlock.store.sqlite.jobs import Job, JobThread, deliver
from interlock.store.sqlite.opening import connect

LOOK_EVERY_S = 0.02
LOOK_SOON_S = 0.005
"""While things happen; a machine at rest is not woken that often."""
_SOON_FOR_S = 10.0
_RETRY_S = 0.001


class Subscribers:
    """Who wants to be woken."""

    def __init__(self) -> None:
        self._wakes: dict[object, Wake] = {}

    def __bool__(self) -> bool:
        return bool(self._wakes)

    def add(self, wake: Wake) -> Callable[[], None]:
        """From now on; returns how to stop it."""
        token = object()
        self._wakes[token] = wake

        def stop() -> None:
            self._wakes.pop(token, None)

        return stop

    def clear(self) -> None:
        """Nobody is woken any more."""
        self._wakes.clear()

    def wake(self) -> None:
        """Wake everybody. One that cannot be woken does not keep the others asleep."""
        for wake in list(self._wakes.values()):
            with contextlib.suppress(Exception):
                wake()


class Reader(JobThread):
    """Owns the connection that reads."""

    def __init__(self, path: Path, timeout_s: float, subscribers: Subscribers) -> None:
        super().__init__(f"interlock reader of {path.name}", timeout_s)
        self._path = path
        self._subscribers = subscribers
        self._seen = 0
        self._seen_at = float("-inf")
        self._connection: sqlite3.Connection

    def nudge(self) -> None:
        """Somebody has subscribed: look at once, and then again and again."""
        self._queue.put(None)

    def late(self, _outcome: str) -> StoreUnavailable:
        """What a caller is told whose deadline has passed; a read leaves nothing to wonder about."""
        return late(self._path, self.timeout_s, NOTHING)

    def not_open(self) -> StoreUnavailable:
        """What a caller is told who comes too early or after the end."""
        return not_open(self._path)

    def stuck(self) -> None:
        """Stop the statement, so that the next one is not late as well."""
        if self.is_open:
            self._connection.interrupt()

    def _open(self) -> None:
        self._connection = connect(self._path)
        self._connection.execute("PRAGMA query_only = ON")

    def _close(self) -> None:
        self._connection.close()

    def _serve(self, job: Job) -> None:
        while job.begin():
            job.run(self._connection)
            if not (isinstance(job.error, sqlite3.Error) and _passing(job.error)):
                break
            time.sleep(_RETRY_S)
        if isinstance(job.error, sqlite3.Error | OverflowError | UnicodeError):
            job.error = store_error(job.error, self._path)
        deliver([job])

    def _next(self) -> Job:
        while True:
            try:
                job = self._queue.get(timeout=self._pause_s())
            except Empty:
                self._look()
                continue
            if job is not None:
                return job
            self._look()
            # What was committed before this look can no longer be told from what came after.
            self._subscribers.wake()

    def _look(self) -> None:
        with contextlib.suppress(sqlite3.Error):  # the next look is soon
            (seen,) = self._connection.execute("PRAGMA data_version").fetchone()
            if seen != self._seen:
                self._seen, self._seen_at = seen, time.monotonic()
                self._subscribers.wake()

    def _pause_s(self) -> float | None:
        """How long to wait for a job before the next look; for ever when nobody wants to be woken."""
        if not self._subscribers:
            return None
        return LOOK_SOON_S if time.monotonic() - self._seen_at < _SOON_FOR_S else LOOK_EVERY_S


def _passing(error: sqlite3.Error) -> bool:
    """It met another process that repairs the log, or an interruption that was meant for another job."""
    return is_busy(error) or code_of(error) == sqlite3.SQLITE_INTERRUPT
