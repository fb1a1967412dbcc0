"""The lines of a driver to its agents, as a port: what can be asked of one agent, whatever is in between.

In production gRPC is (`line.py`); a simulated fleet exchanges what carries the messages, and nothing else.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from typing import Protocol, TypeAlias

from interlock.systems.fleet.clocks import Offset
from interlock.systems.fleet.merged import Report
from interlock.systems.fleet.spec import WorkloadSpec
from interlock.wire.fleet import fleet_pb2 as wire

EXCHANGES = 8
ANSWER_S = 20.0
"""How long an agent may take for a short answer; either machine may stand still for ten seconds."""
ABORT_S = 5.0
"""The same when it is told to stop, which it is told again."""


class Reference:
    """The controller's time: its wall clock once, and from there the clock that nobody can set."""

    def __init__(
        self,
        wall_ns: Callable[[], int] = time.time_ns,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._monotonic_ns = monotonic_ns
        self._base_ns = wall_ns() - monotonic_ns()

    def now_ns(self) -> int:
        """Nanoseconds since 1970."""
        return self._base_ns + self._monotonic_ns()


class AgentLine(Protocol):
    """The line to one agent. It raises `AgentRefused` in the agent's words, or `AgentUnavailable`."""

    agent: str
    """HOST:PORT, by which everybody names it."""

    async def status(self, *, within_s: float = ANSWER_S, wait_idle_s: float = 0.0) -> wire.StatusAnswer:
        """Where the agent stands, perhaps once it is idle."""
        ...

    async def offset(self, exchanges: int = EXCHANGES, *, within_s: float = ANSWER_S) -> Offset:
        """How far the agent's clock is from ours."""
        ...

    def run(self, workload_id: str, spec: WorkloadSpec, controller: str) -> AsyncIterator[Report]:
        """One workload, from READY to its last report; whoever stops to listen has it stopped."""
        ...

    async def start(self, workload_id: str, at_ns: int) -> int:
        """Tell the instant by the agent's clock; answers by how much it was too late, in nanoseconds."""
        ...

    async def abort(self, workload_id: str, reason: str) -> None:
        """Stop that workload and no other."""
        ...

    async def close(self) -> None:
        """Let go of it; a workload that still runs is stopped by its agent."""
        ...


Lines: TypeAlias = Callable[[str, Reference], AgentLine]
"""Makes the line to an agent, for a controller whose time this is."""
