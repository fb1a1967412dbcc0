"""The store on SQLite: one file, one thread that writes and one that reads.

The embedded default, for one host with any number of processes. Acknowledged commits are on the disk: the log
is flushed before a commit is answered.

Reading order:

    database       the file, its clock, migrations and the enforced tables
    threads        hand work to a thread, with a deadline; the writing thread; group commit
    reader         the reading thread; noticing commits of other processes
    file_events    inotify on the files, and announcing commits
    transaction    judging commits in one transaction; pruning
    writes         many records and entries of the journal with one statement
    reads          records by key, claims, deadlines, the journal
    queries        lists, counts, status
    permissions    permissions on the files
    failures       errors of the driver
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from interlock.errors import InvalidArguments
from interlock.store.catalogue import Catalogue
from interlock.store.contract import Capabilities, Decide, StoreStatus, Wake
from interlock.store.cursors import read_cursor
from interlock.store.permissions import Permission
from interlock.store.ranking import moment
from interlock.store.records import (
    Claim,
    Count,
    Feed,
    Key,
    Outcome,
    Page,
    Pruned,
    Query,
    Record,
    Recorded,
    Work,
)
from interlock.store.sqlite import queries, reads
from interlock.store.sqlite.database import HeldClock, least_epoch, path_of, raise_epoch, url_of
from interlock.store.sqlite.failures import store_error
from interlock.store.sqlite.permissions import permissions_of
from interlock.store.sqlite.reader import Reader
from interlock.store.sqlite.threads import Subscribers, Writer
from interlock.store.sqlite.transaction import (
    Moves,
    QueueWalk,
    RowCache,
    Transaction,
    compact,
    prune,
    prune_by_queue,
)
from interlock.store.transactions import LoadRecords, Now, TransactionStep
from interlock.store.validation import (
    TIMEOUT_S,
    check_back,
    check_claim,
    check_commits,
    check_limit,
    check_prune,
    check_prune_by_queue,
    check_query,
    known_kind,
)


class SqliteStore:
    """The contract on a database file. Times are the host's clock, which never decreases."""

    def __init__(self, path_or_url: str, catalogue: Catalogue, *, timeout_s: float = TIMEOUT_S) -> None:
        self.capabilities: Capabilities = Capabilities(
            durable=True,
            # A crash of the process loses no acknowledged commit: the log is written before the answer. A
            # crash of the machine loses none: FULL flushes the log with every commit (NORMAL would not). Only
            # a disk that reports a false flush, or an older copy that is restored by hand, does: see `epoch`.
            durability="write-ahead log, flushed with every commit (synchronous=FULL)",
            shared=False,
            enforces_tables=True,
        )
        self._path = path_of(path_or_url)
        self._catalogue = catalogue
        self._timeout_s = timeout_s
        self._clock = HeldClock()
        self._subscribers = Subscribers()
        self._make_threads()

    def __repr__(self) -> str:
        return f"SqliteStore({url_of(self._path)!r})"

    @property
    def transactions(self) -> int:
        """Number of transactions written by this object; fewer than commits, because of group commit."""
        return self._writer.transactions

    async def open(self) -> None:
        """Create the file if there is none, migrate it, and start the threads."""
        if self._writer.is_open:
            return
        self._make_threads()
        await self._writer.start()
        try:
            await self._reader.start()
        except BaseException:
            await self._writer.close()
            raise

    async def learn(self, kinds: Catalogue) -> None:
        """Load kinds in a transaction of the writer."""
        if any(self._catalogue.get(name) != kind for name, kind in kinds.items()):
            await self._writer.learn(kinds)
            self._catalogue = {**self._catalogue, **kinds}

    async def close(self) -> None:
        """Finish pending work, and close the file."""
        self._subscribers.clear()
        await self._reader.close()
        await self._writer.close()

    async def now(self) -> datetime:
        """Return the host's clock, or the latest time on record if that is later."""
        return moment(await self._reader.do(self._now_us))

    async def epoch(self) -> int:
        """Return the epoch of the file, and at least the half hour.

        See `database` for another file.
        """
        epoch, least = await self._reader.do(
            lambda connection: (reads.epoch(connection), least_epoch(self._now_us(connection)))
        )
        if epoch >= least:
            return epoch
        return await self._writer.do(lambda ledger: raise_epoch(ledger.connection, least))

    async def raise_epoch(self, above: int = 0) -> int:
        """Start an epoch above the larger one."""

        def work(ledger: Transaction) -> int:
            return raise_epoch(ledger.connection, max(above, least_epoch(ledger.now_us)), by=1)

        return await self._writer.do(work)

    async def load(self, keys: Sequence[Key]) -> list[Record | None]:
        """Load the records."""
        for key in keys:
            known_kind(self._catalogue, key.kind)
        return await self._reader.do(lambda connection: reads.load(connection, keys))

    async def find(self, query: Query) -> Page:
        """Return one page from the index."""
        check_query(self._catalogue, query)
        return await self._reader.do(lambda connection: queries.find(connection, query))

    async def count(self, query: Query, *, cap: int = 10_000, within: int | None = None) -> Count:
        """Count in the index, up to the cap; examine records without an index."""
        check_query(self._catalogue, query)
        return await self._reader.do(lambda connection: queries.count(connection, query, cap, within))

    async def commit(self, commits: Sequence[Work]) -> list[Outcome]:
        """Commit together with other pending work (group commit)."""
        check_commits(self._catalogue, commits, self.capabilities.max_body_bytes)
        weight = sum([item.size for item in commits])
        return await self._writer.do(lambda ledger: ledger.judge(commits), weight=weight)

    def dialect(self) -> SqliteDialect:
        """Return the dialect for writes in a transaction of the user."""
        most = self.capabilities.max_body_bytes
        return SqliteDialect(self._path, self._catalogue, self._clock, self._writer.moves, most)

    async def claim(self, claim: Claim, decide: Decide) -> list[Outcome]:
        """Read, decide and write under the write lock of the database."""
        check_claim(self._catalogue, claim)

        def ready(ledger: Transaction) -> list[reads.Keyed]:
            guard = claim.guard
            if guard is not None and ledger.state_of(guard.key) not in guard.states:
                return []
            return reads.ready(ledger.connection, claim, ledger.now_us)

        return await self._decided(ready, decide, claim.limit)

    async def due(self, kinds: Sequence[str], limit: int, decide: Decide) -> list[Outcome]:
        """Handle records past their deadline."""
        check_limit(limit)
        for kind in kinds:
            known_kind(self._catalogue, kind)
        return await self._decided(
            lambda ledger: reads.due(ledger.connection, kinds, ledger.now_us, limit), decide, limit
        )

    async def recall(self, request_id: str) -> Recorded | None:
        """Return the recorded answer, unless it has expired."""
        return await self._reader.do(
            lambda connection: reads.recall(connection, request_id, self._now_us(connection))
        )

    async def feed(self, after: str = "", *, limit: int = 1_000) -> Feed:
        """Return entries of the journal after a cursor.

        Numbers are assigned under the write lock, in the order of commits.
        """
        check_limit(limit)
        return await self._reader.do(lambda connection: reads.feed(connection, after, limit))

    async def latest(self, *, back: int = 0) -> str:
        """Return the cursor of the end of the journal, or of earlier.

        Each entry has a number.
        """
        check_back(back)
        return await self._reader.do(lambda connection: reads.latest(connection, back))

    async def history(self, key: Key, *, after_version: int = 0, limit: int = 1_000) -> Feed:
        """Return the entries of one record."""
        known_kind(self._catalogue, key.kind)
        check_limit(limit)
        return await self._reader.do(lambda connection: reads.history(connection, key, after_version, limit))

    def subscribe(self, wake: Wake) -> Callable[[], None]:
        """Subscribe: commits of stores notify at once, others 5 ms later."""
        self._reader.check_open()
        stop = self._subscribers.add(wake)
        self._reader.nudge()
        return stop

    async def prune(
        self, *, kind: str, states: Sequence[str], older_than: timedelta, limit: int = 1_000
    ) -> Pruned:
        """Remove records that ended long ago, and expired requests."""
        check_prune(self._catalogue, kind, states, older_than)
        check_limit(limit)
        return await self._writer.do(
            lambda ledger: prune(ledger, kind, states, older_than, limit), settled=True, weight=limit
        )

    async def prune_by_queue(
        self,
        *,
        kind: str,
        state: str,
        older_than: timedelta | None,
        queues: Mapping[str, timedelta],
        cursor: str = "",
        limit: int = 1_000,
        within: int = 5_000,
    ) -> Pruned:
        """Look at the next records of the state, in the order of creation."""
        check_prune_by_queue(self._catalogue, kind, state, older_than, queues)
        check_limit(limit)
        check_limit(within)
        after = read_cursor(cursor)[0] if cursor else 0
        walk = QueueWalk(kind, state, older_than, queues, after, limit, within)
        return await self._writer.do(lambda ledger: prune_by_queue(ledger, walk), settled=True, weight=limit)

    async def compact(self) -> int | None:
        """Rewrite the file without free pages; see `transaction.compact`."""
        self._writer.check_open()
        return await asyncio.to_thread(compact, self._path)

    async def permissions(self) -> list[Permission]:
        """Return what this user may do with the file and its folder."""
        return permissions_of(self._path)

    async def status(self) -> StoreStatus:
        """Return the status."""
        return await self._reader.do(lambda connection: queries.status(connection, url_of(self._path)))

    def _decided(
        self, select: Callable[[Transaction], list[reads.Keyed]], decide: Decide, limit: int
    ) -> Coroutine[Any, Any, list[Outcome]]:
        def work(ledger: Transaction) -> list[Outcome]:
            try:
                taken = select(ledger)
            except (UnicodeError, OverflowError) as error:  # of the claim, not of the decision
                raise store_error(error, self._path) from error
            if not taken:
                return []
            ledger.take(taken)
            records = [record for _, record in taken]
            commits = decide(records, ledger.now)
            check_commits(self._catalogue, commits, self.capabilities.max_body_bytes)
            return ledger.judge(commits)

        return self._writer.do(work, settled=True, weight=limit)

    def _make_threads(self) -> None:
        """Create the threads, new ones whenever a store is reopened.

        A thread can be started only once.
        """
        self._writer = Writer(self._path, self._catalogue, self._clock, self._timeout_s, self._subscribers)
        self._reader = Reader(self._path, self._timeout_s, self._subscribers)

    def _now_us(self, connection: sqlite3.Connection) -> int:
        return self._clock.read(reads.latest_us(connection))


class SqliteDialect:
    """Reads and writes the records of a file in a transaction of the user, on a connection of sqlite3.

    Commits are validated as in a transaction of the store. Other processes and the reader of this one notice
    the commit by polling, as they notice all others.
    """

    def __init__(
        self, path: Path, catalogue: Catalogue, clock: HeldClock, moves: Moves, max_body_bytes: int
    ) -> None:
        self._path = path
        self._catalogue = catalogue
        self._clock = clock
        self._moves = moves
        self._max_body_bytes = max_body_bytes

    def check(self, connection: sqlite3.Connection) -> None:
        """Raise unless the connection leads to this file."""
        found = [row[2] for row in connection.execute("PRAGMA database_list") if row[1] == "main"]
        if found and found[0] and Path(found[0]).resolve() == self._path.resolve():
            return
        raise InvalidArguments(
            f"The connection leads to {found[0] if found and found[0] else 'memory'}, and the store is "
            f"{self._path}.",
            todo="Open Interlock on the file of your connection: both have to be one database.",
            facts={"store": str(self._path)},
        )

    def do(self, connection: sqlite3.Connection, step: TransactionStep) -> Any:
        """Carry out a step."""
        if isinstance(step, Now):
            return moment(self._clock.read(reads.latest_us(connection)))
        if isinstance(step, LoadRecords):
            return reads.load(connection, step.keys)
        check_commits(self._catalogue, step.commits, self._max_body_bytes)
        ledger = Transaction(connection, self._moves, self._clock, RowCache(self._catalogue))
        outcomes = ledger.judge(step.commits)
        ledger.flush(goes_on=False)
        return outcomes
