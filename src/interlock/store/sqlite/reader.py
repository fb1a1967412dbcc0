"""The thread that reads, and notices commits of other processes.

With a write-ahead log readers see the last commit and block no writer. While there are subscribers, the
thread also looks whether the database has changed: SQLite tells that from a few bytes of shared memory, and
has no notification. The thread looks at once when another process announces a commit (`file_events`); a
little later, and then with growing pauses, when something was written to the log; and now and then without
an event. After an announcement it rests for a moment, so that many commits are one look. Where there are no
events it polls.

Why: decisions 0143 and 0525.
"""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path
from queue import Empty

from interlock.backoff import nth_pause_s
from interlock.errors import StoreUnavailable
from interlock.store.sqlite.database import connect, retry_while_busy
from interlock.store.sqlite.failures import NOTHING, code_of, is_busy, not_open, store_error, timeout_error
from interlock.store.sqlite.file_events import FileEvents, open_events
from interlock.store.sqlite.threads import RETRY_S, DatabaseThread, Subscribers, ThreadCall, deliver

LOOK_SOON_S = 0.005
"""Polling interval while there is activity, and the time between an event of the log and a look."""
REST_S = 0.005
"""Time after an announced commit for which further events wait."""
LOOK_EVERY_S = 0.02
"""Polling interval where there are no events; an idle machine is woken less often."""
LOOK_AT_LEAST_S = 0.5
"""Time between two looks where there are events, in case one is lost."""
_SOON_FOR_S = 10.0


class Reader(DatabaseThread):
    """Owns the connection that reads."""

    def __init__(self, path: Path, timeout_s: float, subscribers: Subscribers) -> None:
        super().__init__(f"interlock reader of {path.name}", timeout_s)
        self._path = path
        self._subscribers = subscribers
        self._seen = self._latest_us = 0
        self._seen_at = float("-inf")
        self._events: FileEvents | None = None
        self._has_asked = False
        """Whether events were requested; they are once, for the first subscriber."""
        self._looks = 1
        """Number of looks since the last news, from 1: the pause after each is longer."""
        self._look_at = self._rests_until = float("-inf")
        self._connection: sqlite3.Connection

    def nudge(self) -> None:
        """Look at once, and then from time to time, for a new subscriber."""
        with self._gate:
            if self._accepting:
                self._put(None)

    def timeout_error(self, _outcome: str) -> StoreUnavailable:
        """Return the error of a passed deadline; a read has no unknown outcome."""
        return timeout_error(self._path, self.timeout_s, NOTHING)

    def not_open(self) -> StoreUnavailable:
        """Return the error of a call before the start or after the end."""
        return not_open(self._path)

    def stuck(self) -> None:
        """Interrupt the statement, so that the next one is not late as well."""
        if self.is_open:
            self._connection.interrupt()

    def _open(self) -> None:
        # Another process may be recovering the log, or removing it after it was the last to use it.
        self._connection = retry_while_busy(lambda: connect(self._path), self._path, self.timeout_s)
        self._connection.execute("PRAGMA query_only = ON")

    def _close(self) -> None:
        if self._events is not None:
            self._events.close()
        self._connection.close()

    def _put(self, job: ThreadCall | None) -> None:
        self._queue.put(job)
        if self._events is not None:
            self._events.interrupt()

    def _serve(self, job: ThreadCall) -> None:
        while job.begin():
            job.error = None
            try:
                self._connection.execute("BEGIN")  # all statements of a call see the same database
                try:
                    job.result = job.work(self._connection)
                finally:
                    if self._connection.in_transaction:  # some errors of SQLite have ended it
                        self._connection.execute("ROLLBACK")
            except BaseException as error:  # noqa: BLE001 - raised again in the waiter
                job.error = error
            if not (isinstance(job.error, sqlite3.Error) and _passing(job.error)):
                break
            time.sleep(RETRY_S)
        if isinstance(job.error, sqlite3.Error | OverflowError | UnicodeError):
            job.error = store_error(job.error, self._path)
        deliver([job])

    def _next(self) -> ThreadCall:
        while True:
            try:
                job = self._waiting_for_news() if self._subscribers.wakes else self._queue.get()
            except Empty:
                continue
            if job is not None:
                return job
            self._look()
            # Commits before this read cannot be distinguished from later ones.
            self._subscribers.wake()

    def _waiting_for_news(self) -> ThreadCall | None:
        """Return the next call; look for commits meanwhile."""
        if not self._has_asked:
            self._has_asked, self._events = True, open_events(self._path)
        if self._events is None:
            return self._polling()
        now = time.monotonic()
        is_resting = now < self._rests_until
        committed, written = self._events.wait(
            (self._rests_until if is_resting else self._look_at) - now,
            unless=lambda: not self._queue.empty(),
            is_resting=is_resting,
        )
        if is_resting:
            return self._queue.get_nowait()
        now = time.monotonic()
        if committed:
            self._look()
            self._look_at = now + LOOK_SOON_S
        elif written:  # a commit that may follow is announced, or found soon
            self._look_at = min(self._look_at, now + LOOK_SOON_S)
        elif now >= self._look_at:
            has_watches = self._events.arm()
            has_news = self._look()
            self._looks = 1 if has_news else self._looks + 1
            longest_s = LOOK_AT_LEAST_S if has_watches else LOOK_EVERY_S
            self._look_at = now + nth_pause_s(self._looks, LOOK_SOON_S, longest_s)
        if committed:  # a busy writer of this process announces its own commits: they are looked at together
            self._rests_until = now + REST_S
        if committed or written:
            self._looks = 1
        return self._queue.get_nowait()

    def _polling(self) -> ThreadCall | None:
        is_active = time.monotonic() - self._seen_at < _SOON_FOR_S
        try:
            return self._queue.get(timeout=LOOK_SOON_S if is_active else LOOK_EVERY_S)
        except Empty:
            self._look()
            raise

    def _look(self) -> bool:
        """Wake the subscribers after a commit; return whether there was one."""
        try:
            (seen,) = self._connection.execute("PRAGMA data_version").fetchone()
            if seen == self._seen:
                return False
            (latest_us,) = self._connection.execute("SELECT latest_us FROM progress").fetchone()
        except sqlite3.Error:  # the next look is soon
            return True
        before_us, self._latest_us = self._latest_us, latest_us
        self._seen, self._seen_at = seen, time.monotonic()
        # Each transaction is later than all before it, except those of a shell.
        if not before_us < self._latest_us <= self._subscribers.notified_us:
            self._subscribers.wake()
        return True


def _passing(error: sqlite3.Error) -> bool:
    """Return whether the error may pass.

    Another process is recovering the log, or an interruption was for another job.
    """
    return is_busy(error) or code_of(error) == sqlite3.SQLITE_INTERRUPT
