"""A record as the machines in it: load it, send events to its parts, and get the change to commit.

This is the one place where machines and the store meet. The table decides, `machine/cascade.py` follows the
couplings, and `Aggregate.change` returns the write: the state and the body, the columns, the next deadline of
all timers, and the note with every step for the journal. This module reads no clock and no store, and knows
no lifecycle.

A system derives a class for its kind of record, with its `Wiring`. A record with one machine whose data are
the whole body needs no class: `RecordKind` makes its `Entity`.

    DOORS = RecordKind(DOOR, DoorBody)
    door = DOORS.of(record, now)
    door.must(unlock)
    door.body = msgspec.structs.replace(door.body, by="anna")
    change = door.change(actor="anna")

A deadline is that of the timer that the table declares for the state. How long the timer runs is the table's,
a setting's or one record's (`RecordKind.lasting`). If a record ends at a time that is in its data, its kind
declares that for the timer's event (`due`). Nothing else sets a deadline: see
`tests/tidy/test_deadlines_come_from_tables.py`.

A record that is open, then settled, and never changed after that is a `WriteOnce`: logs, large results and
artifacts are settled when they are created, a plan when its run was reported, a tree when its last job has
ended. The journal line of the step is made from the table.

    LOG = WriteOnce("log", "Some lines of an attempt.", opened=state(OPEN, …), settled=end(KEPT, …), …)
    change = LOG.change(name, body, settle=True, parent=job_id, actor=actor, commit_id=commit_id)

Why: decisions 0375 and 0610.
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, ClassVar, Generic, TypeVar

import msgspec
from msgspec.structs import replace

from interlock.errors import MalformedKind
from interlock.machine import Couplings, Event, Machine, Moved, State, ignore, on
from interlock.machine.cascade import (
    Cascade,
    EventRules,
    Owner,
    Refusal,
    Root,
    RootOf,
    StepEffects,
    Wiring,
    deadlines_of,
)
from interlock.machine.couplings import AnyMachine
from interlock.machine.events import EventRef, type_of
from interlock.machine.table import S
from interlock.store.records import Change, Key, Note, Record, StepLine

B = TypeVar("B")
"""The type of a body; `msgspec.Raw` if the system encodes bodies itself."""

_MOST_NAMES = 4_096
_ENCODER = msgspec.json.Encoder()


class Columns(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The columns by which a store finds or claims a record."""

    parent: str | None = None
    queue: str | None = None
    labels: tuple[str, ...] = ()
    priority: int = 0
    ready_at: datetime | None = None
    handler: str = ""


class Aggregate(Cascade):
    """The working copy of one record."""

    __slots__ = ("id", "record", "root", "version")
    kind: ClassVar[str]
    journalled: ClassVar[bool] = True

    def __init__(
        self, record_id: str, root: Root | RootOf, now: datetime, record: Record | None = None
    ) -> None:
        super().__init__(now)
        self.id: str = record_id
        self.root: Any = root
        self.record: Record | None = record
        self.version: int = 0 if record is None else record.version
        """The version that is decided on; 0 for a record that does not exist yet."""

    @property
    def state(self) -> Any:
        """The state of the record."""
        return self.root.state

    @property
    def key(self) -> Key:
        """The address of the record."""
        return Key(self.kind, self.id)

    @property
    def lines(self) -> tuple[StepLine, ...]:
        """The steps taken so far, for the journal."""
        return tuple(
            [
                line
                for owner, effects in self.taken
                for name in (self.name_of(owner) if effects.named else "",)
                for line in effects.lines.get(name) or _lines(effects, name)
            ]
        )

    def parts(self) -> Iterable[tuple[AnyMachine, Any, Owner]]:
        """Return every part that may have a timer, by default only the root."""
        return ((self.wiring.root, self.root, None),)

    def send(self, event: Event) -> Refusal:
        """Send an event to the record itself; return why it is refused, if it is."""
        return self.send_to(self.wiring.root, self.root, event)

    def must(self, event: Event) -> None:
        """Send an event; raise the table's refusal."""
        if refused := self.send(event):
            raise refused.error()

    def extend_timer(self, by: timedelta) -> None:
        """Let a running timer of the record expire later, or earlier."""
        if self.root.timer_at is not None:
            self.root.timer_at += by

    @abstractmethod
    def columns(self) -> Columns:
        """Return the columns by which the record is found and claimed."""

    @abstractmethod
    def encoded(self) -> bytes:
        """Return the body, encoded for the record."""

    given: bytes | None = None
    """The immutable input of a new record."""

    def result(self) -> bytes | None:
        """Return the output beside the body, or None to keep the existing one."""
        return None

    def change(
        self, *, commit_id: str = "", actor: str = "", reason: str = "", cause: str = "", note: bool = False
    ) -> Change:
        """Return the change of the record.

        A change without a noteworthy step, such as a renewed lease, has no journal entry unless `note` is
        set.
        """
        record, journalled = self.record, None
        if self.journalled and (record is None or self.is_news or note):
            journalled = Note(steps=self.lines, actor=actor, reason=reason, cause=cause, request_id=commit_id)
        result = self.result()
        body, columns = self.encoded(), self.columns()
        return Change(
            kind=self.kind,
            id=self.id,
            expected=self.version,
            expected_at=record.updated_at if record is not None else None,
            state=self.root.state,
            body=body,
            given=self.given,
            result=result,
            parent=columns.parent,
            queue=columns.queue,
            labels=columns.labels,
            priority=columns.priority,
            ready_at=columns.ready_at,
            handler=columns.handler,
            deadline_at=self.deadline_at,
            note=journalled,
        )


_SAID_ONCE = ("given", "result")
_REWRITTEN = tuple(
    name for name in Record.__struct_fields__ if name in Change.__struct_fields__ and name not in _SAID_ONCE
)


def rewritten(record: Record, **columns: Any) -> Change:
    """Return the unchanged record under its next version.

    Only these columns are changed. It is no step, so there is no journal entry unless a `note` is given. A
    concurrent commit on the same version conflicts, and is decided again. Not for records that are claimed by
    handler: a record does not have its handler.
    """
    kept = {name: getattr(record, name) for name in _REWRITTEN}
    return Change(expected=record.version, expected_at=record.updated_at, **{**kept, **columns})


def postponed(record: Record, until: datetime, note: Note) -> Change:
    """Return the unchanged record, with its timer postponed.

    For a timer whose event could not be decided: a record that stays due would be found first by every
    sweep. The note says why.
    """
    return rewritten(record, deadline_at=until, note=note)


def _lines(effects: StepEffects, name: str) -> tuple[StepLine, ...]:
    """Return the lines of these steps.

    They are kept, since names and lines repeat from record to record.
    """
    lines = tuple(
        StepLine(step.machine, name, step.event, step.source, step.target, step.owner, step.moves)
        for step in effects.steps
    )
    if len(effects.lines) < _MOST_NAMES:
        effects.lines[name] = lines
    return lines


class Entity(Aggregate, Generic[B]):
    """A record with one machine, whose data are the body."""

    __slots__ = ("_columns", "_kind", "_read")

    def __init__(
        self,
        kind: RecordKind[B],
        record_id: str,
        root: Root,
        columns: Columns,
        now: datetime,
        record: Record | None,
        *,
        is_as_read: bool = False,
    ) -> None:
        super().__init__(record_id, root, now, record)
        self._kind = kind
        self._columns = columns
        self._read: B | None = root.data if is_as_read else None

    @property
    def body(self) -> B:
        """The body; replace it to change it."""
        body: B = self.root.data
        return body

    @body.setter
    def body(self, body: B) -> None:
        self.root.data = body

    @property
    def deadline_at(self) -> datetime | None:
        """The time at which its only timer expires, by its data if so declared."""
        due = self._kind.due_in.get(self.root.state)
        if due is not None:
            return due(self)
        timer_at: datetime | None = self.root.timer_at
        return timer_at

    def place(self, **columns: Any) -> None:
        """Change columns of the record."""
        self._columns = replace(self._columns, **columns)

    def expire_by(self, at: datetime) -> None:
        """Bring the timer of its state forward to this time, if needed."""
        if self._kind.machine.table.entry(self.root.state).within is None:
            raise ValueError(f"A {self.kind} that is {self.root.state} has no timer.")
        if self.root.timer_at is None or at < self.root.timer_at:
            self.root.timer_at = at

    def seconds(self, setting: str) -> float:
        """Return how long a timer runs."""
        return self._kind.durations[setting]

    def columns(self) -> Columns:
        """Return the columns derived from the body, or else the previous ones."""
        kind = self._kind
        if kind.columns is not None:
            return kind.columns(self.body)
        if self._columns.ready_at is None or kind.may_claim(self.root.state):
            return self._columns
        return replace(self._columns, ready_at=None)

    def encoded(self) -> bytes:
        """Return the encoded body; the original bytes if it is unchanged."""
        if self._read is not None and self.root.data is self._read and self.record is not None:
            return self.record.body
        return _ENCODER.encode(self.root.data)


_PLAIN = EventRules()


def _due_in(
    machine: Machine[Any, Any], due: Mapping[EventRef, Callable[[Entity[B]], datetime | None]]
) -> dict[Any, Callable[[Entity[B]], datetime | None]]:
    """Return the functions by state.

    Raise for an event that is the timer of no state.
    """
    when = {type_of(event): function for event, function in due.items()}
    timed = {entry.name: type_of(entry.within.event) for entry in machine.table.states if entry.within}
    if strange := [event.name for event in when if event not in timed.values()]:
        known = sorted({event.name for event in timed.values()})
        raise MalformedKind(
            f"The table of {machine.name} has no state with a timer of {', '.join(strange)}.",
            allowed=known,
            todo="Declare when records end for events of timers of the table's states.",
            facts={"kind": machine.name, "events": strange},
        )
    return {state: when[event] for state, event in timed.items() if event in when}


class RecordKind(Generic[B]):
    """A kind of record with one machine: its table, its body, and its columns."""

    def __init__(
        self,
        machine: Machine[S, Any],
        body: type[B],
        *,
        columns: Callable[[B], Columns] | None = None,
        claimed_in: Collection[S] | None = None,
        durations: Mapping[str, float] | None = None,
        due: Mapping[EventRef, Callable[[Entity[B]], datetime | None]] | None = None,
        events: EventRules = _PLAIN,
        journalled: bool = True,
    ) -> None:
        """Declare a kind of record.

        `columns`: derives them from the body; by default they do not change. `claimed_in`: the states in
        which records are claimed; in others they have no `ready_at`. `durations`: those of the timers; by
        default those of the table. `due`: for the event of a timer, when it expires according to the data;
        it is asked for every change, as long as the record is in a state with that timer. `journalled`:
        False for records without a journal.
        """
        self.machine = machine
        self.name: str = machine.name
        self.columns = columns
        if durations is None:
            durations = {deadline.setting: deadline.seconds for deadline in deadlines_of(machine)}
        self.durations = durations
        self.wiring: Wiring = Wiring(
            (machine,),
            Couplings(()),
            {},
            events=events,
            durations=tuple(durations),
        )
        self.claimed_in: frozenset[Any] | None = None if claimed_in is None else frozenset(claimed_in)
        self.due_in: dict[Any, Callable[[Entity[B]], datetime | None]] = _due_in(machine, due or {})
        """The function for the end of a record, by state."""
        self._decoder = msgspec.json.Decoder(body)
        self._is_frozen = issubclass(body, msgspec.Struct) and body.__struct_config__.frozen
        declared = {"kind": self.name, "wiring": self.wiring, "journalled": journalled, "__slots__": ()}
        self._entity: type[Entity[B]] = type("Entity", (Entity,), declared)

    def lasting(self, **durations: float) -> RecordKind[B]:
        """Return the same kind with its timers' durations from the settings."""
        if unknown := durations.keys() - self.durations.keys():
            raise KeyError(f"the {self.name} has no timer of {', '.join(sorted(unknown))}")
        other = copy.copy(self)
        other.durations = {**self.durations, **durations}
        return other

    def new(self, record_id: str, body: B, now: datetime, columns: Columns | None = None) -> Entity[B]:
        """Return a new record in the initial state; its timer starts now."""
        root = Root(self.machine.initial, body)
        entity = self._entity(self, record_id, root, columns or Columns(), now, None)
        entity.arm(self.machine, root)
        return entity

    def of(self, record: Record, now: datetime, body: B | None = None) -> Entity[B]:
        """Return the working copy of a record; `body` replaces its body."""
        columns = Columns(
            parent=record.parent,
            queue=record.queue,
            labels=record.labels,
            priority=record.priority,
            ready_at=record.ready_at,
        )
        content = self.body_of(record) if body is None else body
        root = Root(self.machine.state(record.state), content, record.deadline_at)
        as_read = body is None and self._is_frozen
        return self._entity(self, record.id, root, columns, now, record, is_as_read=as_read)

    def upsert(self, record: Record | None, record_id: str, body: B, now: datetime) -> Entity[B]:
        """Return the working copy of a record with this body, or of a new one."""
        return self.new(record_id, body, now) if record is None else self.of(record, now, body)

    def step(
        self,
        record: Record,
        event: Event,
        now: datetime,
        body: B | None = None,
        *,
        commit_id: str = "",
        actor: str = "",
        reason: str = "",
        **columns: Any,
    ) -> Change:
        """Return the change of a record by one event; `body` replaces its body.

        Raise the table's refusal.
        """
        entity = self.of(record, now, body)
        entity.must(event)
        entity.place(**columns)
        return entity.change(commit_id=commit_id, actor=actor, reason=reason)

    def fired(self, record: Record, now: datetime) -> Entity[B]:
        """Return the working copy of a due record, after the event of its timer."""
        entity = self.of(record, now)
        within = self.machine.table.entry(entity.state).within
        if within is None:
            entity.root.timer_at = None  # a stateless timer must not stay due
        else:
            entity.must(entity.timer_event(within, None))
        return entity

    def body_of(self, record: Record) -> B:
        """Return the body of a record."""
        return self._decoder.decode(record.body)

    def may_claim(self, state: Any) -> bool:
        """Return whether records in this state are claimed."""
        return self.claimed_in is None or state in self.claimed_in


class WriteOnce(Machine[S, None]):
    """The table of such a record, and its changes."""

    def __init__(
        self,
        name: str,
        doc: str,
        *,
        opened: State[S],
        settled: State[S],
        dropped: State[S],
        settle: Event,
        why: str,
        drop: Event,
    ) -> None:
        # fmt: off
        super().__init__(
            name,
            doc,
            initial=opened.name,
            spine=(opened.name, settled.name),
            stop=(drop,),
            states=(opened, settled, dropped),
            rows=(
                on(settle, opened.name, settled.name, owner=settle.by, why=why),
                on(drop, opened.name, dropped.name, owner=drop.by, why="An operator has discarded it."),
                ignore(drop, (settled.name, dropped.name), why="it is over"),
            ),
        )
        # fmt: on
        self._settle = settle

    def change(
        self,
        name: str,
        body: bytes,
        *,
        settle: bool,
        before: Record | None = None,
        parent: str | None = None,
        actor: str,
        commit_id: str,
    ) -> Change:
        """Return the change that creates a record, or writes an open one again.

        It may also settle the record. Only the creation and the end of a record are journalled. Raise if the
        table does not allow settling.
        """
        state, note = self.initial, Note(actor=actor, request_id=commit_id)
        if settle:
            decided = self.decide(state if before is None else self.state(before.state), None, self._settle)
            if not isinstance(decided, Moved):
                raise decided.error()
            state, note = (
                decided.state,
                Note(steps=_settled_lines(decided), actor=actor, request_id=commit_id),
            )
        return Change(
            kind=self.name,
            id=name,
            expected=0 if before is None else before.version,
            state=state,
            body=body,
            parent=parent if before is None else before.parent,
            note=note if settle or before is None else None,
        )


def _settled_lines(moved: Moved[S, None]) -> tuple[StepLine, ...]:
    return tuple(
        StepLine(step.machine, "", step.event, step.source, step.target, step.owner, step.moves)
        for step in moved.steps
    )
