"""The contract of every store.

Small and generic: a store has records, versions, claims, deadlines, a journal and requests, and knows nothing
about jobs. No layer above may depend on the kind of database; differences are capabilities, never names.
`interlock.testing.store_contract` tests every store against this page.

Authority. Only the store's clock counts, and only its versions are compared. A commit names the version that
it was decided on, and the latest time at which it may become true; both are checked in the commit itself.

Unknown outcomes. A commit that raises `StoreUnavailable` may have happened. It is safe to repeat when it
carries a request or creates or changes a record (the repeat conflicts with its own version); to find out,
read.

Why: decisions 0110 and 0258.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Protocol, TypeAlias

import msgspec

from interlock.store.catalogue import Catalogue
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

Decide: TypeAlias = Callable[[Sequence[Record], datetime], Sequence[Work]]
"""Decides, from records and the store's time, about their changes. Pure.

A store may call it again with records that it has read again after a conflict: the last answer counts, and
the outcomes are those of that answer.
"""

Wake: TypeAlias = Callable[[], None]
"""Called when there may be a change. May be called too often, and from another thread."""


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """Capabilities of a store beyond the contract."""

    durable: bool
    """Whether acknowledged commits survive a crash of the process and of the machine."""
    durability: str
    """The same in words, with the setting that decides it."""
    shared: bool
    """Whether several hosts may use it at once."""
    enforces_tables: bool
    """The database itself refuses illegal states, also from a bare shell."""
    foresight: bool = False
    """Whether claims are cheaper with `Claim.foresight`; it is ignored otherwise."""
    max_body_bytes: int = 1_048_576
    max_batch: int = 1_000


class ServerConnections(msgspec.Struct, frozen=True, kw_only=True):
    """The number of connections of a database server, and its limit."""

    ours: int
    """Connections of all programs of Interlock to this database."""
    all: int
    most: int
    """The limit of the server."""
    at_rest: int
    """Connections of an idle worker."""
    busy: int
    """Maximum connections of a busy worker."""


class Vacuum(msgspec.Struct, frozen=True, kw_only=True):
    """The chances of PostgreSQL to reclaim what claims leave behind; until then each claim reads past it."""

    automatic: bool
    """Autovacuum is on."""
    oldest_transaction_s: float | None = None
    """Age of the oldest open transaction in the database, since whose start nothing can be reclaimed."""


class StoreStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The output of `interlock db status`."""

    url: str
    """The URL without its password."""
    server: str
    schema_version: int
    wanted_version: int
    records: dict[str, dict[str, int]]
    """Counts by kind and state, capped like all counts."""
    entries: int
    oldest_entry_at: datetime | None
    requests: int
    cap: int | None = None
    """Limit of counting: a count of this size is a lower bound."""
    connections: ServerConnections | None = None
    size_bytes: int | None = None
    """Size of the database; for Redis the memory of the whole server. Null: unknown."""
    vacuum: Vacuum | None = None


class Store(Protocol):
    """The contract. All methods raise `StoreUnavailable` when the database cannot be reached in time."""

    @property
    def capabilities(self) -> Capabilities:
        """The capabilities of this store; known once it is open."""
        ...

    async def open(self) -> None:
        """Connect, migrate the schema, and load the transition tables.

        Safe to call from many hosts at once. Raises `SchemaTooNew`, `ForeignSchema`, `StoreTooOld` or
        `StoreMisconfigured` for an unsupported database.
        """
        ...

    async def learn(self, kinds: Catalogue) -> None:
        """Load the tables of more kinds into an open store, as `open` does."""
        ...

    async def close(self) -> None:
        """Close every connection, thread and file. Safe to call twice."""
        ...

    async def now(self) -> datetime:
        """Return the store's time. It never decreases as seen through one store."""
        ...

    async def epoch(self) -> int:
        """Return the epoch, which grows when a fail-over or restore loses writes.

        If the store outlives the process, it is at least the number of half hours since 1970, so that it has
        grown after an unnoticed restore that took longer than that.
        """
        ...

    async def raise_epoch(self, above: int = 0) -> int:
        """Start an epoch above `above` and every earlier one; return it."""
        ...

    async def load(self, keys: Sequence[Key]) -> list[Record | None]:
        """Return the records, in the order of the keys; None for missing ones."""
        ...

    async def find(self, query: Query) -> Page:
        """Return a page of matches, newest or oldest first; ties break by id.

        With `query.within` a store without a suitable index ends the page after examining about this many
        records; its cursor continues from there.
        """
        ...

    async def count(self, query: Query, *, cap: int = 10_000, within: int | None = None) -> Count:
        """Return the number of matches, counted up to `cap`.

        With `within` a store without a suitable index stops after examining about this many records; then the
        number so far is `capped`.
        """
        ...

    async def commit(self, commits: Sequence[Work]) -> list[Outcome]:
        """Apply each commit atomically and independently of the others.

        A refused commit does not affect the others.

        They are judged in order, as if applied one after the other: of two that change the same version of a
        record the first wins. The outcomes are in the order of the commits; a batch has one for each of its
        records.
        """
        ...

    async def claim(self, claim: Claim, decide: Decide) -> list[Outcome]:
        """Claim up to `limit` ready records and commit what `decide` returns.

        The claim is exclusive.

        A record is ready when `ready_at` has passed. One that needs a handler is given to claimers that have
        it. Records are claimed in the order of their rank: by age, with a head start of `PRIORITY_STEP` for
        each step of priority, so that none starves. A record without a commit stays unchanged. If the claimer
        dies in between, the records are free again after a few seconds at most. The guard of a claim is read
        no earlier than the ready records: a record that became ready after a change of the guard is claimed
        under the changed guard.
        """
        ...

    async def due(self, kinds: Sequence[str], limit: int, decide: Decide) -> list[Outcome]:
        """Claim records past their deadline, the oldest first, like `claim`."""
        ...

    async def recall(self, request_id: str) -> Recorded | None:
        """Return the recorded answer to this request, unless it has expired."""
        ...

    async def feed(self, after: str = "", *, limit: int = 1_000) -> Feed:
        """Return the journal after a cursor; nothing is ever inserted earlier.

        Without a cursor it starts at the beginning. `latest()` is the cursor of its end.
        """
        ...

    async def latest(self, *, back: int = 0) -> str:
        """Return a cursor after which only later commits are found.

        With `back` it is that number of entries earlier: these entries follow, unless they were pruned, and
        at most twice as many.
        """
        ...

    async def history(self, key: Key, *, after_version: int = 0, limit: int = 1_000) -> Feed:
        """Return the journal of one record, oldest first."""
        ...

    def subscribe(self, wake: Wake) -> Callable[[], None]:
        """Call `wake` after commits by any process; return a function to stop."""
        ...

    async def prune(
        self, *, kind: str, states: Sequence[str], older_than: timedelta, limit: int = 1_000
    ) -> Pruned:
        """Remove up to `limit` old records that have ended, and their journal.

        A record is old when its last change was longer ago than `older_than`.

        Raises `PruneRefused` for a state in which a record has not ended: no live record is ever removed.
        Expired requests are removed with every batch.
        """
        ...

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
        """Remove up to `limit` old ended records by the age of their queue.

        They are in one state. Their journal entries are removed, too.

        `older_than` is the age for records of other queues and of none; None keeps them. A store without an
        index by queue looks at the next `within` records after the cursor of the batch before, and returns a
        cursor while there are more to look at. A walk finds at least the records that were old enough when
        it began.
        """
        ...

    async def compact(self) -> int | None:
        """Give free space back to the file system; return the bytes.

        It returns None if the server does that itself.

        This may take longer than other calls, and writes may have to wait meanwhile.
        """
        ...

    async def status(self) -> StoreStatus:
        """Return the status, for people."""
        ...
