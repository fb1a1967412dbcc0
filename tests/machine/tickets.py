"""One sound table, of a ticket; and how to change one thing in it."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from typing import Any

from interlock.machine import (
    Deadline,
    Event,
    Kind,
    Row,
    State,
    Table,
    command,
    end,
    event,
    ignore,
    message,
    on,
    rest,
    state,
    timer,
)

AnyTable = Table[Any, Any]
AnyRow = Row[Any, Any]


class Ticket(StrEnum):
    NEW = "new"
    OPEN = "open"
    PARKED = "parked"
    DONE = "done"


class Elsewhere(StrEnum):
    MOON = "moon"


NEW, OPEN, PARKED, DONE = Ticket
EVERYWHERE = tuple(Ticket)

take = command("take", "A clerk takes it.", by="clerk")
park = command("park", "Not now.", by="clerk")
unpark = command("unpark", "Now.", by="clerk")
close = command("close", "Solved.", by="clerk")
cancel = command("cancel", "Not wanted.", by="user")
lapse = timer("lapse", "Nobody cared.", by="office")

LAPSE = Deadline(lapse, "ticket_ttl_s", 60)


def row(
    occurrence: Event | type[Event], sources: Any, target: Any, *, owner: str = "clerk", **options: Any
) -> AnyRow:
    return on(occurrence, sources, target, **{"owner": owner, "why": "It is so.", **options})


STATES: dict[Ticket, State[Any]] = {
    NEW: state(NEW, "Just come in.", turn="clerk"),
    OPEN: state(OPEN, "Worked on.", within=LAPSE),
    PARKED: rest(PARKED, "Put aside."),
    DONE: end(DONE, "Over."),
}
ROWS: dict[str, AnyRow] = {
    "take": row(take, NEW, OPEN),
    "park": row(park, OPEN, PARKED),
    "unpark": row(unpark, PARKED, OPEN),
    "close": row(close, OPEN, DONE),
    "cancel": row(cancel, (NEW, OPEN, PARKED), DONE),
    "lapse": row(lapse, OPEN, DONE),
    "stale": ignore(lapse, (NEW, PARKED, DONE), why="It does not run there."),
}


def table(
    *more: AnyRow, rows: dict[str, Any] | None = None, states: dict[Any, Any] | None = None, **other: Any
) -> AnyTable:
    """The sound table with rows added, and named rows or states replaced (None takes one away)."""
    some_rows = {**ROWS, **(rows or {})}.values()
    some_states = {**STATES, **(states or {})}.values()
    sound: AnyTable = Table(
        "ticket",
        "A ticket.",
        NEW,
        tuple(entry for entry in some_states if entry is not None),
        (*(entry for entry in some_rows if entry is not None), *more),
        stop=(cancel,),
        spine=(NEW, OPEN, DONE),
    )
    return replace(sound, **other)


def is_calm(_: object, __: Event) -> bool:
    """The office is quiet."""
    return True


def is_weekday(_: object, __: Event) -> bool:
    """Somebody is in."""
    return True


def says_nothing(_: object, __: Event) -> bool:
    return True


rush = command("rush", "Faster.", by="clerk")
ping = message("ping", "Hello?", by="user")
nameless = command("nameless", "", by="clerk")
take_too = command("take", "A clerk takes it, in another way.", by="clerk")
Take = command("Take", "A clerk takes it, loudly.", by="clerk")


@event(Kind.COMMAND, by="clerk")
class Undocumented(Event):
    pass
