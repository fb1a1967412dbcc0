"""A walk takes the machine through another event first, in the same decision: all of it or nothing."""

from __future__ import annotations

from enum import StrEnum

from interlock.machine import (
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
    message,
    on,
    refuse,
    state,
    timer,
    walk,
)


class Errand(StrEnum):
    ASKED = "asked"
    AGREED = "agreed"
    GOING = "going"
    DONE = "done"
    DROPPED = "dropped"


Log = tuple[str, ...]


@event(Kind.COMMAND, by="helper")
class Agree(Event):
    """The helper says yes."""

    word: str


go = command("go", "The helper sets out.", by="helper")
drop = command("drop", "Never mind.", by="asker")
wave = message("wave", "The helper waves from afar.", by="helper")
late = timer("late", "It takes too long.", by="clock")

ARRIVAL = Deadline(late, "arrival_s", 60)


@event(Kind.MESSAGE, by="helper")
class Finished(Event):
    """The helper says that it is done."""

    with_proof: bool = True


def has_proof(_: Log, finished: Finished) -> bool:
    """A receipt has to be shown."""
    return finished.with_proof


def log_agree(log: Log, agree: Agree) -> Log:
    return (*log, f"agreed: {agree.word}")


def log_go(log: Log, _: Event) -> Log:
    return (*log, "went")


def log_finish(log: Log, _: Finished) -> Log:
    return (*log, "finished")


def say_gone(log: Log, _: Event) -> object:
    return f"gone after {len(log)}"


def say_done(log: Log, _: Finished) -> object:
    return f"done after {len(log)}"


OVER = (Errand.DONE, Errand.DROPPED)

ERRAND = Machine[Errand, Log](
    "errand",
    "Something that a helper does for somebody.",
    initial=Errand.ASKED,
    states=(
        state(Errand.ASKED, "Waits for a yes.", turn="helper"),
        state(Errand.AGREED, "About to go.", turn="helper"),
        state(Errand.GOING, "On the way.", within=ARRIVAL),
        end(Errand.DONE, "Done."),
        end(Errand.DROPPED, "Not wanted any more."),
    ),
    rows=(
        on(Agree, Errand.ASKED, Errand.AGREED, owner="helper", why="A yes.", then=log_agree),
        on(go, Errand.AGREED, Errand.GOING, owner="helper", why="Off.", then=log_go, emits=say_gone),
        on(
            Finished,
            Errand.GOING,
            Errand.DONE,
            owner="helper",
            why="There and back.",
            when=has_proof,
            then=log_finish,
            emits=say_done,
        ),
        walk(Finished, Errand.AGREED, first=go, why="Who has finished has gone."),
        walk(Finished, Errand.ASKED, first=Agree(word="implied"), why="Who has finished has agreed."),
        refuse(Finished, OVER, why="It is over."),
        walk(wave, Errand.AGREED, first=go, why="Who waves from afar has gone."),
        on(wave, Errand.GOING, Errand.GOING, owner="helper", why="Still alive."),
        refuse(wave, (Errand.ASKED, *OVER), why="Nobody is on the way."),
        on(late, Errand.GOING, Errand.DROPPED, owner="clock", why="Too late."),
        refuse(late, (Errand.ASKED, Errand.AGREED, *OVER), why="Nobody is on the way."),
        on(drop, (Errand.ASKED, Errand.AGREED, Errand.GOING), Errand.DROPPED, owner="asker", why="Off."),
    ),
    stop=(drop,),
)


def test_a_walk_takes_both_steps_in_one_decision() -> None:
    decision = ERRAND.decide(Errand.AGREED, (), Finished())
    assert isinstance(decision, Moved)
    assert decision.state is Errand.DONE
    assert [(step.event, step.source, step.target) for step in decision.steps] == [
        ("go", Errand.AGREED, Errand.GOING),
        ("finished", Errand.GOING, Errand.DONE),
    ]


def test_a_walk_may_lead_through_another_walk() -> None:
    decision = ERRAND.decide(Errand.ASKED, (), Finished())
    assert isinstance(decision, Moved)
    assert [step.event for step in decision.steps] == ["agree", "go", "finished"]


def test_each_step_of_a_walk_builds_on_the_data_of_the_one_before() -> None:
    decision = ERRAND.decide(Errand.ASKED, ("start",), Finished())
    assert isinstance(decision, Moved)
    assert decision.data == ("start", "agreed: implied", "went", "finished")


def test_a_walk_collects_the_effects_of_its_steps_in_order() -> None:
    decision = ERRAND.decide(Errand.ASKED, (), Finished())
    assert isinstance(decision, Moved)
    assert decision.effects == ("gone after 2", "done after 3")


def test_each_step_of_a_walk_arms_as_it_would_alone() -> None:
    decision = ERRAND.decide(Errand.AGREED, (), wave)
    assert isinstance(decision, Moved)
    assert [step.arms for step in decision.steps] == [(ARRIVAL,), (ARRIVAL,)]


def test_a_walk_that_is_held_back_at_its_second_step_takes_none() -> None:
    log: Log = ("start",)
    decision = ERRAND.decide(Errand.AGREED, log, Finished(with_proof=False))
    assert isinstance(decision, Refused)
    assert decision.kind is Refusal.GUARD
    assert decision.guards == ("has_proof",)
    assert decision.asked == "finished"
    assert log == ("start",)


def test_a_walk_that_is_held_back_at_its_third_step_takes_none() -> None:
    assert isinstance(ERRAND.decide(Errand.ASKED, (), Finished(with_proof=False)), Refused)


def test_the_refusal_of_a_walk_names_the_state_that_the_record_is_in() -> None:
    """Nothing has moved, so nobody may be told of a state that was never reached."""
    for place in (Errand.AGREED, Errand.ASKED):
        decision = ERRAND.decide(place, (), Finished(with_proof=False))
        assert isinstance(decision, Refused)
        assert decision.state is place
        assert decision.allowed == ERRAND.accepts(place)


def test_an_event_that_starts_a_walk_is_among_the_accepted_events() -> None:
    assert ERRAND.accepts(Errand.AGREED) == ("go", "finished", "wave", "drop")


def test_the_steps_that_leave_a_state_are_its_own_rows_and_not_its_walks() -> None:
    assert [step.event for step in ERRAND.steps_from(Errand.AGREED)] == ["go", "drop"]


def test_an_event_that_only_starts_walks_and_their_first_steps_are_events_of_the_machine() -> None:
    assert [known.name for known in ERRAND.events] == ["agree", "go", "finished", "wave", "late", "drop"]
