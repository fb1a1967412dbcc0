"""Which deadlines a step starts: the one of the state it enters, and what its row names."""

from __future__ import annotations

from enum import StrEnum

import pytest

from interlock.machine import (
    STAY,
    Deadline,
    Event,
    Machine,
    Moved,
    command,
    end,
    ignore,
    on,
    rest,
    state,
    timer,
)


class Call(StrEnum):
    HUNG_UP = "hung_up"
    DIALLING = "dialling"
    RINGING = "ringing"
    TALKING = "talking"
    ON_HOLD = "on_hold"
    OVER = "over"


no_answer = timer("no_answer", "Nobody picks up.", by="exchange")
credit_gone = timer("credit_gone", "The coins are used up.", by="exchange")
beep = timer("beep", "A beep, so that people hurry.", by="exchange")

dial = command("dial", "A number is dialled.", by="caller")
dial_loudly = command("dial_loudly", "A number is dialled, with beeps.", by="caller")
ring = command("ring", "It rings over there.", by="caller")
ring_again = command("ring_again", "It rings once more.", by="caller")
answer = command("answer", "Somebody picks up.", by="callee")
insert_coin = command("insert_coin", "Another coin.", by="caller")
chat = command("chat", "Words.", by="caller")
hold = command("hold", "Wait a moment.", by="callee")
hang_up = command("hang_up", "Somebody hangs up.", by="caller")

PATIENCE = Deadline(no_answer, "patience_s", 30)
CREDIT = Deadline(credit_gone, "credit_s", 60, since="the last coin")
BEEP = Deadline(beep, "beep_s", 5)

BUSY = (Call.DIALLING, Call.RINGING, Call.TALKING, Call.ON_HOLD)

CALL = Machine[Call, None](
    "call",
    "A call from a box.",
    initial=Call.HUNG_UP,
    states=(
        rest(Call.HUNG_UP, "The receiver hangs."),
        state(Call.DIALLING, "The dial turns.", within=PATIENCE),
        state(Call.RINGING, "It rings.", within=Deadline(no_answer, "patience_s", 30)),
        state(Call.TALKING, "Two people talk.", within=CREDIT),
        state(Call.ON_HOLD, "One waits.", turn="caller"),
        end(Call.OVER, "The box is closed."),
    ),
    rows=(
        on(dial, (Call.HUNG_UP, Call.ON_HOLD), Call.DIALLING, owner="caller", why="A call."),
        on(dial_loudly, Call.HUNG_UP, Call.DIALLING, owner="caller", why="A call.", arms=BEEP),
        on(ring, (Call.DIALLING, Call.TALKING), Call.RINGING, owner="exchange", why="Found."),
        on(ring_again, Call.RINGING, Call.RINGING, owner="exchange", why="Still nobody."),
        on(answer, (Call.RINGING, Call.ON_HOLD), Call.TALKING, owner="callee", why="Hello."),
        on(insert_coin, Call.TALKING, STAY, owner="caller", why="More time.", arms=(CREDIT, BEEP)),
        on(chat, Call.TALKING, STAY, owner="caller", why="Words cost nothing."),
        on(hold, Call.TALKING, Call.ON_HOLD, owner="callee", why="The cake is burning."),
        on(hang_up, (Call.HUNG_UP, *BUSY), Call.OVER, owner="caller", why="Bye."),
        on(no_answer, (Call.DIALLING, Call.RINGING), Call.HUNG_UP, owner="exchange", why="Nobody."),
        ignore(no_answer, (Call.HUNG_UP, Call.TALKING, Call.ON_HOLD, Call.OVER), why="Stale."),
        on(credit_gone, Call.TALKING, Call.OVER, owner="exchange", why="No coins."),
        ignore(
            credit_gone, (Call.HUNG_UP, Call.DIALLING, Call.RINGING, Call.ON_HOLD, Call.OVER), why="Stale."
        ),
        on(beep, (Call.DIALLING, Call.TALKING), STAY, owner="exchange", why="Hurry."),
        ignore(beep, (Call.HUNG_UP, Call.RINGING, Call.ON_HOLD, Call.OVER), why="Nobody hears it."),
    ),
    stop=(hang_up,),
)


def armed(place: Call, occurrence: Event) -> tuple[Deadline, ...]:
    decision = CALL.decide(place, None, occurrence)
    assert isinstance(decision, Moved), decision
    (step,) = decision.steps
    return step.arms


@pytest.mark.parametrize("source", [Call.HUNG_UP, Call.ON_HOLD])
def test_entering_a_state_arms_its_deadline(source: Call) -> None:
    assert armed(source, dial) == (PATIENCE,)


def test_entering_a_state_with_another_deadline_arms_that_one() -> None:
    assert armed(Call.RINGING, answer) == (CREDIT,)
    assert armed(Call.TALKING, ring) == (PATIENCE,)


def test_a_transition_between_two_states_with_the_same_deadline_does_not_restart_the_deadline() -> None:
    assert armed(Call.DIALLING, ring) == ()


def test_a_loop_starts_the_deadline_anew() -> None:
    assert armed(Call.RINGING, ring_again) == (PATIENCE,)


def test_entering_a_state_without_a_deadline_arms_nothing() -> None:
    assert armed(Call.TALKING, hold) == ()
    assert armed(Call.TALKING, hang_up) == ()


def test_a_row_that_stays_arms_nothing_by_itself() -> None:
    assert armed(Call.TALKING, chat) == ()


def test_a_row_that_stays_arms_the_deadlines_that_it_names() -> None:
    assert armed(Call.TALKING, insert_coin) == (CREDIT, BEEP)


def test_the_deadlines_that_a_row_names_are_armed_besides_the_deadline_of_the_target_state() -> None:
    assert set(armed(Call.HUNG_UP, dial_loudly)) == {PATIENCE, BEEP}


@pytest.mark.parametrize(
    "other",
    [
        Deadline(no_answer, "patience_s", 31),
        Deadline(no_answer, "other_patience_s", 30),
        Deadline(beep, "patience_s", 30),
    ],
    ids=["other seconds", "other setting", "other event"],
)
def test_deadlines_that_differ_in_anything_are_not_shared(other: Deadline) -> None:
    assert _arms_of_the_only_step(PATIENCE, other) == (other,)


def test_deadlines_are_shared_when_they_are_equal_even_if_written_twice() -> None:
    assert _arms_of_the_only_step(PATIENCE, Deadline(no_answer, "patience_s", 30)) == ()


def test_a_row_can_restart_a_deadline_that_its_source_and_target_states_share() -> None:
    assert _arms_of_the_only_step(PATIENCE, PATIENCE, arms=(PATIENCE,)) == (PATIENCE,)


def test_a_deadline_that_both_the_row_and_the_target_name_is_armed_once() -> None:
    assert _arms_of_the_only_step(None, PATIENCE, arms=(PATIENCE,)) == (PATIENCE,)


class Pair(StrEnum):
    LEFT = "left"
    RIGHT = "right"
    GONE = "gone"


def _arms_of_the_only_step(
    left: Deadline | None, right: Deadline, arms: tuple[Deadline, ...] = ()
) -> tuple[Deadline, ...]:
    """What going from one state to its neighbour arms, when they have these deadlines."""
    cross = command("cross", "From left to right.", by="anyone")
    leave = command("leave", "Away.", by="anyone")
    everywhere = (Pair.LEFT, Pair.RIGHT)
    machine = Machine[Pair, None](
        "pair",
        "Two neighbours.",
        initial=Pair.LEFT,
        states=(
            state(Pair.LEFT, "Left.", turn="anyone", within=left),
            state(Pair.RIGHT, "Right.", turn="anyone", within=right),
            end(Pair.GONE, "Gone."),
        ),
        rows=(
            on(cross, Pair.LEFT, Pair.RIGHT, owner="anyone", why="Over.", arms=arms),
            on(leave, everywhere, Pair.GONE, owner="anyone", why="Off."),
            *(on(late, everywhere, Pair.GONE, owner="clock", why="Too late.") for late in (no_answer, beep)),
            *(ignore(late, Pair.GONE, why="Gone.") for late in (no_answer, beep)),
        ),
        stop=(leave,),
    )
    decision = machine.decide(Pair.LEFT, None, cross)
    assert isinstance(decision, Moved)
    return decision.steps[0].arms
