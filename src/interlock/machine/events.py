"""The events of a machine.

An event is a *named value* if it has no data, or a frozen dataclass if it has. Its kind says whether a sender
chooses the time (a command, simply refused if the table has no row for it) or whether it can arrive at any
time (a message, a timer, a signal, the consequence of another machine's move), so that a valid table handles
it in every state.

    cancel = command("cancel", "A user wants it stopped.", by="user")

    @event(Kind.MESSAGE, by="runner")
    class Complete(Event):
        "The runner says how it ended."
        succeeded: bool
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, TypeAlias, TypeVar, dataclass_transform

from interlock.errors import MalformedTable


class Kind(StrEnum):
    """The origin of an event."""

    COMMAND = "command"
    MESSAGE = "message"
    TIMER = "timer"
    SIGNAL = "signal"
    CONSEQUENCE = "consequence"

    @property
    def arrives(self) -> bool:
        """Whether it can arrive at any time."""
        return self is not Kind.COMMAND


class Event:
    """Base of all events. Each event has its own type, which is its key in a table."""

    __slots__ = ()

    name: ClassVar[str] = ""
    kind: ClassVar[Kind] = Kind.COMMAND
    by: ClassVar[str] = ""
    doc: ClassVar[str] = ""

    def __repr__(self) -> str:
        return f"<{self.kind} {self.name}>"


EventRef: TypeAlias = Event | type[Event]
"""An event in a table: the named value, or the dataclass of one with data."""

E = TypeVar("E", bound=Event)

_RESERVED = frozenset({"name", "kind", "by", "doc"})


def command(name: str, doc: str, *, by: str) -> Event:
    """Declare a command: a sender chooses its time."""
    return _named(Kind.COMMAND, name, doc, by)


def message(name: str, doc: str, *, by: str) -> Event:
    """Declare a message from elsewhere: it may be late, repeated, or lost."""
    return _named(Kind.MESSAGE, name, doc, by)


def timer(name: str, doc: str, *, by: str) -> Event:
    """Declare a timer: a deadline has passed, but it may be stale."""
    return _named(Kind.TIMER, name, doc, by)


def signal(name: str, doc: str, *, by: str) -> Event:
    """Declare an external interruption: SIGTERM, or a broken connection."""
    return _named(Kind.SIGNAL, name, doc, by)


def consequence(name: str, doc: str, *, by: str) -> Event:
    """Declare a consequence: a coupling forwards the move of another machine."""
    return _named(Kind.CONSEQUENCE, name, doc, by)


@dataclass_transform(frozen_default=True, kw_only_default=True)
def event(kind: Kind, *, by: str, name: str | None = None) -> Callable[[type[E]], type[E]]:
    """Declare an event with data; the docstring describes it.

    The name in the table is the class name in snake case unless `name` is given.
    """

    def declare(cls: type[E]) -> type[E]:
        if reserved := sorted(_RESERVED & inspect.get_annotations(cls).keys()):
            raise MalformedTable(
                f"The event {cls.__name__} carries {', '.join(reserved)}, which every event has already.",
                todo="Give the field another name.",
                facts={"event": cls.__name__, "reserved": reserved},
            )
        doc = _first_paragraph(cls.__doc__)  # read first, because dataclass() would generate one
        declared = dataclass(frozen=True, slots=True, kw_only=True)(cls)
        declared.name = name or _snake_case(cls.__name__)
        declared.kind, declared.by, declared.doc = kind, by, doc
        return declared

    return declare


def type_of(ref: EventRef) -> type[Event]:
    """Return the key of an event in a table."""
    return ref if isinstance(ref, type) else type(ref)


def payload_of(kind_of_event: type[Event]) -> tuple[str, ...]:
    """Return the names of an event's fields."""
    return tuple(getattr(kind_of_event, "__dataclass_fields__", ()))


def _named(kind: Kind, name: str, doc: str, by: str) -> Event:
    attributes = {"__slots__": (), "name": name, "kind": kind, "doc": doc, "by": str(by)}
    value: Event = type(name, (Event,), attributes)()
    return value


def _snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def _first_paragraph(doc: str | None) -> str:
    return " ".join((doc or "").strip().split("\n\n")[0].split())
