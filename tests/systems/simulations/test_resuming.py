"""Resuming a simulation in another queue, and the queue of one execution alone."""

from __future__ import annotations

import pytest
from tests.systems.orchestrator.house import House, release
from tests.systems.orchestrator.test_every_store_alike import OpenHouse
from tests.systems.simulations.worker import SPEC, Player, faults, simulations

from interlock.errors import AlreadyThere, InvalidSimulation
from interlock.systems.settings import DEFAULT_SETTINGS
from interlock.wire.simulations import Begin


async def taken_from(house: House, queue: str) -> Player:
    return Player(house, await house.grant("runner#9", queues=(queue,)), "runner#9")


async def test_a_resume_moves_a_simulation_from_a_private_queue_to_the_queue_of_its_spec(
    open_house: OpenHouse,
) -> None:
    house = await open_house(DEFAULT_SETTINGS)
    manager = simulations(house)
    made = await manager.create_run(SPEC, queue="here-1")
    assert (made.queue, made.execution) == ("here-1", 1)
    old = await taken_from(house, "here-1")
    assert (await old.say(Begin())).go_on
    await old.beat(3)
    await house.heard(release(old.grant, runner_id="runner#9"))
    await house.recover()
    assert (await manager.get(made.run_id)).resuming, "in the queue of a worker that is gone"
    moved = await manager.resume(made.run_id)
    assert (moved.queue, moved.execution, moved.resuming) == ("default", 2, True)
    assert (await house.view(made.job_id)).state == "CANCELED"
    await house.recover()
    with pytest.raises(AlreadyThere, match="already waits for a worker, in the queue default"):
        await manager.resume(made.run_id)
    assert (await (await taken_from(house, "default")).say(Begin())).step == 3
    assert await faults(house) == []


async def test_a_resume_with_a_queue_moves_a_waiting_simulation_to_that_queue(house: House) -> None:
    manager = simulations(house)
    made = await manager.create_run(SPEC)
    moved = await manager.resume(made.run_id, queue="gpu")
    assert (moved.queue, moved.status) == ("gpu", "pending")
    with pytest.raises(AlreadyThere, match="in the queue gpu"):
        await manager.resume(made.run_id, queue="gpu")
    with pytest.raises(InvalidSimulation, match="queue"):
        await manager.resume(made.run_id, queue="no queue\n")
    assert (await (await taken_from(house, "gpu")).say(Begin())).go_on
    assert await house.claim() == []


async def test_a_repeat_of_an_earlier_resume_stops_nothing_that_was_begun_since(house: House) -> None:
    manager = simulations(house)
    made = await manager.create_run(SPEC)
    first = await manager.resume(made.run_id, queue="gpu", request_id="first")
    second = await manager.resume(made.run_id, queue="cpu", request_id="second")
    assert await manager.resume(made.run_id, queue="gpu", request_id="first") == first
    states = {each: (await house.view(each)).state for each in (made.job_id, first.job_id, second.job_id)}
    assert list(states.values()) == ["CANCELED", "CANCELED", "PENDING"]
