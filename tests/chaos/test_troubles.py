"""Whose turn it is to be killed."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from interlock.store.memory import MemoryStore
from interlock.systems.catalogue import CATALOGUE
from interlock_verification.chaos.system import troubles
from interlock_verification.chaos.system.fleet import Fleet
from interlock_verification.chaos.system.troubles import Troublemaker

NAMES = ("left", "right", "anna", "bela", "carl", "dora")


class Standing:
    """A member of the fleet that has no process: it is up, or never comes so far."""

    runner_id = ""

    def __init__(self, name: str, *, up: bool) -> None:
        self.name = name
        self.is_up = up
        self.fell = False
        self.said = "It is dark here."
        self.deaths = 0

    @property
    def life(self) -> Standing:
        return self

    def is_gone(self, _: float) -> bool:
        return self.fell

    def output(self) -> str:
        return self.said

    def kill(self) -> None:
        self.deaths += 1

    def start_again(self) -> Standing:
        return self


def troublemaker(held_up: str = "") -> tuple[Troublemaker, dict[str, Any]]:
    fleet = Fleet("", None, {})
    standing: dict[str, Any] = {name: Standing(name, up=name != held_up) for name in NAMES}
    fleet.members = standing
    return Troublemaker(fleet, MemoryStore(CATALOGUE), 1), standing


async def deaths_of(kills: int, *, held_up: str = "") -> Counter[str]:
    trouble, standing = troublemaker(held_up)
    for _ in range(kills):
        await trouble.kill()
    assert trouble.ledger.counts["kills"] == kills
    return Counter({name: one.deaths for name, one in standing.items()})


async def test_every_member_has_its_turn() -> None:
    deaths = await deaths_of(120)
    assert max(deaths.values()) - min(deaths.values()) <= troubles.AHEAD


async def test_a_member_that_does_not_start_is_killed_only_when_the_others_are_far_ahead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(troubles, "YOUNG", 0.0)
    monkeypatch.setattr(troubles, "UP_S", 0.0)
    others = len(NAMES) - 1
    deaths = await deaths_of(others * troubles.AHEAD, held_up="bela")
    assert deaths == Counter(dict.fromkeys(set(NAMES) - {"bela"}, troubles.AHEAD))
    deaths = await deaths_of(others * troubles.AHEAD + 1, held_up="bela")
    assert deaths["bela"] == 1


async def test_a_process_that_ends_without_being_killed_is_noticed() -> None:
    trouble, standing = troublemaker()
    await trouble.is_over()
    assert trouble.ledger.fallen == []
    standing["dora"].fell = True
    await trouble.is_over()
    assert trouble.ledger.fallen == ["dora had ended by itself, and its last output was: It is dark here."]
    while not standing["dora"].deaths:
        await trouble.kill()
    assert len(trouble.ledger.fallen) == 2


@pytest.mark.parametrize(
    ("output", "fallen"),
    [
        ("Error: Opening the store failed: no server answers there.", 0),
        ("Traceback …\nKeyError: 'a'", 1),
        ("", 1),
    ],
)
async def test_a_process_that_exits_with_an_error_message_is_not_counted_as_crashed(
    output: str, fallen: int
) -> None:
    trouble, standing = troublemaker()
    standing["left"].fell, standing["left"].said = True, output
    await trouble.is_over()
    assert len(trouble.ledger.fallen) == fallen
    assert trouble.ledger.counts[troubles.GAVE_UP] == 1 - fallen
