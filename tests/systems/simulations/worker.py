"""A worker of a simulation in a few words, for tests that play one."""

from __future__ import annotations

from typing import Any

import msgspec
from tests.systems.orchestrator.house import House

from interlock.engine.audit import audit
from interlock.systems.catalogue import JOURNALLED
from interlock.systems.simulations.manager import SimulationManager
from interlock.wire.runner import Grant
from interlock.wire.simulations import (
    AnySimulationMessage,
    Beat,
    Begin,
    Completed,
    SimulationOrders,
    SimulationSpec,
    SimulationView,
)

SPEC = SimulationSpec(task="flu", scenario_name="Flu", scenario_path="scenarios/flu.yaml", total_steps=10)
RUNNER = "runner#1"


def simulations(house: House) -> SimulationManager:
    """What people do with simulations."""
    return house.port.services.simulations


class Player:
    """One attempt at executing a simulation."""

    def __init__(self, house: House, grant: Grant, runner: str) -> None:
        self.house, self.grant, self.runner = house, grant, runner

    async def say(self, word: AnySimulationMessage) -> SimulationOrders:
        """What it is answered."""
        return await simulations(self.house).receive(self.grant.token, self.runner, word)

    async def beat(self, step: int, **more: Any) -> SimulationOrders:
        """A sign of life after a step, with what the next one needs."""
        return await self.say(Beat(step=step, checkpoint=msgspec.Raw(b"%d" % step), **more))

    async def complete(self, step: int = 10) -> SimulationOrders:
        """The last step is done."""
        return await self.say(Completed(step=step, result=msgspec.Raw(b"42")))


async def taken(house: House, runner: str = RUNNER) -> Player:
    """Somebody was given the job of a simulation."""
    return Player(house, await house.grant(runner), runner)


async def begun(house: House, runner: str = RUNNER) -> Player:
    """The same, and has begun."""
    player = await taken(house, runner)
    orders = await player.say(Begin())
    assert orders.go_on, orders
    return player


async def running(house: House, **spec: Any) -> tuple[SimulationView, Player]:
    """A new simulation that is being executed."""
    made = await simulations(house).create_run(msgspec.structs.replace(SPEC, **spec))
    player = await begun(house)
    return await simulations(house).get(made.run_id), player


async def moves(house: House, run_id: str) -> list[tuple[str, str]]:
    """From where to where it went, in order."""
    entries = await simulations(house).history(run_id)
    return [
        (step.source, step.target)
        for entry in entries
        for step in entry.note.steps
        if step.moves and step.machine == "simulation"
    ]


async def faults(house: House) -> list[object]:
    """Where journal and records disagree."""
    return list((await audit(house.store, JOURNALLED, ("job", "simulation", "pulse", "message"))).faults)
