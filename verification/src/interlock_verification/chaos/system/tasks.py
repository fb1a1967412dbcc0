"""The tasks of the workers: short, in the three ways in which handlers can be written and end."""

from __future__ import annotations

import asyncio
import time

from interlock import Context, task


class FlakyError(Exception):
    """A failure that does not repeat."""


def outcome(intent: str) -> dict[str, object]:
    """Return the result of a handler: its job's intent and its host's clock."""
    return {"intent": intent, "clock": time.time()}


@task
async def short_task(intent: str, for_s: float) -> dict[str, object]:
    """Wait a moment."""
    await asyncio.sleep(for_s)
    return outcome(intent)


@task
def blocking_task(intent: str, for_s: float) -> dict[str, object]:
    """Wait a moment, in a thread."""
    time.sleep(for_s)
    return outcome(intent)


@task(retries=3)
async def flaky_task(ctx: Context, intent: str, for_s: float) -> dict[str, object]:
    """Fail the first attempt that reaches its end."""
    await asyncio.sleep(for_s)
    if ctx.attempt == 1:
        raise FlakyError("It would go well another time.")
    return outcome(intent)


KINDS = (short_task, blocking_task, flaky_task)
