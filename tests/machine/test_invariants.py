"""Claims that stand beside a table: about every moment, and about every step."""

from __future__ import annotations

from enum import StrEnum

from interlock.machine import Across, Always, Machine, command, end, on, state


class Tank(StrEnum):
    FILLING = "filling"
    FULL = "full"


fill = command("fill", "It is full.", by="pump")

TANK = Machine[Tank, int](
    "tank",
    "A tank.",
    initial=Tank.FILLING,
    states=(state(Tank.FILLING, "Water runs.", turn="pump"), end(Tank.FULL, "Full.")),
    rows=(on(fill, Tank.FILLING, Tank.FULL, owner="pump", why="Enough."),),
    stop=(fill,),
    invariants=(
        Always("a full tank holds ten litres", lambda place, litres: place is not Tank.FULL or litres == 10),
        Always("there is no negative water", lambda _, litres: litres >= 0),
        Across("water never runs out", lambda _, before, __, after: after >= before),
    ),
)


def test_a_claim_that_holds_is_not_mentioned() -> None:
    assert TANK.broken(Tank.FULL, 10) == ()
    assert TANK.broken_across(Tank.FILLING, 3, Tank.FULL, 10) == ()


def test_every_claim_about_a_moment_that_does_not_hold_is_named() -> None:
    assert TANK.broken(Tank.FULL, -1) == ("a full tank holds ten litres", "there is no negative water")


def test_a_claim_about_a_step_that_does_not_hold_is_named() -> None:
    assert TANK.broken_across(Tank.FILLING, 5, Tank.FILLING, 4) == ("water never runs out",)


def test_claims_about_moments_and_steps_are_kept_apart() -> None:
    assert TANK.broken(Tank.FILLING, 4) == ()
    assert TANK.broken_across(Tank.FILLING, -2, Tank.FILLING, -1) == ()
