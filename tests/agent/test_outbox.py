"""What a controller has not read yet: merged, bounded, in order, and never lost."""

from __future__ import annotations

import asyncio

from interlock.agent.protocol import LoadSample
from interlock.agent.state import Outbox
from interlock.lifecycles.workload import SendStatus, Status
from interlock.testing.clocks import VirtualTime

READY = SendStatus(Status.READY)
DONE = SendStatus(Status.COMPLETED, completed=True)


def sample(number: int) -> LoadSample:
    errors = [f"error {number}"] if number % 10 == 0 else []
    return LoadSample(
        elapsed_ns=number * 10**9,
        operations=3,
        errors=len(errors),
        size=10,
        counts={1_000 + number % 7: 2, 5_000: 1},
        error_samples=errors,
    )


async def test_samples_that_a_slow_reader_misses_are_merged_without_losing_any_count() -> None:
    outbox = Outbox(quiet_s=1.5)
    outbox.add_status(READY)
    outbox.run()
    for number in range(1, 10_001):
        outbox.add_message(sample(number))
    outbox.add_status(DONE)
    first, last = await outbox.next(), await outbox.next()
    assert first is not None
    assert last is not None
    assert (first.report, first.since.operations) == (READY, 0)
    assert (last.report, last.sequence) == (DONE, 2)
    assert (last.since.operations, last.since.size, last.since.samples) == (30_000, 100_000, 10_000)
    assert sum(last.since.counts.values()) == 30_000
    assert (last.interval_ns, last.since.errors) == (10_000 * 10**9, 1_000)
    assert len(last.since.counts) == 8
    assert len(last.since.error_samples) == 5
    assert await outbox.next() is None


async def test_a_reader_that_keeps_up_receives_every_sample() -> None:
    outbox = Outbox(quiet_s=1.5)
    outbox.run()
    messages = [await outbox.next()]
    for number in (1, 2, 3):
        outbox.add_message(sample(number))
        messages.append(await outbox.next())
    assert [one.sequence for one in messages if one] == [1, 2, 3, 4]
    assert [one.since.operations for one in messages if one] == [0, 3, 3, 3]
    assert [one.totals.operations for one in messages if one] == [0, 3, 6, 9]


async def test_the_outbox_reports_running_periodically_while_a_workload_sends_no_samples() -> None:
    loop = asyncio.get_running_loop()
    with VirtualTime(loop).in_place():
        outbox, began = Outbox(quiet_s=1.5), loop.time()
        outbox.run()
        messages = [await outbox.next() for _ in range(4)]
        assert [one.report.status for one in messages if one] == [Status.RUNNING] * 4
        assert 4.4 < loop.time() - began < 4.6


async def test_the_outbox_reports_nothing_while_a_workload_stays_ready() -> None:
    with VirtualTime(asyncio.get_running_loop()).in_place():
        outbox = Outbox(quiet_s=1.5)
        outbox.add_status(READY)
        await outbox.next()
        waiting = asyncio.create_task(outbox.next())
        await asyncio.sleep(60)
        assert not waiting.done()
        outbox.add_status(DONE)
        last = await waiting
        assert last is not None
        assert last.report == DONE
