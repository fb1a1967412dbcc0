"""What becomes of a simulation whose worker is gone: it says why, and an accepted pause still counts."""

from __future__ import annotations

import msgspec
import pytest
from tests.systems.orchestrator.house import TTL_S, House, failed, release
from tests.systems.orchestrator.test_every_store_alike import OpenHouse
from tests.systems.simulations.worker import begun, faults, moves, running, simulations, taken

from interlock.systems.settings import DEFAULT_SETTINGS
from interlock.wire.simulations import Begin

STANDS = ("interrupted", False, False)


async def how(house: House, run_id: str) -> tuple[str, bool, bool]:
    view = await simulations(house).get(run_id)
    return view.status, view.resuming, view.pause_requested


async def test_an_accepted_pause_survives_the_loss_of_its_worker(house: House) -> None:
    view, old = await running(house, losses=3)
    await old.beat(3)
    await simulations(house).pause(view.run_id)
    await house.later(TTL_S)
    await house.recover()
    assert await how(house, view.run_id) == STANDS
    assert (await house.view(view.job_id)).state == "CANCELED", "no worker is offered its job"
    await house.recover()
    assert await how(house, view.run_id) == STANDS
    await simulations(house).resume(view.run_id)
    assert (await (await begun(house, "runner#3")).beat(4)).go_on
    assert await faults(house) == []


async def test_an_accepted_pause_survives_a_worker_that_gives_it_back(open_house: OpenHouse) -> None:
    house = await open_house(DEFAULT_SETTINGS)
    view, old = await running(house)
    await old.beat(3)
    await simulations(house).pause(view.run_id)
    await house.heard(release(old.grant))
    new = await taken(house, "runner#2")
    orders = await new.say(Begin())
    assert not orders.go_on, "it was asked before word of the first attempt had come"
    assert await how(house, view.run_id) == STANDS
    not_executed = failed(new.grant, error=f"not executed: {orders.reason}")
    await house.heard(msgspec.structs.replace(not_executed, runner_id="runner#2"))
    await house.recover()
    assert await how(house, view.run_id) == STANDS
    stands = await simulations(house).get(view.run_id)
    assert stands.error == "given back; a pause was requested, so it stays stopped until it is resumed"
    assert stands.saved_step == 3
    assert await moves(house, view.run_id) == [("pending", "running"), ("running", "interrupted")]
    resumed = await simulations(house).resume(view.run_id)
    assert (resumed.execution, resumed.resuming) == (2, True)
    assert (await begun(house, "runner#3")).grant.job_id == resumed.job_id
    assert await faults(house) == []


async def test_an_accepted_pause_survives_a_loss_message_processed_before_the_next_attempt(
    house: House,
) -> None:
    view, old = await running(house)
    await simulations(house).pause(view.run_id)
    await house.heard(release(old.grant))
    await house.recover()
    assert await how(house, view.run_id) == STANDS
    assert await house.claim("runner#2") == [], "no worker is offered its job"


async def test_an_accepted_pause_survives_a_silence(house: House) -> None:
    view, old = await running(house, losses=3)
    await simulations(house).pause(view.run_id)
    await house.later(60)
    assert await how(house, view.run_id) == STANDS
    await house.heard(release(old.grant))
    assert not (await (await taken(house, "runner#2")).say(Begin())).go_on
    await house.recover()
    assert await how(house, view.run_id) == STANDS


async def test_a_simulation_without_heartbeats_continues_without_a_resume_only_if_losses_are_allowed(
    house: House,
) -> None:
    view, old = await running(house)
    await old.beat(3)
    await house.later(60)
    await house.heard(release(old.grant))
    orders = await (await taken(house, "runner#2")).say(Begin())
    assert not orders.go_on
    assert "until it is resumed: no heartbeat of its worker for 60 s" in orders.reason
    await house.recover()
    assert await how(house, view.run_id) == STANDS
    again, old = await running(house, losses=1)
    await house.later(60)
    await house.heard(release(old.grant))
    await house.recover()
    assert (await how(house, again.run_id))[:2] == ("interrupted", True)
    assert (await (await begun(house, "runner#2")).beat(1)).go_on


@pytest.mark.parametrize(
    ("after_s", "why"),
    [(60, "no heartbeat of its worker for 60 s"), (TTL_S, "sent no heartbeat in time")],
)
async def test_a_simulation_shows_the_reason_of_its_interruption_until_it_runs_again(
    house: House, after_s: float, why: str
) -> None:
    view, player = await running(house)
    while after_s > 60:
        await house.later(50)
        assert (await player.beat(1)).go_on
        after_s -= 50
    await house.later(after_s)
    gone = await simulations(house).get(view.run_id)
    assert (gone.status, gone.trouble) == ("interrupted", gone.error)
    assert why in (gone.error or "")
    await simulations(house).resume(view.run_id)
    await begun(house, "runner#2")
    assert (await simulations(house).get(view.run_id)).error is None
