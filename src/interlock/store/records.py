"""What a store keeps, and what it is asked to change.

A record is an aggregate: what must change together lives in one record, under one version. Its data
are in three parts, so that what never changes is written once: what was given with it (`given`), what
changes during its life (`body`), and what it leaves at its end (`result`). The store knows nothing of
what is inside them. All times are aware, in UTC, and the store's own.

Records whose bodies and columns are the same take the same step. A `Batch` says that step once for all of
them, and each store writes it with a few statements.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TypeAlias

import msgspec


class Record(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One aggregate as it stands."""

    kind: str
    id: str
    state: str
    version: int
    body: bytes
    """What changes during its life, as JSON. No decision may depend on more than this and the columns."""
    given: bytes = b""
    """What it was created with and never changes, as JSON; empty where there is nothing."""
    result: bytes = b""
    """What it has left behind, as JSON; empty where there is nothing (yet)."""
    parent: str | None = None
    queue: str | None = None
    labels: tuple[str, ...] = ()
    """What a claimer must have to be given it; also what it can be found by. Sorted, no repeats."""
    priority: int = 0
    ready_at: datetime | None = None
    """From when on it may be claimed; None when it waits for nobody."""
    deadline_at: datetime | None = None
    """When the earliest of its timers runs out; None when none is running."""
    created_at: datetime
    updated_at: datetime

    @property
    def key(self) -> Key:
        """What the record is addressed by."""
        return Key(self.kind, self.id)

    @property
    def size(self) -> int:
        """How many bytes of data it has."""
        return len(self.body) + len(self.given) + len(self.result)


class Key(msgspec.Struct, frozen=True, order=True, gc=False):
    """The address of a record."""

    kind: str
    id: str


class StepLine(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One step of one machine inside an entry."""

    machine: str
    entity: str
    """Which one of those inside the record; empty for the record itself."""
    event: str
    source: str
    target: str
    owner: str
    moves: bool = True


class Note(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What the journal shall say about a change: the steps taken and who, why, because of what."""

    steps: tuple[StepLine, ...] = ()
    actor: str = ""
    reason: str = ""
    cause: str = ""
    request_id: str = ""
    """The request that it belongs to, or else a mark that no other commit has."""
    refusal: str = ""
    """Why something was refused; such a note has no steps and leaves the record as it is."""


class Entry(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A note as the journal keeps it."""

    cursor: str
    at: datetime
    kind: str
    id: str
    version: int
    note: Note


class Change(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What one record shall become. `expected` is the version it was decided on; 0 creates it."""

    kind: str
    id: str
    expected: int
    expected_at: datetime | None = None
    """When that version was written: a database that has lost its latest writes counts to the same number
    again. None where nobody has seen the record."""
    state: str
    body: bytes
    given: bytes | None = None
    """Only with a record that is created; it can never be changed."""
    result: bytes | None = None
    """None leaves what is there."""
    parent: str | None = None
    queue: str | None = None
    labels: tuple[str, ...] = ()
    priority: int = 0
    ready_at: datetime | None = None
    handler: str = ""
    """What a claimer must be able to execute to be given it; empty where that does not matter."""
    deadline_at: datetime | None = None
    note: Note | None = None
    """None for a change that is no step and no news, such as a renewed lease."""

    @property
    def key(self) -> Key:
        """The record that is meant."""
        return Key(self.kind, self.id)


class Refused(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A refusal that matters: late, stale or conflicting. It is journalled; the record is not touched."""

    kind: str
    id: str
    note: Note


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What was answered to a request; a repeat of the request gets it again."""

    status: int = 200
    body: bytes = b"null"


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """The id under which a commit is done at most once, and what a repeat is answered."""

    id: str
    endpoint: str
    fingerprint: str
    """Of method, path and body: the same id with another one is a mistake, not a repeat."""
    answer: Answer
    ttl_s: float = 3_600.0
    said: str = ""
    """The id as the client has sent it; it goes into the notes of the commit, and is not stored with the
    request."""


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """A request that was done, as the store remembers it."""

    id: str
    endpoint: str
    fingerprint: str
    answer: Answer
    created_at: datetime
    expires_at: datetime


class Commit(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What becomes true together or not at all."""

    changes: tuple[Change, ...] = ()
    refusals: tuple[Refused, ...] = ()
    request: Request | None = None
    not_after: datetime | None = None
    """Judged by the store's clock in the commit itself: a lease that has run out by then is void."""


class Batch(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The same change of many records; each of them succeeds or fails by itself.

    It means the same as `commits()`: one commit for each record, in this order.
    """

    change: Change
    """What all of them become. Its id is empty, and it says nothing that is said by record below."""
    ids: tuple[str, ...]
    """At least one, no repeats."""
    expected_at: tuple[datetime | None, ...] = ()
    """By record, like `Change.expected_at`; empty where nobody has seen them."""
    given: tuple[bytes, ...] = ()
    """By record; empty where there is nothing."""
    result: tuple[bytes, ...] = ()
    """By record; empty leaves what is there."""
    not_after: datetime | None = None

    def commits(self) -> list[Commit]:
        """Return the same as commits of one change each."""
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
    """All of it is true, since `at`."""

    at: datetime


class Conflict(msgspec.Struct, frozen=True):
    """Nothing was done: a record is not in the version that was decided on. 0 means: not there.

    The same number twice means that this version was written at another time, after a fail-over.
    """

    key: Key
    expected: int
    found: int


class TooLate(msgspec.Struct, frozen=True):
    """Nothing was done: the store's clock had passed `not_after`."""

    not_after: datetime
    now: datetime


class Repeated(msgspec.Struct, frozen=True):
    """Nothing was done again: the request was done before, and this was the answer."""

    recorded: Recorded


class RequestReused(msgspec.Struct, frozen=True):
    """Nothing was done: the id belongs to another request."""

    recorded: Recorded
    fingerprint: str


class Illegal(msgspec.Struct, frozen=True):
    """Nothing was done: no path of the table leads from the one state to the other."""

    key: Key
    source: str
    """Empty when the record was to be created."""
    target: str


Work: TypeAlias = Commit | Batch
"""What a store is asked to commit."""

Outcome: TypeAlias = Committed | Conflict | TooLate | Repeated | RequestReused | Illegal


class Guard(msgspec.Struct, frozen=True):
    """A record that has to be in one of these states, such as that of the claimer itself."""

    key: Key
    states: tuple[str, ...]


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """What a claimer can take: records of one kind, of these queues, that need no other labels."""

    kind: str
    queues: tuple[str, ...]
    labels: tuple[str, ...] = ()
    handlers: tuple[str, ...] | None = ()
    """What it can execute, beside records that need no handler; None for everything."""
    limit: int = 1
    guard: Guard | None = None
    """Nothing is given out unless this holds."""


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """A filter; empty parts do not filter. It is applied before paging."""

    kind: str
    states: tuple[str, ...] = ()
    parent: str | None = None
    queue: str | None = None
    labels: tuple[str, ...] = ()
    """All of these must be among the record's."""
    since: datetime | None = None
    """Created at or after."""
    until: datetime | None = None
    """Created before."""
    newest_first: bool = True
    cursor: str = ""
    limit: int = 100
    within: int | None = None
    """Look at about so many records for a page where no index answers the filter, then end the page."""

    @property
    def looks_through(self) -> bool:
        """Whether records of a state have to be looked at one by one where there is no index of this."""
        return self.parent is None and (self.queue is not None or bool(self.labels))


class Page(msgspec.Struct, frozen=True):
    """One page of records; `cursor` goes on after it and is empty at the end.

    Where the query says `within`, a page may be shorter than its limit, or empty, and still have a cursor.
    """

    records: tuple[Record, ...]
    cursor: str = ""


class Count(msgspec.Struct, frozen=True):
    """How many there are; when `capped`, at least that many."""

    number: int
    capped: bool


class Feed(msgspec.Struct, frozen=True):
    """A stretch of the journal. `gap`: what came before it was pruned, so some were missed."""

    entries: tuple[Entry, ...]
    cursor: str
    gap: bool = False


class Pruned(msgspec.Struct, frozen=True):
    """What was removed, in one bounded batch; `more` when another batch would find something."""

    records: int = 0
    entries: int = 0
    requests: int = 0
    more: bool = False


def record_after(change: Change, before: Record | None, at: datetime) -> Record:
    """What a record is once a change of it, or of a batch with it, was committed at that time."""
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
    """Return the same with a commit for each record of a batch: what every store has to agree with."""
    return [each for item in work for each in (item.commits() if isinstance(item, Batch) else (item,))]


def number_of(work: Sequence[Work]) -> int:
    """Return how many outcomes it has."""
    return sum(len(item.ids) if isinstance(item, Batch) else 1 for item in work)
