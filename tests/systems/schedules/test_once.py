"""Each fire time gets one job: among many schedulers, with lost answers, and whoever dies in between."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest
from tests.effort import pick
from tests.systems.orchestrator.house import House
from tests.systems.orchestrator.test_every_store_alike import OpenHouse

from interlock.engine import recovery
from interlock.errors import StoreUnavailable
from interlock.store.memory import MemoryStore
from interlock.store.records import Outcome, Query, Work
from interlock.systems.catalogue import CATALOGUE
from interlock.systems.embedded import EmbeddedOrchestrator
from interlock.systems.runtime import Host
from interlock.systems.settings import DEFAULT_SETTINGS
from interlock.testing.clocks import JumpingClock
from interlock.testing.faults import Fault, FaultyStore, Plan
from interlock.wire.calendar import Calendar
from interlock.wire.jobs import JobSpec
from interlock.wire.schedules import ScheduleSpec

HOUR = 3_600.0
ALL = ScheduleSpec(
    job=JobSpec(task="report"), every="1h", overlap="allow", catch_up="all", catch_up_limit=100
)
SCHEDULERS = 8


async def fired(house: House) -> dict[str, list[datetime]]:
    """Return the fire times of all jobs, by schedule."""
    found: dict[str, list[datetime]] = {}
    cursor = ""
    while True:
        views, cursor = await house.jobs.find(Query(kind="job", limit=1_000, cursor=cursor))
        for view in views:
            assert view.schedule is not None
            assert view.scheduled_for is not None
            found.setdefault(view.schedule, []).append(view.scheduled_for)
        if not cursor:
            return {name: sorted(times) for name, times in sorted(found.items())}


async def is_exact(house: House, names: Sequence[str]) -> None:
    """Check that each fire time until the last one has one job, and that the counts agree."""
    found = await fired(house)
    assert sorted(found) == sorted(names)
    for name, times in found.items():
        view = await house.port.services.schedules.get(name)
        assert view.last_at is not None
        expected = Calendar(view.spec, name).between(view.created_at, view.last_at, 1_000)
        assert times == expected
        assert (view.submitted, view.skipped) == (len(expected), 0)


async def test_eight_schedulers_fire_each_time_once(open_house: OpenHouse) -> None:
    houses = [await open_house(DEFAULT_SETTINGS) for _ in range(SCHEDULERS)]
    names = [f"s{number}" for number in range(pick(3, 20))]
    for name in names:
        await houses[0].port.services.schedules.create(name, ALL)
    for _ in range(pick(3, 20)):
        open_house.move(HOUR)
        await asyncio.gather(*(house.port.services.schedules.sweep() for house in houses))
    for house in houses:  # what was held by one that lost a race is free again
        open_house.move(60)
        await house.port.services.schedules.sweep()
    await is_exact(houses[0], names)


async def test_eight_schedulers_with_overlap_queue_keep_one_job_live(open_house: OpenHouse) -> None:
    houses = [await open_house(DEFAULT_SETTINGS) for _ in range(SCHEDULERS)]
    spec = ScheduleSpec(job=JobSpec(task="report"), every="1h", overlap="queue", catch_up="all")
    await houses[0].port.services.schedules.create("queued", spec)
    for _ in range(3):
        open_house.move(HOUR)
        await asyncio.gather(*(house.port.services.schedules.sweep() for house in houses))
    assert len((await fired(houses[0]))["queued"]) == 1


async def test_a_scheduler_that_dies_between_finding_and_firing_loses_nothing(open_house: OpenHouse) -> None:
    other, dying = await open_house(DEFAULT_SETTINGS), await open_house(DEFAULT_SETTINGS)
    await dying.port.services.schedules.create("nightly", ALL)
    open_house.move(HOUR)
    await other.port.services.queues.pause("any")  # a commit, by which SQLite tells its time to all

    async def die(_: Any) -> Any:
        raise asyncio.CancelledError

    dying.port.services.engine.committer = type("Killed", (), {"commit": staticmethod(die)})()
    with pytest.raises(asyncio.CancelledError):
        await dying.port.services.schedules.sweep()
    assert await fired(other) == {}
    open_house.move(60)  # a store may keep what the dead one has found for a few seconds
    await other.port.services.schedules.sweep()
    await is_exact(other, ["nightly"])


@pytest.mark.parametrize("seed", range(pick(6, 200)))
async def test_lost_requests_and_lost_answers_make_no_job_twice_and_lose_none(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recovery, "FIRST_PAUSE_S", 0.0)
    monkeypatch.setattr(recovery, "LONGEST_PAUSE_S", 0.0)
    clock = JumpingClock()
    memory = MemoryStore(CATALOGUE, clock=clock)
    spoilt = ("commit", "due", "load")
    plan = Plan(
        seed=seed,
        faults=(Fault("reply lost", of=spoilt, chance=0.25), Fault("request lost", of=spoilt, chance=0.15)),
    )
    faulty = [await House(store=lambda: FaultyStore(memory, plan), clock=clock).open() for _ in range(2)]
    sound = await House(store=lambda: memory, clock=clock).open()
    await sound.port.services.schedules.create("nightly", ALL)
    await sound.port.services.schedules.create("weekly", ALL)
    for _ in range(20):
        clock.jump(HOUR)
        await asyncio.gather(
            *(house.port.services.schedules.sweep() for house in faulty), return_exceptions=True
        )
    await sound.port.services.schedules.sweep()
    await is_exact(sound, ["nightly", "weekly"])


class ForgetsToAnswer:
    """A store whose commits happen and are never answered, as when the process is killed right after."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def commit(self, work: Sequence[Work]) -> list[Outcome]:
        await self._store.commit(work)
        raise StoreUnavailable("The connection broke.")


async def test_a_fire_whose_commit_answer_was_lost_is_not_repeated_by_the_next_scheduler(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(recovery, "FIRST_PAUSE_S", 0.0)
    clock = JumpingClock()
    memory = MemoryStore(CATALOGUE, clock=clock)
    sound = await House(store=lambda: memory, clock=clock).open()
    await sound.port.services.schedules.create("nightly", ALL)
    clock.jump(HOUR)
    deaf = await House(store=lambda: ForgetsToAnswer(memory), clock=clock).open()
    with pytest.raises(StoreUnavailable):
        await deaf.port.services.schedules.sweep()
    assert Counter(map(len, (await fired(sound)).values())) == {1: 1}
    await sound.port.services.schedules.sweep()
    await is_exact(sound, ["nightly"])


@pytest.mark.parametrize("off_s", [-7_200.0, 7_200.0])
async def test_the_clock_of_a_scheduler_does_not_matter(off_s: float) -> None:
    """A host whose clock is two hours off, and is set while it runs: the store's clock decides."""
    clock = JumpingClock()
    ahead = [off_s]
    host = Host(wall=lambda: time.time() + ahead[0])
    port = EmbeddedOrchestrator("memory:", store=lambda: MemoryStore(CATALOGUE, clock=clock), host=host)
    await port.connect()
    schedules = port.services.schedules
    made = await schedules.create("nightly", ALL)
    assert made.next_at == clock() + timedelta(hours=1)
    assert await schedules.sweep() == 0
    clock.jump(HOUR - 1)
    ahead[0] = -off_s
    assert await schedules.sweep() == 0
    clock.jump(1)
    assert await schedules.sweep() == 1
    (job,), _ = await port.services.jobs.find(Query(kind="job"))
    assert job.scheduled_for == clock()
    await port.disconnect()
