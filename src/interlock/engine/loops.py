"""Background work: supervised loops, and several tasks side by side.

A loop that dies silently is how systems come to be alive without doing anything. Here every loop
notes when it last succeeded, is restarted with growing pauses when it fails, and can be asked how
it is. Each can also be run once, by hand.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from datetime import datetime
from typing import Any, TypeAlias

import msgspec

from interlock.engine.clock import Clock
from interlock.engine.recovery import Sleep


async def gather_all(doing: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Do all of it; raises the first failure, when everything has ended."""
    waiting = list(doing)
    if len(waiting) == 1:
        await waiting[0]  # no task is needed for one thing
        return
    for result in await asyncio.gather(*waiting, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result


Body: TypeAlias = Callable[[], Awaitable[int]]
"""One round; answers how much it found to do."""

LONGEST_PAUSE_S = 30.0

log = logging.getLogger("interlock.loops")


class Health(msgspec.Struct, frozen=True):
    """How a loop is."""

    name: str
    rounds: int
    done: int
    failures_in_a_row: int
    last_success_at: datetime | None
    last_error: str


class Loop:
    """One body, run every `every_s` seconds, and again at once while it finds a full round of work."""

    def __init__(
        self,
        name: str,
        body: Body,
        clock: Clock,
        *,
        every_s: float,
        full: int = 1_000,
        sleep: Sleep = asyncio.sleep,
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
        """Until it is cancelled."""
        while True:
            pause_s = await self.round()
            if pause_s:
                await self._sleep(pause_s)

    async def round(self) -> float:
        """One round, never raising; answers how long to pause before the next."""
        self._rounds += 1
        try:
            done = await self._body()
            self._last_success_at = await self._clock.now()
        except Exception as error:  # noqa: BLE001 - a loop outlives whatever its body meets
            return self._failed(error)
        self._failures, self._last_error = 0, ""
        self._done += done
        return 0.0 if done >= self._full else self._every_s

    def health(self) -> Health:
        """How it is."""
        return Health(
            self.name, self._rounds, self._done, self._failures, self._last_success_at, self._last_error
        )

    def _failed(self, error: Exception) -> float:
        self._failures += 1
        self._last_error = f"{type(error).__name__}: {error}"
        log.warning("loop %s failed %d times in a row: %s", self.name, self._failures, self._last_error)
        return min(self._every_s * 2.0 ** min(self._failures, 10), LONGEST_PAUSE_S)


async def run_loops(loops: Sequence[Loop]) -> None:
    """All of them, until cancelled; none of them ends before."""
    async with asyncio.TaskGroup() as group:
        for loop in loops:
            group.create_task(loop.run(), name=f"loop {loop.name}")
