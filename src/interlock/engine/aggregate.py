"""A record as the machines in it: load it, send events to its parts, and get the change to commit.

This is the one place where machines and the store meet. The table decides, `machine/cascade.py` follows
the couplings, and `Aggregate.change` says what the store has to write: the state and the body, the
columns, the next deadline of all timers, and the note with every step for the journal. Nothing here reads
a clock or a store, and nothing here knows a lifecycle.

A system derives a class for its kind of record, with its `Wiring`. A record with one machine whose data
are the whole body needs no class of its own: `RecordKind` makes its `Entity`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime
from typing import Any, ClassVar, Generic, TypeVar

import msgspec

from interlock.machine import Couplings, Event, Machine
from interlock.machine.cascade import Cascade, Owner, Refusal, Root, RootOf, Route, StepEffects, Wiring
from interlock.machine.couplings import AnyMachine
from interlock.store.records import Change, Key, Note, Record, StepLine

B = TypeVar("B", bound=msgspec.Struct)

_MOST_NAMES = 4_096
_ENCODER = msgspec.json.Encoder()


class Columns(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a store can find or claim a record by."""

    parent: str | None = None
    queue: str | None = None
    labels: tuple[str, ...] = ()
    priority: int = 0
    ready_at: datetime | None = None
    handler: str = ""


class Aggregate(Cascade):
    """The working copy of one record."""

    __slots__ = ("id", "record", "root")
    kind: ClassVar[str]

    def __init__(
        self, record_id: str, root: Root | RootOf, now: datetime, record: Record | None = None
    ) -> None:
        super().__init__(now)
        self.id = record_id
        self.root: Any = root
        self.record = record

    @property
    def state(self) -> Any:
        """Where the record stands."""
        return self.root.state

    @property
    def version(self) -> int:
        """The version that is decided on; 0 for a record that does not exist yet."""
        return self.record.version if self.record is not None else 0

    @property
    def key(self) -> Key:
        """What the record is addressed by."""
        return Key(self.kind, self.id)

    @property
    def lines(self) -> tuple[StepLine, ...]:
        """The steps taken so far, as the journal keeps them."""
        return tuple([line for name, effects in self.taken for line in _lines(effects, name)])

    def parts(self) -> Iterable[tuple[AnyMachine, Any, Owner]]:
        """Return every part that may have a timer; the root, unless a subclass has more."""
        return ((self.wiring.root, self.root, None),)

    def send(self, event: Event) -> Refusal:
        """Send an event to the record itself; return why it is refused, if it is."""
        return self.send_to(self.wiring.root, self.root, event)

    def must(self, event: Event) -> None:
        """Send an event, and raise in the table's words when it is refused."""
        if refused := self.send(event):
            raise refused.error()

    @abstractmethod
    def columns(self) -> Columns:
        """Return what the record can be found and claimed by."""

    @abstractmethod
    def encoded(self) -> bytes:
        """Return the body as the record keeps it."""

    def change(
        self, *, mark: str = "", actor: str = "", reason: str = "", cause: str = "", note: bool = False
    ) -> Change:
        """Return the record as it shall become.

        A change that is no news, such as a renewed lease, leaves no journal entry unless `note` asks for one.
        """
        body, columns, record = self.encoded(), self.columns(), self.record
        said = None
        if record is None or self.is_news or note:
            said = Note(steps=self.lines, actor=actor, reason=reason, cause=cause, request_id=mark)
        return Change(
            kind=self.kind,
            id=self.id,
            expected=record.version if record is not None else 0,
            expected_at=record.updated_at if record is not None else None,
            state=self.root.state,
            body=body,
            parent=columns.parent,
            queue=columns.queue,
            labels=columns.labels,
            priority=columns.priority,
            ready_at=columns.ready_at,
            handler=columns.handler,
            deadline_at=self.deadline_at,
            note=said,
        )


def _lines(effects: StepEffects, name: str) -> tuple[StepLine, ...]:
    """Return the lines of these steps; names repeat from record to record, and so do lines."""
    known: tuple[StepLine, ...] | None = effects.lines.get(name)
    if known is None:
        known = tuple(
            StepLine(step.machine, name, step.event, step.source, step.target, step.owner, step.moves)
            for step in effects.steps
        )
        if len(effects.lines) < _MOST_NAMES:
            effects.lines[name] = known
    return known


class Entity(Aggregate, Generic[B]):
    """A record with one machine, whose data are the body."""

    __slots__ = ("_columns", "_kind")

    def __init__(
        self,
        kind: RecordKind[B],
        record_id: str,
        root: Root,
        columns: Columns,
        now: datetime,
        record: Record | None,
    ) -> None:
        super().__init__(record_id, root, now, record)
        self._kind = kind
        self._columns = columns

    @property
    def body(self) -> B:
        """What the record says; replace it to change it."""
        body: B = self.root.data
        return body

    @body.setter
    def body(self, body: B) -> None:
        self.root.data = body

    def place(self, **columns: Any) -> None:
        """Change columns of the record."""
        self._columns = msgspec.structs.replace(self._columns, **columns)

    def seconds(self, setting: str) -> float:
        """Return how long a timer runs."""
        return self._kind.durations[setting]

    def columns(self) -> Columns:
        """Return what the kind derives from the body, or else what was there before."""
        derive = self._kind.columns
        return self._columns if derive is None else derive(self.body)

    def encoded(self) -> bytes:
        """Return the body as the record keeps it."""
        return _ENCODER.encode(self.root.data)


class RecordKind(Generic[B]):
    """A kind of record with one machine: its table, its body, and what it is found by."""

    def __init__(
        self,
        machine: Machine[Any, Any],
        body: type[B],
        *,
        columns: Callable[[B], Columns] | None = None,
        durations: Mapping[str, float] | None = None,
        couplings: Couplings[Any] | None = None,
        routes: Mapping[str, Route] | None = None,
        events: Mapping[type[Event], Callable[[Any, Owner], Event]] | None = None,
        quiet: Collection[type[Event] | Event] = (),
    ) -> None:
        self.machine = machine
        self.name = machine.name
        self.columns = columns
        self.durations = durations or {}
        self.wiring = Wiring(
            machine.name,
            (machine,),
            Couplings(()) if couplings is None else couplings,
            routes or {},
            events=events,
            quiet=quiet,
            durations=None if durations is None else tuple(durations),
        )
        self._decoder = msgspec.json.Decoder(body)
        self._entity: type[Entity[B]] = type("Entity", (Entity,), {"kind": self.name, "wiring": self.wiring})

    def new(self, record_id: str, body: B, now: datetime, columns: Columns | None = None) -> Entity[B]:
        """Return a record that is to be created, in the initial state; its timer runs from now on."""
        root = Root(self.machine.initial, body)
        entity = self._entity(self, record_id, root, columns or Columns(), now, None)
        entity.arm(self.machine, root)
        return entity

    def of(self, record: Record, now: datetime) -> Entity[B]:
        """Return the working copy of a record."""
        columns = Columns(
            parent=record.parent,
            queue=record.queue,
            labels=record.labels,
            priority=record.priority,
            ready_at=record.ready_at,
        )
        root = Root(self.machine.state(record.state), self.body_of(record), record.deadline_at)
        return self._entity(self, record.id, root, columns, now, record)

    def body_of(self, record: Record) -> B:
        """Return what a record says."""
        return self._decoder.decode(record.body)
