"""One agent of a fleet while a workload is driven: the port to it, what is known of it, and how it ended.

In production the port is gRPC (`agent_client.py`); a simulated fleet exchanges only the transport.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from importlib.metadata import version
from typing import Protocol, TypeAlias

from interlock.errors import AgentRefused, AgentUnavailable
from interlock.lifecycles.workload import Status
from interlock.systems.fleet.clocks import Offset
from interlock.systems.fleet.results import AgentReport, Ending
from interlock.wire.fleet import fleet_pb2 as wire
from interlock.wire.workloads import (
    Happened,
    WorkloadSpec,
)

EXCHANGES = 8
ANSWER_S = 20.0
"""How long an agent may take for a short answer; either machine may stand still for ten seconds."""
ABORT_S = 5.0
"""The same when it is told to stop, which it is told again."""


class ReferenceClock:
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


class AgentClient(Protocol):
    """The line to one agent. It raises `AgentRefused` in the agent's words, or `AgentUnavailable`."""

    agent: str
    """HOST:PORT, by which everybody names it."""

    async def status(self, *, within_s: float = ANSWER_S, wait_idle_s: float = 0.0) -> wire.StatusAnswer:
        """Where the agent stands, perhaps once it is idle."""
        ...

    async def offset(self, exchanges: int = EXCHANGES, *, within_s: float = ANSWER_S) -> Offset:
        """How far the agent's clock is from ours."""
        ...

    def run(self, workload_id: str, spec: WorkloadSpec, controller: str) -> AsyncIterator[AgentReport]:
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


Lines: TypeAlias = Callable[[str, ReferenceClock], AgentClient]
"""Makes the line to an agent, for a controller whose time this is."""


FINALS = {
    Status.COMPLETED: Happened.COMPLETED,
    Status.ERROR: Happened.ERROR,
    Status.ABORTED: Happened.ABORTED,
}


QUIET_S = 3.0
"""An agent that runs reports every second, unless it was told another pace."""
TELL_AGAIN_S = 0.5
"""After so long an agent that could not be told to stop is told again."""


class FleetMember:
    """One agent. Its events are set once: READY, and that nothing more will come of it."""

    def __init__(self, line: AgentClient, workload_id: str) -> None:
        self.line = line
        self.agent = line.agent
        self.workload_id = workload_id
        self.offset: Offset | None = None
        self.version = ""
        self.warning = ""
        """What is to be known of it before its numbers are believed."""
        self.quiet_s = QUIET_S
        """It is silent when it runs and has said nothing for longer."""
        self.heard_s = 0.0
        """When it was last heard of, by the clock of the event loop."""
        self.happened: Happened | None = None
        """The latest that was heard of it; None before it has taken the workload."""
        self.final: Status | None = None
        self.error = ""
        self.ready = asyncio.Event()
        self.over = asyncio.Event()
        self._following: asyncio.Task[None] | None = None

    @property
    def lost(self) -> bool:
        """Whether it is over without having completed."""
        return self.over.is_set() and self.final is not Status.COMPLETED

    @property
    def ending(self) -> Ending:
        """How it ended, as far as is known."""
        return Ending(workload_id=self.workload_id, final=self.final, error=self.error)

    async def prepare(self, spec: WorkloadSpec) -> None:
        """See whether it is there, free and able, and what its clock says; raises when it is not."""
        status = await self.line.status(within_s=spec.ready_within_s)
        if status.state != "IDLE":
            who = f" for {status.controller}" if status.controller else ""
            raise AgentRefused(
                f"{self.agent} is {status.state} with the workload {status.workload_id}{who}.",
                todo="Wait until it has ended, or abort it.",
                facts={"agent": self.agent, "state": status.state, "workload_id": status.workload_id},
            )
        if spec.kind not in status.kinds:
            raise AgentRefused(
                f"{self.agent} knows no workload {spec.kind!r}.",
                allowed=tuple(status.kinds),
                todo=f"It has {', '.join(status.kinds)}; start it with --workload for more.",
                facts={"agent": self.agent, "kind": spec.kind},
            )
        self.version, self.quiet_s = status.version[:100], max(QUIET_S, 3 * status.sample_every_s)
        self.warning = _compared(self.agent, self.version)
        self.offset = await self.line.offset(within_s=min(ANSWER_S, spec.ready_within_s))

    def begin(
        self, spec: WorkloadSpec, controller: str, hear: Callable[[FleetMember, AgentReport], None]
    ) -> None:
        """Ask it for the workload, and follow what it says."""
        following = self._follow(spec, controller, hear)
        self._following = asyncio.create_task(following, name=f"agent {self.agent}")

    async def abort(self, reason: str, within_s: float) -> None:
        """Tell it to stop, and wait until it has, or until it is given up."""
        if self._following is None:
            self.give_up(reason)
        if self.over.is_set():
            return
        if self.happened is not None:
            self.happened = Happened.ABORTING
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._tell_to_stop(reason)
                await self.over.wait()
        self.give_up(f"it did not say that it has stopped within {within_s:g} s")

    async def _tell_to_stop(self, reason: str) -> None:
        """Until it has heard so; or is over, or nobody waits any longer."""
        while not self.over.is_set():
            try:
                await self.line.abort(self.workload_id, reason)
            except AgentUnavailable:
                with suppress(TimeoutError):
                    async with asyncio.timeout(TELL_AGAIN_S):
                        await self.over.wait()
            except AgentRefused:
                return  # its stream says how it ended, or that it has
            else:
                return

    def give_up(self, why: str) -> None:
        """Nothing more is expected of it; what ended before stays as it is."""
        if not self.over.is_set():
            self.error = self.error or why
            if self.happened is not None:
                self.happened = Happened.LOST
            self.over.set()
            self.ready.set()
        if self._following is not None:
            self._following.cancel()

    async def close(self) -> None:
        """Let go of it."""
        self.give_up("its controller went")
        if self._following is not None:
            await asyncio.wait([self._following])
        await self.line.close()

    async def _follow(
        self, spec: WorkloadSpec, controller: str, hear: Callable[[FleetMember, AgentReport], None]
    ) -> None:
        try:
            async for report in self.line.run(self.workload_id, spec, controller):
                self.heard_s = asyncio.get_running_loop().time()
                self._note(report)
                hear(self, report)
                if report.completed:
                    return
            self.error = "it stopped telling before its last report"
        except AgentRefused as error:
            self.error = error.sentence
            self.happened = Happened.LOST if self.happened else Happened.REFUSED
        except AgentUnavailable as error:
            self.error = error.sentence
        except Exception as error:  # noqa: BLE001 - whatever an agent says, the others are still driven
            self.error = f"what it says cannot be understood: {type(error).__name__}: {error}"
        finally:
            if self.final is None and self.happened not in (None, Happened.REFUSED):
                self.happened = Happened.LOST
            self.over.set()
            self.ready.set()

    def _note(self, report: AgentReport) -> None:
        match report.status:
            case Status.READY:
                self.happened = Happened.READY
            case Status.RUNNING:
                self.happened = Happened.RUNNING
            case final:
                self.final, self.error, self.happened = final, report.error, FINALS[final]
        self.ready.set()


def _compared(agent: str, theirs: str) -> str:
    """A warning about an agent of another version; raises for another major version (decision 0340)."""
    ours = version("interlock")
    if theirs == ours:
        return ""
    if not theirs:
        return f"{agent} does not say of which version it is; this controller has {ours}."
    sentence = f"{agent} has version {theirs} of Interlock, and this controller {ours}."
    if theirs.partition(".")[0] != ours.partition(".")[0]:
        raise AgentRefused(
            sentence,
            todo="Use the same major version on both.",
            facts={"agent": agent, "version": theirs, "controller_version": ours},
        )
    return sentence
