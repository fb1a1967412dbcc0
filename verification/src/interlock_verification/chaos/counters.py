"""The clients of the harnesses, and how their work is checked afterwards.

Clients count. Each step adds one to the number in a record's body, with a unique intent that is written into
the journal. So afterwards the store alone shows everything: an acknowledged intent that is not in the journal
was lost, one that is there twice was done twice, and the number in the body has to be equal to the number of
entries and to the version.

Half of the clients have exclusive records and rely on their versions (`commit_with_recovery`); the others
share one, decide again after a conflict, and send a request id (`Engine.apply`). None of them knows the
injected fault. When the store is unavailable they retry, which is safe for both.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from datetime import datetime
from enum import StrEnum
from itertools import count
from typing import Any, Protocol, TypeAlias, TypeVar

import msgspec

from interlock.engine.audit import audit
from interlock.engine.clock import StoreClock
from interlock.engine.committer import Committer, GroupCommit
from interlock.engine.loader import every_entry
from interlock.engine.recovery import commit_with_recovery
from interlock.engine.unit_of_work import Applied, Decision, Engine
from interlock.errors import StoreUnavailable
from interlock.machine import STAY, Machine, command, end, on, state
from interlock.store.catalogue import Catalogue, catalogue_of
from interlock.store.contract import Store
from interlock.store.records import (
    Change,
    Commit,
    Committed,
    Key,
    Note,
    Query,
    Record,
    Repeated,
    Request,
    RequestAnswer,
    StepLine,
)

T = TypeVar("T")

PATIENCE = 200
"""Number of retries of a client while the store is unavailable; with pauses of up to a second that is
minutes.
"""
PAUSE_S = 0.05
PAGE = 500


class CounterState(StrEnum):
    """The states of a counter."""

    COUNTING = "counting"
    CLOSED = "closed"


add = command("add", "Count one more.", by="client")
close = command("close", "Count no more.", by="client")

COUNTER: Machine[CounterState, None] = Machine(
    name="counter",
    doc="Something that is counted.",
    initial=CounterState.COUNTING,
    states=[
        state(CounterState.COUNTING, "It counts.", turn="client"),
        end(CounterState.CLOSED, "It is over."),
    ],
    rows=[
        on(add, CounterState.COUNTING, STAY, owner="client", why="One more."),
        on(close, CounterState.COUNTING, CounterState.CLOSED, owner="client", why="That was all."),
    ],
    stop=[close],
)

CATALOGUE: Catalogue = catalogue_of([COUNTER])

Acknowledge: TypeAlias = Callable[[str], None]
"""Called with the intent of each confirmed step."""


class Surprise(Exception):
    """A client received a response that means that a step was lost or done twice."""


class Client(Protocol):
    """A client that counts."""

    async def step(self, intent: str) -> None:
        """Add one; return when the store has confirmed it."""
        ...


class Loner:
    """A client with an exclusive record, which relies on its version."""

    def __init__(self, store: Store, committer: Committer, era: str, name: str) -> None:
        self._store = store
        self._committer = committer
        self._era = era
        self._key = Key("counter", f"{era}.{name}")

    async def step(self, intent: str) -> None:
        """Load, add, commit; a conflict could only be with itself."""
        [record] = await retry_until_available(lambda: self._store.load([self._key]))
        commit = one_more(self._key, record, self._era, intent)
        outcome = await commit_with_recovery(self._store, self._committer, commit, tries=PATIENCE)
        if not isinstance(outcome, Committed):
            raise Surprise(f"{intent} on a record without other writers: {outcome}")


class Sharer:
    """A client that shares a record with others, and sends a request id."""

    def __init__(self, engine: Engine, era: str, name: str) -> None:
        self._engine = engine
        self._era = era
        self._key = Key("counter", f"{era}.{name}")

    async def step(self, intent: str) -> None:
        """Add one; a repeat with the same request id has no effect."""

        def decide(records: Sequence[Record | None], _now: datetime) -> Decision[None]:
            return Decision(None, one_more(self._key, records[0], self._era, intent, named=True))

        applied = await retry_until_available(lambda: self._engine.apply([self._key], decide))
        if not isinstance(applied, Applied | Repeated):
            raise Surprise(f"{intent}: {applied}")


def clients_of(store: Store, era: str, *, number: int = 8) -> list[Client]:
    """Return clients, half with exclusive records, half sharing one.

    All use one group commit.
    """
    committer = GroupCommit(store)
    engine = Engine(store, committer, StoreClock(store))
    loners: list[Client] = [Loner(store, committer, era, f"own{place}") for place in range(number // 2)]
    return loners + [Sharer(engine, era, "shared") for _ in range(number - number // 2)]


def one_more(key: Key, record: Record | None, era: str, intent: str, *, named: bool = False) -> Commit:
    """Return the commit that adds one to a record, or creates it with one."""
    number = number_in(record) if record is not None else 0
    step = StepLine("counter", key.id, "add", "counting", "counting", "client", moves=False)
    change = Change(
        kind=key.kind,
        id=key.id,
        expected=record.version if record is not None else 0,
        state=CounterState.COUNTING,
        body=msgspec.json.encode({"number": number + 1}),
        parent=era,
        note=Note(steps=(step,), actor="client", cause=intent),
    )
    request = (
        Request(id=intent, endpoint="add", fingerprint=intent, answer=RequestAnswer()) if named else None
    )
    return Commit(changes=(change,), request=request)


def number_in(record: Record) -> int:
    """Return the number in a counter."""
    number: int = msgspec.json.decode(record.body)["number"]
    return number


async def retry_until_available(work: Callable[[], Awaitable[T]]) -> T:
    """Retry idempotent work until the store is available."""
    for _ in range(PATIENCE):
        try:
            return await work()
        except StoreUnavailable as error:
            last = error
            await asyncio.sleep(PAUSE_S)
    raise last


async def keep_counting(
    clients: Sequence[Client],
    name: str,
    acknowledge: Acknowledge,
    *,
    until: asyncio.Event | None = None,
    steps: int | None = None,
    early: bool = False,
) -> None:
    """Run all clients, step after step, until stopped.

    They may also run for a number of steps each. `early` is the mode that must fail: steps are acknowledged
    before they are committed.
    """

    async def go_on(place: int, client: Client) -> None:
        for serial in range(steps) if steps is not None else count():
            if until is not None and until.is_set():
                return
            intent = f"{name}.{place}.{serial:05}"  # of equal length, so that none is part of another
            if early:
                acknowledge(intent)
            await client.step(intent)
            if not early:
                acknowledge(intent)

    async with asyncio.TaskGroup() as group:
        for place, client in enumerate(clients):
            group.create_task(go_on(place, client), name=f"client {place}")


class Findings(msgspec.Struct, kw_only=True):
    """The result of comparing the store with the acknowledged steps."""

    acknowledged: int
    applied: int
    lost: list[str]
    """Acknowledged, and not in the journal."""
    doubled: list[str]
    """More than once in the journal."""
    disagreements: list[str]
    """Sentences about records whose body, version and journal disagree."""

    @property
    def sound(self) -> bool:
        """Whether every guarantee was kept."""
        return not (self.lost or self.doubled or self.disagreements)

    def sentences(self) -> list[str]:
        """Return the broken guarantees; long lists are cut."""
        sentences = [f"{intent} was acknowledged and is not there" for intent in self.lost]
        sentences += [f"{intent} was done twice" for intent in self.doubled]
        sentences += self.disagreements
        return sentences[:5] + ([f"and {len(sentences) - 5} more"] if len(sentences) > 5 else [])


async def examine(store: Store, acknowledged: Collection[str], *, era: str | None = None) -> Findings:
    """Compare every counter and its journal with the acknowledged steps.

    The counters may be those of one era.
    """
    done: Counter[str] = Counter()
    disagreements: list[str] = []
    async for record in _counters(store, era):
        entries = [entry async for entry in every_entry(store, record.key)]
        done.update(entry.note.cause for entry in entries)
        if not len(entries) == record.version == number_in(record):
            disagreements.append(
                f"{record.id} counts {number_in(record)} in version {record.version}"
                f" with {len(entries)} entries"
            )
    return Findings(
        acknowledged=len(acknowledged),
        applied=len(done),
        lost=sorted(set(acknowledged) - done.keys()),
        doubled=sorted(intent for intent, times in done.items() if times > 1),
        disagreements=disagreements,
    )


async def audited(store: Store) -> list[str]:
    """Return the findings of `interlock db audit`, as sentences."""
    machines: dict[str, Machine[Any, Any]] = {COUNTER.name: COUNTER}
    found = await audit(store, machines, [COUNTER.name])
    return [f"audit: {fault.kind} {fault.id} v{fault.version}: {fault.sentence}" for fault in found.faults]


async def _counters(store: Store, era: str | None) -> AsyncIterator[Record]:
    cursor = ""
    while True:
        page = await store.find(Query(kind="counter", parent=era, cursor=cursor, limit=PAGE))
        for record in page.records:
            yield record
        cursor = page.cursor
        if not cursor:
            return
