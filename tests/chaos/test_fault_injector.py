"""Whose turn it is to be killed."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from interlock.store.memory import MemoryStore
from interlock.systems.catalogue import CATALOGUE
from interlock_verification.chaos.system import fault_injector
from interlock_verification.chaos.system.fault_injector import SystemFaultInjector
from interlock_verification.chaos.system.fleet import Fleet

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


def injector_of(held_up: str = "") -> tuple[SystemFaultInjector, dict[str, Any]]:
    fleet = Fleet("", None, {})
    standing: dict[str, Any] = {name: Standing(name, up=name != held_up) for name in NAMES}
    fleet.members = standing
    return SystemFaultInjector(fleet, MemoryStore(CATALOGUE), 1), standing


async def deaths_of(kills: int, *, held_up: str = "") -> Counter[str]:
    injector, standing = injector_of(held_up)
    for _ in range(kills):
        await injector.kill()
    assert injector.fault_log.counts["kills"] == kills
    return Counter({name: one.deaths for name, one in standing.items()})


async def test_every_member_has_its_turn() -> None:
    deaths = await deaths_of(120)
    assert max(deaths.values()) - min(deaths.values()) <= fault_injector.AHEAD


async def test_a_member_that_does_not_start_is_killed_only_when_the_others_are_far_ahead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fault_injector, "YOUNG", 0.0)
    monkeypatch.setattr(fault_injector, "UP_S", 0.0)
    others = len(NAMES) - 1
    deaths = await deaths_of(others * fault_injector.AHEAD, held_up="bela")
    assert deaths == Counter(dict.fromkeys(set(NAMES) - {"bela"}, fault_injector.AHEAD))
    deaths = await deaths_of(others * fault_injector.AHEAD + 1, held_up="bela")
    assert deaths["bela"] == 1


async def test_a_process_that_ends_without_being_killed_is_noticed() -> None:
    injector, standing = injector_of()
    await injector.is_over()
    assert injector.fault_log.fallen == []
    standing["dora"].fell = True
    await injector.is_over()
    assert injector.fault_log.fallen == [
        "dora had ended by itself, and its last output was: It is dark here."
    ]
    while not standing["dora"].deaths:
        await injector.kill()
    assert len(injector.fault_log.fallen) == 2


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
    injector, standing = injector_of()
    standing["left"].fell, standing["left"].said = True, output
    await injector.is_over()
    assert len(injector.fault_log.fallen) == fallen
    assert injector.fault_log.counts[fault_injector.GAVE_UP] == 1 - fallen
