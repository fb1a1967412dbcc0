"""How each state looks to people: read off the table, and declared where a table cannot tell."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum

import pytest

from interlock.machine import Deadline, Machine, Tone, command, end, ignore, on, state, timer
from interlock.systems.catalogue import JOURNALLED

EVERY = dict(JOURNALLED)


@pytest.mark.parametrize("name", sorted(EVERY))
def test_every_state_of_every_machine_has_a_tone(name: str) -> None:
    machine = EVERY[name]
    assert tuple(machine.tones) == machine.states
    assert set(machine.tones.values()) <= set(Tone)


@pytest.mark.parametrize("name", sorted(EVERY))
def test_a_state_declares_a_tone_only_if_it_differs_from_the_tone_derived_from_its_table(name: str) -> None:
    table = EVERY[name].table
    silent = replace(table, states=[replace(entry, tone=None) for entry in table.states])
    assert not [entry.name for entry in table.states if entry.tone and silent.tone(entry.name) is entry.tone]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "job",
            "SUBMITTED waiting PENDING waiting RUNNING active COMPLETED good FAILED bad CANCELED stopped",
        ),
        ("worker", "IDLE waiting RUNNING active PAUSED waiting COMPLETED good FAILED bad TERMINATED bad"),
        ("token", "active active rotating active revoked stopped expired stopped"),
        ("session", "open active ended stopped expired stopped"),
        ("standing", "watched active quarantined bad cleared stopped"),
        ("history", "steady good flaky bad forgotten stopped"),
        ("cache", "saving active kept active expired stopped evicted stopped removed stopped"),
        ("log", "open active kept good discarded stopped"),
        ("message", "waiting waiting sending active sent good dead bad dropped stopped"),
    ],
)
def test_states_look_as_people_expect(name: str, expected: str) -> None:
    found = EVERY[name].tones
    assert " ".join(f"{one} {tone}" for one, tone in found.items()) == expected


def test_a_reported_run_has_a_neutral_tone_because_its_outcome_may_be_a_failure() -> None:
    found = EVERY["run"].tones
    assert (found["REPORTED"], found["SUCCESS"], found["FAILED"]) == ("stopped", "good", "bad")


class Order(StrEnum):
    """Where an order of somebody's shop stands."""

    PLACED = "placed"
    PACKING = "packing"
    SHIPPED = "shipped"
    LOST = "lost"
    WITHDRAWN = "withdrawn"


pack = command("pack", "Begin to pack.", by="clerk")
ship = command("ship", "Hand it over.", by="clerk")
withdraw = command("withdraw", "The customer does not want it.", by="customer")
lose = timer("lose", "Nobody packed it.", by="clock")
LATE = Deadline(lose, "late_s", 60.0, since="it was placed")

# fmt: off
ORDER = Machine[Order, None](
    "order",
    "An order.",
    initial=Order.PLACED,
    spine=(Order.PLACED, Order.PACKING, Order.SHIPPED),
    stop=(withdraw,),
    states=(
        state(Order.PLACED, "Waits.", turn="clerk", within=LATE),
        state(Order.PACKING, "Is packed.", turn="clerk", within=LATE),
        end(Order.SHIPPED, "Is on its way."),
        end(Order.LOST, "Was forgotten."),
        end(Order.WITHDRAWN, "Is not wanted."),
    ),
    rows=(
        on(pack, Order.PLACED, Order.PACKING, owner="clerk", why="Somebody has time."),
        on(ship, Order.PACKING, Order.SHIPPED, owner="clerk", why="It is packed."),
        on(lose, (Order.PLACED, Order.PACKING), Order.LOST, owner="clock", why="Nobody had time."),
        on(withdraw, (Order.PLACED, Order.PACKING), Order.WITHDRAWN, owner="customer", why="As wanted."),
        ignore(lose, (Order.SHIPPED, Order.LOST, Order.WITHDRAWN), why="it is over"),
    ),
)
# fmt: on


def test_a_machine_that_a_user_declares_is_read_off_its_table() -> None:
    assert ORDER.tones == {
        "placed": "waiting",
        "packing": "active",
        "shipped": "good",
        "lost": "bad",
        "withdrawn": "stopped",
    }
