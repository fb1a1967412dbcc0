"""Names as people and programs give them: states, events, and the ones that are not known."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, cast

import pytest

from interlock.errors import InterlockError, UnknownEvent, UnknownState
from interlock.machine import (
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
    on,
    state,
)


class Order(StrEnum):
    NEW = "new"
    IN_PROGRESS = "in-progress"
    SHIPPED = "SHIPPED"
    CANCELED = "CANCELED"


start_work = command("start_work", "Somebody begins.", by="clerk")
ship = command("ship", "Off it goes.", by="clerk")
cancel = command("cancel", "Not wanted.", by="customer")


@event(Kind.MESSAGE, by="clerk", name="cancelled_by_law")
class Forbidden(Event):
    """The law says no."""


ORDER = Machine[Order, None](
    "order",
    "An order.",
    initial=Order.NEW,
    states=(
        state(Order.NEW, "New.", turn="clerk"),
        state(Order.IN_PROGRESS, "Worked on.", turn="clerk"),
        end(Order.SHIPPED, "Shipped."),
        end(Order.CANCELED, "Not any more."),
    ),
    rows=(
        on(start_work, Order.NEW, Order.IN_PROGRESS, owner="clerk", why="Time."),
        on(ship, Order.IN_PROGRESS, Order.SHIPPED, owner="clerk", why="Ready."),
        on(cancel, (Order.NEW, Order.IN_PROGRESS), Order.CANCELED, owner="customer", why="Theirs."),
        on(Forbidden, (Order.NEW, Order.IN_PROGRESS), Order.CANCELED, owner="law", why="The law."),
        ignore(Forbidden, (Order.SHIPPED, Order.CANCELED), why="Too late."),
    ),
    stop=(cancel,),
)


def plain(name: str) -> Order:
    """A plain string where a state is expected, as it comes out of a database row."""
    return cast("Order", name)


@pytest.mark.parametrize("name", ["new", "NEW", "New", "nEw"])
def test_a_state_is_found_in_any_case(name: str) -> None:
    assert ORDER.state(name) is Order.NEW


@pytest.mark.parametrize("name", ["in-progress", "in_progress", "IN-PROGRESS", "IN_PROGRESS"])
def test_a_state_is_found_with_dashes_or_underscores(name: str) -> None:
    assert ORDER.state(name) is Order.IN_PROGRESS


@pytest.mark.parametrize("name", ["canceled", "cancelled", "CANCELED", "CANCELLED", "Cancelled"])
def test_a_state_is_found_under_either_spelling_of_canceled(name: str) -> None:
    assert ORDER.state(name) is Order.CANCELED


@pytest.mark.parametrize("name", ["start_work", "start-work", "START-WORK", "Start_Work"])
def test_an_event_is_found_in_any_case_and_with_dashes(name: str) -> None:
    assert ORDER.event(name) is type(start_work)


@pytest.mark.parametrize("name", ["cancelled_by_law", "canceled-by-law"])
def test_an_event_that_carries_something_is_found_by_its_name(name: str) -> None:
    assert ORDER.event(name) is Forbidden


def test_every_state_and_event_is_found_under_its_own_name() -> None:
    assert [ORDER.state(known) for known in ORDER.states] == list(ORDER.states)
    assert [ORDER.event(known.name) for known in ORDER.events] == list(ORDER.events)


@pytest.mark.parametrize("name", ["in-progress", Order.IN_PROGRESS])
def test_a_plain_string_equal_to_a_state_works_as_that_state(name: str) -> None:
    decision = ORDER.decide(plain(name), None, ship)
    assert isinstance(decision, Moved)
    assert decision.state is Order.SHIPPED
    assert ORDER.accepts(plain(name)) == ("ship", "cancel", "cancelled_by_law")
    assert [step.event for step in ORDER.steps_from(plain(name))] == ["ship", "cancel", "cancelled_by_law"]


def test_the_answer_to_a_plain_string_holds_the_state_itself() -> None:
    refused = ORDER.decide(plain("new"), None, ship)
    assert isinstance(refused, Refused)
    assert refused.state is Order.NEW
    stays = ORDER.toward(plain("new"), plain("new"))
    assert isinstance(stays, Refused)
    assert stays.state is Order.NEW


KNOWN_STATES = ("new", "in-progress", "SHIPPED", "CANCELED")
KNOWN_EVENTS = ("start_work", "ship", "cancel", "cancelled_by_law")

_ASKED_OF_A_STATE: dict[str, Any] = {
    "state": ORDER.state,
    "decide": lambda name: ORDER.decide(plain(name), None, ship),
    "accepts": lambda name: ORDER.accepts(plain(name)),
    "steps_from": lambda name: ORDER.steps_from(plain(name)),
    "toward, from": lambda name: ORDER.toward(plain(name), Order.NEW),
    "toward, to": lambda name: ORDER.toward(Order.NEW, plain(name)),
}


@pytest.mark.parametrize("question", _ASKED_OF_A_STATE)
def test_a_question_about_an_unknown_state_lists_the_known_ones(question: str) -> None:
    with pytest.raises(UnknownState) as caught:
        _ASKED_OF_A_STATE[question]("shiped")
    error = caught.value
    assert error.allowed == KNOWN_STATES
    assert error.facts == {"state": "shiped", "known": list(KNOWN_STATES)}
    assert error.sentence == "There is no state 'shiped' of order. Did you mean SHIPPED?"
    assert all(name in error.todo for name in KNOWN_STATES)


def test_an_unknown_event_name_lists_the_known_ones() -> None:
    with pytest.raises(UnknownEvent) as caught:
        ORDER.event("shipp")
    assert caught.value.allowed == KNOWN_EVENTS
    assert caught.value.sentence == "There is no event 'shipp' of order. Did you mean ship?"


def test_deciding_an_event_that_the_table_does_not_know_lists_the_known_ones() -> None:
    sing = command("sing", "A song.", by="anyone")
    with pytest.raises(UnknownEvent) as caught:
        ORDER.decide(Order.NEW, None, sing)
    assert caught.value.allowed == KNOWN_EVENTS
    assert caught.value.facts["event"] == "sing"


def test_a_foreign_event_of_the_same_name_is_unknown() -> None:
    foreign = command("cancel", "Something else altogether.", by="somebody else")
    with pytest.raises(UnknownEvent) as caught:
        ORDER.decide(Order.NEW, None, foreign)
    assert caught.value.allowed == KNOWN_EVENTS


def test_the_given_name_itself_is_never_suggested() -> None:
    foreign = command("cancel", "Something else altogether.", by="somebody else")
    with pytest.raises(UnknownEvent) as caught:
        ORDER.decide(Order.NEW, None, foreign)
    assert "Did you mean cancel?" not in caught.value.sentence


def test_something_that_is_no_event_at_all_is_unknown() -> None:
    with pytest.raises(UnknownEvent, match="cancel"):
        ORDER.decide(Order.NEW, None, cast("Event", "cancel"))


def test_a_state_and_an_event_that_are_both_unknown_are_answered_with_the_state() -> None:
    with pytest.raises(UnknownState):
        ORDER.decide(plain("nowhere"), None, command("sing", "A song.", by="anyone"))


def test_unknown_names_are_errors_of_the_one_tree() -> None:
    with pytest.raises(InterlockError):
        ORDER.state("nowhere")


@pytest.mark.parametrize(
    "name", ["", " ", "new ", "n e w", "new\n", "\uff2e\uff25\uff37", "None", "0", "ne" * 5_000]
)
def test_a_name_that_only_resembles_a_state_is_unknown(name: str) -> None:
    with pytest.raises(UnknownState):
        ORDER.state(name)


def test_asking_for_the_state_it_is_in_by_another_spelling_finds_it_already_there() -> None:
    for name in ("new", "NEW"):
        answer = ORDER.toward(Order.NEW, plain(name))
        assert isinstance(answer, Refused)
        assert answer.kind is Refusal.ALREADY_THERE
    ended = ORDER.toward(plain("cancelled"), Order.SHIPPED)
    assert isinstance(ended, Refused)
    assert ended.kind is Refusal.TERMINAL
