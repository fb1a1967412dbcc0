"""What must be true of a table: the sound one passes, and every way of breaking it is found."""

from __future__ import annotations

import ast
import gc
import inspect
from collections.abc import Callable
from enum import StrEnum
from typing import Any

import pytest
from tests.machine.faulty_tickets import CASES, Case
from tests.machine.tickets import (
    DONE,
    EVERYWHERE,
    LAPSE,
    NEW,
    OPEN,
    PARKED,
    AnyTable,
    cancel,
    close,
    is_calm,
    is_weekday,
    ping,
    row,
    rush,
    table,
    take,
)

from interlock.errors import MalformedTable
from interlock.machine import (
    STAY,
    Machine,
    Table,
    check,
    command,
    end,
    find_faults,
    refuse,
    state,
    walk,
)
from interlock.text import counted


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
    assert error.sentence.startswith(f"The table of 'ticket' has {counted(len(found), 'fault')}.")
    for fault in found:
        assert f"{fault.code}: {fault.sentence}" in error.sentence


def test_one_fault_is_reported_once() -> None:
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


def test_two_states_whose_names_differ_only_in_spelling_are_a_fault() -> None:
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
