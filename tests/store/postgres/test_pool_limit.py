"""A pool grows when calls have to wait for each other, for long or often."""

from __future__ import annotations

import asyncio

import pytest

from interlock.store.postgres.connections import GROW_AFTER_S, LINE_WINDOW_S, PoolLimit


class Hours:
    """The time of the event loop, set by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1_000.0
        monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: self.now)


async def one_waits_for(limit: PoolLimit, hours: Hours, seconds: float) -> None:
    """Let one call wait for another one."""
    await limit.enter(hours.now + 1_000)
    second = asyncio.create_task(limit.enter(hours.now + 1_000))
    await asyncio.sleep(0)
    hours.now += seconds
    limit.leave()
    await second
    limit.leave()


async def test_a_pool_grows_after_many_short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    hours, limit = Hours(monkeypatch), PoolLimit(4, lambda _: None)
    for _ in range(9):
        await one_waits_for(limit, hours, GROW_AFTER_S / 10)
    assert limit.allowed == 1
    await one_waits_for(limit, hours, GROW_AFTER_S / 5)
    assert limit.allowed == 2
    limit.close()


async def test_a_pool_does_not_grow_after_short_waits_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    hours, limit = Hours(monkeypatch), PoolLimit(4, lambda _: None)
    for _ in range(30):
        hours.now += LINE_WINDOW_S
        await one_waits_for(limit, hours, GROW_AFTER_S / 10)
    assert limit.allowed == 1
    limit.close()
