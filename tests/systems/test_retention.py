"""How long jobs are kept after their end, by their outcome."""

from __future__ import annotations

from datetime import timedelta

import pytest

from interlock import Registry
from interlock.engine.retention import WALK_EVERY_S, Retention
from interlock.errors import UnknownJob
from interlock.server.settings import ServerSettings
from interlock.systems.orchestrator.wait_records import JOB_WAIT
from interlock.systems.retention import BESIDE, QueueRetention, RetentionSettings
from interlock.testing import in_memory
from interlock.testing.memory_interlock import InMemory

REGISTRY = Registry()
QUEUES = ("default", "mail", "audit")
DAY = timedelta(days=1)
BASE = ServerSettings().retention


@REGISTRY.task(name="work", retries=0)
async def work(fail: bool = False) -> None:
    if fail:
        raise ValueError("no")


async def ended(il: InMemory, *, fail: bool = False, queue: str = "default") -> str:
    job = await il.submit(work.options(queue=queue), fail)
    return (await il.wait(job.id, timeout_s=600)).id


async def kept(il: InMemory, *job_ids: str) -> list[bool]:
    return [view is not None for view in await il.services.jobs.get_many(job_ids)]


async def test_each_outcome_is_kept_for_its_own_time() -> None:
    retention = RetentionSettings(completed="1d", failed="30d", canceled="7d").over(BASE)
    async with in_memory(REGISTRY) as il:
        done, failed = await ended(il), await ended(il, fail=True)
        stopped = await il.submit(work.options(delay_s=3_600.0))
        await stopped.cancel()
        jobs = (done, failed, stopped.id)
        for days, there in ((0, [True] * 3), (1, [False, True, True]), (6, [False, True, False])):
            await il.clock.jump(timedelta(days=days))
            await il.services.retain(retention)
            assert await kept(il, *jobs) == there, days
        await il.clock.jump(timedelta(days=23))
        await il.services.retain(retention)
        assert await kept(il, *jobs) == [False] * 3


async def test_each_queue_keeps_each_outcome_for_its_own_time() -> None:
    mail, audit = QueueRetention(completed="1d", failed="90d"), QueueRetention(completed="60d")
    retention = RetentionSettings(completed="7d", queues={"mail": mail, "audit": audit}).over(BASE)
    async with in_memory(REGISTRY, queues=QUEUES) as il:
        done = [await ended(il, queue=queue) for queue in QUEUES]
        failed = [await ended(il, fail=True, queue=queue) for queue in QUEUES]
        for days, of_done, of_failed in (
            (0, [True, True, True], [True] * 3),
            (1, [True, False, True], [True] * 3),
            (6, [False, False, True], [True] * 3),
            (23, [False, False, True], [False, True, False]),
            (30, [False] * 3, [False, True, False]),
            (30, [False] * 3, [False] * 3),
        ):
            await il.clock.jump(timedelta(days=days))
            await il.services.retain(retention)
            assert (await kept(il, *done), await kept(il, *failed)) == (of_done, of_failed), days


async def test_a_walk_by_queue_rests_before_the_next_one() -> None:
    retention = RetentionSettings(queues={"mail": QueueRetention(completed="1d")}).over(BASE)
    async with in_memory(REGISTRY, queues=QUEUES) as il:
        early = await ended(il, queue="mail")
        await il.clock.jump(timedelta(seconds=1))
        late = await ended(il, queue="mail")
        await il.clock.jump(DAY - timedelta(seconds=1))
        await il.services.retain(retention)
        assert await kept(il, early, late) == [False, True]
        await il.clock.jump(timedelta(seconds=1))
        await il.services.retain(retention)
        assert await kept(il, late) == [True], "the records of a state are not looked at all the time"
        await il.clock.jump(timedelta(seconds=WALK_EVERY_S))
        await il.services.retain(retention)
        assert await kept(il, late) == [False]


async def test_a_retention_sweep_by_queue_continues_where_the_previous_sweep_stopped() -> None:
    retention = RetentionSettings(queues={"mail": QueueRetention(completed="1d")}).over(BASE)
    async with in_memory(REGISTRY, queues=QUEUES, concurrency=100) as il:
        specs = [work.options(queue="mail").spec() for _ in range(5_200)]
        jobs = await il.submit_many(specs)
        for job in jobs:
            await il.wait(job.id, timeout_s=600)
        await il.clock.jump(DAY)
        assert await il.services.retain(retention) >= 500, "there is more"
        assert sum(await kept(il, *(job.id for job in jobs))) == 200
        assert await il.services.retain(retention) < 500
        assert sum(await kept(il, *(job.id for job in jobs))) == 0


def test_logs_results_and_artifacts_of_jobs_are_kept_for_the_longest_retention_of_any_queue() -> None:
    mail = QueueRetention(failed="400d", completed="1h")
    retention = RetentionSettings(completed="7d", queues={"mail": mail}).over(BASE)
    assert {retention.of(kind) for kind in BESIDE} == {400 * DAY}
    assert retention.of("dead_letter") == 400 * DAY
    assert retention.of_queues("job", "COMPLETED") == {"mail": timedelta(hours=1)}
    assert retention.of_queues("job", "CANCELED") == {}
    assert retention.longest().of("job", "FAILED") == 400 * DAY
    assert retention.longest().of("job", "COMPLETED") == 7 * DAY


async def test_a_discarded_dead_letter_stays_discarded_for_as_long_as_its_job_is_kept() -> None:
    retention = RetentionSettings(failed="90d", other="2d").over(BASE)
    async with in_memory(REGISTRY) as il:
        job = await ended(il, fail=True)
        await il.dead_letters.discard(job)
        await il.clock.jump(timedelta(days=80))
        await il.services.retain(retention)
        assert await il.dead_letters.list() == ([], "")
        await il.clock.jump(timedelta(days=11))
        await il.services.retain(retention)
        with pytest.raises(UnknownJob):
            await il.dead_letters.get(job)


async def test_a_retention_sweep_removes_a_bounded_batch_and_reports_that_more_remain() -> None:
    retention = RetentionSettings(completed="1d").over(BASE)
    async with in_memory(REGISTRY) as il:
        jobs = await il.submit_many([work.spec() for _ in range(700)])
        for job in jobs:
            await il.wait(job.id, timeout_s=600)
        await il.clock.jump(DAY)
        left = []
        while await il.services.retain(retention) >= 500:
            left.append(sum(await kept(il, *(job.id for job in jobs))))
        assert left == [200]
        assert sum(await kept(il, *(job.id for job in jobs))) == 0


def test_logs_results_and_artifacts_of_jobs_are_kept_for_the_longest_retention_of_any_outcome() -> None:
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
    (of_queue,) = RetentionSettings(queues={"mail": QueueRetention(failed=text)}).faults()
    assert of_queue == fault.replace("retention.completed", "retention.queues.mail.failed")
