"""The orchestrator ports of `interlock worker start --burst`.

The worker stops when all of its work is done.

That is when no job is ready for it and none in its queues is under way: in its own slots, on another
worker, or waiting for a retry. The store decides that, not the worker: an attempt that has timed out is
over although its thread still runs. Otherwise the ports are the ordinary ones.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from interlock.systems.embedded import EmbeddedOrchestrator
from interlock.wire.runner import ClaimRequest, Grant
from interlock.worker.http import HttpOrchestrator

ClaimGrants = Callable[[ClaimRequest], Awaitable[list[Grant]]]


class BurstOnStore(EmbeddedOrchestrator):
    """The port of a burst worker on a store."""

    def __init__(self, url: str, *, stop: Callable[[], None], **options: Any) -> None:
        """`stop` stops the worker."""
        super().__init__(url, **options)
        self._stop = stop

    async def claim(self, request: ClaimRequest) -> list[Grant]:
        """Return jobs for this runner, or stop it."""

        async def under_way() -> bool:
            return await self.services.jobs.under_way(request.queues)

        return await _claimed(request, super().claim, under_way, self.recover, self._stop)


class BurstThroughServer(HttpOrchestrator):
    """The port of a burst worker behind a server."""

    def __init__(self, server: str, *, stop: Callable[[], None], **options: Any) -> None:
        """`stop` stops the worker."""
        super().__init__(server, wait_s=0.0, tell_under_way=True, **options)
        self._stop = stop

    async def claim(self, request: ClaimRequest) -> list[Grant]:
        """Return jobs for this runner, or stop it."""

        async def under_way() -> bool:
            return self.under_way

        return await _claimed(request, super().claim, under_way, self.recover, self._stop)


async def _claimed(
    request: ClaimRequest,
    claim: ClaimGrants,
    under_way: Callable[[], Awaitable[bool]],
    recover: Callable[[], Awaitable[int]],
    stop: Callable[[], None],
) -> list[Grant]:
    grants = await claim(request)
    if grants or await under_way():
        return grants
    await recover()  # jobs that have ended may free places for other jobs of their run
    grants = await claim(request)
    if not grants and not await under_way():
        stop()
    return grants
