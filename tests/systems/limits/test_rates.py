"""A rate lets so many jobs start in a period, and a few at once: by the times of their leases."""

from __future__ import annotations

import asyncio
import random
from datetime import datetime

import pytest
from tests.effort import further, pick
from tests.systems.limits.test_exact import Worker, journal_of
from tests.systems.limits.test_slots import given, limits, settle, submit
from tests.systems.orchestrator.house import TTL_S, House, done, failed, release
from tests.systems.orchestrator.test_every_store_alike import OpenHouse

from interlock.errors import InvalidLimit
from interlock.store.records import Entry
from interlock.systems.orchestrator import gates
from interlock.systems.settings import DEFAULT_SETTINGS
from interlock.wire.jobs import JobSpec, RetryRule
from interlock.wire.limits import LimitSpec

SLOW = LimitSpec(rate=1, period_s=10.0, burst=2)


async def test_after_a_pause_a_few_start_at_once_and_then_one_at_a_time(house: House) -> None:
    await limits(house).set("vendor-x", SLOW)
    ids = await submit(house, 6, "vendor-x")
    assert [grant.job_id for grant in await given(house)] == ids[:2]
    assert await given(house) == []
    house.clock.jump(9.9)
    assert await given(house) == []
    for expected, pause_s in zip(ids[2:4], (0.2, 10.0), strict=True):
        house.clock.jump(pause_s)
        assert [grant.job_id for grant in await given(house)] == [expected]
    house.clock.jump(1_000)
    assert [grant.job_id for grant in await given(house)] == ids[4:]


async def test_jobs_that_wait_for_a_worker_do_not_start_together_with_those_after_them(house: House) -> None:
    await limits(house).set("vendor-x", SLOW)
    await submit(house, 6, "vendor-x")
    await settle(house)
    for _ in range(5):
        house.clock.jump(10)
        await settle(house)
    assert len(await given(house)) == 2
    assert await given(house) == []


async def test_a_start_counts_and_not_how_long_it_takes(house: House) -> None:
    await limits(house).set("vendor-x", SLOW)
    await submit(house, 4, "vendor-x")
    for grant in await given(house):
        await house.heard(done(grant))
    assert await given(house) == []
    house.clock.jump(10)
    assert len(await given(house)) == 1


async def test_every_attempt_is_a_start(house: House) -> None:
    await limits(house).set("vendor-x", LimitSpec(rate=1, period_s=10.0))
    rule = {"user": RetryRule(retries=3, first_pause_s=0.0, jitter=0.0)}
    (job_id,) = await submit(house, 1, "vendor-x", retry=rule, losses=5)
    (grant,) = await given(house)
    await house.heard(failed(grant))
    assert await given(house) == []
    house.clock.jump(10)
    (grant,) = await given(house)
    await house.heard(release(grant))
    assert await given(house) == []
    house.clock.jump(10)
    (grant,) = await given(house)
    await house.later(TTL_S + 1)
    (grant,) = await given(house)
    assert (grant.job_id, grant.attempt) == (job_id, 4)


async def test_a_limit_may_have_slots_and_a_rate(house: House) -> None:
    await limits(house).set("vendor-x", LimitSpec(max=1, rate=1, period_s=10.0, burst=5))
    first, second, third = await submit(house, 3, "vendor-x")
    (grant,) = await given(house)
    assert grant.job_id == first
    house.clock.jump(100)
    assert await given(house) == []
    await house.heard(done(grant))
    (grant,) = await given(house)
    assert grant.job_id == second
    await house.heard(done(grant))
    assert [each.job_id for each in await given(house)] == [third]


async def test_a_job_that_was_cancelled_before_it_started_takes_no_start(house: House) -> None:
    await limits(house).set("vendor-x", LimitSpec(rate=1, period_s=100.0))
    first, second = await submit(house, 2, "vendor-x")
    await settle(house)
    await house.jobs.cancel(first)
    assert [grant.job_id for grant in await given(house)] == [second]


async def test_a_weight_counts_as_that_number_of_starts(house: House) -> None:
    await limits(house).set("vendor-x", LimitSpec(rate=2, period_s=10.0, burst=4))
    await submit(house, 3, "vendor-x", weight=3)
    assert len(await given(house)) == 1
    house.clock.jump(9)
    assert await given(house) == []
    house.clock.jump(2)
    assert len(await given(house)) == 1
    for wrong in ({"weight": 5}, {"worker_count": 2}):
        with pytest.raises(InvalidLimit):
            await submit(house, 1, "vendor-x", **wrong)


async def test_explain_shows_that_a_job_waits_for_a_rate_limit(house: House) -> None:
    await limits(house).set("vendor-x", LimitSpec(rate=1, period_s=60.0))
    _, second = await submit(house, 2, "vendor-x")
    await given(house)
    await settle(house)
    explanation = await house.jobs.explain(second)
    assert explanation.sentence == "It waits for the limit vendor-x: 1 every 60 s, at most 1 at once."


def starts(journal: list[Entry], ids: set[str]) -> list[datetime]:
    """Return when attempts of these jobs were leased."""
    return [
        entry.at
        for entry in journal
        if entry.kind == "job" and entry.id in ids
        for step in entry.note.steps
        if step.machine == "attempt" and step.target == "LEASED"
    ]


def excess(times: list[datetime], limit: LimitSpec) -> float:
    """Return by how much the starts of any stretch of time exceed what the limit allows."""
    worst = -float("inf")
    for first, begin in enumerate(times):
        for last in range(first, len(times)):
            allowed = limit.capacity + limit.each_second * (times[last] - begin).total_seconds()
            worst = max(worst, last - first + 1 - allowed)
    return worst


async def play(open_house: OpenHouse, houses: list[House], limit: LimitSpec) -> list[datetime]:
    """Have workers do jobs under a rate until all have ended; return when attempts started."""
    await houses[0].port.services.limits.set("vendor-x", limit)
    rule = {"user": RetryRule(retries=3, first_pause_s=0.0, jitter=0.0)}
    spec = JobSpec(task="call", limits=("vendor-x",), losses=10, retry=rule)
    ids = await houses[0].jobs.submit_many([spec] * pick(12, 120))
    workers = [Worker(house, f"w{number}", random.Random(number)) for number, house in enumerate(houses)]
    chance, left = random.Random(3), set(ids)
    for turn in range(pick(300, 3_000)):
        await asyncio.gather(*(worker.turn() for worker in workers))
        open_house.move(chance.choice((1, 3, TTL_S if turn % 10 == 9 else 5)))
        for house in houses:
            await house.recover()
        views = await houses[0].jobs.get_many(sorted(left))
        left = {view.id for view in views if view is not None and not view.completed_at}
        if not left:
            break
    assert not left
    return starts(await journal_of(houses[0]), set(ids))


@pytest.mark.parametrize(
    "open_house",
    ["sqlite", *further("memory", "redis", "postgres")],
    indirect=True,
)
async def test_rates_are_held_exactly_by_workers_that_crash(open_house: OpenHouse) -> None:
    houses = [await open_house(DEFAULT_SETTINGS) for _ in range(pick(3, 8))]
    limit = LimitSpec(rate=2, period_s=10.0, burst=3)
    times = await play(open_house, houses, limit)
    assert excess(sorted(times), limit) <= 0


@pytest.mark.parametrize("open_house", ["memory"], indirect=True)
async def test_a_gate_without_tokens_is_noticed(
    open_house: OpenHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gates._Gate, "_tokens", lambda *_: 1_000.0)
    limit = LimitSpec(rate=2, period_s=10.0, burst=3)
    times = await play(open_house, [await open_house(DEFAULT_SETTINGS) for _ in range(3)], limit)
    assert excess(sorted(times), limit) > 0
