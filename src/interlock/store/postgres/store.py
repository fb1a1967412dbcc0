"""The store on PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import islice
from typing import Any

import asyncpg
import msgspec

from interlock.store.catalogue import Catalogue
from interlock.store.checking import check_commits, check_limit, check_prune, check_query, known_kind, waves
from interlock.store.contract import Capabilities, Decide, StoreStatus, Wake
from interlock.store.cursors import write_cursor
from interlock.store.postgres.connections import Connections, Session
from interlock.store.postgres.failures import translate, unavailable
from interlock.store.postgres.places import Place, place_of
from interlock.store.postgres.queries import query as statement
from interlock.store.postgres.rows import Conditions, entry_of, feed_of, record_of, recorded_of, status_of
from interlock.store.postgres.schema import MIGRATIONS, Server, open_schema
from interlock.store.postgres.target import target_of
from interlock.store.postgres.waking import Waking
from interlock.store.postgres.wave import Wave
from interlock.store.ranking import microseconds
from interlock.store.records import (
    Claim,
    Commit,
    Committed,
    Count,
    Feed,
    Key,
    Outcome,
    Page,
    Pruned,
    Query,
    Record,
    Recorded,
)

CAP = 10_000
"""How far status counts."""

_PROMOTED_AT_ONCE = 1_000
_FURTHER = 8
"""How much further a claimer looks who found that others hold the heads of the lanes."""


class PostgresStore:
    """The contract on PostgreSQL 13 or newer.

    `url` is `postgresql://user:password@host:port/database`, with options `schema`, `listen`, `prepared`
    and `pool` (see `target`) and those of the driver. No call takes longer than `timeout_s`.
    """

    def __init__(self, url: str, catalogue: Catalogue, *, timeout_s: float = 10.0) -> None:
        self._target = target_of(url)
        self._catalogue = catalogue
        self._connections = Connections(self._target, timeout_s)
        self._waking = Waking(self._connections, self.latest)
        self._seen = datetime(1970, 1, 1, tzinfo=UTC)
        self._server: Server | None = None
        self._closed = False

    def __repr__(self) -> str:
        return f"PostgresStore({self._target.shown!r})"

    @property
    def capabilities(self) -> Capabilities:
        """How durable it is depends on the server's settings, which are known once it is open."""
        server = self._server
        return Capabilities(
            durable=server is not None and server.durable,
            durability=server.durability if server else "not open yet",
            shared=True,
            enforces_tables=True,
        )

    async def open(self) -> None:
        """Connect, migrate the schema and load the tables, all in one transaction; nothing if all is well."""

        async def work(session: Session) -> Server:
            return await open_schema(session, self._target, self._catalogue)

        self._server = await self._connections.run("Opening the store", work)
        await self.epoch()

    async def close(self) -> None:
        """Let go of every connection and task."""
        self._closed = True
        await self._waking.close()
        await self._connections.close()

    async def now(self) -> datetime:
        """The server's clock, held back from ever going back."""
        [[now]] = await self._ask("Reading the clock", "now")
        return self._saw(now)

    async def epoch(self) -> int:
        """Grows with the timeline of the server: see `sql/0005_identity.sql`."""
        [[epoch]] = await self._ask("Reading the epoch", "epoch", writes=True)
        return int(epoch)

    async def load(self, keys: Sequence[Key]) -> list[Record | None]:
        """Look all of them up at once."""
        for key in keys:
            known_kind(self._catalogue, key.kind)
        rows = await self._ask(
            "Reading records", "load", [key.kind for key in keys], [key.id for key in keys]
        )
        return [None if row[0] is None else record_of(row) for row in rows]

    async def find(self, query: Query) -> Page:
        """One more than the page is read, to know whether there is more."""
        check_query(self._catalogue, query)
        conditions = Conditions(query, query.limit + 1)
        conditions.after(query.cursor)
        rows = await self._matching("find", conditions)
        page = tuple(record_of(row) for row in islice(rows, query.limit))
        if len(rows) <= query.limit:
            return Page(page)
        return Page(page, write_cursor(microseconds(page[-1].created_at), page[-1].id))

    async def count(self, query: Query, *, cap: int = 10_000, within: int | None = None) -> Count:
        """Count what matches, and stop beyond the cap. Of queues there is no index: there it looks."""
        check_query(self._catalogue, query)
        if within is not None and query.queue is not None and query.parent is None and not query.labels:
            return await self._count_within(query, cap, within)
        [[number]] = await self._matching("count", Conditions(query, cap + 1))
        return Count(min(number, cap), capped=number > cap)

    async def _count_within(self, query: Query, cap: int, within: int) -> Count:
        conditions = Conditions(msgspec.structs.replace(query, queue=None), within)
        sql = conditions.fill(statement("count_within", self._target.schema), query.queue)
        [[number, cut]] = await self._connections.fetch("Finding records", sql, *conditions.arguments)
        return Count(min(number, cap), capped=cut or number > cap)

    async def commit(self, commits: Sequence[Commit]) -> list[Outcome]:
        """One round trip and one transaction for all, cut only where a record or a request comes twice."""
        check_commits(self._catalogue, commits, self.capabilities.max_body_bytes)
        outcomes: list[Outcome] = []
        for part in self._waves(commits):
            rows = await self._connections.run("Committing", partial(self._write, part))
            outcomes += part.outcomes(rows)
            self._saw(rows[0]["at"])
        self._tell(outcomes)
        return outcomes

    async def claim(self, claim: Claim, decide: Decide) -> list[Outcome]:
        """Lock the heads of the lanes that this claimer may take from, skipping what others hold."""
        check_limit(claim.limit)
        known_kind(self._catalogue, claim.kind)
        arguments = (claim.kind, list(claim.queues), list(claim.labels))

        async def work(session: Session) -> list[Outcome]:
            await session.begin()
            rows = await self._take(session, "take_ready", arguments, claim.limit)
            while rows[-1]["delayed"]:
                # Records whose time has come get into line first, where others see them too.
                await session.rollback()
                promoted = await self._promote(session, claim.kind)
                await session.begin()
                rows = await self._take(session, "take_ready", arguments, claim.limit)
                if promoted < _PROMOTED_AT_ONCE:
                    break
            return await self._decided(session, rows, decide)

        return self._tell(await self._connections.run("Claiming", work))

    async def due(self, kinds: Sequence[str], limit: int, decide: Decide) -> list[Outcome]:
        """Likewise, by deadline."""
        check_limit(limit)
        for kind in kinds:
            known_kind(self._catalogue, kind)

        async def work(session: Session) -> list[Outcome]:
            await session.begin()
            rows = await self._take(session, "take_due", (list(kinds),), limit)
            return await self._decided(session, rows, decide)

        return self._tell(await self._connections.run("Sweeping what is due", work))

    async def recall(self, request_id: str) -> Recorded | None:
        """What is remembered, unless it has expired."""
        rows = await self._ask("Reading a request", "recall", self._seen, request_id)
        return recorded_of(rows[0], request_id) if rows else None

    async def feed(self, after: str = "", *, limit: int = 1_000) -> Feed:
        """The journal as far as nothing can be inserted into it any more."""
        check_limit(limit)
        start = place_of(after)
        rows = await self._ask("Reading the journal", "feed", start.xact, start.entry, start.snapshot, limit)
        self._waking.held_back(rows[0]["waiting"])
        return feed_of(rows, start, after)

    async def latest(self) -> str:
        """Where the journal is settled, and what of the rest is there already."""
        [[settled, end, snapshot]] = await self._ask("Reading the journal", "latest")
        return Place(settled, 0, snapshot if settled < end else None).cursor

    async def history(self, key: Key, *, after_version: int = 0, limit: int = 1_000) -> Feed:
        """The entries of one record, by version."""
        check_limit(limit)
        known_kind(self._catalogue, key.kind)
        rows = await self._ask("Reading a journal", "history", key.kind, key.id, after_version, limit)
        entries = tuple(entry_of(row, Place(row["xact"], row["entry"])) for row in rows)
        return Feed(entries, entries[-1].cursor if entries else "")

    def subscribe(self, wake: Wake) -> Callable[[], None]:
        """Woken by LISTEN, or by looking now and then behind a pool that loses it."""
        if self._closed:
            raise unavailable("the store has been closed", "Subscribing", self._target)
        return self._waking.subscribe(wake)

    async def prune(
        self, *, kind: str, states: Sequence[str], older_than: timedelta, limit: int = 1_000
    ) -> Pruned:
        """A bounded batch in one transaction, past what others hold."""
        check_limit(limit)
        check_prune(self._catalogue, kind, states, older_than)
        [[records, entries, requests, more]] = await self._ask(
            "Pruning", "prune", self._seen, kind, list(states), older_than, limit, writes=True
        )
        return Pruned(records, entries, requests, more)

    async def status(self) -> StoreStatus:
        """What is there, counted as far as `CAP`."""
        rows = await self._ask("Reading the status", "status", CAP)
        server = f"PostgreSQL {self._server.version}" if self._server else "PostgreSQL"
        return status_of(rows, url=self._target.shown, server=server, wanted_version=len(MIGRATIONS))

    async def _write(self, part: Wave, session: Session) -> list[asyncpg.Record]:
        """Write a wave as if nothing stood in its way; when something did, again with a closer look."""
        if session.attempt == 1:
            sql, arguments = statement("write", self._target.schema), self._arguments(part, judging=False)
        else:
            sql, arguments = statement("judge", self._target.schema), self._arguments(part, judging=True)[1:]
        return await session.fetch(sql, *arguments, writes=True)

    async def _take(
        self, session: Session, what: str, arguments: tuple[Any, ...], limit: int
    ) -> list[asyncpg.Record]:
        """Lock up to `limit`, looking further where others hold what came first. One row more ends them."""
        sql = statement(what, self._target.schema)
        reach = limit * 2
        while True:
            rows = await session.within(sql, self._seen, *arguments, limit, reach)
            if len(rows) > limit or not rows[-1]["cut"]:
                return rows
            reach *= _FURTHER

    async def _promote(self, session: Session, kind: str) -> int:
        sql = statement("promote", self._target.schema)
        [[number]] = await session.fetch(sql, self._seen, kind, _PROMOTED_AT_ONCE, writes=True)
        return int(number)

    async def _decided(self, session: Session, rows: list[asyncpg.Record], decide: Decide) -> list[Outcome]:
        """Commit what becomes of what was taken, in the transaction that holds it."""
        now: datetime = rows.pop()["moment"]
        self._saw(now)
        records = [record_of(row, 3) for row in rows]
        if not records:
            await session.rollback()
            return []
        try:
            commits = decide(records, now)
            check_commits(self._catalogue, commits, self.capabilities.max_body_bytes, records)
            # Of what we hold we know how it stands, so that nothing can be in the way; a second time we
            # are not so sure.
            judging = session.attempt > 1 or not self._foreseen(commits, records)
            parts = [(part, self._arguments(part, judging=judging)) for part in self._waves(commits)]
        except Exception:
            await session.rollback()
            raise
        outcomes: list[Outcome] = []
        for part, arguments in parts:
            answer = await session.within(statement("write", self._target.schema), *arguments)
            outcomes += part.outcomes(answer)
            self._saw(answer[0]["at"])
        await session.commit()
        return outcomes

    def _foreseen(self, commits: Sequence[Commit], records: Sequence[Record]) -> bool:
        """Whether these change only the records that we hold, as their tables allow."""
        held = {(record.kind, record.id): record for record in records}
        for commit in commits:
            if commit.request is not None or commit.not_after is not None:
                return False
            for change in commit.changes:
                record = held.get((change.kind, change.id))
                if record is None or record.version != change.expected:
                    return False
                if not self._catalogue[change.kind].allows(record.state, change.state):
                    return False
        return True

    def _waves(self, commits: Sequence[Commit]) -> list[Wave]:
        most = self.capabilities.max_batch
        return [
            Wave([commit for _, commit in wave[start : start + most]])
            for wave in waves(commits)
            for start in range(0, len(wave), most)
        ]

    def _arguments(self, wave: Wave, *, judging: bool) -> list[Any]:
        try:
            return wave.arguments(judging, self._seen)
        except UnicodeDecodeError as error:
            raise translate(
                asyncpg.InvalidTextRepresentationError(str(error)), "", self._target, unknown=False
            ) from None

    async def _ask(
        self, doing: str, name: str, *arguments: object, writes: bool = False
    ) -> list[asyncpg.Record]:
        sql = statement(name, self._target.schema)
        return await self._connections.fetch(doing, sql, *arguments, writes=writes)

    async def _matching(self, name: str, conditions: Conditions) -> list[asyncpg.Record]:
        named = f"{name}_labelled" if conditions.labelled else name
        sql = conditions.fill(statement(named, self._target.schema))
        return await self._connections.fetch("Finding records", sql, *conditions.arguments)

    def _saw(self, now: datetime) -> datetime:
        """The store's clock never goes back, also when the server's does."""
        self._seen = max(self._seen, now)
        return self._seen

    def _tell(self, outcomes: list[Outcome]) -> list[Outcome]:
        if any(isinstance(outcome, Committed) for outcome in outcomes):
            self._waking.committed()
        return outcomes
