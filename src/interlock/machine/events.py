"""What can happen to a machine.

An event is a *named value* when its name says everything, or a frozen dataclass when it carries
something. Its kind says whether somebody chooses the moment (a command, simply refused where the
table has no row for it) or whether it can arrive whenever it likes (a message, a timer, a signal,
the consequence of another machine's move), so that a sound table decides it in every state.

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
    """How an event comes about."""

    COMMAND = "command"
    MESSAGE = "message"
    TIMER = "timer"
    SIGNAL = "signal"
    CONSEQUENCE = "consequence"

    @property
    def arrives(self) -> bool:
        """Whether it can come at any moment, asked for or not."""
        return self is not Kind.COMMAND


class Event:
    """Base of all events. Each event has a type of its own, and that type is its key in a table."""

    __slots__ = ()

    name: ClassVar[str] = ""
    kind: ClassVar[Kind] = Kind.COMMAND
    by: ClassVar[str] = ""
    doc: ClassVar[str] = ""

    def __repr__(self) -> str:
        return f"<{self.kind} {self.name}>"


EventRef: TypeAlias = Event | type[Event]
"""An event as tables name it: the named value, or the dataclass of one that carries something."""

E = TypeVar("E", bound=Event)

_RESERVED = frozenset({"name", "kind", "by", "doc"})


def command(name: str, doc: str, *, by: str) -> Event:
    """Somebody chooses to do this, at a moment of their choice."""
    return _named(Kind.COMMAND, name, doc, by)


def message(name: str, doc: str, *, by: str) -> Event:
    """Something is reported from elsewhere: late, twice, or never."""
    return _named(Kind.MESSAGE, name, doc, by)


def timer(name: str, doc: str, *, by: str) -> Event:
    """A deadline has passed; the timer may be stale when it fires."""
    return _named(Kind.TIMER, name, doc, by)


def signal(name: str, doc: str, *, by: str) -> Event:
    """The outside world interrupts: SIGTERM, a broken connection."""
    return _named(Kind.SIGNAL, name, doc, by)


def consequence(name: str, doc: str, *, by: str) -> Event:
    """Another machine has moved, and a coupling carries that over to this one."""
    return _named(Kind.CONSEQUENCE, name, doc, by)


@dataclass_transform(frozen_default=True, kw_only_default=True)
def event(kind: Kind, *, by: str, name: str | None = None) -> Callable[[type[E]], type[E]]:
    """Declare an event that carries something; the docstring says what happened.

    The name in the table is the class name in snake case unless `name` is given.
    """

    def declare(cls: type[E]) -> type[E]:
        if reserved := sorted(_RESERVED & inspect.get_annotations(cls).keys()):
            raise MalformedTable(
                f"The event {cls.__name__} carries {', '.join(reserved)}, which every event has already.",
                todo="Give the field another name.",
                facts={"event": cls.__name__, "reserved": reserved},
            )
        doc = _first_paragraph(cls.__doc__)  # read first: dataclass() invents one where it is missing
        declared = dataclass(frozen=True, slots=True, kw_only=True)(cls)
        declared.name = name or _snake_case(cls.__name__)
        declared.kind, declared.by, declared.doc = kind, by, doc
        return declared

    return declare


def type_of(ref: EventRef) -> type[Event]:
    """The key of an event in a table."""
    return ref if isinstance(ref, type) else type(ref)


def payload_of(kind_of_event: type[Event]) -> tuple[str, ...]:
    """The names of what an event carries."""
    return tuple(getattr(kind_of_event, "__dataclass_fields__", ()))


def _named(kind: Kind, name: str, doc: str, by: str) -> Event:
    attributes = {"__slots__": (), "name": name, "kind": kind, "doc": doc, "by": str(by)}
    value: Event = type(name, (Event,), attributes)()
    return value


def _snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def _first_paragraph(doc: str | None) -> str:
    return " ".join((doc or "").strip().split("\n\n")[0].split())
