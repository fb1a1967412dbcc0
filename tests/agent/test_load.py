"""The load: how many operations are begun, when, and what is measured of them. On virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import msgspec
import pytest

from interlock.agent.load import CUT_OFF, PacedLoad
from interlock.agent.port import Operation
from interlock.agent.protocol import Order
from interlock.testing.clocks import VirtualTime

MS = 1_000_000


@pytest.fixture
async def make() -> AsyncIterator[Callable[..., PacedLoad]]:
    loop = asyncio.get_running_loop()

    def now_ns() -> int:
        return round(loop.time() * 1e9)

    def make(
        duration_s: float = 1.0, rate: float = 0.0, concurrency: int = 1, max_operations: int = 0
    ) -> PacedLoad:
        order = Order(
            home="",
            spec=msgspec.Raw(b"{}"),
            start_at_ns=now_ns(),
            duration_s=duration_s,
            rate=rate,
            concurrency=concurrency,
            max_operations=max_operations,
            sample_every_s=1.0,
            drain_s=2.0,
            path=[],
        )
        load = PacedLoad(order, now_ns)
        load.begin()
        return load

    with VirtualTime(loop).in_place():
        yield make


def taking(seconds: float) -> Operation:
    async def operation() -> int:
        await asyncio.sleep(seconds)
        return 10

    return operation


Make = Callable[..., PacedLoad]


@pytest.mark.parametrize(("rate", "concurrency"), [(10, 1), (1_000, 3), (333, 7)])
async def test_a_rate_that_can_be_kept_is_kept_exactly(make: Make, rate: float, concurrency: int) -> None:
    load = make(duration_s=2.0, rate=rate, concurrency=concurrency)
    await load.drive(taking(0.0005))
    sample = load.counting.take(load.elapsed_ns)
    assert (sample.operations, sample.size) == (2 * rate, 20 * rate)
    assert max(sample.counts) < 1 * MS


async def test_the_latency_of_an_operation_that_waits_for_a_lane_is_measured_from_its_due_time(
    make: Make,
) -> None:
    """One operation of a second keeps 9 others waiting; each of those counts its wait."""
    load = make(duration_s=1.0, rate=10)
    slow = iter([1.0])

    async def operation() -> None:
        await asyncio.sleep(next(slow, 0.0))

    await load.drive(operation)
    counts = load.counting.take(load.elapsed_ns).counts
    assert sum(counts.values()) < 10, "what was due but not begun in time is not done"
    load = make(duration_s=5.0, rate=10)
    slow = iter([1.0])
    await load.drive(operation)
    counts = load.counting.take(load.elapsed_ns).counts
    assert sum(counts.values()) == 50
    late = sorted((value for value in counts if value > 50 * MS), reverse=True)
    assert len(late) == 10
    assert late[0] >= 999 * MS
    assert 890 * MS < late[1] < 910 * MS


@pytest.mark.parametrize("threads", [False, True])
async def test_operations_that_were_due_and_never_began_are_counted(make: Make, threads: bool) -> None:
    """100/s for 3 s, where each takes 50 ms and there is one lane: 60 are done, and 240 dropped."""
    load = make(duration_s=3.0, rate=100)
    seen: list[int] = []

    async def operation() -> None:
        await asyncio.sleep(0.05)
        seen.append(load.backlog)

    def blocking() -> None:
        now[0] += 50 * MS

    if threads:
        now = [load.start_ns]
        load.now_ns = lambda: now[0]
        await load.drive_in_threads(blocking)
    else:
        await load.drive(operation)
        assert seen[9] == 51 - 10, "half a second after the start 51 were due"
    assert (load.counting.take(load.elapsed_ns).operations, load.backlog) == (60, 240)


async def test_nothing_is_dropped_where_the_rate_is_kept_or_there_is_none(make: Make) -> None:
    kept = make(duration_s=2.0, rate=100, concurrency=2)
    await kept.drive(taking(0.001))
    assert kept.backlog == 0
    limited = make(duration_s=100.0, rate=100, max_operations=7)
    await limited.drive(taking(0.001))
    assert limited.backlog == 0
    unpaced = make(duration_s=1.0)
    await unpaced.drive(taking(0.1))
    assert unpaced.backlog == 0


async def test_a_stopped_load_counts_as_dropped_only_operations_that_were_due_before_the_stop(
    make: Make,
) -> None:
    load = make(duration_s=100.0, rate=100)
    asyncio.get_running_loop().call_later(1.0, load.stop)
    await load.drive(taking(0.5))
    assert 95 <= load.backlog <= 101


async def test_without_a_rate_each_lane_starts_its_next_operation_at_once(make: Make) -> None:
    load = make(duration_s=1.0, concurrency=4)
    await load.drive(taking(0.1))
    assert load.counting.take(load.elapsed_ns).operations == 40


async def test_a_load_performs_exactly_max_operations(make: Make) -> None:
    load = make(max_operations=17, concurrency=5)
    await load.drive(taking(0.01))
    assert load.counting.take(load.elapsed_ns).operations == 17


async def test_an_operation_that_began_in_time_may_finish_after_the_duration(make: Make) -> None:
    load = make(duration_s=1.0)
    await load.drive(taking(1.5))
    sample = load.counting.take(load.elapsed_ns)
    assert (sample.operations, sample.errors) == (1, 0)


async def test_an_operation_that_outlasts_the_drain_time_is_cut_off_and_counted_as_an_error(
    make: Make,
) -> None:
    load = make(duration_s=1.0, concurrency=2)
    await load.drive(taking(100))
    sample = load.counting.take(load.elapsed_ns)
    assert (sample.operations, sample.errors, sample.error_samples) == (2, 2, [CUT_OFF])
    assert load.elapsed_ns < 3_100 * MS


async def test_operations_interrupted_by_a_stop_are_not_counted(make: Make) -> None:
    load = make(duration_s=100.0, concurrency=2)
    asyncio.get_running_loop().call_later(0.25, load.stop)
    await load.drive(taking(0.1))
    sample = load.counting.take(load.elapsed_ns)
    assert (sample.operations, sample.errors) == (4, 0)
    assert load.elapsed_ns < 300 * MS


async def test_an_operation_that_never_pauses_leaves_others_a_turn(make: Make) -> None:
    load = make(duration_s=3_600.0, max_operations=10**9)
    done = 0

    async def operation() -> None:
        nonlocal done
        done += 1
        if done == 100:
            asyncio.get_running_loop().call_soon(load.stop)
        if done > 100:
            await asyncio.sleep(0.001)

    await load.drive(operation)
    assert load.counting.take(load.elapsed_ns).operations >= 100


async def test_a_load_ends_after_its_duration_or_when_it_is_stopped(make: Make) -> None:
    load = make(duration_s=5.0)
    await load.until_over()
    assert 4_999 * MS < load.elapsed_ns < 5_001 * MS
    load = make(duration_s=5.0)
    asyncio.get_running_loop().call_later(1.0, load.stop)
    await load.until_over()
    assert load.elapsed_ns < 1_001 * MS


@pytest.mark.parametrize("rate", [0.0, 100.0])
async def test_a_load_that_was_stopped_before_its_start_begins_nothing(make: Make, rate: float) -> None:
    load = make(rate=rate)
    load.stop()
    load.begin()
    await load.drive(taking(0.001))
    assert load.counting.take(0).operations == 0
