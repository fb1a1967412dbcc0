"""An Interlock in memory: real rules and real workers, and a clock that a test moves."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from typing import Any

import pytest

from interlock import Context, Registry
from interlock.engine.audit import audit
from interlock.errors import JobFailed, ResultNotReady
from interlock.store.records import Entry
from interlock.systems.catalogue import JOURNALLED
from interlock.testing import Fault, InMemory, Plan, in_memory, in_memory_sync
from interlock.testing.clocks import HANDLER_S, TURNS, NothingComes, VirtualTime

registry = Registry()
HOUR_S = 3_600.0


@registry.task(retries=3)
async def send(ctx: Context, text: str, closed: int = 2) -> str:
    """The post office is closed the first times."""
    if ctx.attempt <= closed:
        raise ValueError("closed")
    return text


@registry.task(timeout_s=24 * HOUR_S)
async def sleep_in(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "rested"


@registry.task
def add(left: int, right: int) -> int:
    time.sleep(0.02)  # real time, in a thread
    return left + right


@registry.task
async def save_and_wait(ctx: Context) -> str:
    if ctx.restored(str) is None:
        ctx.checkpoint("half done")
        await asyncio.sleep(HOUR_S / 2)
    return f"went on from {ctx.restored(str)}"


async def states(il: InMemory, job_id: str) -> list[str]:
    return [str(one.state) for one in (await il.job(job_id)).attempts]


async def test_retries_happen_after_their_backoff_without_waiting_in_real_time() -> None:
    async with in_memory(registry) as il:
        job = await il.submit(send, "Hello")
        assert await job.result() == "Hello"
        first, second, third = (await job.view()).attempts
        assert first.ended_at is not None
        assert second.started_at is not None
        assert second.started_at - first.ended_at >= timedelta(seconds=1)
        assert third.index == 3


async def test_a_job_with_a_delay_begins_at_its_time_and_not_before() -> None:
    async with in_memory(registry) as il:
        begins_at = il.clock.now + timedelta(hours=2)
        job = await il.submit(send.options(delay_s=2 * HOUR_S), "Later", closed=0)
        await il.clock.jump("119m")
        assert (await job.view()).state == "PENDING"
        await il.clock.jump("1m")
        view = await job.view()
        assert view.state == "COMPLETED"
        assert view.started_at is not None
        assert abs(view.started_at - begins_at) < timedelta(milliseconds=10)


async def test_a_handler_that_sleeps_for_an_hour_keeps_its_lease_and_takes_no_time() -> None:
    async with in_memory(registry) as il:
        job = await il.submit(sleep_in, HOUR_S)
        assert await job.result() == "rested"
        assert len((await job.view()).attempts) == 1


async def test_an_attempt_that_takes_too_long_is_timed_out() -> None:
    async with in_memory(registry) as il:
        job = await il.submit(sleep_in.options(timeout_s=60), HOUR_S)
        with pytest.raises(JobFailed, match="60 s"):
            await job.result()
        assert await states(il, job.id) == ["TIMED_OUT"]


async def test_waiting_for_a_result_is_in_the_time_of_the_test() -> None:
    async with in_memory(registry) as il:
        job = await il.submit(sleep_in, HOUR_S)
        with pytest.raises(ResultNotReady, match="after 5 s"):
            await job.result(timeout_s=5)
        assert await job.result(timeout_s=2 * HOUR_S) == "rested"


async def test_the_job_of_a_killed_worker_is_continued_by_the_next_worker_after_the_lease_expires() -> None:
    async with in_memory(registry) as il:
        job = await il.submit(save_and_wait)
        await il.clock.jump("30s")
        await il.worker.kill()
        await il.clock.jump("1m")
        assert await states(il, job.id) == ["RUNNING"], "the lease lives for two minutes"
        await il.clock.jump("1m")
        assert await states(il, job.id) == ["STALE", "QUEUED"]
        await il.worker.start()
        assert await job.result() == "went on from half done"


async def test_a_worker_that_is_stopped_returns_its_job_to_the_queue_at_once() -> None:
    async with in_memory(registry) as il:
        job = await il.submit(sleep_in, HOUR_S)
        await il.clock.jump("1s")
        assert await il.worker.stop() == 0
        assert (await states(il, job.id))[-1] == "QUEUED"
        await il.worker.start()
        assert await job.result() == "rested"


async def test_time_stands_still_while_a_handler_is_at_work_in_a_thread() -> None:
    async with in_memory(registry) as il:
        before = il.clock.now
        job = await il.submit(add, 1, 2)
        assert await job.result() == 3
        assert il.clock.now - before < timedelta(seconds=1)


class Outside:
    """What is outside of an event loop: it answers after so many turns, or never."""

    def __init__(self, time: VirtualTime, answers: int | None, handlers: int) -> None:
        self._left = answers
        self.turns: list[float | None] = []
        time._wait = self.wait
        time.elsewhere = lambda: handlers

    def wait(self, timeout: float | None) -> list[Any]:
        self.turns.append(timeout)
        return [object()] if self._left is not None and len(self.turns) > self._left else []


async def test_a_machine_that_stands_still_uses_up_one_turn_of_the_patience_with_a_thread() -> None:
    virtual = VirtualTime(asyncio.get_running_loop())
    before, outside = virtual.now, Outside(virtual, answers=9, handlers=1)
    assert len(virtual._select(3_600.0)) == 1
    assert outside.turns == [0, *[HANDLER_S / TURNS] * 9]
    assert virtual.now == before, "the clock stood still until the thread had ended"


@pytest.mark.parametrize(("handlers", "turns"), [(0, 0), (1, TURNS)])
async def test_virtual_time_advances_when_a_wait_for_outside_events_returns_nothing(
    handlers: int, turns: int
) -> None:
    virtual = VirtualTime(asyncio.get_running_loop())
    before, outside = virtual.now, Outside(virtual, answers=None, handlers=handlers)
    assert virtual._select(3_600.0) == []
    assert (len(outside.turns), virtual.now) == (1 + turns, before + 3_600.0)
    assert virtual._select(3_600.0) == []
    assert len(outside.turns) == 2 + turns, "it is not waited for once more"


async def test_a_thread_that_waits_for_the_event_loop_does_not_hold_it_up() -> None:
    virtual = VirtualTime(asyncio.get_running_loop())
    before, outside = virtual.now, Outside(virtual, answers=None, handlers=1)
    assert virtual._select(0) == [], "what is ready in the loop goes on at once"
    assert (outside.turns, virtual.now) == ([0], before)


async def test_a_cancel_reaches_a_handler_that_waits() -> None:
    async with in_memory(registry) as il:
        job = await il.submit(sleep_in, HOUR_S)
        await il.clock.jump("1s")
        await job.cancel(reason="nobody needs it")
        assert (await il.wait(job.id, timeout_s=60)).state == "CANCELED"


async def story() -> list[Entry]:
    async with in_memory(registry, seed=7) as il:
        jobs = [await il.submit(send, f"letter {n}", closed=n % 3) for n in range(10)]
        await il.clock.jump("3s")
        await il.worker.kill()
        await il.clock.jump("5m")
        await il.worker.start()
        for job in jobs:
            await job.result()
        return list((await il.store.feed()).entries)


async def test_the_same_test_does_the_same_each_time() -> None:
    first = await story()
    assert len(first) > 20
    assert await story() == first


async def test_faults_of_the_store_befall_the_worker_and_each_job_is_completed_once() -> None:
    plan = Plan(
        seed=3,
        faults=(
            Fault("reply lost", of=("commit", "claim"), chance=0.3),
            Fault("request lost", of=("commit", "claim", "load"), chance=0.2),
            Fault("done twice", chance=0.2),
        ),
    )
    async with in_memory(registry, faults=plan, concurrency=1) as il:
        jobs = [await il.submit(send, str(n), closed=0) for n in range(20)]
        assert [await job.result() for job in jobs] == [str(n) for n in range(20)]
        assert il.faulty is not None
        assert il.faulty.counts.total() > 20
        found = await audit(il.store, JOURNALLED, ["job"])
        assert found.faults == []


async def test_afterwards_the_loop_has_its_own_time_again() -> None:
    loop: Any = asyncio.get_running_loop()
    async with in_memory(registry) as il:
        await il.clock.jump("1h")
        assert "time" in vars(loop)
    assert "time" not in vars(loop)
    assert abs(loop.time() - time.monotonic()) < HOUR_S


async def test_a_clock_jump_into_the_past_is_refused_with_an_error() -> None:
    async with in_memory(registry) as il:
        with pytest.raises(ValueError, match="does not go back"):
            await il.clock.jump("-1s")


def test_a_test_that_waits_for_an_event_that_never_happens_ends_with_an_error() -> None:
    async def wait_for_ever() -> None:
        async with in_memory(registry):
            await asyncio.Event().wait()

    with pytest.raises(NothingComes, match="Ten years"):
        asyncio.run(wait_for_ever())


def test_an_event_loop_that_is_not_from_asyncio_is_refused_with_a_type_error() -> None:
    class Other:
        """As one that is written in C."""

    other: Any = Other()
    with pytest.raises(TypeError, match=r"Time cannot be moved in a Other.*asyncio's own"):
        VirtualTime(other)


def test_the_same_without_asyncio() -> None:
    with in_memory_sync(registry) as il:
        job_id = il.submit(send, "Hello")
        assert il.job(job_id).state == "PENDING"
        before = il.clock.now
        assert il.clock.jump("2h") - before >= timedelta(hours=2)
        assert il.job(job_id).state == "COMPLETED"
        assert il.result(job_id) == "Hello"
        assert il.faulty is None


def test_the_resources_of_a_synchronous_client_are_those_of_the_store_of_the_test() -> None:
    with in_memory_sync(registry) as il:
        il.schedules.create("post", send.spec("Hello", closed=0), "1h")
        il.limits.set("post", max=1)
        batch_id = il.batches.submit([add.spec(1, 2)])
        il.clock.jump("90m")
        assert il.schedules.get("post").submitted == 1
        assert [limit.name for limit in il.limits.list()] == ["post"]
        assert il.batches.wait(batch_id).counts.completed == 1
        assert il.approvals.list() == ([], "")
        assert il.dead_letters.list() == ([], "")
        assert il.simulations.find() == ([], "")
        assert il.runs.find() == ([], "")


def test_a_worker_dies_without_asyncio_too() -> None:
    with in_memory_sync(registry) as il:
        job_id = il.submit(save_and_wait)
        il.clock.jump("30s")
        il.worker.kill()
        il.clock.jump("3m")
        assert [str(one.state) for one in il.job(job_id).attempts] == ["STALE", "QUEUED"]
        il.worker.start()
        assert il.result(job_id) == "went on from half done"
        assert il.worker.stop() == 0
        assert len((il.run(il.store.feed())).entries) > 3
