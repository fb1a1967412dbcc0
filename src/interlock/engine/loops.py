"""Background work: supervised loops, and several concurrent tasks.

A loop that dies silently leaves a system that is alive without doing anything. Here every loop records its
last success, is restarted with growing pauses after a failure, and reports its health. Each can also be run
once, by hand.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from datetime import datetime
from typing import Any, TypeAlias

from interlock.backoff import nth_pause_s
from interlock.engine.clock import Clock
from interlock.engine.recovery import Sleeper
from interlock.wire.figures import LoopHealth


async def gather_all(doing: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Run all; raise the first failure, when all have ended."""
    waiting = list(doing)
    if len(waiting) == 1:
        await waiting[0]  # a single one needs no task
        return
    for result in await asyncio.gather(*waiting, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result


Body: TypeAlias = Callable[[], Awaitable[int]]
"""One round; returns the amount of work done."""

LONGEST_PAUSE_S = 30.0

log: logging.Logger = logging.getLogger("interlock.loops")


class Loop:
    """One body, run every `every_s` seconds, and again at once after a full round."""

    def __init__(
        self,
        name: str,
        body: Body,
        clock: Clock,
        *,
        every_s: float,
        full: int = 1_000,
        sleep: Sleeper = asyncio.sleep,
    ) -> None:
        self.name = name
        self._body = body
        self._clock = clock
        self._every_s = every_s
        self._full = full
        self._sleep = sleep
        self._rounds = self._done = self._failures = 0
        self._last_success_at: datetime | None = None
        self._last_error = ""

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            pause_s = await self.round()
            if pause_s:
                await self._sleep(pause_s)

    async def round(self) -> float:
        """Run one round, without raising; return the pause before the next."""
        self._rounds += 1
        try:
            done = await self._body()
            self._last_success_at = await self._clock.now()
        except Exception as error:  # noqa: BLE001 - a loop survives any error of its body
            return self._failed(error)
        self._failures, self._last_error = 0, ""
        self._done += done
        return 0.0 if done >= self._full else self._every_s

    def health(self) -> LoopHealth:
        """Return the health."""
        return LoopHealth(
            name=self.name,
            rounds=self._rounds,
            done=self._done,
            failures_in_a_row=self._failures,
            last_success_at=self._last_success_at,
            last_error=self._last_error,
        )

    def _failed(self, error: Exception) -> float:
        self._failures += 1
        self._last_error = f"{type(error).__name__}: {error}"
        log.warning("loop %s failed %d times in a row: %s", self.name, self._failures, self._last_error)
        return nth_pause_s(self._failures + 1, self._every_s, LONGEST_PAUSE_S)


async def run_loops(loops: Sequence[Loop]) -> None:
    """Run all loops until cancelled."""
    async with asyncio.TaskGroup() as group:
        for loop in loops:
            group.create_task(loop.run(), name=f"loop {loop.name}")
