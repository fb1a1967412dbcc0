"""Records, and changes of them.

A record is an aggregate: data that must change together are in one record, under one version. They have three
parts, so that immutable data are written once: the input (`given`), the data that change during its life
(`body`), and the output (`result`). The store does not interpret them. All times are aware, in UTC, and the
store's own.

Records with equal bodies and columns take the same step. A `Batch` describes that step once for all of them,
and each store writes it with a few statements.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import ClassVar, TypeAlias

import msgspec


class Record(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One aggregate."""

    kind: str
    id: str
    state: str
    version: int
    body: bytes
    """Mutable data, as JSON. No decision may depend on more than this and the columns."""
    given: bytes = b""
    """Immutable input, as JSON; empty if there is none."""
    result: bytes = b""
    """Output, as JSON; empty if there is none (yet)."""
    parent: str | None = None
    queue: str | None = None
    labels: tuple[str, ...] = ()
    """Labels that a claimer must have; also for searches. Sorted, no duplicates."""
    priority: int = 0
    ready_at: datetime | None = None
    """Time from which it may be claimed; None if it cannot."""
    deadline_at: datetime | None = None
    """Time at which the earliest of its timers expires; None if none is running."""
    created_at: datetime
    updated_at: datetime

    @property
    def key(self) -> Key:
        """The address of the record."""
        return Key(self.kind, self.id)

    @property
    def size(self) -> int:
        """Number of bytes of data."""
        return len(self.body) + len(self.given) + len(self.result)


class Key(msgspec.Struct, frozen=True, order=True, gc=False):
    """The address of a record."""

    kind: str
    id: str


class StepLine(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One step of one machine inside an entry."""

    machine: str
    entity: str
    """The entity inside the record; empty for the record itself."""
    event: str
    source: str
    target: str
    owner: str
    moves: bool = True


class Note(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The journal entry of a change: the steps, actor, reason and cause."""

    steps: tuple[StepLine, ...] = ()
    actor: str = ""
    reason: str = ""
    cause: str = ""
    request_id: str = ""
    """The request that it belongs to, or else the id of the commit."""
    refusal: str = ""
    """Reason of a refusal; such a note has no steps and the record is unchanged."""


class Entry(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A note as the journal keeps it."""

    cursor: str
    at: datetime
    kind: str
    id: str
    version: int
    note: Note


class Change(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The new value of one record. `expected` is the version it was decided on; 0 creates it."""

    kind: str
    id: str
    expected: int
    expected_at: datetime | None = None
    """Time at which that version was written: a database that has lost its latest writes may reach the same
    number again. None if the record was not read.
    """
    state: str
    body: bytes
    given: bytes | None = None
    """Only for a created record; immutable."""
    result: bytes | None = None
    """None keeps the existing one."""
    parent: str | None = None
    queue: str | None = None
    labels: tuple[str, ...] = ()
    priority: int = 0
    ready_at: datetime | None = None
    handler: str = ""
    """The handler that a claimer must have; empty if none is needed."""
    deadline_at: datetime | None = None
    note: Note | None = None
    """None for a change without a step, such as a renewed lease."""

    @property
    def key(self) -> Key:
        """The address of the record."""
        return Key(self.kind, self.id)


class JournalledRefusal(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A refusal that matters: late, stale or conflicting. It is journalled; the record is not touched."""

    kind: str
    id: str
    note: Note


class RequestAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a request; a repeat of the request gets it again."""

    status: int = 200
    body: bytes = b"null"


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """An idempotency key of a commit, and the answer for a repeat."""

    id: str
    endpoint: str
    fingerprint: str
    """Digest of method, path and body: the same id with another one is an error, not a repeat."""
    answer: RequestAnswer
    ttl_s: float = 3_600.0
    said: str = ""
    """The id as the client has sent it; it goes into the notes of the commit, and is not stored with the
    request.
    """


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """A completed request, as the store remembers it."""

    id: str
    endpoint: str
    fingerprint: str
    answer: RequestAnswer
    created_at: datetime
    expires_at: datetime


class Commit(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Changes, refusals and a request that are applied atomically."""

    size: ClassVar[int] = 1
    """Number of outcomes."""
    changes: tuple[Change, ...] = ()
    refusals: tuple[JournalledRefusal, ...] = ()
    request: Request | None = None
    not_after: datetime | None = None
    """Checked against the store's clock in the commit itself: a lease that has expired by then is void."""


class Batch(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The same change of many records; each of them succeeds or fails by itself.

    It is equivalent to `commits()`: one commit for each record, in this order.
    """

    change: Change
    """The new value of all records. Its id is empty, and so are the fields given by record below."""
    ids: tuple[str, ...]
    """At least one id, no duplicates."""
    expected_at: tuple[datetime | None, ...] = ()
    """By record, like `Change.expected_at`; empty if the records were not read."""
    given: tuple[bytes, ...] = ()
    """By record; empty if there is none."""
    result: tuple[bytes, ...] = ()
    """By record; empty keeps the existing ones."""
    not_after: datetime | None = None

    @property
    def size(self) -> int:
        """Number of outcomes."""
        return len(self.ids)

    def commits(self) -> list[Commit]:
        """Return equivalent commits of one change each."""
        nothing = (None,) * len(self.ids)
        rows = zip(
            self.ids,
            self.expected_at or nothing,
            self.given or nothing,
            self.result or nothing,
            strict=True,
        )
        return [
            Commit(
                changes=(
                    msgspec.structs.replace(
                        self.change, id=name, expected_at=seen_at, given=given, result=result
                    ),
                ),
                not_after=self.not_after,
            )
            for name, seen_at, given, result in rows
        ]


class Committed(msgspec.Struct, frozen=True, gc=False):
    """The commit was applied at this time."""

    at: datetime


class Conflict(msgspec.Struct, frozen=True):
    """Not applied: a record does not have the expected version. 0 means: it does not exist.

    The same number twice means that this version was written at another time, after a fail-over.
    """

    key: Key
    expected: int
    found: int


class TooLate(msgspec.Struct, frozen=True):
    """Not applied: the store's clock had passed `not_after`."""

    not_after: datetime
    now: datetime


class Repeated(msgspec.Struct, frozen=True):
    """Not applied again: the request was completed before, with this answer."""

    recorded: Recorded


class RequestReused(msgspec.Struct, frozen=True):
    """Not applied: the id belongs to another request."""

    recorded: Recorded
    fingerprint: str


class Illegal(msgspec.Struct, frozen=True):
    """Not applied: no path of the table leads from the one state to the other."""

    key: Key
    source: str
    """Empty for a creation."""
    target: str


Work: TypeAlias = Commit | Batch
"""Work to commit."""

Outcome: TypeAlias = Committed | Conflict | TooLate | Repeated | RequestReused | Illegal


class Guard(msgspec.Struct, frozen=True):
    """A record that has to be in one of these states, such as that of the claimer itself."""

    key: Key
    states: tuple[str, ...]


_FORESIGHT = timedelta(seconds=1)


class Foresight(msgspec.Struct, frozen=True):
    """The decision of a claimer, made before the claim, about records of one shape.

    It holds if a store finds as many records as the claimer wants, all of this shape. The store may then
    commit the change with the read, and call `decide` afterwards, which must make the same decision: one
    batch. Otherwise it calls `decide` first, as without foresight.
    """

    like: Record
    """A record of the shape: it has no result and no deadline; id, given data and times may differ."""
    change: Change
    """The change of all of them, without an id."""
    now: datetime
    """The time of the decision."""

    @property
    def valid_until(self) -> datetime:
        """The store's time from which on the decision does not count: its grants might have ended."""
        return self.now + _FORESIGHT


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """A claim: records of one kind, of these queues, that need no other labels."""

    kind: str
    queues: tuple[str, ...]
    labels: tuple[str, ...] = ()
    handlers: tuple[str, ...] | None = ()
    """The handlers of the claimer, for records that need one; None for all."""
    limit: int = 1
    guard: Guard | None = None
    """No record is claimed unless this holds."""
    foresight: Foresight | None = None


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """A filter; empty parts do not filter. It is applied before paging."""

    kind: str
    states: tuple[str, ...] = ()
    parent: str | None = None
    queue: str | None = None
    labels: tuple[str, ...] = ()
    """All of these must be among the record's labels."""
    since: datetime | None = None
    """Created at or after."""
    until: datetime | None = None
    """Created before."""
    newest_first: bool = True
    cursor: str = ""
    limit: int = 100
    within: int | None = None
    """Number of records to examine for a page if no index fits the filter."""

    @property
    def looks_through(self) -> bool:
        """Whether records of a state have to be examined one by one if there is no index."""
        return self.parent is None and (self.queue is not None or bool(self.labels))


class Page(msgspec.Struct, frozen=True):
    """One page of records; `cursor` continues after it and is empty at the end.

    With `within`, a page may be shorter than its limit, or empty, and still have a cursor.
    """

    records: tuple[Record, ...]
    cursor: str = ""


class Count(msgspec.Struct, frozen=True):
    """A number; if `capped`, a lower bound."""

    number: int
    capped: bool


class Feed(msgspec.Struct, frozen=True):
    """A section of the journal. `gap`: entries before it were pruned, so some were missed."""

    entries: tuple[Entry, ...]
    cursor: str
    gap: bool = False


class Pruned(msgspec.Struct, frozen=True):
    """The counts of one bounded batch; `more` if another batch would remove something."""

    records: int = 0
    entries: int = 0
    requests: int = 0
    more: bool = False
    cursor: str = ""
    """Cursor with which `prune_by_queue` continues; empty at the end."""


def record_after(change: Change, before: Record | None, at: datetime) -> Record:
    """Return the record after a change, perhaps of a batch, was committed."""
    return Record(
        kind=change.kind,
        id=change.id or (before.id if before else ""),
        state=change.state,
        version=change.expected + 1,
        body=change.body,
        given=before.given if before else change.given or b"",
        result=change.result if change.result is not None else before.result if before else b"",
        parent=change.parent,
        queue=change.queue,
        labels=change.labels,
        priority=change.priority,
        ready_at=change.ready_at,
        deadline_at=change.deadline_at,
        created_at=before.created_at if before else at,
        updated_at=at,
    )


def one_by_one(work: Sequence[Work]) -> list[Commit]:
    """Return the work with a separate commit for each record of a batch.

    Every store must be equivalent to this.
    """
    return [each for item in work for each in (item.commits() if isinstance(item, Batch) else (item,))]
