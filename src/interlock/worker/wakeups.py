"""Waiting for one of several things, and being woken from anywhere."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
_TURNS = 8


async def unless(event: asyncio.Event, work: Coroutine[Any, Any, T], then_s: float = 0.0) -> T | None:
    """The result of some work; None if the event comes first and the work is not done `then_s` later."""
    task, other = asyncio.ensure_future(work), asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait((task, other), return_when=asyncio.FIRST_COMPLETED)
        if not task.done() and then_s:
            await done_within(task, then_s)
        return task.result() if task.done() else None
    finally:
        other.cancel()
        if not task.done():
            task.cancel()
            task.add_done_callback(_forget)


async def done_within(task: asyncio.Future[Any], seconds: float) -> bool:
    """Return whether the task is done in time, waited for in turns: a standstill uses up one of them."""
    for _ in range(_TURNS):
        if not task.done():
            await asyncio.wait((task,), timeout=seconds / _TURNS)
    return task.done()


async def set_within(event: asyncio.Event, seconds: float) -> bool:
    """Whether the event came in time."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(max(0.0, seconds)):
            return await event.wait()
    return False


def soon(loop: asyncio.AbstractEventLoop, act: Callable[[], None]) -> None:
    """Do it in the event loop; from any thread, and from a signal handler."""
    with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is left to be woken
        loop.call_soon_threadsafe(act)


def _forget(task: asyncio.Future[Any]) -> None:
    """Whatever became of work that nobody waits for any more."""
    if not task.cancelled():
        task.exception()
