"""One workload while something of it may live: it is watched, and its end is told to the table.

What is told is what happened, not what it means: when its processes are gone, both that it ended (well
or badly) and that nothing of it is left. Which of the two matters depends on whether it was being
stopped, and that only the table knows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeAlias

from structlog.typing import FilteringBoundLogger

from interlock.agent.family import Family, Hear, Line
from interlock.agent.words import Order
from interlock.lifecycles.durations import Durations
from interlock.lifecycles.workload import (
    DurationElapsed,
    OfWorkload,
    TaskCancelled,
    Timeout15s,
    WorkloadError,
)

Log: TypeAlias = FilteringBoundLogger
Spawn: TypeAlias = Callable[[Order, Hear, Line], Family]

KILLED_S = 1.0
"""How long the killed are waited for before they are counted."""
OVERRUN = "It had not ended some time after its time was over, and was killed."


class Execution:
    """The processes of one workload, from the start to the last one's end."""

    def __init__(
        self, workload_id: str, family: Family, say: Callable[[OfWorkload], object], durations: Durations
    ) -> None:
        self._workload_id = workload_id
        self._family = family
        self._say = say
        self._durations = durations
        self._killed = False
        self._overrun = False
        self._timer: asyncio.TimerHandle | None = None
        self.watching = asyncio.create_task(self._watch())

    def ask(self) -> None:
        """Ask it to stop and clean up."""
        self._family.ask()

    def terminate(self) -> None:
        """Do not ask any more."""
        self._family.terminate()

    def kill(self) -> None:
        """Kill all of it; a little later, if that was not the end of it, say how many are left."""
        self._killed = True
        self._family.kill()
        self._in(KILLED_S, self._count)

    def is_over_time(self) -> None:
        """It should have ended by itself, and has not: made to end, and that is a failure."""
        self._overrun = True
        self._family.terminate()
        self._in(self._durations.abort_kill_s - self._durations.abort_warning_s, self._family.kill)

    async def abandon(self) -> None:
        """Nobody can wait any longer: its warden loses its orders, and ends everything."""
        self.watching.cancel()
        await asyncio.wait((self.watching,))

    def _count(self) -> None:
        if not self.watching.done():
            self._say(Timeout15s(workload_id=self._workload_id, survivors=self._family.survivors()))

    async def _watch(self) -> None:
        try:
            error = await self._family.ended()
        except Exception as caught:  # noqa: BLE001 - an agent must not stay busy with what it cannot watch
            error = f"The agent has lost sight of it: {type(caught).__name__}: {caught}"
        if self._timer is not None:
            self._timer.cancel()
        if self._overrun:
            error = OVERRUN
        if error is None:
            self._say(DurationElapsed(workload_id=self._workload_id))
        else:
            self._say(WorkloadError(workload_id=self._workload_id, error=error))
        last = Timeout15s if self._killed else TaskCancelled
        self._say(last(workload_id=self._workload_id))

    def _in(self, seconds: float, act: Callable[[], None]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(seconds, act)
