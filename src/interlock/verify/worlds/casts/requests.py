"""What people have in common: they do several things at once, and ask until there is an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from interlock.errors import Contended, StoreUnavailable
from interlock.verify.worlds.stage import Process

T = TypeVar("T")

PATIENCE_S = 1_500.0
"""How long a request is repeated; its answer is remembered for longer than that."""


class Errands:
    """What is under way for somebody; none of it may crash."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._under_way: dict[asyncio.Task[None], None] = {}

    def begin(self, errand: Coroutine[Any, Any, None]) -> None:
        """One more."""
        task = asyncio.create_task(errand)
        self._under_way[task] = None
        task.add_done_callback(self._over)

    def _over(self, done: asyncio.Task[None]) -> None:
        del self._under_way[done]
        if not done.cancelled() and (error := done.exception()) is not None:
            self._process.stage.watcher.broke("nothing that people do crashes", repr(error))


async def surely(process: Process, ask: Callable[[], Awaitable[T]], *, again: bool = True) -> T | None:
    """Ask until there is an answer; None when there is none for too long, or it may not be repeated."""
    schedule = process.stage.schedule
    until = schedule.now + PATIENCE_S
    pause_s = 1.0
    while True:
        try:
            return await ask()
        except (StoreUnavailable, Contended):
            if not again or schedule.now + pause_s > until:
                return None
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, 60.0)
