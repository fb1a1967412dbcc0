"""A simulation and the jobs that execute it: which attempt is believed, and what becomes of the others."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from tests.effort import further
from tests.systems.orchestrator.house import TTL_S, House, done, failed, release
from tests.systems.orchestrator.test_every_store_alike import OpenHouse
from tests.systems.simulations.worker import (
    RUNNER,
    SPEC,
    Player,
    begun,
    faults,
    moves,
    running,
    simulations,
    taken,
)
from tests.waiting import PATIENCE_S, until

from interlock.errors import AlreadyThere, InterlockError, TransitionRefused, VersionChanged
from interlock.lifecycles.durations import Durations
from interlock.store.urls import store_for
from interlock.systems.catalogue import CATALOGUE
from interlock.systems.orchestrator.notifications import ExecutionLost
from interlock.systems.runtime import Runtime
from interlock.systems.settings import DEFAULT_SETTINGS, Settings
from interlock.wire.simulations import Begin, Failed, Paused, SimulationSpec

SAVED = msgspec.Raw(b"3")
HASTY = Settings(durations=Durations(simulation_stale_s=0.05, simulation_silence_s=0.1))
"""For the last word of a worker that falls silent; everything before it has all the time in the world."""


async def paused(house: House) -> str:
    view, player = await running(house)
    await simulations(house).pause(view.run_id)
    assert (await player.say(Paused(step=3, checkpoint=SAVED))).go_on
    await house.heard(done(player.grant))
    return view.run_id


async def test_a_resumed_simulation_continues_after_its_saved_step_on_another_worker(house: House) -> None:
    run_id = await paused(house)
    view = await simulations(house).resume(run_id)
    assert (view.status, view.resuming, view.execution) == ("paused", True, 2)
    player = await taken(house, "runner#2")
    orders = await player.say(Begin())
    assert (orders.go_on, orders.step, orders.checkpoint, orders.total_steps) == (True, 3, SAVED, 10)
    view = await simulations(house).get(run_id)
    assert (view.status, view.worker_id, view.resuming, view.paused_at) == (
        "running",
        "runner#2",
        False,
        None,
    )
    assert (await player.say(Begin())).go_on, "the answer was lost, and is asked for again"
    assert (await simulations(house).get(run_id)).version == view.version
    await player.complete()
    assert await faults(house) == []


async def test_a_second_resume_finds_the_first(house: House) -> None:
    run_id = await paused(house)
    await simulations(house).resume(run_id)
    with pytest.raises(AlreadyThere, match="already waits for a worker"):
        await simulations(house).resume(run_id)
    player = await begun(house)
    with pytest.raises(TransitionRefused, match="running"):
        await simulations(house).resume(run_id)
    assert await house.claim() == []
    assert (await player.beat(4)).go_on


async def test_a_lost_lease_interrupts_a_simulation_and_heartbeats_of_the_old_worker_are_refused(
    house: House,
) -> None:
    view, old = await running(house)
    await old.beat(3)
    await house.later(TTL_S)
    gone = await simulations(house).get(view.run_id)
    assert (gone.status, gone.current_step, gone.completed_at) == ("interrupted", 3, None)
    assert (await house.view(view.job_id)).state == "FAILED", "it is not tried again by itself"
    await simulations(house).resume(view.run_id)
    new = await begun(house, "runner#2")
    before = await simulations(house).get(view.run_id)
    answer = await old.beat(9)
    assert (answer.go_on, answer.reason) == (False, "the lease is EXPIRED")
    assert await simulations(house).get(view.run_id) == before
    assert (await new.beat(4)).go_on


async def test_an_old_worker_that_is_only_silent_is_refused_after_a_resume_elsewhere(house: House) -> None:
    view, old = await running(house)
    await old.beat(3)
    await house.later(60)
    assert (await simulations(house).get(view.run_id)).status == "interrupted"
    for _ in range(20):
        assert not (await old.beat(4)).go_on, "nobody executes it"
    await simulations(house).resume(view.run_id)
    new = await begun(house, RUNNER)
    for _ in range(20):
        answer = await old.beat(9)
        assert not answer.go_on
    assert "execution 2 counts, and this is 1" in answer.reason
    refusals = [e.note.refusal for e in await simulations(house).history(view.run_id) if e.note.refusal]
    assert len(refusals) == 2, "the first refusal of each kind is journalled"
    assert (await new.beat(4)).go_on
    assert (await simulations(house).get(view.run_id)).current_step == 4
    job = await house.view(view.job_id)
    assert job.attempts[-1].state == "CANCEL_REQUESTED", "its job is told to stop"


async def test_a_simulation_continues_without_a_resume_after_its_worker_releases_the_job(
    house: House,
) -> None:
    view, old = await running(house)
    await old.beat(3)
    await house.heard(release(old.grant))
    await house.recover()
    given = await simulations(house).get(view.run_id)
    assert (given.status, given.resuming) == ("interrupted", True)
    with pytest.raises(AlreadyThere):
        await simulations(house).resume(view.run_id)
    new = await taken(house, "runner#2")
    assert (await new.say(Begin())).step == 3
    assert (await simulations(house).get(view.run_id)).execution == 1


async def test_a_new_attempt_may_begin_before_the_loss_message_of_the_last_attempt_is_processed(
    house: House,
) -> None:
    view, old = await running(house)
    await old.beat(3)
    await house.heard(release(old.grant))
    new = await begun(house, "runner#2")
    assert await moves(house, view.run_id) == [
        ("pending", "running"), ("running", "interrupted"), ("interrupted", "running"),
    ]  # fmt: skip
    await house.recover()
    assert (await simulations(house).get(view.run_id)).status == "running", (
        "the word was late, and is nothing"
    )
    assert (await new.beat(4)).go_on
    assert await faults(house) == []


async def test_a_cancel_is_not_forgotten_when_the_work_is_given_back(house: House) -> None:
    view, old = await running(house)
    await simulations(house).cancel(view.run_id)
    await house.heard(release(old.grant))
    await house.recover()
    new = await taken(house, "runner#2")
    answer = await new.say(Begin())
    assert (answer.go_on, answer.status) == (False, "cancelled")


async def test_a_simulation_is_interrupted_if_its_worker_is_lost_before_a_requested_pause(
    house: House,
) -> None:
    view, player = await running(house)
    await player.beat(3)
    await simulations(house).pause(view.run_id)
    await house.later(60)
    gone = await simulations(house).get(view.run_id)
    assert (gone.status, gone.pause_requested) == ("interrupted", False)
    await simulations(house).resume(view.run_id)
    new = await begun(house, "runner#2")
    assert not (await new.beat(4)).pause, "the request was answered by the interruption"


async def test_a_job_that_fails_before_it_begins_leaves_it_pending_and_resumable(house: House) -> None:
    made = await simulations(house).create_run(SPEC)
    grant = await house.grant()
    await house.heard(failed(grant, error="There is no task 'flu'."))
    await house.recover()
    view = await simulations(house).get(made.run_id)
    assert (view.status, view.trouble) == ("pending", "There is no task 'flu'.")
    await simulations(house).resume(made.run_id)
    assert (await (await begun(house)).beat(1)).go_on


async def test_cancelling_the_job_of_a_running_simulation_interrupts_the_simulation(house: House) -> None:
    view, player = await running(house)
    await house.jobs.cancel(view.job_id)
    await house.later(31)  # its worker does not say that it has stopped
    assert (await simulations(house).get(view.run_id)).status == "interrupted"
    assert not (await player.beat(1)).go_on


async def test_an_execution_whose_worker_is_known_to_be_gone_is_ended_and_resumed_at_once(
    house: House,
) -> None:
    view, old = await running(house)
    await old.beat(3)
    await simulations(house).end_execution(view.run_id, view.execution + 1, "of another one")
    assert (await simulations(house).get(view.run_id)).status == "running"
    await simulations(house).end_execution(view.run_id, view.execution, "its process has ended")
    gone = await simulations(house).get(view.run_id)
    assert (gone.status, gone.current_step) == ("interrupted", 3)
    assert (await house.view(view.job_id)).attempts[-1].state == "CANCEL_REQUESTED"
    await simulations(house).resume(view.run_id)
    new = await begun(house, "runner#2")
    await simulations(house).end_execution(view.run_id, view.execution, "its process has ended")
    assert (await new.beat(4)).go_on, "the earlier execution has ended already"
    assert not (await old.beat(9)).go_on
    assert await faults(house) == []


async def test_a_failed_simulation_shows_its_error(house: House) -> None:
    view, player = await running(house)
    assert (await player.say(Failed(step=2, error="division by zero"))).go_on
    await house.heard(failed(player.grant))
    await house.recover()
    ended = await simulations(house).get(view.run_id)
    assert (ended.status, ended.error, ended.trouble) == ("failed", "division by zero", "")


async def test_an_ordinary_job_executes_no_simulation(house: House) -> None:
    await house.submit("flu")
    answer = await (await taken(house)).say(Begin())
    assert not answer.go_on
    assert "executes no simulation" in answer.reason


async def test_only_the_holder_of_the_lease_may_report(house: House) -> None:
    view, player = await running(house)
    player.runner = "somebody#else"
    assert "another runner" in (await player.beat(1)).reason
    answer = await simulations(house).receive("nonsense", RUNNER, Begin())
    assert answer.reason == "this is not the token of a lease"
    assert (await simulations(house).get(view.run_id)).current_step == 0


@pytest.fixture(params=["sqlite", *further("postgres", "redis")])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A new database."""
    match request.param:
        case "sqlite":
            yield f"sqlite:///{tmp_path / 'race.db'}"
        case "postgres":
            yield request.getfixturevalue("postgres").new_database()
        case _:
            yield request.getfixturevalue("redis").url
            request.getfixturevalue("redis").run("FLUSHALL")


def test_one_transition_has_one_winner_of_fifty_threads(url: str) -> None:
    """Each thread with a loop and a connection of its own, all at one moment."""
    ready, outcomes = threading.Barrier(50, timeout=PATIENCE_S), list[str]()

    async def create() -> str:
        async with _household(url) as here:
            return (await here.simulations.create_run(SimulationSpec(scenario_name="race"))).run_id

    async def race(number: int) -> None:
        async with _household(url) as here:
            await asyncio.to_thread(ready.wait)
            try:
                view = await here.simulations.transition(
                    run_id, "running", worker_id=f"w{number}", expected_version=1
                )
            except VersionChanged:
                outcomes.append("")
            else:
                outcomes.append(view.worker_id or "")

    run_id = asyncio.run(create())
    threads = [threading.Thread(target=lambda n=n: asyncio.run(race(n))) for n in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    async def see() -> None:
        async with _household(url) as here:
            view = await here.simulations.get(run_id)
            assert (view.version, view.status) == (2, "running")
            assert sorted(outcomes) == ["", *[""] * 48, view.worker_id]

    asyncio.run(see())


async def test_two_resumes_at_once_make_one_execution(open_house: OpenHouse) -> None:
    house, other = await open_house(DEFAULT_SETTINGS), await open_house(DEFAULT_SETTINGS)
    view, player = await running(house)
    await simulations(house).pause(view.run_id)
    assert (await player.say(Paused(step=3, checkpoint=SAVED))).go_on
    await house.heard(done(player.grant))

    async def resume(at: House) -> str:
        try:
            return (await simulations(at).resume(view.run_id)).job_id
        except InterlockError as error:
            return error.code

    results = await asyncio.gather(resume(house), resume(other), resume(house), resume(other))
    assert sorted(results)[:3] == ["already_there"] * 3
    grants = await house.claim()
    assert len(grants) == 1
    assert grants[0].job_id in results


async def test_a_whole_life_is_the_same_on_every_store(open_house: OpenHouse) -> None:
    house = await open_house(DEFAULT_SETTINGS)
    view, player = await running(house, run_id="whole", priority="high")
    for step in range(1, 4):
        assert (await player.beat(step)).step == step
    await simulations(house).pause(view.run_id)
    await player.say(Paused(step=4, checkpoint=msgspec.Raw(b'{"n":4}')))
    await house.heard(done(player.grant))
    await simulations(house).resume(view.run_id)
    again = await begun(house, "runner#2")
    await again.complete()
    ended = await simulations(house).get("whole")
    assert (ended.status, ended.current_step, ended.execution, ended.version) == ("completed", 10, 2, 7)
    assert await moves(house, "whole") == [
        ("pending", "running"), ("running", "paused"), ("paused", "running"), ("running", "completed"),
    ]  # fmt: skip
    assert await faults(house) == []


async def falls_silent(open_house: OpenHouse, run_id: str, player: Player) -> None:
    """Say a last word, after which little silence is allowed, and sweep until that is over."""
    hasty = await open_house(HASTY)
    await Player(hasty, player.grant, player.runner).beat(3)

    async def interrupted() -> bool:
        await hasty.recover()
        return (await simulations(hasty).get(run_id)).status == "interrupted"

    await until(interrupted, "the simulation is interrupted")


async def test_a_heartbeat_of_the_old_worker_after_a_resume_elsewhere_is_refused_on_every_store(
    open_house: OpenHouse,
) -> None:
    patient = await open_house(DEFAULT_SETTINGS)
    view, old = await running(patient)
    await falls_silent(open_house, view.run_id, old)
    await simulations(patient).resume(view.run_id)
    new = await begun(patient, "runner#2")
    answer = await old.beat(9)
    assert not answer.go_on
    assert "execution 2 counts, and this is 1" in answer.reason
    assert (await new.beat(4)).go_on
    assert (await simulations(patient).get(view.run_id)).current_step == 4
    assert await faults(patient) == []


async def test_a_pause_just_before_a_crash_is_answered_by_the_interruption_on_every_store(
    open_house: OpenHouse,
) -> None:
    patient = await open_house(DEFAULT_SETTINGS)
    view, player = await running(patient)
    await simulations(patient).pause(view.run_id)
    assert (await player.beat(3)).pause
    await falls_silent(open_house, view.run_id, player)
    assert not (await simulations(patient).get(view.run_id)).pause_requested
    await simulations(patient).resume(view.run_id)
    assert not (await (await begun(patient, "runner#2")).beat(4)).pause


class _household:  # noqa: N801 - read as a function
    """A connection of its own, as long as it is entered."""

    def __init__(self, url: str) -> None:
        self._store = store_for(url, CATALOGUE, timeout_s=PATIENCE_S)  # fifty are opened at once

    async def __aenter__(self) -> Runtime:
        await self._store.open()
        self._here = Runtime(self._store, DEFAULT_SETTINGS)
        return self._here

    async def __aexit__(self, *_: object) -> None:
        await self._here.close()


async def test_a_late_loss_message_of_an_earlier_attempt_does_not_prevent_a_resume(house: House) -> None:
    """A world found it: the second attempt was lost before it had begun, and word of the first came last."""
    view, player = await running(house)
    await player.beat(3)
    words = (
        ExecutionLost(view.run_id, 1, 1, True, "given back"),
        ExecutionLost(view.run_id, 1, 2, False, "not heard of"),
    )
    for word in reversed(words):
        await simulations(house).lost(msgspec.json.encode(word))
    stands = await simulations(house).get(view.run_id)
    assert (stands.status, stands.resuming, stands.trouble) == ("interrupted", False, "not heard of")
    assert (await simulations(house).resume(view.run_id)).execution == 2
