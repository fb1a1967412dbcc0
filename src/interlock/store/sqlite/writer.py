"""The one thread that writes.

Whatever waits while a transaction is being flushed to the disk goes into the next one together: one
flush serves many callers, and nobody waits for a timer. Each call is judged for itself. Should the
data of one break the transaction, it is undone and everybody gets one of their own.

Other processes may hold the write lock. It is asked for at the beginning (`BEGIN IMMEDIATE`: a read
transaction that later wants to write could not wait), again and again until nobody waits any longer.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from queue import Empty

from interlock.errors import SchemaTooNew, StoreError, StoreUnavailable
from interlock.store.catalogue import Catalogue
from interlock.store.sqlite.clock import HeldClock
from interlock.store.sqlite.failures import BAD_DATA, NOTHING, UNKNOWN, is_busy, late, not_open, store_error
from interlock.store.sqlite.jobs import Job, JobThread, deliver
from interlock.store.sqlite.ledger import Ledger, Memory, Moves
from interlock.store.sqlite.opening import check_floor, leave_mark, load_kinds, open_database, places_of
from interlock.store.sqlite.writes import Move

MOST_AT_ONCE = 2_000
"""Commits in one transaction: more would make the first wait for the last without sparing anything."""
_RETRY_S = 0.001


class _BrokenError(Exception):
    """A judgement ended half-way."""


class Writer(JobThread):
    """Owns the connection that writes."""

    def __init__(
        self,
        path: Path,
        catalogue: Catalogue,
        clock: HeldClock,
        timeout_s: float,
        committed: Callable[[], None],
    ) -> None:
        super().__init__(f"interlock writer of {path.name}", timeout_s)
        self.transactions = 0
        """How many have written something: what group commit spares."""
        self._path = path
        self._catalogue = catalogue
        self._clock = clock
        self._committed = committed
        self._memory = Memory(catalogue)
        self._moves: Moves = {}
        self._connection: sqlite3.Connection
        self._is_migrating = False

    @property
    def takes_longer(self) -> bool:
        """A migration of millions of records takes minutes; to give it up would begin it again."""
        return self._is_migrating

    def late(self, outcome: str) -> StoreUnavailable:
        """What a caller is told whose deadline has passed."""
        return late(self._path, self.timeout_s, outcome)

    def not_open(self) -> StoreUnavailable:
        """What a caller is told who comes too early or after the end."""
        return not_open(self._path)

    def _open(self) -> None:
        def migrating() -> None:
            self._is_migrating = True

        try:
            self._connection = open_database(
                self._path, self._catalogue, self._clock, self.timeout_s, migrating
            )
        finally:
            self._is_migrating = False
        self._moves = _moves(self._catalogue, places_of(self._connection))

    async def learn(self, kinds: Catalogue) -> None:
        """Load the tables of more kinds."""
        catalogue = {**self._catalogue, **kinds}

        def work(ledger: Ledger) -> Moves:
            load_kinds(ledger.connection, kinds)
            return _moves(catalogue, places_of(ledger.connection))

        moves = await self.do(work, settled=True)
        # Replaced when the transaction is committed, so that nothing is judged by tables that were undone.
        self._catalogue, self._moves = catalogue, moves
        self._memory.learn(kinds)

    def _close(self) -> None:
        with suppress(sqlite3.Error, OSError):  # it is a help, no promise
            leave_mark(self._connection, self._path)
        self._connection.close()

    def _serve(self, job: Job) -> None:
        before = self.transactions
        jobs = [job]
        if self._begin(jobs):
            jobs += self._waiting(MOST_AT_ONCE - job.weight)
            if not self._transact(jobs):
                for one in jobs:
                    if self._begin([one]):
                        self._transact([one])
        deliver(jobs)
        if self.transactions > before:
            self._committed()

    def _begin(self, jobs: list[Job]) -> bool:
        """Get the write lock; False when it was refused for good or nobody waits any longer."""
        while not all(job.dropped for job in jobs):
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                check_floor(self._connection)
            except SchemaTooNew as error:
                self._undo()
                _fail(jobs, error)
                return False
            except sqlite3.Error as error:
                if not is_busy(error):
                    _fail(jobs, store_error(error, self._path))
                    return False
            else:
                return True
            time.sleep(_RETRY_S)
        return False

    def _waiting(self, room: int) -> list[Job]:
        """What has come in meanwhile; what makes the thread end stays where it is."""
        jobs: list[Job] = []
        while room > 0:
            try:
                job = self._queue.get_nowait()
            except Empty:
                break
            if job is self._closing:
                self._queue.put(job)  # nothing is handed in behind it
                break
            if job is not None:
                jobs.append(job)
                room -= job.weight
        return jobs

    def _transact(self, jobs: list[Job]) -> bool:
        """All of them in the transaction that was begun; False when each has to go alone."""
        live = [job for job in jobs if job.begin()]
        outcome = NOTHING
        try:
            ledger = Ledger(self._connection, self._moves, self._clock, self._memory)
            _judge(live, ledger)
            outcome = UNKNOWN
            self._connection.execute("COMMIT")
        except (*BAD_DATA, _BrokenError) as error:
            self._undo()
            if len(live) > 1:
                return False
            _fail(live, _cause(error, self._path))
        except sqlite3.Error as error:
            self._undo()
            _fail(live, store_error(error, self._path, outcome))
        else:
            self.transactions += ledger.wrote
            for job in live:
                if isinstance(job.error, sqlite3.Error):
                    job.error = store_error(job.error, self._path)
        return True

    def _undo(self) -> None:
        """After some errors SQLite has rolled back by itself."""
        self._memory.forget()
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")


def _judge(jobs: list[Job], ledger: Ledger) -> None:
    for job in jobs:
        if job.settled:
            ledger.flush()
        job.run(ledger)
        if ledger.broken:
            raise _BrokenError from job.error
    ledger.flush()


def _moves(catalogue: Catalogue, places: dict[str, dict[str, int]]) -> Moves:
    """Every step that is legal: one look-up says so, and where it leads."""
    return {
        kind.name: {
            (source, target): Move(target, places[kind.name][target])
            for source in ("", *kind.states)
            for target in kind.states
            if kind.allows(source, target)
        }
        for kind in catalogue.values()
    }


def _cause(error: Exception, path: Path) -> BaseException:
    cause = error.__cause__ if isinstance(error, _BrokenError) else error
    return store_error(cause, path) if isinstance(cause, (sqlite3.Error, *BAD_DATA)) else cause or error


def _fail(jobs: list[Job], error: BaseException) -> None:
    for job in jobs:
        job.error = error if len(jobs) == 1 or not isinstance(error, StoreError) else _copy(error)


def _copy(error: StoreError) -> StoreError:
    """Each caller raises an error of its own: a shared one would collect all their tracebacks."""
    return type(error)(error.sentence, allowed=error.allowed, todo=error.todo, facts=error.facts)
