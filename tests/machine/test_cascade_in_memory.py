"""A cascade in memory: steps are reported, effects carried out, and several timers run at once."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

import pytest

from interlock.machine import (
    STAY,
    Couplings,
    Deadline,
    Event,
    Machine,
    Refused,
    command,
    ignore,
    on,
    rest,
    state,
    timer,
)
from interlock.machine.cascade import Cascade, Root, StepEffects, Timers, Wiring
from interlock.machine.couplings import AnyMachine

NOW = datetime(2026, 11, 17, tzinfo=UTC)


class Oven(StrEnum):
    COLD = "cold"
    HOT = "hot"
    GLOWING = "glowing"


light = command("light", "Light it.", by="guest")
stoke = command("stoke", "Put more wood in.", by="guest")
ring = timer("ring", "The bread is done.", by="clock")
burn_out = timer("burn_out", "The wood is burnt.", by="clock")
douse = command("douse", "Put it out.", by="guest")
BREAD = Deadline(ring, "bread_s", 10.0)
WOOD = Deadline(burn_out, "wood_s", 60.0)


def smoke(_: None, cause: Event) -> str:
    """Say what it smokes of."""
    return f"smoke of {cause.name}"


OVEN = Machine[Oven, None](
    "oven",
    "Bakes.",
    initial=Oven.COLD,
    spine=(Oven.COLD, Oven.HOT, Oven.GLOWING),
    stop=(douse,),
    states=(
        rest(Oven.COLD, "Clean."),
        state(Oven.HOT, "For bread.", turn="guest", within=WOOD),
        state(Oven.GLOWING, "For pizza.", turn="guest", within=WOOD),
    ),
    rows=(
        on(light, Oven.COLD, Oven.HOT, owner="guest", arms=BREAD, emits=smoke, why="Hunger."),
        on(stoke, Oven.HOT, Oven.GLOWING, owner="guest", why="It has to be hotter."),
        on(ring, Oven.HOT, STAY, owner="clock", arms=BREAD, why="The next loaf."),
        on(burn_out, (Oven.HOT, Oven.GLOWING), Oven.COLD, owner="clock", why="Wood is dear."),
        on(douse, (Oven.HOT, Oven.GLOWING), Oven.COLD, owner="guest", why="Good night."),
        ignore(ring, (Oven.COLD, Oven.GLOWING), why="there is no bread in it"),
        *(ignore(late, Oven.COLD, why="it is out") for late in (burn_out, douse)),
    ),
)


class Bakery(Cascade):
    in_memory = True
    wiring = Wiring((OVEN,), Couplings(()), {}, durations=("bread_s", "wood_s"))

    def __init__(self) -> None:
        super().__init__(NOW)
        self.oven = Root(OVEN.initial)
        self.reported: list[str] = []
        self.timers: set[str] = set()

    def parts(self) -> Iterable[tuple[AnyMachine, Any, Any]]:
        return ((OVEN, self.oven, "the baker"),)

    def seconds(self, setting: str) -> float:
        raise KeyError(setting)

    def report(self, effects: StepEffects, owner: Any) -> None:
        self.reported += [
            f"{owner}: {effects.machine.name} {step.event} {step.target}" for step in effects.steps
        ]

    def report_refusal(self, refused: Refused[Any], owner: Any) -> None:
        self.reported.append(f"{owner}: {refused.machine} {refused.asked} is refused in {refused.state}")

    def carry_out(self, effect: object, owner: Any) -> None:
        self.reported.append(f"{owner}: {effect}")

    def set_timers(self, ended: Timers, started: Timers, owner: Any) -> None:
        assert owner == "the baker"
        self.timers -= {deadline.setting for deadline in ended}
        self.timers |= {deadline.setting for deadline in started}

    def send(self, *events: Event) -> None:
        for event in events:
            self.send_to(OVEN, self.oven, event, "the baker")


def test_in_memory_steps_are_reported_and_effects_are_carried_out_at_once_and_nothing_is_kept() -> None:
    bakery = Bakery()
    bakery.send(light, stoke)
    assert bakery.reported == [
        "the baker: oven light hot",
        "the baker: smoke of light",
        "the baker: oven stoke glowing",
    ]
    assert (bakery.taken, bakery.is_news, bakery.oven.timer_at) == ([], False, None)


def test_a_cascade_in_memory_without_listeners_reports_refusals_alone() -> None:
    bakery = Bakery()
    bakery.is_reported = False
    bakery.send(stoke, light)
    assert bakery.reported == ["the baker: oven stoke is refused in cold", "the baker: smoke of light"]


@pytest.mark.parametrize(
    ("events", "timers"),
    [
        ((light,), {"bread_s", "wood_s"}),
        ((light, ring), {"bread_s", "wood_s"}),
        ((light, stoke), {"wood_s"}),
        ((light, stoke, ring), {"wood_s"}),
        ((light, douse), set()),
        ((light, stoke, burn_out), set()),
        ((light, douse, light), {"bread_s", "wood_s"}),
    ],
)
def test_in_memory_a_part_has_all_timers_of_its_state_and_its_rows_until_it_leaves(
    events: tuple[Event, ...], timers: set[str]
) -> None:
    bakery = Bakery()
    bakery.send(*events)
    assert bakery.timers == timers


def test_in_memory_a_deadline_that_two_states_share_is_not_started_again() -> None:
    bakery = Bakery()
    bakery.send(light)
    bakery.timers.clear()
    bakery.send(stoke)
    assert bakery.timers == set()
