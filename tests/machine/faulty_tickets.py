"""One way of breaking the sound table for every check.

Each case below is the sound table with one thing changed, and has exactly one sort of fault.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Any

from tests.machine.tickets import (
    DONE,
    LAPSE,
    NEW,
    OPEN,
    PARKED,
    AnyTable,
    Elsewhere,
    Take,
    Undocumented,
    cancel,
    close,
    is_calm,
    is_weekday,
    lapse,
    nameless,
    park,
    row,
    rush,
    says_nothing,
    table,
    take,
    take_too,
    unpark,
)

from interlock.machine import (
    STAY,
    Deadline,
    consequence,
    ignore,
    message,
    refuse,
    rest,
    signal,
    state,
    timer,
    walk,
)


@dataclass(frozen=True)
class Case:
    """A fault: its code, how it came about, the broken table, and what the sentence has to mention."""

    code: str
    says: str
    table: AnyTable
    mentions: list[str]


def _deadline(**changes: Any) -> AnyTable:
    return table(states={OPEN: state(OPEN, "Worked on.", within=replace(LAPSE, **changes))})


FAULTY: dict[str, dict[str, tuple[Any, ...]]] = {
    "unknown-state": {
        "a row names a source of another machine": (
            table(rows={"park": row(park, (OPEN, Elsewhere.MOON), PARKED)}),
            "park",
            "moon",
            "new, open, parked, done",
        ),
        "a row names a target that is not there": (
            table(row(rush, OPEN, "mars")),
            "rush",
            "mars",
            "new, open, parked, done",
        ),
        "a row names a source that is not even a string": (
            table(rows={"park": row(park, (OPEN, 7), PARKED)}),
            "park",
            "7",
        ),
        "an ignored pair names a state that is not there": (
            table(ignore(lapse, Elsewhere.MOON, why="It is far.")),
            "lapse",
            "moon",
        ),
        "the initial state is a plain string": (table(initial="new"), "new", "StrEnum"),
    },
    "undescribed-state": {
        "a member of the enum has no entry": (
            table(
                states={PARKED: None},
                rows={
                    "park": None,
                    "unpark": None,
                    "cancel": row(cancel, (NEW, OPEN), DONE),
                    "stale": ignore(lapse, (NEW, DONE), why="No."),
                },
            ),
            "parked",
        )
    },
    "described-twice": {
        "a state has two entries": (table(states={"again": rest(PARKED, "Put aside again.")}), "parked", "2")
    },
    "unexplained": {
        "the machine has no sentence": (table(doc=" "), "machine", "ticket"),
        "a state has no sentence": (table(states={PARKED: rest(PARKED, "")}), "state", "parked"),
        "a named event has no sentence": (table(row(nameless, OPEN, DONE)), "nameless"),
        "an event that carries something has no docstring": (
            table(row(Undocumented, OPEN, DONE)),
            "undocumented",
        ),
        "a row has no why": (table(row(rush, OPEN, DONE, why="")), "rush: open → done", "row"),
        "an ignored pair has no why": (
            table(rows={"stale": ignore(lapse, (NEW, PARKED, DONE), why="")}),
            "lapse",
        ),
        "a guard has no docstring": (
            table(row(rush, OPEN, DONE, when=says_nothing)),
            "guard",
            "says_nothing",
        ),
        "a guard has no name because it is a lambda": (
            table(row(rush, OPEN, DONE, when=lambda _data, _event: True)),
            "guard",
            "<lambda>",
        ),
        "a guard has neither name nor sentence because it is a partial": (
            table(row(rush, OPEN, DONE, when=functools.partial(says_nothing))),
            "guard",
        ),
    },
    "same-name": {
        "two different events go by one name": (
            table(rows={"unpark": row(take_too, PARKED, OPEN)}),
            "take",
        ),
        "two events differ only in case, which no caller can tell": (
            table(rows={"unpark": row(Take, PARKED, OPEN)}),
            "take",
        ),
    },
    "unowned-row": {
        "a row that moves has no owner": (table(row(rush, OPEN, DONE, owner="")), "rush"),
        "a row that stays has no owner": (table(row(rush, OPEN, STAY, owner="")), "rush"),
    },
    "contradiction": {
        "a pair has a row and is also ignored": (table(ignore(take, NEW, why="No.")), "take in new"),
        "a pair is refused and then has a row": (
            table(refuse(rush, NEW, why="No."), row(rush, NEW, OPEN)),
            "rush in new",
        ),
        "a pair is both ignored and refused": (table(refuse(lapse, PARKED, why="No.")), "lapse in parked"),
    },
    "shadowed-row": {
        "a row comes after one without guards": (
            table(row(take, NEW, DONE, when=is_calm)),
            "take in new",
            "new → done",
            "new → open",
        ),
        "a row asks for more than an earlier one that is then always taken": (
            table(row(rush, OPEN, DONE, when=is_calm), row(rush, OPEN, PARKED, when=(is_weekday, is_calm))),
            "rush in open",
            "open → parked",
        ),
        "a row applies in no state": (table(row(rush, (), DONE)), "rush", "no state"),
        "a row comes after a walk": (
            table(walk(close, NEW, first=take, why="Who closes has taken."), row(close, NEW, DONE)),
            "close in new",
        ),
    },
    "undecided-event": {
        "a timer is not decided in some state": (
            table(rows={"stale": ignore(lapse, (NEW, DONE), why="It does not run there.")}),
            "timer",
            "lapse",
            "parked",
        ),
        **{
            f"a {kind.__name__} is decided in one state only": (
                table(row(kind("ping", "Hello?", by="user"), NEW, STAY)),
                kind.__name__,
                "ping",
                "open, parked, done",
            )
            for kind in (message, timer, signal, consequence)
        },
    },
    "unreachable-state": {
        "no row leads to a state": (table(rows={"park": None}), "new", "parked"),
        "a state is reached only from itself": (table(rows={"park": row(park, PARKED, PARKED)}), "parked"),
    },
    "no-way-out": {
        "a state leads only to itself": (
            table(
                refuse(cancel, OPEN, why="It has to be worked on."),
                rows={
                    "park": row(park, NEW, PARKED),
                    "close": row(close, NEW, DONE),
                    "lapse": row(lapse, OPEN, OPEN),
                    "cancel": row(cancel, (NEW, PARKED), DONE),
                },
                spine=(NEW, OPEN),
            ),
            "open",
        )
    },
    "undeclared-exit": {
        "a row leaves a terminal state": (table(rows={"take": row(take, (NEW, DONE), OPEN)}), "take", "done"),
        "a row changes the data of a terminal state": (table(row(rush, DONE, STAY)), "rush", "done"),
        "a walk leaves a terminal state": (
            table(
                row(rush, DONE, OPEN, leaves_terminal=True),
                walk(close, DONE, first=rush, why="Who closes has rushed."),
            ),
            "close",
            "done",
        ),
    },
    "unattended-state": {
        "a state has neither a turn nor a deadline": (table(states={NEW: state(NEW, "Just come in.")}), "new")
    },
    "idle-turn": {
        "it is the turn of somebody who has no row": (
            table(states={NEW: state(NEW, "Just come in.", turn="janitor")}),
            "new",
            "janitor",
        ),
        "it is the turn of somebody who can only stay": (
            table(row(rush, NEW, STAY, owner="boss"), states={NEW: state(NEW, "Just come in.", turn="boss")}),
            "new",
            "boss",
        ),
    },
    "bad-deadline": {
        **{
            f"a deadline lasts {seconds} seconds": (_deadline(seconds=seconds), "ticket_ttl_s")
            for seconds in (0, -1, float("nan"), float("inf"))
        },
        "a setting does not carry its unit": (_deadline(setting="ticket_ttl"), "ticket_ttl", "60"),
        "a deadline that only a row arms is not positive": (
            table(row(rush, OPEN, STAY, arms=Deadline(lapse, "rush_s", 0))),
            "rush_s",
        ),
    },
    "idle-deadline": {
        "the event of a deadline is no timer": (_deadline(event=close), "open", "close", "command"),
        "a deadline runs where its timer is ignored": (
            table(states={NEW: state(NEW, "Just come in.", turn="clerk", within=LAPSE)}),
            "new",
            "lapse",
        ),
        "a row arms a deadline in a state where its timer is ignored": (
            table(rows={"park": row(park, OPEN, PARKED, arms=LAPSE)}),
            "parked",
            "lapse",
        ),
        "a deadline runs and no row speaks of its timer": (
            _deadline(event=timer("forgotten", "It is forgotten.", by="office")),
            "open",
            "forgotten",
        ),
    },
    "unstoppable-state": {
        "the stop event has no row in an active state": (
            table(rows={"cancel": row(cancel, (OPEN, PARKED), DONE)}),
            "new",
            "cancel",
        ),
        "the stop event has no row in a resting state": (
            table(rows={"cancel": row(cancel, (NEW, OPEN), DONE)}),
            "parked",
            "cancel",
        ),
    },
    "no-stop-event": {"the machine has no stop event": (table(stop=()), "ticket")},
    "broken-spine": {
        "two neighbours of the spine are not joined": (table(spine=(NEW, PARKED)), "new", "parked")
    },
    "lost-walk": {
        "the first step of a walk has no row there": (
            table(walk(close, NEW, first=unpark, why="No.")),
            "close in new",
            "unpark",
        ),
        "the first step of a walk is guarded": (
            table(row(rush, NEW, OPEN, when=is_calm), walk(close, NEW, first=rush, why="No.")),
            "close in new",
            "rush",
        ),
        "the first step of a walk stays where it is": (
            table(row(rush, NEW, STAY), walk(close, NEW, first=rush, why="No.")),
            "close in new",
            "rush",
        ),
        "the first step of a walk leads to where its event is not accepted": (
            table(walk(unpark, NEW, first=take, why="No.")),
            "unpark in new",
            "open",
        ),
        "a walk goes round in a circle": (
            table(row(rush, NEW, NEW), walk(close, NEW, first=rush, why="No.")),
            "close in new",
        ),
        "a walk goes round in a circle when a guard on the way does not hold": (
            table(
                row(rush, PARKED, OPEN),
                rows={
                    "close": row(close, OPEN, DONE, when=is_calm),
                    "again": walk(close, OPEN, first=park, why="Who closes has parked."),
                    "there": row(close, PARKED, DONE, when=is_calm),
                    "round": walk(close, PARKED, first=rush, why="Who closes has rushed."),
                },
            ),
            "close",
        ),
    },
}
CASES = [
    Case(code, says, broken, mentions)
    for code, ways in FAULTY.items()
    for says, (broken, *mentions) in ways.items()
]
