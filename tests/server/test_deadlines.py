"""One timer for many: whoever takes too long is told so, and nobody else is."""

from __future__ import annotations

import asyncio

import pytest

from interlock.server.limits import Deadlines, Within
from interlock.testing.clocks import VirtualTime


async def test_a_block_that_exceeds_its_deadline_times_out_and_shorter_blocks_finish() -> None:
    loop = asyncio.get_running_loop()
    deadlines: Deadlines[Within] = Deadlines(10.0)

    async def take(begin_s: float, seconds: float) -> tuple[bool, float]:
        await asyncio.sleep(begin_s)
        began = loop.time()
        limit = deadlines()
        try:
            with limit:
                await asyncio.sleep(seconds)
        except TimeoutError:
            return limit.expired, round(loop.time() - began, 3)
        return limit.expired, round(loop.time() - began, 3)

    with VirtualTime(loop).in_place():
        ended = tuple(await asyncio.gather(take(0, 5), take(1, 60), take(2, 9.5), take(3, 60), take(50, 60)))
    assert ended == ((False, 5.0), (True, 10.0), (False, 9.5), (True, 10.0), (True, 10.0))


async def test_a_cancel_from_outside_is_no_timeout() -> None:
    deadlines: Deadlines[Within] = Deadlines(10.0)
    inside = asyncio.Event()

    async def take() -> None:
        with deadlines():
            inside.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(take())
    await inside.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    deadlines.close()


async def test_a_timeout_inside_the_handler_is_its_own() -> None:
    deadlines: Deadlines[Within] = Deadlines(10.0)
    limit = deadlines()
    with pytest.raises(TimeoutError), limit:
        raise TimeoutError
    assert not limit.expired
    deadlines.close()


async def test_a_cancel_at_the_instant_of_the_deadline_still_raises_cancelled_error() -> None:
    loop = asyncio.get_running_loop()
    deadlines: Deadlines[Within] = Deadlines(10.0)

    async def take() -> None:
        with deadlines():
            await asyncio.Event().wait()

    with VirtualTime(loop).in_place():
        task = asyncio.create_task(take())
        loop.call_later(10.0, task.cancel)
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_an_expired_inner_deadline_does_not_expire_the_outer_one() -> None:
    loop = asyncio.get_running_loop()
    body, answer = Deadlines[Within](1.0), Deadlines[Within](5.0)
    outer, inner = answer(), body()
    with VirtualTime(loop).in_place(), outer:
        with pytest.raises(TimeoutError), inner:
            await asyncio.sleep(60)
        await asyncio.sleep(1)
    assert (inner.expired, outer.expired) == (True, False)
    answer.close()
