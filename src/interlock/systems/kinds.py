"""Declare a kind of record: a table, its data, the indexed fields, and the role for each event.

    ORDERS = kind(ORDER, Order, labels=("customer",), send={"pay": "submitter"}, durations={"payment_s": 900})

The table decides, as for our own lifecycles. All else is derived from it: a command, message or signal may be
sent by an operator unless `send` names another role, or None for programs with direct access to the store;
timers and consequences are never sent. An event with a field `at` gets the store's time in it.

Why: decision 0373.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Generic, NamedTuple, TypeVar, get_type_hints

import msgspec

from interlock.engine.aggregate import Columns, RecordKind
from interlock.errors import InvalidData, MalformedKind, UnknownEvent
from interlock.machine import Event, Kind, Machine
from interlock.machine.cascade import EventRules, deadlines_of
from interlock.machine.events import payload_of
from interlock.store.catalogue import Catalogue, catalogue_of
from interlock.store.records import Record
from interlock.systems.catalogue import CATALOGUE, JOURNALLED
from interlock.wire.access import Role
from interlock.wire.records import EventView, KindView

D = TypeVar("D")

SENT = (Kind.COMMAND, Kind.MESSAGE, Kind.SIGNAL)
"""Events that come from outside; timers and consequences are the store's."""
AT = "at"
"""The field of an event that gets the store's time."""
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,31}")
_PATTERN = "1 to 32 lower-case letters, digits, dashes and underscores, a letter first"


def kind(
    machine: Machine[Any, D],
    data: type[D],
    *,
    labels: Sequence[str] = (),
    queue: str = "",
    parent: str = "",
    create: Role | str = Role.SUBMITTER,
    read: Role | str = Role.VIEWER,
    send: Mapping[str, Role | str | None] | None = None,
    durations: Mapping[str, float] | None = None,
) -> DeclaredKind[D]:
    """Declare a kind of record with this table, whose data are the body.

    `labels`, `queue` and `parent` name the indexed fields of the data. `create`, `read` and `send` give the
    role needed over HTTP. `durations` changes the durations of timers of the table.
    """
    return DeclaredKind(
        machine,
        data,
        indexed=IndexedFields(labels=tuple(labels), queue=queue, parent=parent),
        roles=_roles(machine, create, read, send or {}),
        durations=_seconds(machine, durations or {}),
    )


class IndexedFields(msgspec.Struct, frozen=True, kw_only=True):
    """The indexed fields of the data."""

    labels: tuple[str, ...] = ()
    queue: str = ""
    parent: str = ""

    @property
    def fields(self) -> tuple[str, ...]:
        """All indexed fields."""
        return (*self.labels, *filter(None, (self.queue, self.parent)))

    def columns(self, data: Any) -> Columns:
        """Return the columns of a record with these data."""
        values = ((name, getattr(data, name)) for name in self.labels)
        labels = {label(name, value) for name, value in values if value not in (None, "")}
        return Columns(
            parent=_text(getattr(data, self.parent)) or None if self.parent else None,
            queue=_text(getattr(data, self.queue)) or None if self.queue else None,
            labels=tuple(sorted(labels)),
        )


class Roles(msgspec.Struct, frozen=True, kw_only=True):
    """The roles needed over HTTP."""

    create: Role
    read: Role
    send: Mapping[str, Role | None]
    """By event; None for programs with direct access to the store."""


class DeclaredKind(RecordKind[Any], Generic[D]):
    """A kind of record that a user has declared; made with `kind`."""

    def __init__(
        self,
        machine: Machine[Any, D],
        data: type[D],
        *,
        indexed: IndexedFields,
        roles: Roles,
        durations: Mapping[str, float],
    ) -> None:
        _check_name(machine.name)
        self.data = data
        self.indexed = indexed
        self.roles = roles
        self.fields: tuple[str, ...] = _fields_of(machine.name, data)
        if unknown := [name for name in indexed.fields if name not in _plain(self.fields)]:
            raise MalformedKind(
                f"The data of {machine.name} have no field {', '.join(unknown)}.",
                allowed=_plain(self.fields),
                todo="Index fields that the data have.",
                facts={"kind": machine.name, "fields": unknown},
            )
        self.payloads: dict[str, type[msgspec.Struct]] = {
            event.name: payload_type(machine.name, event) for event in machine.events if event.kind in SENT
        }
        events = EventRules(made=_timers(machine))
        super().__init__(machine, data, columns=indexed.columns, durations=durations, events=events)

    def __repr__(self) -> str:
        return f"<kind {self.name}>"

    def made(self, given: object) -> D:
        """Return data of this kind, converted from plain JSON values if needed."""
        if isinstance(given, self.data):
            return given
        try:
            data: D = msgspec.convert(given, self.data)
        except msgspec.ValidationError as error:
            raise InvalidData(
                f"This is not data of {self.name}: {error}.",
                allowed=self.fields,
                todo=f"Give {', '.join(self.fields) or 'nothing'}; those with a question mark are optional.",
                facts={"kind": self.name, "cause": str(error)},
            ) from error
        return data

    def stored(self, record: Record, now: datetime) -> Any:
        """Return the working copy of a record.

        Raise if its data do not fit the type any more.
        """
        try:
            return self.of(record, now)
        except msgspec.DecodeError as error:
            raise InvalidData(
                f"The {self.name} {record.id} was stored with other fields than the type has now: {error}.",
                todo="Give new fields a default, so that older records can be read.",
                facts={"kind": self.name, "id": record.id, "cause": str(error)},
            ) from error

    def sendable(self, name: str) -> type[Event]:
        """Return the event of a name that may be sent."""
        known = tuple(self.payloads)
        try:
            event = self.machine.event(name)
        except UnknownEvent:
            raise UnknownEvent(name[:64], known, where=self.name) from None
        if event.name not in self.payloads:
            raise InvalidData(
                f"The event {event.name} of {self.name} is a {event.kind}, which the store sends by itself.",
                allowed=known,
                todo=f"Send one of: {', '.join(known)}." if known else "No event of it can be sent.",
                facts={"kind": self.name, "event": event.name},
            )
        return event

    def event(self, name: str, given: object, now: datetime) -> Event:
        """Return an event from its name and payload, as plain JSON values."""
        event = self.sendable(name)
        payload = self.payloads[event.name]
        try:
            carried = msgspec.structs.asdict(msgspec.convert(given or {}, payload))
        except msgspec.ValidationError as error:
            takes = described(payload)
            todo = f"Send it with {', '.join(takes)}." if takes else "Send it without data."
            raise InvalidData(
                f"The event {event.name} of {self.name} does not take these data: {error}.",
                allowed=takes,
                todo=todo,
                facts={"kind": self.name, "event": event.name, "cause": str(error)},
            ) from error
        return event(**carried, **({AT: now} if AT in payload_of(event) else {}))

    def accepts(self, state: str) -> tuple[str, ...]:
        """Return the events that may be sent to a record in this state."""
        return tuple(
            name for name in self.machine.accepts(self.machine.state(state)) if name in self.payloads
        )

    def check_filter(self, names: Iterable[str]) -> None:
        """Raise for a field that is not indexed."""
        if unknown := [name for name in names if name not in self.indexed.labels]:
            raise InvalidData(
                f"Records of {self.name} are not found by {', '.join(unknown)}.",
                allowed=self.indexed.labels,
                todo=f"Filter by one of: {', '.join(self.indexed.labels)}."
                if self.indexed.labels
                else "Declare the field among the labels of the kind.",
                facts={"kind": self.name, "fields": unknown},
            )

    def event_view(self, name: str) -> EventView:
        """Return an event for display."""
        fields, role = described(self.payloads[name]), self.roles.send[name]
        return EventView(name=name, doc=self.machine.event(name).doc, fields=fields, role=role or "")

    def view(self) -> KindView:
        """Return the kind for display."""
        return KindView(
            name=self.name,
            doc=self.machine.table.doc,
            states=tuple(map(str, self.machine.states)),
            initial=str(self.machine.initial),
            ended=tuple(sorted(map(str, self.machine.terminal))),
            events=tuple(map(self.event_view, self.payloads)),
            fields=self.fields,
            labels=self.indexed.labels,
            create=self.roles.create,
            read=self.roles.read,
        )


class Lifecycles(NamedTuple):
    """The lifecycles of a server: machines by name, and the kinds of record in its store."""

    machines: Mapping[str, Machine[Any, Any]]
    kinds: Catalogue
    own: tuple[DeclaredKind[Any], ...] = ()
    """Kinds that users have declared."""


OURS = Lifecycles(JOURNALLED, CATALOGUE)


def lifecycles_with(
    own: Iterable[Machine[Any, Any]] = (), *, declared: Iterable[DeclaredKind[Any]] = ()
) -> Lifecycles:
    """Return our lifecycles and these, whose records the store keeps as well."""
    machines, kinds, declared = dict(JOURNALLED), dict(CATALOGUE), tuple(declared)
    for machine in (*own, *(each.machine for each in declared)):
        if machine.name in machines or machine.name in kinds:
            raise ValueError(f"There is a lifecycle {machine.name!r} already.")
        machines[machine.name] = machine
        kinds |= catalogue_of([machine])
    return Lifecycles(machines, kinds, declared)


def label(name: str, value: object) -> str:
    """Return the label for a value of a field."""
    return f"{name}={_text(value)}"


def described(struct: type[msgspec.Struct]) -> tuple[str, ...]:
    """Return the names of the fields; `?` follows those of optional ones."""
    return tuple(
        field.encode_name if field.required else f"{field.encode_name}?"
        for field in msgspec.structs.fields(struct)
    )


def payload_type(kind: str, event: type[Event]) -> type[msgspec.Struct]:
    """Return the type of an event's payload, without the time.

    The store fills in the time.
    """
    fields: list[Any] = []
    hints = _types_of(kind, event)
    for field in dataclasses.fields(event) if hints else ():  # type: ignore[arg-type]
        if field.name == AT:
            continue
        if field.default is not dataclasses.MISSING:
            fields.append((field.name, hints[field.name], field.default))
        elif field.default_factory is not dataclasses.MISSING:
            made = msgspec.field(default_factory=field.default_factory)
            fields.append((field.name, hints[field.name], made))
        else:
            fields.append((field.name, hints[field.name]))
    name = camel(f"{kind}_{event.name}")
    return msgspec.defstruct(
        name, fields, frozen=True, kw_only=True, forbid_unknown_fields=True, namespace={"__doc__": event.doc}
    )


def _types_of(kind: str, event: type[Event]) -> dict[str, Any]:
    try:
        return get_type_hints(event) if payload_of(event) else {}
    except NameError as error:
        raise MalformedKind(
            f"The event {event.name} of {kind} has a field of an unknown type: {error}.",
            todo="Import the types of its fields in the module that declares it.",
            facts={"kind": kind, "event": event.name, "cause": str(error)},
        ) from error


def camel(name: str) -> str:
    """Return a name in the format of schemas and operations."""
    return "".join(part.capitalize() for part in re.split(r"[_-]", name))


def _timers(machine: Machine[Any, Any]) -> dict[type[Event], Any]:
    """Return the constructors of timers that carry their time."""
    made: dict[type[Event], Any] = {}
    for event in machine.events:
        if event.kind is Kind.TIMER and payload_of(event):
            if more := [name for name in payload_of(event) if name != AT]:
                raise MalformedKind(
                    f"The timer {event.name} of {machine.name} carries {', '.join(more)}.",
                    allowed=(AT,),
                    todo=f"Let it carry nothing but {AT}: the moment at which it fires.",
                    facts={"kind": machine.name, "event": event.name, "fields": more},
                )
            made[event] = lambda entity, _, event=event: event(**{AT: entity.now})
    return made


def _roles(
    machine: Machine[Any, Any], create: Role | str, read: Role | str, send: Mapping[str, Role | str | None]
) -> Roles:
    sent = [event.name for event in machine.events if event.kind in SENT]
    if unknown := [name for name in send if name not in sent]:
        raise MalformedKind(
            f"A {machine.name} has no event {', '.join(unknown)} that can be sent.",
            allowed=sent,
            todo="Name commands, messages and signals of its table.",
            facts={"kind": machine.name, "events": unknown},
        )
    wanted = {name: send.get(name, Role.OPERATOR) for name in sent}
    roles = {name: None if role is None else _role(machine.name, role) for name, role in wanted.items()}
    return Roles(create=_role(machine.name, create), read=_role(machine.name, read), send=roles)


def _role(kind: str, named: Role | str) -> Role:
    known = [role for role in Role if role is not Role.RUNNER]
    if named not in known:
        raise MalformedKind(
            f"There is no role {named!r} for the kind {kind}.",
            allowed=known,
            todo=f"Use one of: {', '.join(known)}.",
            facts={"kind": kind, "role": str(named)},
        )
    return Role(named)


def _seconds(machine: Machine[Any, Any], changed: Mapping[str, float]) -> dict[str, float]:
    """Return the duration of each timer of the table."""
    declared = {deadline.setting: deadline.seconds for deadline in deadlines_of(machine)}
    if unknown := [name for name in changed if name not in declared]:
        raise MalformedKind(
            f"The table of {machine.name} has no timer {', '.join(unknown)}.",
            allowed=tuple(declared),
            todo="Name the settings of its deadlines.",
            facts={"kind": machine.name, "durations": unknown},
        )
    if wrong := [name for name, seconds in changed.items() if not seconds > 0]:
        raise MalformedKind(
            f"A timer of {machine.name} runs for more than 0 s: {', '.join(wrong)}.",
            todo="Give it some seconds.",
            facts={"kind": machine.name, "durations": wrong},
        )
    return {**declared, **changed}


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise MalformedKind(
            f"A kind cannot be called {name!r}.", todo=f"Use {_PATTERN}.", facts={"kind": name[:64]}
        )
    if name in JOURNALLED or name in CATALOGUE:
        raise MalformedKind(
            f"There is a lifecycle {name!r} already: it is one of Interlock's own.",
            todo="Give the machine another name.",
            facts={"kind": name},
        )


def _fields_of(kind: str, data: Any) -> tuple[str, ...]:
    if isinstance(data, type) and issubclass(data, msgspec.Struct):
        return described(data)
    if dataclasses.is_dataclass(data):
        missing = dataclasses.MISSING
        return tuple(
            field.name if field.default is missing and field.default_factory is missing else f"{field.name}?"
            for field in dataclasses.fields(data)
        )
    raise MalformedKind(
        f"The data of {kind} are of type {getattr(data, '__name__', data)}.",
        todo="Declare them as a msgspec.Struct or a dataclass, with types that JSON can hold.",
        facts={"kind": kind},
    )


def _plain(fields: Sequence[str]) -> list[str]:
    return [name.removesuffix("?") for name in fields]


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else str(value)
