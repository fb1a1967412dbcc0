"""What every store promises.

Small and generic: a store knows records, versions, claims, deadlines, a journal and requests, and
has never heard of a job. Nothing above it may know which database it is; what differs between
databases is asked for as a capability, never by name. `interlock.testing.store_contract` holds
every store to this page.

Authority. The store's clock is the only one that counts, and its versions the only ones that are
compared. Whoever commits says which version was decided on, and by when at the latest it may still
become true; both are judged in the commit itself.

Unknown outcomes. A commit that raises `StoreUnavailable` may have happened. It is safe to repeat
when it carries a request or creates or changes a record (the repeat meets its own version and is
told so); to find out, read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
"""Pure: from records and the store's time to what shall become of them.

A store may ask again, on what it has found again, when somebody came between: what was answered last is
what counts, and the outcomes are those of that answer.
"""

Wake: TypeAlias = Callable[[], None]
"""Called when something may have changed. May be called too often, and from another thread."""


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What a store can do beyond the contract, or how it does what it does."""

    durable: bool
    """What was acknowledged survives a crash of the process and of the machine."""
    durability: str
    """The same in words, with the setting that decides it."""
    shared: bool
    """Several hosts may use it at once."""
    enforces_tables: bool
    """The database itself refuses illegal states, also from a bare shell."""
    max_body_bytes: int = 1_048_576
    max_batch: int = 1_000


class ServerConnections(msgspec.Struct, frozen=True, kw_only=True):
    """How many connections a database server has, and may have."""

    ours: int
    """Of all programs of Interlock to this database."""
    all: int
    most: int
    """What the server allows."""
    at_rest: int
    """How many a worker holds that has nothing to do."""
    busy: int
    """How many it holds at most."""


class StoreStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What `interlock db status` shows."""

    url: str
    """Without its password."""
    server: str
    schema_version: int
    wanted_version: int
    records: dict[str, dict[str, int]]
    """By kind and state; counts are capped like all counts."""
    entries: int
    oldest_entry_at: datetime | None
    requests: int
    cap: int | None = None
    """Where counting ends: a count that is as large means at least so many."""
    connections: ServerConnections | None = None
    size_bytes: int | None = None
    """How much room the database takes; of Redis the memory of the whole server. Null: not known."""


class Store(Protocol):
    """The contract. All methods raise `StoreUnavailable` when the database cannot be reached in time."""

    @property
    def capabilities(self) -> Capabilities:
        """What this store can do; known once it is open."""
        ...

    async def open(self) -> None:
        """Connect, migrate the schema, and load the tables that the database enforces.

        Safe to call from many hosts at once. Raises `SchemaTooNew`, `ForeignSchema`,
        `StoreTooOld` or `StoreMisconfigured` rather than working on what it does not understand.
        """
        ...

    async def learn(self, kinds: Catalogue) -> None:
        """Load the tables of more kinds into a store that is open, as `open` would have done."""
        ...

    async def close(self) -> None:
        """Let go of every connection, thread and file. Safe to call twice."""
        ...

    async def now(self) -> datetime:
        """The store's clock. It never goes back as seen through one store."""
        ...

    async def epoch(self) -> int:
        """A number that grows whenever the database may have lost its latest writes (fail-over, restore).

        It is no less than the number of half hours since 1970 where the store outlives the process, so that
        it has grown after any restore that nothing has noticed and that took longer than that.
        """
        ...

    async def raise_epoch(self, above: int = 0) -> int:
        """Begin an epoch that is larger than `above` and than every earlier one; return it."""
        ...

    async def load(self, keys: Sequence[Key]) -> list[Record | None]:
        """The records, in the order of the keys; None where there is none."""
        ...

    async def find(self, query: Query) -> Page:
        """The records that match, newest or oldest first, a page at a time. Ties break by id.

        With `query.within` a store that has to look at records one by one ends the page after about so
        many; its cursor goes on from there.
        """
        ...

    async def count(self, query: Query, *, cap: int = 10_000, within: int | None = None) -> Count:
        """How many match, counted up to `cap`.

        With `within` a store that has to look at records one by one stops after about so many; then it is
        `capped`, at what was found until then.
        """
        ...

    async def commit(self, commits: Sequence[Work]) -> list[Outcome]:
        """Make each of them true, or not at all; one that cannot be does not disturb its neighbours.

        They are judged in order, as if one after the other: of two that change the same version of
        a record the first wins. The answers are in the order of the commits; a batch has one for each
        of its records.
        """
        ...

    async def claim(self, claim: Claim, decide: Decide) -> list[Outcome]:
        """Give up to `limit` ready records to this claimer only, and commit what `decide` makes of them.

        A record is ready when `ready_at` has passed. One that needs a handler is given to claimers that
        have it. Those that rank first come first: by age, each
        step of priority being worth a head start of `PRIORITY_STEP`, so that nothing starves.
        What `decide` returns no commit for stays as it is. If the claimer dies in between, the
        records are free again after a few seconds at most.
        The guard of a claim is read no earlier than what is ready: whoever is given a record that became
        ready after a change of the guard was given it under the guard as changed.
        """
        ...

    async def due(self, kinds: Sequence[str], limit: int, decide: Decide) -> list[Outcome]:
        """The same for records whose `deadline_at` has passed, the oldest first."""
        ...

    async def recall(self, request_id: str) -> Recorded | None:
        """What was answered to this request, unless it has expired."""
        ...

    async def feed(self, after: str = "", *, limit: int = 1_000) -> Feed:
        """The journal after a cursor, in an order in which nothing is inserted later.

        Without a cursor from its beginning. `latest()` is the cursor of its end.
        """
        ...

    async def latest(self) -> str:
        """A cursor after which only what is committed from now on is found."""
        ...

    async def history(self, key: Key, *, after_version: int = 0, limit: int = 1_000) -> Feed:
        """The journal of one record, oldest first."""
        ...

    def subscribe(self, wake: Wake) -> Callable[[], None]:
        """Be woken when something may have been committed, by anybody; returns how to stop that."""
        ...

    async def prune(
        self, *, kind: str, states: Sequence[str], older_than: timedelta, limit: int = 1_000
    ) -> Pruned:
        """Remove up to `limit` ended records that were last changed longer ago, with their journal.

        Refuses a state in which a record has not ended (`PruneRefused`): nothing live is ever removed.
        Expired requests go with every batch.
        """
        ...

    async def compact(self) -> int | None:
        """Give free space back to the file system; return how many bytes, or None if the server does that.

        This may take longer than other calls, and those that write may have to wait meanwhile.
        """
        ...

    async def status(self) -> StoreStatus:
        """What is there, for people."""
        ...
