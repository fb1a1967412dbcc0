"""The network of a world: time that jumps, processes that freeze and die, calls that break."""

from __future__ import annotations

import asyncio

import pytest

from interlock.errors import StoreUnavailable
from interlock.store.records import Key
from interlock.systems.catalogue import CATALOGUE
from interlock_verification.worlds.faults import FaultPlan, Faults, faults_named
from interlock_verification.worlds.judge import Judge
from interlock_verification.worlds.network import STORE, ActorProcess, ClaimWatcher, WorldNetwork
from interlock_verification.worlds.scheduler import Livelock, WorldLoop, WorldSchedule
from interlock_verification.worlds.storage import SharedStore, StoreLink, driven
from interlock_verification.worlds.worlds import world_named

HOUR_S = 3_600.0


def a_loop(schedule: WorldSchedule, rate: float = 1.0) -> WorldLoop:
    return WorldLoop(schedule, "somebody", rate)  # type: ignore[abstract]


def a_process(faults: Faults) -> tuple[WorldNetwork, ActorProcess, SharedStore]:
    watcher = ClaimWatcher()
    network = WorldNetwork(world_named("laptop"), 1, FaultPlan(1, faults), watcher)
    store = SharedStore(CATALOGUE, network.clock, Judge(watcher))
    return network, ActorProcess(network, "somebody", 1, 1.0, network.clock() - network.clock()), store


def test_waiting_takes_no_time_and_is_reported_in_order() -> None:
    schedule, wakeups = WorldSchedule(), []
    loop = a_loop(schedule)

    async def wait(seconds: float) -> None:
        await asyncio.sleep(seconds)
        wakeups.append((seconds, loop.time()))

    for seconds in (7_200.0, 1.0, 60.0):
        loop.create_task(wait(seconds))
    schedule.run(24 * HOUR_S)
    assert wakeups == [(1.0, 1.0), (60.0, 60.0), (7_200.0, 7_200.0)]
    assert schedule.now == 24 * HOUR_S


def test_a_clock_that_runs_fast_waits_less() -> None:
    schedule, woken = WorldSchedule(), []
    loop = a_loop(schedule, rate=1.25)

    async def wait() -> None:
        await asyncio.sleep(100.0)
        woken.append(schedule.now)

    loop.create_task(wait())
    schedule.run(HOUR_S)
    assert woken == [80.0]


def test_a_frozen_event_loop_continues_after_the_thaw_and_a_killed_one_runs_nothing_more() -> None:
    schedule, events = WorldSchedule(), []
    frozen, killed = a_loop(schedule), a_loop(schedule)

    async def tick(name: str) -> None:
        try:
            for _ in range(3):
                await asyncio.sleep(10.0)
                events.append((name, schedule.now))
        finally:
            asyncio.get_running_loop().call_soon(events.append, (name, -1.0))

    frozen.create_task(tick("frozen"))
    killed.create_task(tick("killed"))
    schedule.call_at(15.0, frozen.freeze)
    schedule.call_at(100.0, frozen.thaw)
    schedule.call_at(15.0, killed.kill)
    schedule.run(HOUR_S)
    assert events == [
        ("frozen", 10.0),
        ("killed", 10.0),
        ("frozen", 100.0),
        ("frozen", 110.0),
        ("frozen", -1.0),
    ], "the dead say nothing, not even in their finally"


def test_an_event_loop_that_never_lets_time_advance_raises_an_error_with_its_name() -> None:
    schedule = WorldSchedule()

    async def busy() -> None:
        while True:
            await asyncio.sleep(0)

    a_loop(schedule).create_task(busy())
    with pytest.raises(Livelock, match="somebody"):
        schedule.run(1.0)


def test_a_call_whose_reply_is_lost_raises_store_unavailable() -> None:
    always = Faults(name="lost", doc="", reply_lost=1.0, calm=1.0)
    network, process, store = a_process(always)
    outcomes: list[object] = []

    async def ask() -> None:
        try:
            outcomes.append(await StoreLink(process, store).latest())
        except StoreUnavailable as error:
            outcomes.append(error)

    process.loop.create_task(ask())
    network.schedule.run(60.0)
    assert [type(outcome) for outcome in outcomes] == [StoreUnavailable]
    assert network.fault_plan.counts["reply lost"] == 1


def test_store_calls_fail_during_an_outage_and_succeed_after_it() -> None:
    network, process, store = a_process(faults_named("none"))
    outcomes: list[str] = []

    async def ask() -> None:
        link = StoreLink(process, store)
        for _ in range(2):
            try:
                await link.load([Key("job", "j")])
                outcomes.append("answered")
            except StoreUnavailable:
                outcomes.append("away")
            await asyncio.sleep(60.0)

    network.away_until = 30.0
    process.loop.create_task(ask())
    network.schedule.run(HOUR_S)
    assert outcomes == ["away", "answered"]
    assert network.reachable("somebody", STORE)


def test_a_fail_over_starts_another_epoch() -> None:
    _, _, store = a_process(faults_named("none"))
    before = driven(store.epoch())
    assert store.fail_over(5.0) == 0, "nothing was written, so nothing is lost"
    assert driven(store.epoch()) > before
