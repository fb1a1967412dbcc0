"""The store on PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from itertools import islice

import asyncpg

from interlock.store.catalogue import Catalogue
from interlock.store.contract import Capabilities, Decide, StoreStatus, Vacuum, Wake
from interlock.store.cursors import write_cursor
from interlock.store.permissions import Permission
from interlock.store.postgres.claims import Claims
from interlock.store.postgres.commits import CommitWriter
from interlock.store.postgres.connections import APPLICATION, PostgresPool, Session
from interlock.store.postgres.failures import unavailable
from interlock.store.postgres.foreign_transactions import PostgresDialect
from interlock.store.postgres.notifier import PostgresNotifier
from interlock.store.postgres.permissions import permissions_in
from interlock.store.postgres.permissions import statement as statement_of_permissions
from interlock.store.postgres.queries import query as statement
from interlock.store.postgres.rows import (
    BEGINNING,
    Conditions,
    JournalPlace,
    entry_of,
    feed_of,
    place_after,
    place_of,
    record_of,
    recorded_of,
    status_of,
)
from interlock.store.postgres.schema import MIGRATE_S, MIGRATIONS, PostgresFacts, open_schema, refuse_if_newer
from interlock.store.postgres.target import target_of
from interlock.store.ranking import microseconds
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
from interlock.store.validation import (
    TIMEOUT_S,
    check_back,
    check_claim,
    check_limit,
    check_prune,
    check_prune_by_queue,
    check_query,
    known_kind,
)

CAP = 10_000
"""Cap of the counts in the status."""
_MANY_SETS = 500
"""From this many sets of labels and states on, records are examined instead of each set."""
_FEW_FOR_EACH = 10
"""Number of records to examine first for each requested one."""
_ENDING = 2
"""Number of leading columns of `find_within.sql` about the end of the search."""


class PostgresStore:
    """The contract on PostgreSQL 13 or newer.

    `url` is `postgresql://user:password@host:port/database`, with options `schema`, `listen`, `prepared`
    and `pool` (see `target`) and those of the driver. No call takes longer than `timeout_s`.
    """

    def __init__(self, url: str, catalogue: Catalogue, *, timeout_s: float = TIMEOUT_S) -> None:
        self._target = target_of(url)
        self._catalogue = catalogue
        self._connections = PostgresPool(self._target, timeout_s, self._refuse_if_newer)
        self._notifier = PostgresNotifier(self._connections, self.latest)
        self._server: PostgresFacts | None = None
        self._writing = CommitWriter(self._target, catalogue, self.capabilities)
        self._claiming = Claims(self._connections, self._writing, self._notifier)
        self._closed = False

    def __repr__(self) -> str:
        return f"PostgresStore({self._target.shown!r})"

    @property
    def capabilities(self) -> Capabilities:
        """The capabilities; durability depends on the server's settings, known once open."""
        server = self._server
        return Capabilities(
            durable=server is not None and server.durable,
            durability=server.durability if server else "not open yet",
            shared=True,
            enforces_tables=True,
            foresight=True,
        )

    async def open(self) -> None:
        """Connect, migrate the schema and load the tables in one transaction.

        It writes only if necessary.
        """
        self._server = await self._open_schema("Opening the store", self._catalogue)
        await self.epoch()

    async def learn(self, kinds: Catalogue) -> None:
        """Load kinds as `open` does; write only if the database lacks them."""
        if all(self._catalogue.get(name) == kind for name, kind in kinds.items()):
            return
        await self._open_schema("Loading kinds", kinds)
        self._catalogue = {**self._catalogue, **kinds}
        self._writing.know(self._catalogue)

    async def close(self) -> None:
        """Close every connection and task."""
        self._closed = True
        await self._notifier.close()
        await self._connections.close()

    async def now(self) -> datetime:
        """Return the server's clock, which never decreases."""
        [[now]] = await self._query("Reading the clock", "now")
        return self._writing.saw(now)

    async def epoch(self) -> int:
        """Return the epoch: see `sql/0009_restored.sql`.

        It grows with the timeline of the server, and for another database.
        """
        [[epoch]] = await self._query("Reading the epoch", "epoch", writes=True)
        return int(epoch)

    async def raise_epoch(self, above: int = 0) -> int:
        """Start an epoch above the larger one."""
        [[epoch]] = await self._query("Raising the epoch", "raise_epoch", above, writes=True)
        return int(epoch)

    async def load(self, keys: Sequence[Key]) -> list[Record | None]:
        """Load all records in one query."""
        for key in keys:
            known_kind(self._catalogue, key.kind)
        rows = await self._query(
            "Reading records", "load", [key.kind for key in keys], [key.id for key in keys]
        )
        return [None if row[0] is None else record_of(row) for row in rows]

    async def find(self, query: Query) -> Page:
        """Return a page; one more record is read to detect the end."""
        check_query(self._catalogue, query)
        if query.within is not None and await self._looks_through(query):
            return await self._find_within(query, query.within)
        conditions = Conditions(query, query.limit + 1)
        conditions.after(query.cursor)
        rows = await self._matching("find", conditions)
        page = tuple(record_of(row) for row in islice(rows, query.limit))
        if len(rows) <= query.limit:
            return Page(page)
        return Page(page, write_cursor(microseconds(page[-1].created_at), page[-1].id))

    async def count(self, query: Query, *, cap: int = 10_000, within: int | None = None) -> Count:
        """Count matches up to the cap; without an index, examine records.

        Queues have no index.
        """
        check_query(self._catalogue, query)
        if within is not None and await self._looks_through(query):
            conditions = Conditions(query, cap + 1, within)
            [[number, cut]] = await self._matching("count_within", conditions)
            return Count(min(number, cap), capped=cut or number > cap)
        [[number]] = await self._matching("count", Conditions(query, cap + 1))
        return Count(min(number, cap), capped=number > cap)

    async def _find_within(self, query: Query, within: int) -> Page:
        """Examine a few records first: they fill a page unless matches are rare."""
        for bound in sorted({min(within, _FEW_FOR_EACH * (query.limit + 1)), within}):
            conditions = Conditions(query, query.limit + 1, bound)
            conditions.after(query.cursor)
            rows = await self._matching("find_within", conditions)
            found = [record_of(row, _ENDING) for row in rows if row[_ENDING] is not None]
            page = tuple(found[: query.limit])
            if len(found) > query.limit:
                return Page(page, write_cursor(microseconds(page[-1].created_at), page[-1].id))
            at, name = rows[0][:_ENDING]
            if at is None:
                return Page(page)
        return Page(page, write_cursor(microseconds(at), name))

    async def _looks_through(self, query: Query) -> bool:
        """Return whether no index fits the query.

        The index of labels does, unless there are many sets of labels.
        """
        if query.queue is not None or not query.looks_through:
            return query.looks_through
        [[sets]] = await self._query("Finding records", "label_sets", query.kind, _MANY_SETS)
        return bool(sets >= _MANY_SETS)

    async def commit(self, commits: Sequence[Work]) -> list[Outcome]:
        """Commit in one round trip, if no two commits touch the same record.

        That is one transaction, too.
        """
        writing = self._writing
        writing.check(commits)
        outcomes: list[Outcome] = []
        parts = writing.parts(commits)
        notifying = self._notifier.let_notify(parts)
        for part in parts:
            outcomes += await self._connections.run("Committing", partial(writing.write, part=part))
        return self._notifier.notify(outcomes, notifying)

    def dialect(self) -> PostgresDialect:
        """Return the dialect for writes in a transaction of the user."""
        return PostgresDialect(self._writing, self._target)

    async def claim(self, claim: Claim, decide: Decide) -> list[Outcome]:
        """Claim ready records; see `claims`."""
        check_claim(self._catalogue, claim)
        return await self._claiming.claim(claim, decide)

    async def due(self, kinds: Sequence[str], limit: int, decide: Decide) -> list[Outcome]:
        """Handle records past their deadline."""
        check_limit(limit)
        for kind in kinds:
            known_kind(self._catalogue, kind)
        return self._notifier.notify(await self._claiming.due(kinds, limit, decide))

    async def recall(self, request_id: str) -> Recorded | None:
        """Return the recorded answer, unless it has expired."""
        rows = await self._query("Reading a request", "recall", self._writing.seen, request_id)
        return recorded_of(rows[0], request_id) if rows else None

    async def feed(self, after: str = "", *, limit: int = 1_000) -> Feed:
        """Return the journal up to where no entry can be inserted any more."""
        check_limit(limit)
        start = place_of(after)
        rows = await self._query(
            "Reading the journal", "feed", start.xact, start.entry, start.snapshot, limit
        )
        self._notifier.held_back(rows[0]["waiting"])
        return feed_of(rows, start, after)

    async def latest(self, *, back: int = 0) -> str:
        """Return the cursor of the settled end of the journal.

        It has a snapshot of the unsettled part. With `back` it is an earlier place.
        """
        check_back(back)
        if back:
            rows = await self._query("Reading the journal", "back", back)
            return JournalPlace(*rows[0]).cursor if rows else BEGINNING.cursor
        [[settled, end, snapshot]] = await self._query("Reading the journal", "latest")
        return JournalPlace(settled, 0, snapshot if settled < end else None).cursor

    async def history(self, key: Key, *, after_version: int = 0, limit: int = 1_000) -> Feed:
        """Return the entries of one record, by version."""
        check_limit(limit)
        known_kind(self._catalogue, key.kind)
        rows = await self._query("Reading a journal", "history", key.kind, key.id, after_version, limit)
        entries = tuple(map(entry_of, rows))
        return Feed(entries, entries[-1].cursor if entries else "")

    def subscribe(self, wake: Wake) -> Callable[[], None]:
        """Subscribe with LISTEN, or by polling behind a pooler that loses it."""
        if self._closed:
            raise unavailable("the store has been closed", "Subscribing", self._target)
        return self._notifier.subscribe(wake)

    async def prune(
        self, *, kind: str, states: Sequence[str], older_than: timedelta, limit: int = 1_000
    ) -> Pruned:
        """Prune a bounded batch in one transaction, skipping locked records."""
        check_limit(limit)
        check_prune(self._catalogue, kind, states, older_than)
        [[records, entries, requests, more]] = await self._query(
            "Pruning", "prune", self._writing.seen, kind, list(states), older_than, limit, writes=True
        )
        return Pruned(records, entries, requests, more)

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
        """Prune among the next records of the state; skip locked ones.

        That is one transaction.
        """
        check_limit(limit)
        check_limit(within)
        check_prune_by_queue(self._catalogue, kind, state, older_than, queues)
        names, ages = list(queues), list(queues.values())
        [[records, entries, at, name]] = await self._query(
            "Pruning",
            "prune_by_queue",
            *(self._writing.seen, kind, state, older_than, names, ages, *place_after(cursor), limit, within),
            writes=True,
        )
        on = "" if at is None else write_cursor(microseconds(at), name)
        return Pruned(records, entries, more=bool(on), cursor=on)

    async def compact(self) -> int | None:
        """Return None: autovacuum does that, and keeps free space for new records."""
        return None

    async def status(self) -> StoreStatus:
        """Return the status, with counts up to `CAP`."""
        rows = await self._query("Reading the status", "status", CAP)
        [[ours, all_, most, size, automatic, oldest_s]] = await self._query(
            "Reading the status", "connections", APPLICATION
        )
        return status_of(
            rows,
            url=self._target.shown,
            server=f"PostgreSQL {self._server.version}" if self._server else "PostgreSQL",
            wanted_version=len(MIGRATIONS),
            cap=CAP,
            connections=self._connections.described(ours, all_, most),
            size_bytes=size,
            vacuum=Vacuum(automatic=automatic, oldest_transaction_s=oldest_s),
        )

    async def permissions(self) -> list[Permission]:
        """Return the privileges of the role on the schema."""
        sql, arguments = statement_of_permissions(self._target.schema)
        rows = await self._connections.fetch("Reading the privileges", sql, *arguments)
        return permissions_in(rows, self._target)

    async def _open_schema(self, doing: str, catalogue: Catalogue) -> PostgresFacts | None:
        work = partial(open_schema, target=self._target, catalogue=catalogue)
        server = await self._connections.run(doing, work)
        if server is None:
            server = await self._connections.run(doing, partial(work, migrating=True), MIGRATE_S)
        return server

    async def _refuse_if_newer(self, session: Session) -> None:
        if self._server is not None:  # while it opens, the schema may be missing or of any version
            await refuse_if_newer(session, self._target)

    async def _query(
        self, doing: str, name: str, *arguments: object, writes: bool = False
    ) -> list[asyncpg.Record]:
        sql = statement(name, self._target.schema)
        return await self._connections.fetch(doing, sql, *arguments, writes=writes)

    async def _matching(self, name: str, conditions: Conditions) -> list[asyncpg.Record]:
        named = f"{name}_labelled" if conditions.labelled else name
        sql = conditions.fill(statement(named, self._target.schema))
        return await self._connections.fetch("Finding records", sql, *conditions.arguments)
