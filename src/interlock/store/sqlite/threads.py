"""The threads of a store: one writes, one reads (`reader`).

SQLite blocks, so each connection lives in one thread, to which coroutines hand calls. A caller waits no
longer than its deadline: a call that has not begun by then never begins, and the error says so; one that has
begun may still be done, and the error says that. This does not need the thread to respond.

Writing. Calls that wait while a transaction is being flushed go into the next one together (group commit):
one flush serves many callers, and there is no timer. Each call is judged separately. If the data of one break
the transaction, it is rolled back and every call gets its own transaction. Other processes may hold the write
lock. It is requested at the beginning (`BEGIN IMMEDIATE`: a read transaction that later wants to write could
not wait), again and again until all callers have given up.

Why: decision 0143.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from interlock.errors import SchemaTooNew, StoreError, StoreUnavailable
from interlock.store.catalogue import Catalogue
from interlock.store.contract import Wake
from interlock.store.sqlite.database import (
    HeldClock,
    leave_mark,
    load_kinds,
    open_database,
    places_of,
)
from interlock.store.sqlite.failures import (
    BAD_DATA,
    NOTHING,
    UNKNOWN,
    is_busy,
    not_open,
    store_error,
    timeout_error,
)
from interlock.store.sqlite.file_events import announce, memory_file_of
from interlock.store.sqlite.transaction import Moves, RowCache, Transaction
from interlock.store.sqlite.writes import Move

T = TypeVar("T")


class ThreadCall:
    """One piece of work that a caller waits for."""

    __slots__ = (
        "_lock",
        "begun",
        "dropped",
        "error",
        "future",
        "loop",
        "result",
        "settled",
        "weight",
        "work",
    )

    def __init__(self, work: Callable[[Any], Any], *, settled: bool = False, weight: int = 1) -> None:
        self.work: Callable[[Any], Any] = work
        self.settled: bool = settled
        """Whether it reads tables itself, so that earlier judgements must be written first."""
        self.weight: int = weight
        self.loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        self.future: asyncio.Future[None] = self.loop.create_future()
        self.result: Any = None
        self.error: BaseException | None = None
        self.begun: bool = False
        self.dropped: bool = False
        self._lock = threading.Lock()

    def begin(self) -> bool:
        """Return whether a caller still waits.

        The thread calls it before it starts.
        """
        with self._lock:
            self.begun = not self.dropped
            return self.begun

    def drop(self) -> bool:
        """Abandon the call; return whether it had not begun."""
        with self._lock:
            self.dropped = True
            return not self.begun

    def run(self, subject: object) -> None:
        """Run the work; its exception is for the caller."""
        self.result = self.error = None
        try:
            self.result = self.work(subject)
        except BaseException as error:  # noqa: BLE001 - raised again in the waiter
            self.error = error


def deliver(jobs: Iterable[ThreadCall]) -> None:
    """Deliver results to the callers; one wake-up for each event loop."""
    by_loop: dict[asyncio.AbstractEventLoop, list[ThreadCall]] = {}
    for job in jobs:
        by_loop.setdefault(job.loop, []).append(job)
    for loop, done in by_loop.items():
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(_settle, done)


def _settle(jobs: list[ThreadCall]) -> None:
    for job in jobs:
        if not job.future.done():
            job.future.set_result(None)


class DatabaseThread(ABC):
    """A thread with a queue. It opens its connection first, and closes it last."""

    def __init__(self, name: str, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self._queue: SimpleQueue[ThreadCall | None] = SimpleQueue()
        """None means no work, but a reason to poll."""
        self._thread = threading.Thread(target=self._main, name=name, daemon=True)
        self._gate = threading.Lock()
        self._accepting = False
        self._closing: ThreadCall | None = None

    @abstractmethod
    def timeout_error(self, outcome: str) -> StoreUnavailable:
        """Return the error of a passed deadline."""

    @abstractmethod
    def not_open(self) -> StoreUnavailable:
        """Return the error of a call before the start or after the end."""

    @abstractmethod
    def _open(self) -> None:
        """Connect; in the thread."""

    @abstractmethod
    def _serve(self, job: ThreadCall) -> None:
        """Do a job and deliver its result; called in the thread.

        Other waiting jobs are done with it if that is cheaper.
        """

    @abstractmethod
    def _close(self) -> None:
        """Disconnect; in the thread."""

    @property
    def takes_longer(self) -> bool:
        """Whether the current work may take longer than a deadline, and is known to make progress."""
        return False

    def stuck(self) -> None:  # noqa: B027 - a thread that writes can only be waited for
        """Handle a job that was abandoned while it ran.

        Called in the caller's thread.
        """

    async def start(self) -> None:
        """Start the thread; return once its connection is open.

        If the connection cannot be opened, its error is raised. The thread runs until it is closed.
        """
        opening = ThreadCall(lambda _: self._open())
        self._queue.put(opening)
        self._thread.start()
        try:
            await self._outcome(opening)
        except BaseException:
            self._put_end()  # in case it opens later
            raise
        self._accepting = True

    async def do(self, work: Callable[[Any], T], *, settled: bool = False, weight: int = 1) -> T:
        """Run work in the thread."""
        job = ThreadCall(work, settled=settled, weight=weight)
        with self._gate:
            if not self._accepting:
                raise self.not_open()
            self._put(job)
        await self._outcome(job)
        result: T = job.result
        return result

    @property
    def is_open(self) -> bool:
        """Whether calls are accepted."""
        return self._accepting

    def check_open(self) -> None:
        """Raise before the start and after the end."""
        if not self._accepting:
            raise self.not_open()

    async def close(self) -> None:
        """Finish pending work, then close."""
        with self._gate:
            if not self._accepting:
                return
            self._accepting = False
            closing = self._put_end()
        with contextlib.suppress(StoreUnavailable):  # it hangs; the thread ends with the process
            await self._outcome(closing)
            self._thread.join(self.timeout_s)

    def _put_end(self) -> ThreadCall:
        self._closing = ThreadCall(lambda _: self._close())
        self._put(self._closing)
        return self._closing

    def _put(self, job: ThreadCall | None) -> None:
        self._queue.put(job)

    async def _outcome(self, job: ThreadCall) -> None:
        timer = job.loop.call_later(self.timeout_s, self._give_up, job)
        try:
            await job.future
        finally:
            timer.cancel()
            job.dropped = True  # also if the caller was cancelled: then a waiting call need not begin
        if job.error is not None:
            raise job.error

    def _give_up(self, job: ThreadCall) -> None:
        if job.future.done():
            return
        if self.takes_longer:
            job.loop.call_later(self.timeout_s, self._give_up, job)
        else:
            never = job.drop()
            job.future.set_exception(self.timeout_error(NOTHING if never else UNKNOWN))
            if not never:
                self.stuck()

    def _main(self) -> None:
        opening = self._next()
        opening.begin()
        opening.run(None)
        deliver([opening])
        if opening.error is not None:
            return
        while (job := self._next()) is not self._closing:
            self._serve(job)
        job.run(None)
        deliver([job])

    def _next(self) -> ThreadCall:
        while (job := self._queue.get()) is None:
            pass
        return job


RETRY_S: float = 0.001


class Subscribers:
    """The subscribers of a store."""

    def __init__(self) -> None:
        self.wakes: dict[object, Wake] = {}
        self.notified_us: int = 0
        """The time of the latest transaction of which the writer of this store notifies them."""

    def add(self, wake: Wake) -> Callable[[], None]:
        """Add a subscriber; return a function that removes it."""
        token = object()
        self.wakes[token] = wake

        def stop() -> None:
            self.wakes.pop(token, None)

        return stop

    def clear(self) -> None:
        """Remove all subscribers."""
        self.wakes.clear()

    def wake(self) -> None:
        """Wake all subscribers. An exception of one does not affect the others."""
        for wake in list(self.wakes.values()):
            with contextlib.suppress(Exception):
                wake()


MOST_AT_ONCE = 2_000
"""Maximum commits in one transaction: more would delay the first without a benefit."""


class _BrokenError(Exception):
    """A judgement ended halfway."""


class Writer(DatabaseThread):
    """Owns the connection that writes."""

    def __init__(
        self,
        path: Path,
        catalogue: Catalogue,
        clock: HeldClock,
        timeout_s: float,
        subscribers: Subscribers,
    ) -> None:
        super().__init__(f"interlock writer of {path.name}", timeout_s)
        self.transactions: int = 0
        """Number of transactions that wrote something."""
        self._path = path
        self._memory_file = ""
        self._catalogue = catalogue
        self._clock = clock
        self._subscribers = subscribers
        self._memory = RowCache(catalogue)
        self._moves: Moves = {}
        self._connection: sqlite3.Connection
        self._is_migrating = False

    @property
    def takes_longer(self) -> bool:
        """Whether a migration is running: millions of records take minutes, and giving up would restart
        it.
        """
        return self._is_migrating

    @property
    def moves(self) -> Moves:
        """The legal steps of every kind."""
        return self._moves

    def timeout_error(self, outcome: str) -> StoreUnavailable:
        """Return the error of a passed deadline."""
        return timeout_error(self._path, self.timeout_s, outcome)

    def not_open(self) -> StoreUnavailable:
        """Return the error of a call before the start or after the end."""
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
        self._memory_file = memory_file_of(self._path)
        self._moves = _moves(self._catalogue, places_of(self._connection))

    async def learn(self, kinds: Catalogue) -> None:
        """Load the tables of more kinds."""
        catalogue = {**self._catalogue, **kinds}

        def work(ledger: Transaction) -> Moves:
            load_kinds(ledger.connection, kinds)
            return _moves(catalogue, places_of(ledger.connection))

        moves = await self.do(work, settled=True)
        # Replaced when the transaction is committed, so that no commit is judged by tables that were rolled
        # back.
        self._catalogue, self._moves = catalogue, moves
        self._memory.learn(kinds)

    def _close(self) -> None:
        with suppress(sqlite3.Error, OSError):  # best effort
            leave_mark(self._connection, self._path)
        self._connection.close()

    def _serve(self, job: ThreadCall) -> None:
        before = self.transactions
        jobs = [job]
        if self._begin(jobs):
            jobs += self._waiting(MOST_AT_ONCE - job.weight)
            if not self._transact(jobs):
                for one in jobs:
                    if self._begin([one]):
                        self._transact([one])
        if self.transactions > before:
            announce(self._memory_file)
        deliver(jobs)
        if self.transactions > before:
            self._subscribers.wake()

    def _begin(self, jobs: list[ThreadCall]) -> bool:
        """Get the write lock; return whether jobs are to be done under it.

        The lock may be refused, or all callers may have given up.
        """
        while not all(job.dropped for job in jobs):
            try:
                self._connection.execute("BEGIN IMMEDIATE")
            except sqlite3.Error as error:
                if not is_busy(error):
                    _fail(jobs, store_error(error, self._path))
                    return False
            else:
                return True
            time.sleep(RETRY_S)
        return False

    def _waiting(self, room: int) -> list[ThreadCall]:
        """Return the calls that arrived meanwhile, but not the closing one."""
        jobs: list[ThreadCall] = []
        while room > 0:
            try:
                job = self._queue.get_nowait()
            except Empty:
                break
            if job is self._closing:
                self._queue.put(job)  # no call is queued after it
                break
            if job is not None:
                jobs.append(job)
                room -= job.weight
        return jobs

    def _transact(self, jobs: list[ThreadCall]) -> bool:
        """Run calls in the open transaction; return False if each needs its own."""
        live = [job for job in jobs if job.begin()]
        outcome, notified_us = NOTHING, self._subscribers.notified_us
        try:
            ledger = Transaction(self._connection, self._moves, self._clock, self._memory)
            _judge(live, ledger)
            outcome = UNKNOWN
            # The reader may see the commit before this thread returns from it.
            self._subscribers.notified_us = max(notified_us, ledger.flushed_us)
            self._connection.execute("COMMIT")
        except (*BAD_DATA, _BrokenError) as error:
            self._undo()
            if len(live) > 1:
                return False
            _fail(live, _cause(error, self._path))
        except SchemaTooNew as error:
            self._undo()
            _fail(live, error)
        except sqlite3.Error as error:
            self._undo()
            _fail(live, store_error(error, self._path, outcome))
            self._subscribers.notified_us = notified_us
            if outcome is UNKNOWN:  # it may be committed, and the reader may have left it to this thread
                self._subscribers.wake()
        else:
            self.transactions += ledger.wrote
            for job in live:
                if isinstance(job.error, sqlite3.Error):
                    job.error = store_error(job.error, self._path)
        return True

    def _undo(self) -> None:
        """Roll back, unless SQLite has done so itself after the error."""
        self._memory.forget()
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")


def _judge(jobs: list[ThreadCall], ledger: Transaction) -> None:
    for job in jobs:
        if job.settled:
            ledger.flush()
        job.run(ledger)
        if ledger.broken:
            raise _BrokenError from job.error
    ledger.flush(goes_on=False)


def _moves(catalogue: Catalogue, places: dict[str, dict[str, int]]) -> Moves:
    """Return every legal step with its target, for a single lookup."""
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


def _fail(jobs: list[ThreadCall], error: BaseException) -> None:
    for job in jobs:
        job.error = error if len(jobs) == 1 or not isinstance(error, StoreError) else _copy(error)


def _copy(error: StoreError) -> StoreError:
    """Return a copy of an error for each caller.

    A shared error would collect all their tracebacks.
    """
    return type(error)(error.sentence, allowed=error.allowed, todo=error.todo, facts=error.facts)
