"""What is heard of the agents goes into the store, beside the workload and never in its way.

Of each workload only the latest is told: the table knows the way there. A store that is away for a
while is told afterwards; a workload does not wait for it. While nothing happens the store is told every
few seconds how much was done, and with it that somebody is still there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

import msgspec

from interlock.errors import InterlockError, StoreUnavailable
from interlock.lifecycles.durations import WORKLOAD_BEAT_S
from interlock.wire.workloads import Happened, WorkloadFact

Tell = Callable[[Sequence[WorkloadFact]], Awaitable[None]]
PAUSE_S = 0.5
"""Before a store that is away is asked again."""
NUMBERS_EVERY_S = 2.0
"""How often the store is told the numbers of a small fleet."""
WRITES_A_SECOND = 20.0
"""So many records at most are written for the numbers; a larger fleet is told of less often."""
LAST_WORDS_S = 11.0
"""With what agents have to stop (`drive.STOP_S`) it is less than a cancelled job may take."""


class Teller:
    """Tells the store what has happened, as soon as it can be told."""

    def __init__(self, tell: Tell, complain: Callable[[str], None]) -> None:
        self._tell = tell
        self._complain = complain
        self._unsaid: dict[str, WorkloadFact] = {}
        self._known: dict[str, WorkloadFact] = {}
        self._news = asyncio.Event()
        self._closing = False
        self._task = asyncio.create_task(self._run(), name="telling the store")

    def say(self, fact: WorkloadFact) -> None:
        """Tell this as soon as possible, unless it was told before."""
        known = self._known.get(fact.workload_id)
        self._known[fact.workload_id] = fact
        if known is None or known.happened is not fact.happened:
            self._unsaid[fact.workload_id] = fact
            self._news.set()

    async def close(self) -> None:
        """Tell what is left, within a few seconds."""
        self._closing = True
        self._news.set()
        await asyncio.wait([self._task], timeout=LAST_WORDS_S)
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task

    async def _run(self) -> None:
        while self._unsaid or not self._closing:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._every_s):
                    await self._news.wait()
            self._news.clear()
            await self._flush()

    async def _flush(self) -> None:
        said = self._unsaid or self._alive()
        self._unsaid = {}
        if not said:
            return
        try:
            await self._tell(list(said.values()))
        except StoreUnavailable:
            self._unsaid = said | self._unsaid
            self._news.set()
            await asyncio.sleep(PAUSE_S)
        except InterlockError as error:
            self._complain(f"The store does not take what was heard of the agents: {error.sentence}")

    @property
    def _every_s(self) -> float:
        return min(WORKLOAD_BEAT_S, max(NUMBERS_EVERY_S, len(self._known) / WRITES_A_SECOND))

    def _alive(self) -> dict[str, WorkloadFact]:
        living = (fact for fact in self._known.values() if fact.happened in _LIVING)
        return {
            fact.workload_id: msgspec.structs.replace(fact, happened=Happened.ALIVE, error="")
            for fact in living
        }


_LIVING = (Happened.READY, Happened.RUNNING, Happened.ABORTING)
