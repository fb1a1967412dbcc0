"""How the moves of one machine become events of another, as a list that is checked."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import pytest

from interlock.errors import MalformedCouplings
from interlock.machine import (
    STAY,
    Coupling,
    Couplings,
    Event,
    Machine,
    Moved,
    Step,
    command,
    consequence,
    couple,
    end,
    ignore,
    map_of,
    on,
    state,
)


class Lamp(StrEnum):
    DARK = "dark"
    LIT = "lit"
    BROKEN = "broken"


class Moth(StrEnum):
    ASLEEP = "asleep"
    FLYING = "flying"
    GONE = "gone"


light = command("light", "Light it.", by="keeper")
dim = command("dim", "Out.", by="keeper")
flicker = command("flicker", "It flickers.", by="wind")
smash = command("smash", "It falls.", by="wind")

woken = consequence("woken", "There is light.", by="lamp")
dazzled = consequence("dazzled", "There is too much of it.", by="lamp")
leave = command("leave", "Away.", by="moth")

LAMP = Machine[Lamp, None](
    "lamp",
    "A lamp.",
    initial=Lamp.DARK,
    states=(
        state(Lamp.DARK, "Dark.", turn="keeper"),
        state(Lamp.LIT, "Lit.", turn="keeper"),
        end(Lamp.BROKEN, "In pieces."),
    ),
    rows=(
        on(light, Lamp.DARK, Lamp.LIT, owner="keeper", why="Night."),
        on(dim, Lamp.LIT, Lamp.DARK, owner="keeper", why="Day."),
        on(flicker, Lamp.LIT, STAY, owner="wind", why="Wind."),
        on(smash, (Lamp.DARK, Lamp.LIT), Lamp.BROKEN, owner="wind", why="A storm."),
    ),
    stop=(smash,),
)
MOTH = Machine[Moth, None](
    "moth",
    "A moth.",
    initial=Moth.ASLEEP,
    states=(
        state(Moth.ASLEEP, "Asleep.", turn="lamp"),
        state(Moth.FLYING, "Flying.", turn="moth"),
        end(Moth.GONE, "Gone."),
    ),
    rows=(
        on(woken, Moth.ASLEEP, Moth.FLYING, owner="lamp", why="Light."),
        ignore(woken, (Moth.FLYING, Moth.GONE), why="It is awake."),
        on(dazzled, (Moth.ASLEEP, Moth.FLYING), Moth.GONE, owner="lamp", why="Too much."),
        ignore(dazzled, Moth.GONE, why="It is not there."),
        on(leave, (Moth.ASLEEP, Moth.FLYING), Moth.GONE, owner="moth", why="Enough."),
    ),
    stop=(leave,),
)


@dataclass(frozen=True)
class Night:
    warm: bool = True
    moon: bool = False


def is_warm(night: Night) -> bool:
    """The night is warm."""
    return night.warm


def is_moonless(night: Night) -> bool:
    return not night.moon


def step(place: Lamp, occurrence: Event) -> Step[Lamp]:
    decision = LAMP.decide(place, None, occurrence)
    assert isinstance(decision, Moved)
    return decision.steps[0]


LIGHTING = step(Lamp.DARK, light)
DIMMING = step(Lamp.LIT, dim)
FLICKERING = step(Lamp.LIT, flicker)
SMASHED_DARK = step(Lamp.DARK, smash)
SMASHED_LIT = step(Lamp.LIT, smash)
ALL_STEPS = {
    "lighting": LIGHTING,
    "dimming": DIMMING,
    "flickering": FLICKERING,
    "smashed dark": SMASHED_DARK,
    "smashed lit": SMASHED_LIT,
}


def wakes(into: Any = Lamp.LIT, event: Any = woken, **options: Any) -> Coupling[Night]:
    return couple(
        LAMP, into, MOTH, event, **{"to": "every moth near it", "why": "Moths love light.", **options}
    )


def steps_that_cause(coupling: Coupling[Night], night: Night = Night()) -> set[str]:  # noqa: B008
    return {name for name, taken in ALL_STEPS.items() if coupling.follows(taken, night)}


def test_a_coupling_follows_a_step_into_its_state() -> None:
    assert steps_that_cause(wakes(Lamp.LIT)) == {"lighting"}


def test_a_coupling_follows_a_step_into_any_of_its_states() -> None:
    coupling = wakes((Lamp.DARK, Lamp.BROKEN))
    assert steps_that_cause(coupling) == {"dimming", "smashed dark", "smashed lit"}


def test_a_coupling_follows_only_the_events_it_names() -> None:
    assert steps_that_cause(wakes((Lamp.DARK, Lamp.BROKEN), by=dim)) == {"dimming"}
    assert steps_that_cause(wakes((Lamp.LIT, Lamp.DARK), by=(dim, light))) == {"dimming", "lighting"}


def test_a_coupling_follows_only_out_of_the_states_it_names() -> None:
    assert steps_that_cause(wakes(Lamp.BROKEN, out_of=Lamp.LIT)) == {"smashed lit"}
    assert steps_that_cause(wakes(Lamp.BROKEN, out_of=(Lamp.LIT, Lamp.DARK))) == {
        "smashed lit",
        "smashed dark",
    }


def test_a_coupling_follows_only_if_all_its_conditions_hold() -> None:
    coupling = wakes(when=(is_warm, is_moonless))
    assert coupling.follows(LIGHTING, Night(warm=True, moon=False))
    assert not coupling.follows(LIGHTING, Night(warm=False, moon=False))
    assert not coupling.follows(LIGHTING, Night(warm=True, moon=True))


def test_a_step_that_stays_enters_nothing() -> None:
    assert not wakes(Lamp.LIT).follows(FLICKERING, Night())


def test_a_coupling_that_holds_follows_a_step_that_stays_and_no_other() -> None:
    assert steps_that_cause(wakes(Lamp.LIT, by=flicker, holding=True)) == {"flickering"}


def test_a_step_of_another_machine_has_no_consequence() -> None:
    decision = MOTH.decide(Moth.ASLEEP, None, leave)
    assert isinstance(decision, Moved)
    assert not wakes(Lamp.LIT).follows(decision.steps[0], Night())


@pytest.mark.parametrize(
    ("coupling", "sentence"),
    [
        (wakes(), "lamp enters lit: send woken to every moth near it"),
        (
            wakes((Lamp.LIT, Lamp.BROKEN), out_of=Lamp.DARK, by=(light, smash), when=(is_warm, is_moonless)),
            (
                "lamp enters lit or broken out of dark by light or smash, "
                "if the night is warm and is_moonless: send woken to every moth near it"
            ),
        ),
        (wakes(event=None, to="a moth"), "lamp enters lit: create a moth"),
        (wakes(by=flicker, holding=True), "lamp stays lit by flicker: send woken to every moth near it"),
    ],
    ids=["bare", "with everything", "creating", "holding"],
)
def test_a_coupling_describes_its_consequence_in_one_sentence(
    coupling: Coupling[Night], sentence: str
) -> None:
    assert coupling.sentence.casefold() == sentence


def test_sound_couplings_are_listed_and_followed_in_order() -> None:
    first, second = wakes(when=is_warm), wakes(event=dazzled)
    couplings = Couplings([first, second, wakes(Lamp.BROKEN)])
    assert list(couplings)[:2] == [first, second]
    assert couplings.after(LIGHTING, Night()) == (first, second)
    assert couplings.after(LIGHTING, Night(warm=False)) == (second,)
    assert couplings.after(DIMMING, Night()) == ()


def faults_of(*couplings: Coupling[Night]) -> list[str]:
    with pytest.raises(MalformedCouplings) as caught:
        Couplings(couplings)
    faults = caught.value.facts["faults"]
    assert isinstance(faults, list)
    assert all(fault in caught.value.sentence for fault in faults)
    return faults


def test_a_coupling_to_an_unknown_state_of_its_cause_lists_the_known_ones() -> None:
    (fault,) = faults_of(wakes("glowing"))
    assert "lamp" in fault
    assert "'glowing'" in fault
    assert all(known in fault.partition("glowing'")[2] for known in ("dark", "lit", "broken"))


def test_a_coupling_out_of_an_unknown_state_is_a_fault() -> None:
    (fault,) = faults_of(wakes(out_of="glowing"))
    assert "'glowing'" in fault


def test_a_coupling_by_an_event_of_another_machine_is_a_fault() -> None:
    (fault,) = faults_of(wakes(by=leave))
    assert "'leave'" in fault


def test_a_coupling_that_no_row_can_cause_is_a_fault() -> None:
    (fault,) = faults_of(wakes(Lamp.LIT, by=dim))
    assert "no row of lamp can ever cause it" in fault


def test_a_coupling_that_holds_by_an_event_that_always_moves_is_a_fault() -> None:
    (fault,) = faults_of(wakes(Lamp.LIT, by=light, holding=True))
    assert "no row of lamp can ever cause it" in fault


def test_a_coupling_that_sends_an_event_the_other_machine_does_not_know_is_a_fault() -> None:
    (fault,) = faults_of(wakes(event=dim))
    assert "moth has no event 'dim'" in fault
    assert all(known in fault for known in ("woken", "dazzled", "leave"))


def test_a_coupling_that_sends_an_event_the_other_machine_does_not_decide_everywhere_is_a_fault() -> None:
    (fault,) = faults_of(wakes(event=leave))
    assert "moth does not say what leave does in gone" in fault


def test_a_coupling_without_a_why_is_a_fault() -> None:
    (fault,) = faults_of(wakes(why=" "))
    assert "has no reason" in fault


def test_the_faults_of_all_couplings_are_reported_at_once() -> None:
    found = faults_of(
        wakes("glowing", why=""), wakes(), wakes(Lamp.LIT, by=dim, event=dim), wakes(event=leave)
    )
    assert len(found) == 5
    with pytest.raises(MalformedCouplings, match=r"The couplings have 5 faults"):
        Couplings([wakes("glowing", why=""), wakes(Lamp.LIT, by=dim, event=dim), wakes(event=leave)])


def test_creating_a_record_needs_no_event_of_the_other_machine() -> None:
    assert len(list(Couplings([wakes(event=None, to="a moth")]))) == 1


def test_couplings_are_drawn_with_machines_as_places_and_consequences_as_ways() -> None:
    itself: Coupling[Night] = couple(LAMP, Lamp.BROKEN, LAMP, None, to="a new lamp", why="It is dark.")
    couplings = Couplings([wakes(when=is_warm), wakes((Lamp.LIT, Lamp.BROKEN)), itself])
    down = map_of(couplings, name="night", doc="A night.", spine=[LAMP, MOTH])
    assert (down.machine, down.initial, down.spine) == ("night", "lamp", ("lamp", "moth"))
    assert [place.name for place in down.states] == ["lamp", "moth"]
    assert [(way.event, way.source, way.target, way.owner) for way in down.transitions] == [
        ("woken", "lamp", "moth", "intent"),
        ("create", "lamp", "lamp", "itself"),
    ]


def test_a_coupling_that_points_up_the_spine_is_drawn_as_a_fact() -> None:
    up = map_of(Couplings([wakes()]), name="night", doc="A night.", spine=[MOTH, LAMP])
    assert [(way.source, way.owner) for way in up.transitions] == [("lamp", "fact")]
