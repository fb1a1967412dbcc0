"""What changed between two tables, and which records in flight the new one would strand."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from typing import Any

import msgspec
import pytest

from interlock.machine import (
    STAY,
    Blueprint,
    Deadline,
    Event,
    Kind,
    Machine,
    Row,
    State,
    Table,
    blueprint_of,
    command,
    compare,
    end,
    event,
    ignore,
    on,
    refuse,
    rest,
    state,
    timer,
    walk,
)
from interlock.machine.compare import Stranded


class Claim(StrEnum):
    FILED = "filed"
    CHECKED = "checked"
    SHELVED = "shelved"
    PAID = "paid"


FILED, CHECKED, SHELVED, PAID = Claim

check_it = command("check_it", "Look at it.", by="clerk")
shelve = command("shelve", "Not now.", by="clerk")
stamp = command("stamp", "Stamp it.", by="clerk")
pay = command("pay", "Pay it.", by="bank")
drop = command("drop", "Never mind.", by="user")
late = timer("late", "Too late.", by="office")
LATE = Deadline(late, "claim_ttl_s", 60)


def is_small(_: object, __: Event) -> bool:
    """It is a small sum."""
    return True


def is_old(_: object, __: Event) -> bool:
    """It has waited long."""
    return True


def note(data: None, _: Event) -> None:
    return data


def tell(_: None, __: Event) -> object:
    return "told"


def row(occurrence: Event | type[Event], sources: Any, target: Any, **options: Any) -> Row[Any, Any]:
    return on(occurrence, sources, target, **{"owner": "clerk", "why": "It is so.", **options})


STATES: dict[Any, State[Any]] = {
    FILED: state(FILED, "Filed.", turn="clerk"),
    CHECKED: state(CHECKED, "Checked.", within=LATE),
    SHELVED: rest(SHELVED, "On a shelf."),
    PAID: end(PAID, "Paid."),
}
ROWS: dict[str, Row[Any, Any] | None] = {
    "check": row(check_it, (FILED, SHELVED), CHECKED),
    "shelve": row(shelve, CHECKED, SHELVED, when=is_small),
    "stamp small": row(stamp, CHECKED, STAY, when=is_small, then=note),
    "stamp old": row(stamp, CHECKED, STAY, when=is_old),
    "pay": row(pay, CHECKED, PAID, owner="bank"),
    "walk": walk(pay, FILED, first=check_it, why="What is paid was checked."),
    "late": row(late, CHECKED, PAID),
    "stale": ignore(late, (FILED, SHELVED, PAID), why="It does not run."),
    "drop": row(drop, (FILED, CHECKED, SHELVED), PAID),
}


def claim(
    rows: dict[str, Any] | None = None, states: dict[Any, Any] | None = None, **other: Any
) -> Blueprint:
    """The blueprint of the table above, with rows and states replaced by name (None takes one away)."""
    some_rows = tuple(entry for entry in {**ROWS, **(rows or {})}.values() if entry is not None)
    some_states = tuple({**STATES, **(states or {})}.values())
    table: Table[Any, Any] = Table("claim", "A claim.", FILED, some_states, some_rows, (drop,))
    table = replace(table, **other)
    return blueprint_of(
        Machine(
            table.name,
            table.doc,
            initial=table.initial,
            states=table.states,
            rows=table.rows,
            stop=table.stop,
            spine=table.spine,
        )
    )


OLD = claim()


@event(Kind.COMMAND, by="bank", name="pay")
class PaySome(Event):
    """Pay some of it."""

    cents: int


CHANGES: dict[str, tuple[Blueprint, list[str]]] = {
    "a row goes elsewhere": (
        claim({"shelve": row(shelve, CHECKED, PAID, when=is_small), "in": row(stamp, FILED, SHELVED)}),
        [
            "+ row filed stamp: → shelved (clerk)",
            "~ row checked shelve: was → shelved if is_small (clerk), is → paid if is_small (clerk)",
        ],
    ),
    "a row is gone": (
        claim({"late": row(late, CHECKED, SHELVED), "shelve": None}),
        [
            "- event shelve: command by clerk",
            "- row checked shelve: → shelved if is_small (clerk)",
            "~ row checked late: was → paid (clerk), is → shelved (clerk)",
        ],
    ),
    "a row gets another owner, guard, update, effect and timer": (
        claim({"pay": row(pay, CHECKED, PAID, when=is_old, then=note, emits=tell)}),
        ["~ row checked pay: was → paid (bank), is → paid if is_old (clerk, note, tell)"],
    ),
    "a row arms a deadline": (
        claim({"check": row(check_it, (FILED, SHELVED), CHECKED, arms=LATE)}),
        [
            "~ row filed check_it: was → checked (clerk), is → checked (clerk, arms claim_ttl_s)",
            "~ row shelved check_it: was → checked (clerk), is → checked (clerk, arms claim_ttl_s)",
        ],
    ),
    "a deadline is longer": (
        claim(states={CHECKED: state(CHECKED, "Checked.", within=replace(LATE, seconds=90))}),
        ["~ deadline claim_ttl_s: was 60 s, then late, is 90 s, then late"],
    ),
    "it is somebody else's turn": (
        claim(states={FILED: state(FILED, "Filed.", turn="user")}),
        ["~ state filed: was active, turn clerk, is active, turn user"],
    ),
    "a state that rested has to be left": (
        claim(states={SHELVED: state(SHELVED, "On a shelf.", turn="clerk")}),
        ["~ state shelved: was resting, is active, turn clerk"],
    ),
    "an ignored pair is refused": (
        claim({"stale": ignore(late, (FILED, SHELVED), why="No."), "over": refuse(late, PAID, why="Paid.")}),
        ["~ silence paid late: was ignored, is refused"],
    ),
    "a walk is gone": (claim({"walk": None}), ["- row filed pay: first check_it"]),
    "another stop event is added": (claim(stop=(drop, pay)), ["+ stop pay"]),
    "a machine begins elsewhere": (
        claim({"back": row(stamp, SHELVED, FILED)}, initial=SHELVED),
        ["~ initial state: was filed, is shelved", "+ row shelved stamp: → filed (clerk)"],
    ),
}


def test_a_table_compared_with_itself_has_no_difference() -> None:
    difference = compare(OLD, claim())
    assert (difference.changes, difference.stranded) == ((), ())
    assert difference.old == difference.new == f"claim@{OLD.fingerprint}"


def test_better_sentences_are_no_difference() -> None:
    reworded = claim({"pay": row(pay, CHECKED, PAID, owner="bank", why="Better put.")}, doc="Better put.")
    assert compare(OLD, reworded).changes == ()


@pytest.mark.parametrize("what", CHANGES)
def test_compare_reports_the_changes_when(what: str) -> None:
    new, expected = CHANGES[what]
    difference = compare(OLD, new)
    assert sorted(difference.changes) == sorted(expected)
    assert difference.old != difference.new


@pytest.mark.parametrize("what", CHANGES)
def test_compare_reports_as_many_changes_in_reverse_when(what: str) -> None:
    new, expected = CHANGES[what]
    assert len(compare(new, OLD).changes) == len(expected)


def test_an_event_that_carries_something_else_is_a_difference() -> None:
    new = claim({"pay": row(PaySome, CHECKED, PAID, owner="bank"), "walk": None})
    without = claim({"walk": None})
    (change,) = compare(without, new).changes
    assert "event pay" in change
    assert "cents" in change


@pytest.mark.parametrize("name", ["stamp small", "stamp old"])
def test_a_change_in_any_of_several_rows_that_stay_is_a_difference(name: str) -> None:
    changed = ROWS[name]
    assert changed is not None
    difference = compare(OLD, claim({name: replace(changed, owner="boss")}))
    assert len(difference.changes) == 1
    assert "boss" in difference.changes[0]


def test_the_order_of_guarded_rows_is_a_difference() -> None:
    small, old = (
        row(stamp, FILED, target, when=guard) for target, guard in ((SHELVED, is_small), (PAID, is_old))
    )
    (change,) = compare(claim({"one": small, "two": old}), claim({"one": old, "two": small})).changes
    assert change.startswith("~ row filed stamp")


def test_the_order_of_a_row_that_stays_and_one_that_moves_is_a_difference() -> None:
    stays, moves = (
        row(stamp, FILED, target, when=guard) for target, guard in ((STAY, is_small), (PAID, is_old))
    )
    one, other = claim({"one": stays, "two": moves}), claim({"one": moves, "two": stays})
    assert compare(one, other).changes != ()


def test_a_record_in_a_state_that_is_gone_is_stranded() -> None:
    old = Blueprint.from_json(OLD.to_json().replace('"shelved"', '"in_a_drawer"'))
    assert compare(old, OLD).stranded == (Stranded("in_a_drawer", "the new table has no such state"),)


def test_a_record_in_a_state_that_has_become_an_end_is_stranded() -> None:
    new = claim(
        {
            "check": row(check_it, FILED, CHECKED),
            "drop": row(drop, (FILED, CHECKED), PAID),
        },
        states={SHELVED: end(SHELVED, "Thrown away.")},
    )
    assert compare(OLD, new).stranded == (Stranded("shelved", "it was active and is now terminal"),)


def test_a_record_in_a_state_from_which_nothing_leads_home_is_stranded() -> None:
    """A machine cannot be like this, but a file that somebody wrote by hand can."""
    document = OLD.as_dict()
    document["transitions"] = [row for row in document["transitions"] if row["from"] != "filed"]
    new = Blueprint.from_json(msgspec.json.encode(document))
    assert compare(OLD, new).stranded == (
        Stranded("filed", "in the new table nothing leads from it to an end"),
    )


def test_a_record_that_may_rest_for_ever_is_not_stranded_although_nothing_leads_on() -> None:
    document = OLD.as_dict()
    document["transitions"] = [row for row in document["transitions"] if row["from"] != "shelved"]
    assert compare(OLD, Blueprint.from_json(msgspec.json.encode(document))).stranded == ()


def test_a_record_that_had_ended_is_never_stranded() -> None:
    old = Blueprint.from_json(OLD.to_json().replace('"paid"', '"settled"'))
    assert compare(old, OLD).stranded == ()


def test_a_new_state_strands_no_record() -> None:
    new = Blueprint.from_json(OLD.to_json().replace('"shelved"', '"in_a_drawer"'))
    assert [stranded.state for stranded in compare(OLD, new).stranded] == ["shelved"]
