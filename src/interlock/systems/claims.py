"""Claims of workers that are in the books of the supervisor: who is held, or has ended, is given nothing.

Authority. The worker's record says whether it may be given work. It is looked at before anything is claimed,
and once more *after* work was seen: what a terminated worker had is ready again as soon as its end is stored,
and its own claim, if one is under way, may be the first to find it. A look that begins after that work was
seen sees the end as well.

Price. The second look is made while the claim is being written, so that nobody waits for it. Who was held or
ended in between gives back what was written, which costs no try.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from interlock.systems.orchestrator.orchestrator import Orchestrator
from interlock.wire.runner import ClaimRequest, Grant

Takes = Callable[[str], Awaitable[bool]]
"""Whether a worker may be given work."""


class WorkerClaims:
    """Gives work to workers that may have it."""

    def __init__(self, orchestrator: Orchestrator, takes: Takes) -> None:
        self._orchestrator = orchestrator
        self._takes = takes

    async def claim(self, request: ClaimRequest) -> list[Grant]:
        """Work for a worker, or for a runner that is in no books."""
        if not request.worker_id:
            return await self._orchestrator.claim(request)
        if not await self._takes(request.worker_id):
            return []
        look = _Look(lambda: self._takes(request.worker_id))
        try:
            grants = await self._orchestrator.claim(request, seen=look.begin)
        finally:
            may_take = await look.last()
        if may_take is not False:
            return grants
        await self._orchestrator.take_back(request.runner_id, grants)
        return []


class _Look:
    """Asks something whenever it is told to, from whichever thread; what was asked last counts."""

    def __init__(self, ask: Callable[[], Awaitable[bool]]) -> None:
        self._ask = ask
        self._loop = asyncio.get_running_loop()
        self._wanted = 0
        self._under_way: list[asyncio.Future[bool]] = []

    def begin(self) -> None:
        """Ask now, beside whatever is going on."""
        self._wanted += 1
        self._loop.call_soon_threadsafe(self._begin)

    async def last(self) -> bool | None:
        """The last answer; None when nobody has asked."""
        while len(self._under_way) < self._wanted:  # the claim may not have let the loop have a turn
            await asyncio.sleep(0)
        answers = await asyncio.gather(*self._under_way)
        return answers[-1] if answers else None

    def _begin(self) -> None:
        self._under_way.append(asyncio.ensure_future(self._ask()))
