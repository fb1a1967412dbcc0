"""Whoever tests tasks of their own gets the real thing, and nothing of it stays behind."""

from __future__ import annotations

import pytest

from interlock import Context, Registry
from interlock.errors import JobFailed
from interlock.testing.at_work import at_work

shop = Registry()


@shop.task
async def double(number: int) -> int:
    return 2 * number


@shop.task(retries=1)
def fail_once(ctx: Context) -> int:
    if ctx.attempt == 1:
        raise ValueError("the first time it fails")
    return ctx.attempt


@shop.task
async def fail() -> None:
    raise ValueError("it always fails")


async def test_a_task_can_be_tested_with_a_real_worker() -> None:
    async with at_work(shop) as il:
        job = await il.submit(double, 21)
        assert await job.result(timeout_s=60) == 42


async def test_retries_and_failures_are_the_real_ones() -> None:
    async with at_work(shop) as il:
        again = await il.submit(fail_once)
        never = await il.submit(fail)
        assert await again.result(timeout_s=60) == 2
        with pytest.raises(JobFailed, match="it always fails"):
            await never.result(timeout_s=60)
