"""Waiting for something to be true, with one limit for all tests.

The limit is for tests that fail. It is far longer than a busy machine needs, so that no test depends on
how fast the machine is.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable

PATIENCE_S = 300.0
"""How long a test waits for one thing before it fails. With thirty busy processes for each core a minute was
too short to start two interpreters."""
PROGRAM_S = 900.0
"""How long a test waits for a whole program that it has started, such as the demo."""
LOOK_EVERY_S = 0.01
LOOK_AT_LEAST_EVERY_S = 0.1
"""Between two looks lies ever more time, up to this: a look may cost as much as what it waits for."""


def _nothing() -> str:
    return ""


async def pause() -> None:
    """Wait for a moment, between two looks."""
    await asyncio.sleep(LOOK_EVERY_S)


async def until(
    true: Callable[[], bool | Awaitable[bool]],
    what: str,
    *,
    story: Callable[[], str] = _nothing,
    within_s: float = PATIENCE_S,
) -> None:
    """Wait until `true` answers yes; fail with `what` and the `story` when it does not."""
    try:
        async with asyncio.timeout(within_s):
            every_s = LOOK_EVERY_S
            while not await _answer(true):
                await asyncio.sleep(every_s)
                every_s = _longer(every_s)
    except TimeoutError:
        raise AssertionError(f"It was not so within {within_s:g} s that {what}.\n{story()}") from None


def until_so(true: Callable[[], bool], what: str, *, story: Callable[[], str] = _nothing) -> None:
    """The same where there is no event loop."""
    deadline = time.monotonic() + PATIENCE_S
    every_s = LOOK_EVERY_S
    while not true():
        if time.monotonic() > deadline:
            raise AssertionError(f"It was not so within {PATIENCE_S:g} s that {what}.\n{story()}")
        time.sleep(every_s)
        every_s = _longer(every_s)


def _longer(every_s: float) -> float:
    return min(1.3 * every_s, LOOK_AT_LEAST_EVERY_S)


async def _answer(true: Callable[[], bool | Awaitable[bool]]) -> bool:
    answer = true()
    return await answer if inspect.isawaitable(answer) else answer
