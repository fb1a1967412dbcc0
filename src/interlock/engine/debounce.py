"""Debounce background work: run it soon after a signal, once for many signals, and never twice at a time.

A signal saves waiting for the next sweep. The sweeps make up for a signal that is lost with its process.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

log: logging.Logger = logging.getLogger("interlock.debounce")

GRACE_S = 10.0
"""Time for a stopping process to finish its work: other processes would have to wait for a sweep."""
TURNS = 20
"""Number of turns of that time: a stall of the host uses up only one of them."""


class Debouncer:
    """A function that is called after signals, until it finds no more work."""

    def __init__(self, name: str, body: Callable[[], Awaitable[int]]) -> None:
        self._name = name
        self._body = body
        self._triggered = False
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    def trigger(self) -> None:
        """Schedule the work."""
        self._triggered = True
        if not self._closed and (self._task is None or self._task.done()):
            self._task = asyncio.get_running_loop().create_task(self._work(), name=self._name)

    @property
    def is_busy(self) -> bool:
        """Return whether work is running, or about to."""
        return self._task is not None and not self._task.done()

    async def idle(self) -> None:
        """Wait until no work is running."""
        while self._task is not None and not self._task.done():
            await asyncio.wait([self._task])

    async def close(self, *, grace_s: float = GRACE_S) -> None:
        """Accept no more signals; running work may finish within the grace."""
        self._closed = True
        if self._task is None:
            return
        for _ in range(TURNS):
            if (await asyncio.wait([self._task], timeout=grace_s / TURNS))[0]:
                return
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _work(self) -> None:
        while self._triggered and not self._closed:
            self._triggered = False
            try:
                while await self._body() and not self._closed:
                    pass
            except Exception as error:  # noqa: BLE001 - a later sweep retries
                log.warning("%s: %s: %s", self._name, type(error).__name__, error)
