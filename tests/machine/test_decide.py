"""One decision: what an event does to a record, or why it does nothing.

The table is a parcel on its way: small enough to keep in mind, with one row of every sort.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import pytest

from interlock.machine import (
    STAY,
    Deadline,
    Event,
    Kind,
    Machine,
    Moved,
    Refusal,
    Refused,
    command,
    end,
    event,
    ignore,
    message,
    on,
    refuse,
    state,
    timer,
)


class Place(StrEnum):
    PACKED = "packed"
    ON_THE_ROAD = "on_the_road"
    AT_DEPOT = "at_depot"
    DELIVERED = "delivered"
    LOST = "lost"
    RETURNED = "returned"


@dataclass(frozen=True)
class Parcel:
    tries: int = 0
    signed_by: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Receipt:
    signed_by: str
    tries: int


collect = command("collect", "The courier takes it along.", by="courier")
shelve = command("shelve", "The courier leaves it at the depot.", by="courier")
recall = command("recall", "The sender wants it back.", by="sender")
scan = message("scan", "A machine saw it pass.", by="scanner")
written_off = timer("written_off", "Nobody has seen it for too long.", by="office")


@event(Kind.MESSAGE, by="courier")
class Handed(Event):
    """The courier rang and tells what came of it."""

    signature: str = ""
    neighbour: bool = False


def is_signed(parcel: Parcel, handed: Handed) -> bool:
    """Somebody has to sign."""
    return bool(handed.signature)


def is_for_the_addressee(parcel: Parcel, handed: Handed) -> bool:
    """Only the addressee takes it for good."""
    return not handed.neighbour


def has_tries_left(parcel: Parcel, handed: Handed) -> bool:
    """The courier comes three times at most."""
    return parcel.tries < 3


def count_try(parcel: Parcel, _: Event) -> Parcel:
    return replace(parcel, tries=parcel.tries + 1)


def keep_signature(parcel: Parcel, handed: Handed) -> Parcel:
    return replace(parcel, signed_by=handed.signature)


def note_scan(parcel: Parcel, _: Event) -> Parcel:
    return replace(parcel, notes=(*parcel.notes, "scanned"))


def print_receipt(parcel: Parcel, handed: Handed) -> object:
    return Receipt(parcel.signed_by, parcel.tries)


def thank(parcel: Parcel, handed: Handed) -> object:
    return f"thank {handed.signature}"


ON_ITS_WAY = (Place.PACKED, Place.ON_THE_ROAD, Place.AT_DEPOT)
OVER = (Place.DELIVERED, Place.LOST, Place.RETURNED)

PARCEL = Machine[Place, Parcel](
    "parcel",
    "A parcel from one house to another.",
    initial=Place.PACKED,
    states=(
        state(Place.PACKED, "Waits for the courier.", turn="courier"),
        state(Place.ON_THE_ROAD, "In the van.", within=Deadline(written_off, "search_s", 86_400)),
        state(Place.AT_DEPOT, "On a shelf.", turn="courier"),
        end(Place.DELIVERED, "Somebody signed for it."),
        end(Place.LOST, "Written off."),
        end(Place.RETURNED, "Back where it came from."),
    ),
    rows=(
        on(
            collect,
            (Place.PACKED, Place.AT_DEPOT),
            Place.ON_THE_ROAD,
            owner="courier",
            why="The van has room.",
            then=count_try,
        ),
        refuse(collect, Place.ON_THE_ROAD, why="It is in the van."),
        on(shelve, Place.ON_THE_ROAD, Place.AT_DEPOT, owner="courier", why="The day is over."),
        on(
            Handed,
            Place.ON_THE_ROAD,
            Place.DELIVERED,
            owner="courier",
            why="It has arrived.",
            when=(is_signed, is_for_the_addressee),
            then=keep_signature,
            emits=(print_receipt, thank),
        ),
        on(
            Handed,
            Place.ON_THE_ROAD,
            Place.AT_DEPOT,
            owner="courier",
            why="Another day.",
            when=has_tries_left,
        ),
        ignore(Handed, (Place.PACKED, Place.AT_DEPOT), why="Nobody carries it, so the report is stale."),
        ignore(Handed, (Place.DELIVERED, Place.RETURNED), why="The first report counts."),
        refuse(Handed, Place.LOST, why="It was written off; call the office."),
        on(scan, ON_ITS_WAY, STAY, owner="scanner", why="It is good to know.", then=note_scan),
        refuse(scan, OVER, why="It should not be in the net any more."),
        on(written_off, Place.ON_THE_ROAD, Place.LOST, owner="office", why="It will not be found."),
        refuse(written_off, (Place.PACKED, Place.AT_DEPOT), why="It lies on a shelf, so look there."),
        ignore(written_off, OVER, why="It is over."),
        on(recall, ON_ITS_WAY, Place.RETURNED, owner="sender", why="It is theirs."),
    ),
    stop=(recall,),
    spine=(Place.PACKED, Place.ON_THE_ROAD, Place.DELIVERED),
)


def moved(place: Place, parcel: Parcel, occurrence: Event) -> Moved[Place, Parcel]:
    decision = PARCEL.decide(place, parcel, occurrence)
    assert isinstance(decision, Moved), decision
    return decision


def refused(place: Place, parcel: Parcel, occurrence: Event) -> Refused[Place]:
    decision = PARCEL.decide(place, parcel, occurrence)
    assert isinstance(decision, Refused), decision
    return decision


def test_a_move_returns_the_new_state_the_new_data_and_the_step() -> None:
    decision = moved(Place.PACKED, Parcel(), collect)
    assert decision.state is Place.ON_THE_ROAD
    assert decision.data == Parcel(tries=1)
    assert decision.effects == ()
    (step,) = decision.steps
    assert (step.machine, step.event) == ("parcel", "collect")
    assert (step.source, step.target) == (Place.PACKED, Place.ON_THE_ROAD)
    assert (step.owner, step.why) == ("courier", "The van has room.")
    assert step.moves


def test_a_decision_has_a_sentence_that_names_the_event_and_the_states() -> None:
    assert moved(Place.PACKED, Parcel(), collect).sentence == (
        "The parcel goes from packed to on_the_road by collect."
    )
    assert moved(Place.PACKED, Parcel(), scan).sentence == "The parcel stays packed and accepts scan."


def test_a_step_of_a_row_with_several_sources_names_the_actual_source() -> None:
    (step,) = moved(Place.AT_DEPOT, Parcel(), collect).steps
    assert (step.source, step.target) == (Place.AT_DEPOT, Place.ON_THE_ROAD)


def test_a_row_without_an_update_hands_the_very_same_data_on() -> None:
    parcel = Parcel(tries=2)
    assert moved(Place.PACKED, parcel, recall).data is parcel


def test_an_update_leaves_the_old_data_as_it_was() -> None:
    parcel = Parcel(tries=1)
    decision = moved(Place.PACKED, parcel, collect)
    assert decision.data.tries == 2
    assert parcel == Parcel(tries=1)


def test_an_update_receives_the_payload_of_the_event() -> None:
    assert moved(Place.ON_THE_ROAD, Parcel(), Handed(signature="Ada")).data.signed_by == "Ada"


def test_effects_are_values_made_from_the_new_data_in_the_order_of_the_row() -> None:
    decision = moved(Place.ON_THE_ROAD, Parcel(tries=1), Handed(signature="Ada"))
    assert decision.effects == (Receipt(signed_by="Ada", tries=1), "thank Ada")


def test_effects_of_a_row_without_an_update_come_from_the_data_as_it_is() -> None:
    class Spot(StrEnum):
        HERE = "here"
        AWAY = "away"

    def shout(data: str, _: Event) -> object:
        return data.upper()

    leave = command("leave", "Away.", by="anyone")
    machine = Machine[Spot, str](
        "spot",
        "Here or away.",
        initial=Spot.HERE,
        states=(state(Spot.HERE, "Here.", turn="anyone"), end(Spot.AWAY, "Away.")),
        rows=(on(leave, Spot.HERE, Spot.AWAY, owner="anyone", why="Enough.", emits=shout),),
        stop=(leave,),
    )
    decision = machine.decide(Spot.HERE, "bye", leave)
    assert isinstance(decision, Moved)
    assert (decision.data, decision.effects) == ("bye", ("BYE",))


def test_the_first_row_whose_guards_all_hold_is_taken() -> None:
    both_hold = moved(Place.ON_THE_ROAD, Parcel(tries=0), Handed(signature="Ada"))
    assert both_hold.state is Place.DELIVERED


def test_a_later_row_is_taken_when_an_earlier_guard_does_not_hold() -> None:
    assert moved(Place.ON_THE_ROAD, Parcel(tries=1), Handed()).state is Place.AT_DEPOT


def test_a_row_with_two_guards_needs_both() -> None:
    at_the_neighbour = Handed(signature="Bob", neighbour=True)
    assert moved(Place.ON_THE_ROAD, Parcel(tries=1), at_the_neighbour).state is Place.AT_DEPOT


def test_rows_are_tried_in_the_order_in_which_they_are_written() -> None:
    class Door(StrEnum):
        SHUT = "shut"
        AJAR = "ajar"
        OPEN = "open"

    calls: list[str] = []

    def is_unlocked(_: object, __: Event) -> bool:
        """The key was turned."""
        calls.append("is_unlocked")
        return True

    def is_light(_: object, __: Event) -> bool:
        """A child can push it."""
        calls.append("is_light")
        return True

    push = command("push", "Somebody leans on it.", by="anyone")
    to_ajar = on(push, Door.SHUT, Door.AJAR, owner="anyone", why="A little.", when=is_unlocked)
    to_open = on(push, Door.SHUT, Door.OPEN, owner="anyone", why="All the way.", when=is_light)

    def door(*rows: Any) -> Machine[Door, None]:
        return Machine(
            "door",
            "A door that is pushed.",
            initial=Door.SHUT,
            states=(
                state(Door.SHUT, "Shut.", turn="anyone"),
                end(Door.AJAR, "A bit open."),
                end(Door.OPEN, "Wide open."),
            ),
            rows=rows,
            stop=(push,),
        )

    first, second = door(to_ajar, to_open), door(to_open, to_ajar)
    assert getattr(first.decide(Door.SHUT, None, push), "state", None) is Door.AJAR
    assert getattr(second.decide(Door.SHUT, None, push), "state", None) is Door.OPEN
    assert calls == ["is_unlocked", "is_light"], "a guard after the row that was taken is not asked"


def test_a_row_that_stays_changes_data_and_is_no_transition() -> None:
    decision = moved(Place.AT_DEPOT, Parcel(), scan)
    assert decision.state is Place.AT_DEPOT
    assert decision.data.notes == ("scanned",)
    (step,) = decision.steps
    assert not step.moves
    assert (step.source, step.target, step.owner) == (Place.AT_DEPOT, Place.AT_DEPOT, "scanner")


@pytest.mark.parametrize("place", ON_ITS_WAY)
def test_a_row_that_stays_stays_in_each_of_its_states(place: Place) -> None:
    assert moved(place, Parcel(), scan).state is place


def test_an_event_that_leads_only_to_where_it_is_finds_it_already_there() -> None:
    assert refused(Place.AT_DEPOT, Parcel(), shelve).kind is Refusal.ALREADY_THERE


def test_an_explicit_refusal_where_the_event_would_lead_is_already_there_and_keeps_its_why() -> None:
    decision = refused(Place.ON_THE_ROAD, Parcel(), collect)
    assert (decision.kind, decision.why) == (Refusal.ALREADY_THERE, "It is in the van.")


def test_already_there_is_reported_before_terminal() -> None:
    assert refused(Place.RETURNED, Parcel(), recall).kind is Refusal.ALREADY_THERE


def test_a_command_in_a_terminal_state_is_refused_as_terminal_and_nothing_is_allowed() -> None:
    decision = refused(Place.DELIVERED, Parcel(), recall)
    assert decision.kind is Refusal.TERMINAL
    assert decision.allowed == ()
    assert "delivered" in decision.sentence


def test_a_command_without_a_row_is_refused_with_the_allowed_events() -> None:
    decision = refused(Place.PACKED, Parcel(), shelve)
    assert decision.kind is Refusal.NOT_ALLOWED
    assert (decision.machine, decision.state, decision.asked) == ("parcel", Place.PACKED, "shelve")
    assert decision.allowed == ("collect", "scan", "recall")
    assert decision.allowed == PARCEL.accepts(Place.PACKED)


def test_the_accepted_events_exclude_ignored_and_refused_events() -> None:
    assert PARCEL.accepts(Place.ON_THE_ROAD) == ("shelve", "handed", "scan", "written_off", "recall")
    assert PARCEL.accepts(Place.LOST) == ()


def test_an_ignored_event_is_refused_with_the_reason_from_its_row() -> None:
    decision = refused(Place.AT_DEPOT, Parcel(), Handed(signature="Ada"))
    assert decision.kind is Refusal.IGNORED
    assert decision.why == "Nobody carries it, so the report is stale."
    assert decision.why in decision.sentence


def test_an_event_that_is_ignored_in_a_terminal_state_is_ignored_and_not_terminal() -> None:
    decision = refused(Place.RETURNED, Parcel(), Handed(signature="Ada"))
    assert (decision.kind, decision.why) == (Refusal.IGNORED, "The first report counts.")


def test_an_explicit_refusal_returns_its_reason_and_the_allowed_events() -> None:
    decision = refused(Place.AT_DEPOT, Parcel(), written_off)
    assert decision.kind is Refusal.NOT_ALLOWED
    assert decision.why == "It lies on a shelf, so look there."
    assert decision.allowed == ("collect", "scan", "recall")


def test_an_explicit_refusal_in_a_terminal_state_is_terminal_and_keeps_its_why() -> None:
    decision = refused(Place.LOST, Parcel(), Handed())
    assert (decision.kind, decision.why) == (Refusal.TERMINAL, "It was written off; call the office.")


def test_a_guard_that_fails_is_named_in_the_refusal() -> None:
    decision = refused(Place.ON_THE_ROAD, Parcel(tries=3), Handed())
    assert decision.kind is Refusal.GUARD
    assert decision.guards == ("is_signed", "has_tries_left")
    assert "Somebody has to sign" in decision.why
    assert "The courier comes three times at most" in decision.why
    assert "is_signed, has_tries_left" in decision.sentence


def test_only_the_first_guard_that_fails_in_a_row_is_named() -> None:
    decision = refused(Place.ON_THE_ROAD, Parcel(tries=3), Handed(neighbour=True))
    assert decision.guards == ("is_signed", "has_tries_left")
    signed_by_neighbour = refused(Place.ON_THE_ROAD, Parcel(tries=3), Handed(signature="Bob", neighbour=True))
    assert signed_by_neighbour.guards == ("is_for_the_addressee", "has_tries_left")


def test_an_event_that_a_guard_refuses_is_still_among_the_allowed_events() -> None:
    assert "handed" in refused(Place.ON_THE_ROAD, Parcel(tries=3), Handed()).allowed


def test_a_refusal_calls_neither_update_nor_effect() -> None:
    class Till(StrEnum):
        OPEN = "open"
        SHUT = "shut"

    called: list[str] = []

    def never(_: object, __: Event) -> bool:
        """Never."""
        return False

    def count(data: None, _: Event) -> None:
        called.append("update")

    def ring(data: None, _: Event) -> object:
        called.append("effect")
        return None

    pay = command("pay", "Somebody pays.", by="anyone")
    shut = command("shut", "Closing time.", by="anyone")
    till = Machine[Till, None](
        "till",
        "A till.",
        initial=Till.OPEN,
        states=(state(Till.OPEN, "Open.", turn="anyone"), end(Till.SHUT, "Shut.")),
        rows=(
            on(pay, Till.OPEN, STAY, owner="anyone", why="Trade.", when=never, then=count, emits=ring),
            on(shut, Till.OPEN, Till.SHUT, owner="anyone", why="It is late."),
        ),
        stop=(shut,),
    )
    assert isinstance(till.decide(Till.OPEN, None, pay), Refused)
    assert called == []


def test_an_error_inside_a_guard_is_raised_unchanged() -> None:
    """A KeyError of the user's own must not be mistaken for a state that is unknown."""

    class Case(StrEnum):
        OPEN = "open"
        SHUT = "shut"

    def looks_it_up(data: dict[str, bool], _: Event) -> bool:
        """It is in the register."""
        return data["register"]

    shut = command("shut", "Shut it.", by="anyone")
    case = Machine[Case, dict[str, bool]](
        "case",
        "A case.",
        initial=Case.OPEN,
        states=(state(Case.OPEN, "Open.", turn="anyone"), end(Case.SHUT, "Shut.")),
        rows=(on(shut, Case.OPEN, Case.SHUT, owner="anyone", why="Enough.", when=looks_it_up),),
        stop=(shut,),
    )
    with pytest.raises(KeyError, match="register"):
        case.decide(Case.OPEN, {}, shut)


def test_equal_questions_get_equal_answers() -> None:
    again = [PARCEL.decide(Place.ON_THE_ROAD, Parcel(), Handed(signature="Ada")) for _ in range(2)]
    assert again[0] == again[1]


def test_a_machine_lists_its_states_events_and_ends_in_the_order_of_the_table() -> None:
    assert PARCEL.states == tuple(Place)
    assert [known.name for known in PARCEL.events] == [
        "collect",
        "shelve",
        "handed",
        "scan",
        "written_off",
        "recall",
    ]
    assert PARCEL.terminal == set(OVER)
    assert PARCEL.resting == frozenset()
    assert repr(PARCEL) == "<machine parcel: 6 states, 14 rows>"
