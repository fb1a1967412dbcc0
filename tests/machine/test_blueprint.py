"""A machine as plain data: the JSON of it, its fingerprint, and files that are none."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import PROGRAM_S

from interlock.errors import MalformedBlueprint, UnknownState
from interlock.machine import (
    STAY,
    Always,
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
    end,
    event,
    ignore,
    message,
    on,
    refuse,
    rest,
    state,
    timer,
    walk,
)


class Loan(StrEnum):
    SHELF = "shelf"
    RESERVED = "reserved"
    OUT = "out"
    LOST = "lost"


SHELF, RESERVED, OUT, LOST = Loan

reserve = command("reserve", "Keep it for me.", by="reader")
overdue = timer("overdue", "It should be back.", by="library")
letter = message("letter", "A letter arrives.", by="post")
write_off = command("write_off", "It is gone.", by="library")

TERM = Deadline(overdue, "loan_s", 1_209_600.0, since="the day it went out")
GRACE = Deadline(overdue, "grace_s", 86_400.0)


@event(Kind.COMMAND, by="reader")
class Borrow(Event):
    """A reader takes it home."""

    card: str
    weeks: int = 2


def is_member(_: object, borrow: Borrow) -> bool:
    """Only members take books home."""
    return bool(borrow.card)


def is_patient(_: object, __: Event) -> bool:
    """The library can wait."""
    return True


def is_rare(_: object, __: Event) -> bool:
    """There is only one."""
    return True


def remember_card(data: str, borrow: Borrow) -> str:
    return borrow.card


def print_slip(data: str, borrow: Borrow) -> object:
    return data


def row(occurrence: Event | type[Event], sources: Any, target: Any, **options: Any) -> Row[Any, Any]:
    return on(occurrence, sources, target, **{"owner": "library", "why": "It is so.", **options})


STATES: dict[Any, State[Any]] = {
    SHELF: rest(SHELF, "On the shelf."),
    RESERVED: state(RESERVED, "Kept for somebody.", turn="reader"),
    OUT: state(OUT, "At somebody's home.", within=TERM),
    LOST: end(LOST, "Nobody has it."),
}
ROWS: dict[str, Row[Any, Any] | None] = {
    "reserve": row(reserve, SHELF, RESERVED, owner="reader"),
    "borrow": row(
        Borrow,
        (SHELF, RESERVED),
        OUT,
        owner="reader",
        when=is_member,
        then=remember_card,
        emits=print_slip,
    ),
    "overdue": row(overdue, OUT, SHELF),
    "stale": ignore(overdue, (SHELF, RESERVED, LOST), why="It is not out."),
    "letter": row(letter, OUT, STAY, arms=GRACE, why="A little longer."),
    "walk": walk(letter, SHELF, first=reserve, why="Who writes wants it."),
    "other letter": row(letter, RESERVED, SHELF, when=is_patient),
    "no letter": refuse(letter, LOST, why="Nobody reads it."),
    "write off": row(write_off, (SHELF, RESERVED, OUT), LOST),
}


def machine(
    rows: dict[str, Any] | None = None, states: dict[Any, Any] | None = None, **other: Any
) -> Machine[Any, Any]:
    """The loan of a book, with rows and states replaced by name (None takes one away)."""
    some_rows = tuple(entry for entry in {**ROWS, **(rows or {})}.values() if entry is not None)
    some_states = tuple({**STATES, **(states or {})}.values())
    table: Table[Any, Any] = Table(
        "loan", "A book.", SHELF, some_states, some_rows, (write_off,), (SHELF, OUT)
    )
    table = replace(table, **other)
    return Machine(
        table.name,
        table.doc,
        initial=table.initial,
        states=table.states,
        rows=table.rows,
        stop=table.stop,
        spine=table.spine,
        invariants=table.invariants,
    )


def loan(*args: Any, **kwargs: Any) -> Blueprint:
    return blueprint_of(machine(*args, **kwargs))


LOAN = loan()
DOCUMENT: dict[str, Any] = json.loads(LOAN.to_json())


def part(entries: list[dict[str, Any]], *keys: str) -> list[tuple[Any, ...]]:
    return [tuple(entry[key] for key in keys) for entry in entries]


def test_the_json_names_the_machine_and_its_initial_state() -> None:
    assert (DOCUMENT["machine"], DOCUMENT["initial"]) == ("loan", "shelf")


def test_the_json_lists_the_states_and_which_are_terminal() -> None:
    assert part(DOCUMENT["states"], "name", "terminal") == [
        ("shelf", False),
        ("reserved", False),
        ("out", False),
        ("lost", True),
    ]


def test_the_json_has_one_transition_per_source_state_and_no_other_rows_among_them() -> None:
    assert part(DOCUMENT["transitions"], "event", "from", "to", "owner") == [
        ("reserve", "shelf", "reserved", "reader"),
        ("borrow", "shelf", "out", "reader"),
        ("borrow", "reserved", "out", "reader"),
        ("overdue", "out", "shelf", "library"),
        ("letter", "reserved", "shelf", "library"),
        ("write_off", "shelf", "lost", "library"),
        ("write_off", "reserved", "lost", "library"),
        ("write_off", "out", "lost", "library"),
    ]


def test_the_deliberate_ignores_stand_apart_with_their_why() -> None:
    assert DOCUMENT["ignored"] == [
        {"event": "overdue", "state": place, "why": "It is not out."}
        for place in ("shelf", "reserved", "lost")
    ]


def test_refusals_walks_and_rows_that_stay_stand_apart() -> None:
    assert DOCUMENT["refused"] == [{"event": "letter", "state": "lost", "why": "Nobody reads it."}]
    assert part(DOCUMENT["walks"], "event", "state", "first") == [("letter", "shelf", "reserve")]
    assert part(DOCUMENT["kept"], "event", "state", "owner") == [("letter", "out", "library")]


def test_a_transition_in_the_json_lists_its_guards_update_effects_and_reason() -> None:
    (borrow, _) = [entry for entry in DOCUMENT["transitions"] if entry["event"] == "borrow"]
    assert borrow["guards"] == ["is_member"]
    assert borrow["then"] == "remember_card"
    assert borrow["emits"] == ["print_slip"]
    assert borrow["why"] == "It is so."


def test_a_state_in_the_json_has_its_deadline_its_turn_and_whether_it_is_resting() -> None:
    shelf, reserved, out, _ = DOCUMENT["states"]
    assert (shelf["resting"], shelf["doc"]) == (True, "On the shelf.")
    assert (reserved["resting"], reserved["turn"]) == (False, "reader")
    within = {"event": "overdue", "setting": "loan_s", "seconds": 1209600.0, "since": "the day it went out"}
    assert out["within"] == within


def test_an_event_in_the_json_has_its_kind_its_sender_and_its_payload() -> None:
    borrow = next(entry for entry in DOCUMENT["events"] if entry["name"] == "borrow")
    assert (borrow["kind"], borrow["by"], borrow["payload"]) == ("command", "reader", ["card", "weeks"])


def test_the_json_carries_the_fingerprint_and_the_stop_events_and_the_spine() -> None:
    assert DOCUMENT["fingerprint"] == LOAN.fingerprint
    assert (DOCUMENT["stop"], DOCUMENT["spine"]) == (["write_off"], ["shelf", "out"])


def test_the_dictionary_of_a_blueprint_equals_the_json_document() -> None:
    assert json.loads(json.dumps(LOAN.as_dict())) == DOCUMENT


def test_a_blueprint_reads_back_from_its_json_with_the_same_fingerprint() -> None:
    assert Blueprint.from_json(LOAN.to_json()) == LOAN
    assert Blueprint.from_json(LOAN.to_json().encode()).fingerprint == LOAN.fingerprint


def test_a_document_with_only_the_required_fields_can_be_read() -> None:
    least = {key: DOCUMENT[key] for key in ("machine", "initial")}
    least["states"] = [{"name": entry["name"], "terminal": entry["terminal"]} for entry in DOCUMENT["states"]]
    least["transitions"] = [
        {key: entry[key] for key in ("event", "from", "to", "owner")} for entry in DOCUMENT["transitions"]
    ]
    assert len(Blueprint.from_json(json.dumps(least)).transitions) == 8


def test_owners_and_deadlines_are_listed_in_the_order_of_the_table() -> None:
    assert LOAN.owners == ("reader", "library")
    assert [sheet.setting for sheet in LOAN.deadlines] == ["loan_s", "grace_s"]
    assert LOAN.state("out").within is not None


@pytest.mark.parametrize("name", ["out", "OUT", "Out"])
def test_a_state_is_found_as_people_type_it(name: str) -> None:
    assert LOAN.state_named(name) == "out"


def test_a_state_that_is_not_there_is_an_error_that_lists_the_known_ones() -> None:
    with pytest.raises(UnknownState) as caught:
        LOAN.state_named("shelv")
    assert caught.value.allowed == ("shelf", "reserved", "out", "lost")
    assert caught.value.sentence == "There is no state 'shelv' of loan. Did you mean shelf?"


def test_the_fingerprint_is_sixteen_hex_digits() -> None:
    assert len(LOAN.fingerprint) == 16
    assert int(LOAN.fingerprint, 16) >= 0


def reserve_in_better_words() -> Event:
    return command("reserve", "Please keep it for me.", by="reader")


PROSE: dict[str, Blueprint] = {
    "the sentence of the machine": loan(doc="A book and its readers."),
    "the sentence of a state": loan(states={SHELF: rest(SHELF, "Back on the shelf.")}),
    "the why of a row": loan({"write off": row(write_off, (SHELF, RESERVED, OUT), LOST, why="Sadly.")}),
    "the why of an ignored pair": loan(
        {"stale": ignore(overdue, (SHELF, RESERVED, LOST), why="It is at home.")}
    ),
    "the sentence of an event": loan(
        {
            "reserve": row(better := reserve_in_better_words(), SHELF, RESERVED, owner="reader"),
            "walk": walk(letter, SHELF, first=better, why="Who writes wants it."),
        }
    ),
    "what a deadline is counted from, in words": loan(
        states={OUT: state(OUT, "At somebody's home.", within=replace(TERM, since="entering the state"))}
    ),
    "the claims beside the table": loan(invariants=(Always("books are books", lambda _, __: True),)),
}


@pytest.mark.parametrize("what", PROSE)
def test_the_fingerprint_ignores(what: str) -> None:
    assert PROSE[what] != LOAN
    assert PROSE[what].fingerprint == LOAN.fingerprint


BEHAVIOUR: dict[str, Blueprint] = {
    "the target of a row": loan({"overdue": row(overdue, OUT, LOST)}),
    "a source of a row": loan({"reserve": row(reserve, (SHELF, OUT), RESERVED, owner="reader")}),
    "the owner of a row": loan({"overdue": row(overdue, OUT, SHELF, owner="clock")}),
    "a guard": loan({"other letter": row(letter, RESERVED, SHELF)}),
    "an update": loan({"overdue": row(overdue, OUT, SHELF, then=remember_card)}),
    "an effect": loan({"overdue": row(overdue, OUT, SHELF, emits=print_slip)}),
    "a row more": loan({"more": row(reserve, OUT, RESERVED)}),
    "a row less": loan({"walk": ignore(letter, SHELF, why="Nothing.")}),
    "an ignored pair that is refused": loan({"no letter": ignore(letter, LOST, why="Nobody reads it.")}),
    "a row that stays and moves now": loan({"letter": row(letter, OUT, OUT, arms=GRACE)}),
    "the seconds of a state's deadline": loan(
        states={OUT: state(OUT, "At somebody's home.", within=replace(TERM, seconds=60))}
    ),
    "the setting of a state's deadline": loan(
        states={OUT: state(OUT, "At somebody's home.", within=replace(TERM, setting="term_s"))}
    ),
    "whose turn it is": loan(states={RESERVED: state(RESERVED, "Kept.", turn="library")}),
    "whether a state rests": loan(states={SHELF: state(SHELF, "On the shelf.", turn="reader")}),
    "the stop events": loan(stop=(write_off, reserve)),
    "the initial state": loan(initial=RESERVED),
    "the name of the machine": loan(name="lending"),
    "what a row that stays arms": loan({"letter": row(letter, OUT, STAY)}),
    "the seconds of a deadline that only a row arms": loan(
        {"letter": row(letter, OUT, STAY, arms=replace(GRACE, seconds=60))}
    ),
}


@pytest.mark.parametrize("what", BEHAVIOUR)
def test_the_fingerprint_changes_with(what: str) -> None:
    assert BEHAVIOUR[what].fingerprint != LOAN.fingerprint


def test_the_fingerprint_changes_with_the_order_in_which_guarded_rows_are_tried() -> None:
    back = row(letter, RESERVED, SHELF, when=is_patient)
    gone = row(letter, RESERVED, LOST, when=is_rare)
    one, other = loan({"other letter": back, "more": gone}), loan({"other letter": gone, "more": back})
    assert one.fingerprint != other.fingerprint


def test_the_fingerprint_changes_with_the_order_of_a_row_that_stays_and_one_that_moves() -> None:
    """Where both guards hold, one of these tables moves the record and the other does not."""
    back = row(letter, RESERVED, SHELF, when=is_patient)
    stays = row(letter, RESERVED, STAY, when=is_rare)
    one = machine({"other letter": None, "one": back, "two": stays})
    other = machine({"other letter": None, "one": stays, "two": back})
    decided = [table.decide(RESERVED, "", letter) for table in (one, other)]
    assert decided[0] != decided[1]
    assert blueprint_of(one).fingerprint != blueprint_of(other).fingerprint


def test_the_fingerprint_is_the_same_in_every_process() -> None:
    """Sets and hashes are seeded per process; nothing of that may show."""
    program = f"import runpy; print(runpy.run_path({str(Path(__file__))!r})['LOAN'].fingerprint)"
    found = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
            timeout=PROGRAM_S,
        ).stdout.strip()
        for seed in ("0", "1", "4242")
    }
    assert found == {LOAN.fingerprint}


def changed(**changes: Any) -> str:
    return json.dumps({**DOCUMENT, **changes})


def first_with(key: str, **changes: Any) -> str:
    first, *others = DOCUMENT[key]
    return changed(**{key: [{**first, **changes}, *others]})


MALFORMED: dict[str, tuple[str | bytes, str]] = {
    "nothing": ("", ""),
    "no JSON": ("machine: loan", "malformed"),
    "half of it": (LOAN.to_json()[:200], "truncated"),
    "not UTF-8": (b'{"machine": "\xff\xfe"}', ""),
    "UTF-16": (LOAN.to_json().encode("utf-16"), ""),
    "bytes that are no text": (bytes(range(256)), ""),
    "half a character": (LOAN.to_json().replace('"loan"', '"\ud800"'), ""),
    "a list": ("[]", "array"),
    "null": ("null", "null"),
    "an object without a machine": ("{}", "machine"),
    "very deep": ('{"attic": ' + "[" * 100_000, ""),
    "a machine that is a number": (changed(machine=7), "machine"),
    "states that are a word": (changed(states="all of them"), "states"),
    "a state without a name": (changed(states=[{"terminal": False}]), "name"),
    "a terminal that is a word": (first_with("states", terminal="yes"), "terminal"),
    "seconds that are a word": (
        changed(
            states=[{**DOCUMENT["states"][2], "within": {**DOCUMENT["states"][2]["within"], "seconds": "x"}}]
        ),
        "seconds",
    ),
    "another format": (changed(format=2), "format 2"),
    "an unknown initial state": (changed(initial="attic"), "'attic'"),
    "a transition from an unknown state": (first_with("transitions", **{"from": "attic"}), "'attic'"),
    "a transition to an unknown state": (first_with("transitions", to="attic"), "'attic'"),
    "an unknown state on the spine": (changed(spine=["shelf", "attic"]), "'attic'"),
    "an unknown state that ignores": (first_with("ignored", state="attic"), "'attic'"),
    "an unknown state that refuses": (first_with("refused", state="attic"), "'attic'"),
    "an unknown state that walks": (first_with("walks", state="attic"), "'attic'"),
    "an unknown state that stays": (first_with("kept", state="attic"), "'attic'"),
    "a transition by an unknown event": (first_with("transitions", event="sneeze"), "'sneeze'"),
    "an unknown stop event": (changed(stop=["sneeze"]), "'sneeze'"),
    "an unknown first step of a walk": (first_with("walks", first="sneeze"), "'sneeze'"),
    "a state whose deadline brings an unknown event": (
        changed(
            states=[
                {**entry, "within": {**entry["within"], "event": "sneeze"}} if entry["within"] else entry
                for entry in DOCUMENT["states"]
            ]
        ),
        "'sneeze'",
    ),
    "a state twice": (changed(states=[*DOCUMENT["states"], DOCUMENT["states"][0]]), "'shelf'"),
}


@pytest.mark.parametrize("what", MALFORMED)
def test_a_file_is_one_clear_error_when_it_holds(what: str) -> None:
    text, says = MALFORMED[what]
    with pytest.raises(MalformedBlueprint) as caught:
        Blueprint.from_json(text, where="old.json")
    error = caught.value
    assert error.sentence.startswith("old.json is not the blueprint of a machine: ")
    assert says in error.sentence
    assert error.facts["where"] == "old.json"
    assert "interlock machine draw" in error.todo


def test_every_unknown_state_of_a_file_is_named_at_once_with_the_known_ones() -> None:
    with pytest.raises(MalformedBlueprint) as caught:
        Blueprint.from_json(changed(initial="attic", spine=["cellar"]))
    assert "'attic'" in caught.value.sentence
    assert "'cellar'" in caught.value.sentence
    assert "lost, out, reserved, shelf" in caught.value.sentence


def test_an_unknown_event_of_a_file_is_named_with_the_known_ones() -> None:
    with pytest.raises(MalformedBlueprint) as caught:
        Blueprint.from_json(first_with("transitions", event="sneeze"))
    assert all(known in caught.value.sentence for known in ("borrow", "letter", "overdue", "reserve"))
