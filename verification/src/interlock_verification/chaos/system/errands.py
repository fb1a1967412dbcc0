"""What the workers do: little, in the three ways in which handlers can be written and end."""

from __future__ import annotations

import asyncio
import time

from interlock import Context, task


class FlakyError(Exception):
    """It would go well another time."""


def outcome(intent: str) -> dict[str, object]:
    """What a handler returns: whose job it was, and what time it was where it ran."""
    return {"intent": intent, "clock": time.time()}


@task
async def errand(intent: str, for_s: float) -> dict[str, object]:
    """Wait a little."""
    await asyncio.sleep(for_s)
    return outcome(intent)


@task
def heavy_errand(intent: str, for_s: float) -> dict[str, object]:
    """The same in a thread."""
    time.sleep(for_s)
    return outcome(intent)


@task(retries=3)
async def flaky_errand(ctx: Context, intent: str, for_s: float) -> dict[str, object]:
    """Fails the first time that it comes to its end."""
    await asyncio.sleep(for_s)
    if ctx.attempt == 1:
        raise FlakyError("It would go well another time.")
    return outcome(intent)


KINDS = (errand, heavy_errand, flaky_errand)
