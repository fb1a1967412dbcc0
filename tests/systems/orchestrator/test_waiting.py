"""Whoever waits for a job reads the feed; whoever does not, reads nothing."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.systems.orchestrator.house import House, done
from tests.waiting import PATIENCE_S, until

from interlock.errors import UnknownJob
from interlock.store.memory import MemoryStore
from interlock.systems.catalogue import CATALOGUE
from interlock.testing.clocks import JumpingClock


class CountingStore(MemoryStore):
    """Knows how often it was asked for news, and who wants to be woken."""

    asked = 0
    loads = 0

    async def load(self, *args: Any, **kwargs: Any) -> Any:
        """Asked for jobs by the reader of all waiters."""
        task = asyncio.current_task()
        self.loads += task is not None and task.get_name() == "waiting for jobs"
        return await super().load(*args, **kwargs)

    async def feed(self, *args: Any, **kwargs: Any) -> Any:
        """Asked once more."""
        self.asked += 1
        return await super().feed(*args, **kwargs)

    @property
    def listeners(self) -> int:
        """How many want to be woken."""
        return len(self._wakes)


async def test_the_feed_reader_stops_when_no_client_waits_for_a_job() -> None:
    """Found by a world: a program that had waited once asked its store for news every second, for ever."""
    clock = JumpingClock()
    store = CountingStore(CATALOGUE, clock=clock)
    house = await House(store=lambda: store, clock=clock).open()
    waiting = house.port.services.waiting
    for _ in range(2):  # and whoever waits after that is told as well
        grant = await house.started()
        ended = asyncio.create_task(waiting.ended(grant.job_id))
        await asyncio.sleep(0)
        await house.heard(done(grant))
        async with asyncio.timeout(60):
            assert (await ended).state == "COMPLETED"
        reader = waiting._reader
        assert reader is not None
        async with asyncio.timeout(60):
            await reader
        assert store.listeners == 0
    await house.close()


async def test_a_job_that_is_waited_for_is_loaded_again_only_when_it_has_ended() -> None:
    clock = JumpingClock()
    store = CountingStore(CATALOGUE, clock=clock)
    house = await House(store=lambda: store, clock=clock).open()
    waiting = house.port.services.waiting
    job_id = await house.submit()
    ended = asyncio.create_task(waiting.ended(job_id))
    await until(lambda: store.loads == 1, "the reader has begun")
    grant = await house.grant()
    await until(lambda: store.asked == 1, "the reader has read of the grant")
    await house.heard(done(grant))
    async with asyncio.timeout(PATIENCE_S):
        assert (await ended).state == "COMPLETED"
    assert (store.loads, store.asked) == (2, 2)
    await house.close()


async def test_waiting_for_a_job_that_there_is_not_fails_at_once() -> None:
    clock = JumpingClock()
    store = CountingStore(CATALOGUE, clock=clock)
    house = await House(store=lambda: store, clock=clock).open()
    waiting = house.port.services.waiting
    async with asyncio.timeout(60):
        with pytest.raises(UnknownJob):
            await waiting.ended("j_000000000000")
        assert waiting._reader is not None
        await waiting._reader
    assert store.listeners == 0
    await house.close()
