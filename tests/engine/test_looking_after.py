"""Loops, sweeps and the clock: what repeats is supervised, and can be done by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from tests.clocks import AskingClock
from tests.waiting import PATIENCE_S

from interlock.engine.clock import StoreClock
from interlock.engine.committer import DirectCommitter
from interlock.engine.loops import Loop, run_loops
from interlock.engine.retention import Retention, sweep_ended
from interlock.engine.unit_of_work import Engine
from interlock.store.catalogue import catalogue_of
from interlock.store.memory import MemoryStore
from interlock.store.records import Change, Claim, Commit, Key

MakeChange = Callable[..., Change]


class Sleeper:
    """Notes how long a loop would sleep, and ends it after some rounds."""

    def __init__(self, rounds: int) -> None:
        self.pauses: list[float] = []
        self._rounds = rounds

    async def __call__(self, seconds: float) -> None:
        self.pauses.append(seconds)
        if len(self.pauses) >= self._rounds:
            raise asyncio.CancelledError


async def run_until_cancelled(loop: Loop) -> None:
    with pytest.raises(asyncio.CancelledError):
        await loop.run()


async def test_a_loop_continues_at_once_while_there_is_a_full_round_of_work(store: MemoryStore) -> None:
    found = iter([500, 500, 3, 0])

    async def body() -> int:
        return next(found)

    sleeper = Sleeper(2)
    loop = Loop("sweep", body, AskingClock(store), every_s=5, full=500, sleep=sleeper)
    await run_until_cancelled(loop)
    assert sleeper.pauses == [5, 5]
    assert loop.health().done == 1003
    assert loop.health().rounds == 4


async def test_a_failing_loop_retries_with_exponential_backoff_and_reports_its_last_error(
    store: MemoryStore,
) -> None:
    outcomes: list[Any] = [OSError("disk"), OSError("disk"), OSError("disk"), 1]

    async def body() -> int:
        outcome = outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return int(outcome)

    sleeper = Sleeper(4)
    loop = Loop("sweep", body, AskingClock(store), every_s=1, sleep=sleeper)
    for failures in (1, 2, 3):
        sleeper.pauses.append(await loop.round())
        assert loop.health().failures_in_a_row == failures
        assert "disk" in loop.health().last_error
        assert loop.health().last_success_at is None
    await loop.round()
    assert sleeper.pauses == [2, 4, 8]
    assert (loop.health().failures_in_a_row, loop.health().last_error) == (0, "")
    assert loop.health().last_success_at is not None


async def test_no_loop_ends_because_another_fails(store: MemoryStore) -> None:
    beats: list[str] = []

    async def fails() -> int:
        raise OSError("always")

    async def works() -> int:
        beats.append("tick")
        return 0

    async def sleep(_: float) -> None:
        if len(beats) >= 5:
            raise asyncio.CancelledError
        await asyncio.sleep(0)

    loops = [
        Loop(name, body, AskingClock(store), every_s=0.1, sleep=sleep)
        for name, body in (("a", fails), ("b", works))
    ]
    runner = asyncio.create_task(run_loops(loops))
    await asyncio.wait([runner], timeout=PATIENCE_S)
    assert len(beats) >= 5
    assert loops[0].health().failures_in_a_row > 1


async def test_an_ended_record_is_removed_after_the_retention_time_of_its_kind(
    store: MemoryStore, clock: Any, make_change: MakeChange, parcel: Any
) -> None:
    catalogue = catalogue_of([parcel])
    await store.commit([Commit(changes=(make_change("living", 0, "sent"),))])
    await store.commit([Commit(changes=(make_change("ended", 0, "delivered"),))])
    week = Retention(by_kind={"parcel": timedelta(days=7)})
    clock.jump(6 * 86_400)
    assert (await sweep_ended(store, catalogue, week))["parcel"].records == 0
    clock.jump(86_400)
    assert (await sweep_ended(store, catalogue, week))["parcel"].records == 1
    found = await store.load([Key("parcel", "living"), Key("parcel", "ended")])
    assert [record is None for record in found] == [False, True]


async def test_the_clock_resyncs_with_the_store_periodically_and_counts_in_between(
    store: MemoryStore, clock: Any
) -> None:
    ticks = [0.0]
    estimate = StoreClock(store, resync_s=5, monotonic=lambda: ticks[0])
    beginning = await estimate.now()
    ticks[0] = 3.0
    counted = await estimate.now() - beginning  # the store was not asked
    assert timedelta(seconds=2.99) < counted <= timedelta(seconds=3)  # never ahead
    clock.jump(60)
    ticks[0] = 6.0
    assert await estimate.now() == beginning + timedelta(seconds=60)


@pytest.mark.parametrize("jump_s", [3_600.0, -3_600.0], ids=["ahead", "back"])
async def test_the_clock_resyncs_with_the_store_when_the_clock_of_the_host_has_jumped(
    store: MemoryStore, clock: Any, jump_s: float
) -> None:
    """A worker that registered after a suspend was written off several times within five seconds."""
    ticks, shown = [0.0], [1_000_000.0]
    estimate = StoreClock(store, resync_s=5, monotonic=lambda: ticks[0], wall=lambda: shown[0])
    beginning = await estimate.now()
    ticks[0], shown[0] = 1.0, 1_000_001.0 + jump_s
    clock.jump(3_600)
    assert await estimate.now() == beginning + timedelta(seconds=3_600)
    ticks[0], shown[0] = 2.0, 1_000_002.0 + jump_s
    clock.jump(3_600)
    assert await estimate.now() < beginning + timedelta(seconds=3_602), "it was asked once"


async def test_the_clock_resyncs_when_a_claim_shows_that_the_clock_of_the_store_was_set_ahead(
    store: MemoryStore, make_change: MakeChange, clock: Any
) -> None:
    """A heartbeat in the next seconds would be counted from the old time, and end the lease."""
    ticks = [0.0]
    estimate = StoreClock(store, resync_s=5, monotonic=lambda: ticks[0])
    engine = Engine(store, DirectCommitter(store), estimate)
    beginning = await estimate.now()
    ready = msgspec.structs.replace(make_change("p", 0, "packed"), queue="post", ready_at=beginning)
    await store.commit([Commit(changes=(ready,))])
    clock.jump(1_800)
    ticks[0] = 1.0
    assert await estimate.now() < beginning + timedelta(seconds=2), "nothing has shown it yet"
    await engine.claim(Claim(kind="parcel", queues=("post",)), lambda *_: [])
    assert await estimate.now() == beginning + timedelta(seconds=1_800)


async def test_the_store_clock_never_moves_backwards(store: MemoryStore) -> None:
    ticks = [0.0]
    estimate = StoreClock(store, resync_s=5, monotonic=lambda: ticks[0])
    ticks[0] = 1.0
    await estimate.now()
    ticks[0] = 5.5
    ahead = await estimate.now()
    ticks[0] = 7.0  # asks the store, whose clock has stood still
    assert await estimate.now() >= ahead
