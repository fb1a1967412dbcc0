"""How long jobs are kept after their end, by their outcome."""

from __future__ import annotations

from datetime import timedelta

import pytest

from interlock import Registry
from interlock.engine.retention import Retention
from interlock.errors import UnknownJob
from interlock.server.settings import ServerSettings
from interlock.systems.orchestrator.wait_records import JOB_WAIT
from interlock.systems.retention import BESIDE, RetentionSettings
from interlock.testing import in_memory
from interlock.testing.memory_interlock import InMemory

REGISTRY = Registry()
DAY = timedelta(days=1)
BASE = ServerSettings().retention


@REGISTRY.task(name="work", retries=0)
async def work(fail: bool = False) -> None:
    if fail:
        raise ValueError("no")


async def ended(il: InMemory, *, fail: bool = False) -> str:
    job = await il.submit(work, fail)
    return (await il.wait(job.id, timeout_s=600)).id


async def kept(il: InMemory, *job_ids: str) -> list[bool]:
    return [view is not None for view in await il.here.jobs.get_many(job_ids)]


async def test_each_outcome_is_kept_for_its_own_time() -> None:
    retention = RetentionSettings(completed="1d", failed="30d", canceled="7d").over(BASE)
    async with in_memory(REGISTRY) as il:
        done, failed = await ended(il), await ended(il, fail=True)
        stopped = await il.submit(work.options(delay_s=3_600.0))
        await stopped.cancel()
        jobs = (done, failed, stopped.id)
        for days, there in ((0, [True] * 3), (1, [False, True, True]), (6, [False, True, False])):
            await il.clock.jump(timedelta(days=days))
            await il.here.retain(retention)
            assert await kept(il, *jobs) == there, days
        await il.clock.jump(timedelta(days=23))
        await il.here.retain(retention)
        assert await kept(il, *jobs) == [False] * 3


async def test_what_was_discarded_stays_so_for_as_long_as_the_job_is_kept() -> None:
    retention = RetentionSettings(failed="90d", other="2d").over(BASE)
    async with in_memory(REGISTRY) as il:
        job = await ended(il, fail=True)
        await il.dead_letters.discard(job)
        await il.clock.jump(timedelta(days=80))
        await il.here.retain(retention)
        assert await il.dead_letters.list() == ([], "")
        await il.clock.jump(timedelta(days=11))
        await il.here.retain(retention)
        with pytest.raises(UnknownJob):
            await il.dead_letters.get(job)


async def test_a_sweep_removes_a_bounded_batch_and_says_that_there_is_more() -> None:
    retention = RetentionSettings(completed="1d").over(BASE)
    async with in_memory(REGISTRY) as il:
        jobs = await il.submit_many([work.spec() for _ in range(700)])
        for job in jobs:
            await il.wait(job.id, timeout_s=600)
        await il.clock.jump(DAY)
        left = []
        while await il.here.retain(retention) >= 500:
            left.append(sum(await kept(il, *(job.id for job in jobs))))
        assert left == [200]
        assert sum(await kept(il, *(job.id for job in jobs))) == 0


def test_what_lies_beside_jobs_is_kept_for_as_long_as_the_longest() -> None:
    retention = RetentionSettings(completed="1d", failed="90d", other="10d").over(BASE)
    assert retention.of("job", "COMPLETED") == DAY
    assert retention.of("job", "CANCELED") == 10 * DAY
    assert {retention.of(kind) for kind in BESIDE if kind != JOB_WAIT.name} == {90 * DAY}
    assert retention.of(JOB_WAIT.name) == 366 * DAY, "a handler may need an early answer after a long wait"
    assert retention.of("dead_letter", "discarded") == 90 * DAY
    assert retention.of("run", "REPORTED") == 10 * DAY
    assert retention.of("message") == 7 * DAY, "as it was"
    assert RetentionSettings().over(BASE) is BASE


def test_states_of_one_age_are_pruned_together() -> None:
    retention = Retention(by_state={"job": {"COMPLETED": DAY}})
    assert retention.ages("job", ("FAILED", "COMPLETED", "CANCELED")) == {
        DAY: ["COMPLETED"],
        30 * DAY: ["CANCELED", "FAILED"],
    }


@pytest.mark.parametrize(
    ("text", "why"), [("5m", "must be at least 1h"), ("soon", "retention.completed: "), ("-1d", "retention")]
)
def test_an_age_that_cannot_be_meant_is_named(text: str, why: str) -> None:
    (fault,) = RetentionSettings(completed=text).faults()
    assert why in fault
