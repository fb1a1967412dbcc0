"""What must be true of a table: one sound table, and one way of breaking it for every check.

Each case below is the sound table with one thing changed, and has exactly one sort of fault.
"""

from __future__ import annotations

import ast
import functools
import gc
import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import pytest

from interlock.errors import MalformedTable
from interlock.machine import (
    STAY,
    Deadline,
    Event,
    Kind,
    Machine,
    Row,
    State,
    Table,
    check,
    command,
    consequence,
    end,
    event,
    find_faults,
    ignore,
    message,
    on,
    refuse,
    rest,
    signal,
    state,
    timer,
    walk,
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
    occurrence: Event | type[Event], sources: Any, target: Any, *, owner: str = "clerk", **said: Any
) -> AnyRow:
    return on(occurrence, sources, target, **{"owner": owner, "why": "It is so.", **said})


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


def codes(broken: AnyTable) -> list[str]:
    return [fault.code for fault in find_faults(broken)]


def declare(declared: AnyTable) -> Machine[Any, Any]:
    return Machine(
        declared.name,
        declared.doc,
        initial=declared.initial,
        states=declared.states,
        rows=declared.rows,
        stop=declared.stop,
        spine=declared.spine,
        invariants=declared.invariants,
    )


def test_a_sound_table_has_no_fault_and_becomes_a_machine() -> None:
    assert find_faults(table()) == ()
    assert declare(table()).states == EVERYWHERE


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.code}: {case.says}")
def test_a_table_with_one_fault_is_found_to_have_exactly_that(case: Case) -> None:
    assert set(codes(case.table)) == {case.code}
    sentences = "\n".join(fault.sentence for fault in find_faults(case.table))
    for word in case.mentions:
        assert word in sentences


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.code}: {case.says}")
def test_a_table_with_a_fault_never_becomes_a_machine(case: Case) -> None:
    with pytest.raises(MalformedTable, match=case.code):
        declare(case.table)


def test_every_check_is_proven_by_a_case() -> None:
    assert {case.code for case in CASES} == set(check.MEANINGS)


def test_every_code_that_the_checks_can_yield_has_a_meaning() -> None:
    assert codes_yielded_by(inspect.getsource(check)) == set(check.MEANINGS)


def test_a_code_without_a_meaning_would_be_noticed() -> None:
    yielded = codes_yielded_by('yield Fault("brand-new", f"{entry} is odd")')
    assert yielded - set(check.MEANINGS) == {"brand-new"}


def test_every_meaning_is_a_sentence_and_every_code_a_slug() -> None:
    for code, meaning in check.MEANINGS.items():
        assert code == code.lower().replace(" ", "-").replace("_", "-")
        assert meaning[0].isupper()
        assert meaning.endswith(".")


def codes_yielded_by(source: str) -> set[str]:
    """The first argument of every Fault(...) in a source text, which has to be a literal."""
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    faults = [call for call in calls if isinstance(call.func, ast.Name) and call.func.id == "Fault"]
    firsts = [call.args[0] for call in faults]
    assert all(isinstance(first, ast.Constant) for first in firsts)
    return {str(first.value) for first in firsts if isinstance(first, ast.Constant)}


MANY_FAULTS = table(
    row(rush, OPEN, "mars", owner="", why=""),
    row(ping, NEW, STAY),
    rows={"take": row(take, (NEW, DONE), OPEN)},
    states={NEW: state(NEW, "")},
    stop=(),
    spine=(NEW, PARKED),
)
ALL_OF_THEM = {
    "unknown-state",
    "unexplained",
    "unowned-row",
    "undecided-event",
    "undeclared-exit",
    "unattended-state",
    "no-stop-event",
    "broken-spine",
}


def test_a_table_with_several_faults_reports_all_of_them_at_once() -> None:
    with pytest.raises(MalformedTable) as caught:
        declare(MANY_FAULTS)
    error = caught.value
    found = find_faults(MANY_FAULTS)
    assert {fault.code for fault in found} == ALL_OF_THEM
    assert error.facts == {"machine": "ticket", "faults": [[f.code, f.sentence] for f in found]}
    assert error.sentence.startswith(f"The table of 'ticket' has {len(found)} fault(s).")
    for fault in found:
        assert f"{fault.code}: {fault.sentence}" in error.sentence


def test_one_fault_is_told_once() -> None:
    found = find_faults(MANY_FAULTS)
    assert len(found) == len(set(found))


def machines_of(declared: AnyTable) -> int:
    """How many machines of this table are alive, finished or not."""
    gc.collect()
    machines = [thing for thing in gc.get_objects() if isinstance(thing, Machine)]
    return sum(machine.table.rows is declared.rows for machine in machines)


def test_no_machine_exists_after_a_declaration_with_faults() -> None:
    made: Machine[Any, Any] | None = None
    with pytest.raises(MalformedTable):
        made = declare(MANY_FAULTS)
    assert made is None
    assert machines_of(MANY_FAULTS) == 0


def test_a_machine_that_exists_would_have_been_noticed() -> None:
    sound = table()
    made = declare(sound)
    assert machines_of(made.table) == machines_of(sound) == 1


SOUND: dict[str, Callable[[], AnyTable]] = {
    "a command is not decided everywhere": lambda: table(row(rush, NEW, OPEN)),
    "a later row asks for less than an earlier one": lambda: table(
        row(rush, OPEN, DONE, when=(is_calm, is_weekday)), row(rush, OPEN, PARKED, when=is_calm)
    ),
    "a later row asks for something else": lambda: table(
        row(rush, OPEN, DONE, when=is_calm), row(rush, OPEN, PARKED, when=is_weekday)
    ),
    "a terminal state is left on purpose": lambda: table(row(rush, DONE, OPEN, leaves_terminal=True)),
    "a stop is refused in a state, and somebody said why": lambda: table(
        refuse(cancel, NEW, why="Take it first."), rows={"cancel": row(cancel, (OPEN, PARKED), DONE)}
    ),
    "a second stop event covers the state that the first does not": lambda: table(
        row(rush, NEW, DONE), rows={"cancel": row(cancel, (OPEN, PARKED), DONE)}, stop=(cancel, rush)
    ),
    "it is the turn of whoever brings the event": lambda: table(
        rows={"take": row(take, NEW, OPEN, owner="engine")}
    ),
    "a walk leads on to a row": lambda: table(walk(close, NEW, first=take, why="Who closes has taken.")),
    "a walk comes after a guarded row": lambda: table(
        row(close, NEW, DONE, when=is_calm), walk(close, NEW, first=take, why="Who closes has taken.")
    ),
    "a timer is armed by a row where it does something": lambda: table(row(rush, NEW, OPEN, arms=LAPSE)),
    "states are named by equal plain strings": lambda: table(row(rush, "new", "open")),
}


@pytest.mark.parametrize("what", SOUND)
def test_a_table_is_sound_although(what: str) -> None:
    assert find_faults(SOUND[what]()) == ()


class Spelling(StrEnum):
    HALTED = "halted"
    CANCELED = "canceled"
    CANCELLED = "cancelled"


def test_two_states_that_no_caller_can_tell_apart_are_a_fault() -> None:
    """Names are read in any case and either spelling, so one of these could never be asked for."""
    stop = command("stop", "Stop.", by="user")
    scrap = command("scrap", "Scrap it.", by="user")
    twins: AnyTable = Table(
        "twins",
        "Two ends of one name.",
        Spelling.HALTED,
        (
            state(Spelling.HALTED, "Waits.", turn="user"),
            end(Spelling.CANCELED, "Over."),
            end(Spelling.CANCELLED, "Over as well."),
        ),
        (row(stop, Spelling.HALTED, Spelling.CANCELED), row(scrap, Spelling.HALTED, Spelling.CANCELLED)),
        stop=(stop,),
    )
    assert codes(twins) == ["same-name"]
