"""The lifecycles of the suite, and short builders for commits, claims and queries."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

import msgspec

from interlock.machine import Event, Machine, command, end, ignore, on, rest, state
from interlock.store.catalogue import Catalogue, catalogue_of
from interlock.store.contract import Store
from interlock.store.records import (
    Change,
    Claim,
    Commit,
    Committed,
    Entry,
    Feed,
    JournalledRefusal,
    Key,
    Note,
    Outcome,
    Query,
    Record,
    Request,
    RequestAnswer,
    StepLine,
)


class Parcel(StrEnum):
    """States of a parcel."""

    PACKED = "packed"
    SENT = "sent"
    DELIVERED = "delivered"
    LOST = "lost"
    RETURNED = "returned"


class Letter(StrEnum):
    """States of a letter."""

    WRITTEN = "written"
    POSTED = "posted"


class Van(StrEnum):
    """States of a van."""

    PARKED = "parked"
    AWAY = "away"


PACKED, SENT, DELIVERED = Parcel.PACKED, Parcel.SENT, Parcel.DELIVERED
LOST, RETURNED = Parcel.LOST, Parcel.RETURNED
WRITTEN, POSTED = Letter.WRITTEN, Letter.POSTED
PARKED, AWAY = Van.PARKED, Van.AWAY

send: Event = command("send", "Hand it over to the carrier.", by="sender")
deliver: Event = command("deliver", "The addressee has it.", by="carrier")
lose: Event = command("lose", "Its location is unknown.", by="carrier")
give_back: Event = command("give_back", "It was found, and goes home.", by="carrier")
post: Event = command("post", "Put it into the box.", by="sender")
drive_off: Event = command("leave", "Drive off.", by="carrier")
come_back: Event = command("come_back", "Drive home.", by="carrier")

PARCEL: Machine[Parcel, None] = Machine(
    name="parcel",
    doc="Something on its way.",
    initial=PACKED,
    states=[
        state(PACKED, "Ready to go.", turn="sender"),
        state(SENT, "On its way.", turn="carrier"),
        end(DELIVERED, "It has arrived."),
        end(LOST, "It has not arrived."),
        end(RETURNED, "It is back home."),
    ],
    rows=[
        on(send, PACKED, SENT, owner="sender", why="It goes."),
        on(deliver, SENT, DELIVERED, owner="carrier", why="It arrives."),
        on(lose, (PACKED, SENT), LOST, owner="carrier", why="It does not arrive."),
        on(give_back, LOST, RETURNED, owner="carrier", leaves_terminal=True, why="It turned up again."),
    ],
    stop=[lose],
)

LETTER: Machine[Letter, None] = Machine(
    name="letter",
    doc="A piece of paper.",
    initial=WRITTEN,
    states=[state(WRITTEN, "It is written.", turn="sender"), end(POSTED, "It is gone.")],
    rows=[on(post, WRITTEN, POSTED, owner="sender", why="It goes.")],
    stop=[post],
)

VAN: Machine[Van, None] = Machine(
    name="van",
    doc="What parcels are carried in.",
    initial=PARKED,
    states=[rest(PARKED, "It stands at home."), state(AWAY, "It is on the road.", turn="carrier")],
    rows=[
        on(drive_off, PARKED, AWAY, owner="carrier", why="It goes."),
        on(come_back, AWAY, PARKED, owner="carrier", why="It comes home."),
        ignore(come_back, PARKED, why="it is at home"),
    ],
    stop=[come_back],
)

CATALOGUE: Catalogue = catalogue_of([PARCEL, LETTER, VAN])


QUEUE = "post"
LONG_AGO = timedelta(hours=1)
"""Far enough from now that no test runs into it."""
MANY_HANDLERS = tuple(f"other{number:02}" for number in range(50))
"""More tasks than a store would look up one by one."""
PATIENCE_S = 300.0
"""The limit of a wait in a test that fails. It is far longer than a slow machine needs."""


def creation(name: str, state: str = PACKED, *, kind: str = "parcel", **columns: Any) -> Change:
    """Return the creation of a parcel."""
    columns.setdefault("body", b'{"weight":3}')
    return Change(kind=kind, id=name, expected=0, state=state, **columns)


def move(record: Record, state: str = SENT, **columns: Any) -> Change:
    """Return the record's change to a state, with other columns kept or given."""
    kept = {name: getattr(record, name) for name in Change.__struct_fields__ if name in _KEPT}
    seen = {"expected": record.version, "expected_at": record.updated_at}
    return Change(state=state, **{**kept, **seen, **columns})


_KEPT = frozenset(Record.__struct_fields__) - {
    "state",
    "version",
    "created_at",
    "updated_at",
    "given",  # can only be set once
    "result",  # is kept unless given
}


def step_note(event: str, source: str, target: str, **words: Any) -> Note:
    """Return a note about one step of a parcel."""
    return Note(steps=(StepLine("parcel", "self", event, source, target, "sender"),), **words)


PACKING = step_note("pack", "", "packed", actor="ann", reason="It is ordered.")
SENDING = step_note("send", "packed", "sent", actor="bob", reason="The van is here.")


def request(
    name: str, *, fingerprint: str = "a", answer: bytes = b'"done"', ttl_s: float = 3_600.0
) -> Request:
    """Return a request that is answered with `answer`."""
    return Request(
        id=name,
        endpoint="POST /parcels",
        fingerprint=fingerprint,
        answer=RequestAnswer(status=201, body=answer),
        ttl_s=ttl_s,
    )


def refusal(name: str, why: str = "stale", *, kind: str = "parcel") -> JournalledRefusal:
    """Return a refusal for the journal."""
    return JournalledRefusal(kind=kind, id=name, note=Note(refusal=why, actor="eve"))


def each(*changes: Change) -> list[Commit]:
    """Return each change as a commit of its own."""
    return [Commit(changes=(change,)) for change in changes]


async def made(store: Store, *changes: Change) -> list[Record]:
    """Commit each change on its own, assert success, and load the records."""
    outcomes = await store.commit(each(*changes))
    assert [type(outcome) for outcome in outcomes] == [Committed] * len(changes), outcomes
    return await there(store, *changes)


async def there(store: Store, *changes: Change) -> list[Record]:
    """Return the records of these changes, which have to exist."""
    found = await store.load([change.key for change in changes])
    assert None not in found, found
    return [record for record in found if record is not None]


async def look(store: Store, name: str, kind: str = "parcel") -> Record | None:
    """Return a record, or None."""
    [record] = await store.load([Key(kind, name)])
    return record


async def see(store: Store, name: str, kind: str = "parcel") -> Record:
    """Return a record, which has to exist."""
    record = await look(store, name, kind)
    assert record is not None, f"There is no {kind} {name}."
    return record


async def waiting(
    store: Store, *names: str, since: timedelta = timedelta(minutes=1), **columns: Any
) -> list[Record]:
    """Create parcels that have all been ready since the same moment."""
    columns = {"queue": QUEUE, "ready_at": await store.now() - since, **columns}
    return await made(store, *(creation(name, **columns) for name in names))


def take(
    limit: int = 1,
    *,
    queues: tuple[str, ...] = (QUEUE,),
    labels: tuple[str, ...] = (),
    handlers: tuple[str, ...] | None = (),
) -> Claim:
    """Return a claim of parcels."""
    return Claim(kind="parcel", queues=queues, labels=labels, handlers=handlers, limit=limit)


class Sender:
    """Decides to send all records of a claim, and remembers them."""

    def __init__(self, **columns: Any) -> None:
        self.columns: dict[str, Note | Any | None] = {
            "ready_at": None,
            "deadline_at": None,
            "note": SENDING,
            **columns,
        }
        self.calls: list[tuple[Record, ...]] = []
        self.times: list[datetime] = []

    def __call__(self, records: Sequence[Record], now: datetime) -> list[Commit]:
        self.calls.append(tuple(records))
        self.times.append(now)
        return each(*(move(record, SENT, **self.columns) for record in records))

    @property
    def names(self) -> list[str]:
        """The ids of all records received, in order."""
        return [record.id for call in self.calls for record in call]


def leave(_records: Sequence[Record], _now: datetime) -> list[Commit]:
    """Decide nothing."""
    return []


async def claimed(store: Store, claim: Claim) -> list[str]:
    """Claim and send; return the ids in the order of the claim."""
    sender = Sender()
    outcomes = await store.claim(claim, sender)
    assert all(isinstance(outcome, Committed) for outcome in outcomes), outcomes
    given = [record.id for record in sender.calls[-1]] if sender.calls else []
    assert len(outcomes) == len(given), "The last call of the sender counts."
    return given


async def swept(store: Store, limit: int = 100, kinds: Sequence[str] = ("parcel",)) -> list[str]:
    """Send the due records; return the ids in the order of the sweep."""
    sender = Sender()
    outcomes = await store.due(kinds, limit, sender)
    assert all(isinstance(outcome, Committed) for outcome in outcomes), outcomes
    return sender.names


async def whole_feed(store: Store, after: str = "", *, limit: int = 1_000) -> list[Entry]:
    """Return all entries after a cursor, read page by page."""
    entries: list[Entry] = []
    while True:
        page = await store.feed(after, limit=limit)
        assert len(page.entries) <= limit
        if not page.entries:
            return entries
        entries += page.entries
        after = page.cursor


async def all_found(store: Store, query: Query, *, page: int = 1_000) -> list[str]:
    """Return the ids of all matches, read page by page."""
    names: list[str] = []
    query = msgspec.structs.replace(query, limit=page)
    while True:
        found = await store.find(query)
        assert len(found.records) <= page
        names += [record.id for record in found.records]
        if not found.cursor:
            return names
        query = msgspec.structs.replace(query, cursor=found.cursor)


def kinds_of(outcomes: Sequence[Outcome]) -> list[type[Outcome]]:
    """Return the classes of the outcomes."""
    return [type(outcome) for outcome in outcomes]


def ids_of(feed: Feed | Sequence[Entry]) -> list[str]:
    """Return the ids of the records of the entries."""
    return [entry.id for entry in (feed.entries if isinstance(feed, Feed) else feed)]
