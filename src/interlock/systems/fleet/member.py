"""One agent of a fleet during a drive: its port, its state, and its end.

In production the port is gRPC (`agent_client.py`); a simulated fleet replaces only the transport.

Why: decision 0342.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from importlib.metadata import version
from typing import Protocol, TypeAlias

from interlock.errors import AgentRefused, AgentUnavailable
from interlock.lifecycles.workload import IDLE, Status
from interlock.systems.fleet.clocks import Offset
from interlock.systems.fleet.results import AgentEnd, AgentReport
from interlock.wire.fleet import fleet_pb2 as wire
from interlock.wire.workloads import (
    Happened,
    WorkloadSpec,
)

EXCHANGES = 8
ANSWER_S = 20.0
"""Timeout of a short call; either machine may stall for ten seconds."""
ABORT_S = 5.0
"""Timeout of a stop request, which is repeated."""


class ReferenceClock:
    """The controller's time: its wall clock once, extrapolated by the monotonic clock."""

    def __init__(
        self,
        wall_ns: Callable[[], int] = time.time_ns,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._monotonic_ns = monotonic_ns
        self._base_ns = wall_ns() - monotonic_ns()

    def now_ns(self) -> int:
        """Return nanoseconds since 1970."""
        return self._base_ns + self._monotonic_ns()


class AgentClient(Protocol):
    """The connection to one agent. It raises `AgentRefused` in the agent's words, or `AgentUnavailable`."""

    agent: str
    """HOST:PORT, its name."""

    async def status(self, *, within_s: float = ANSWER_S, wait_idle_s: float = 0.0) -> wire.StatusAnswer:
        """Return the status of the agent, optionally once it is idle."""
        ...

    async def offset(self, exchanges: int = EXCHANGES, *, within_s: float = ANSWER_S) -> Offset:
        """Return the offset of the agent's clock."""
        ...

    def run(self, workload_id: str, spec: WorkloadSpec, controller: str) -> AsyncIterator[AgentReport]:
        """Run one workload, and yield its reports from READY to the last.

        Abandoning the iterator stops it.
        """
        ...

    async def start(self, workload_id: str, at_ns: int) -> int:
        """Send the start by the agent's clock.

        Return how late it was, in nanoseconds.
        """
        ...

    async def abort(self, workload_id: str, reason: str) -> None:
        """Stop only that workload."""
        ...

    async def close(self) -> None:
        """Close the connection; the agent stops a running workload."""
        ...


ClientFactory: TypeAlias = Callable[[str, ReferenceClock], AgentClient]
"""Makes the connection to an agent, with the controller's clock."""


FINALS = {
    Status.COMPLETED: Happened.COMPLETED,
    Status.ERROR: Happened.ERROR,
    Status.ABORTED: Happened.ABORTED,
}


QUIET_S = 3.0
"""Silence after which a running agent is reported; it reports every second by default."""
TELL_AGAIN_S = 0.5
"""Interval in which an abort to an unreachable agent is repeated."""


class FleetMember:
    """One agent. Its events are set once: READY, and over."""

    def __init__(self, line: AgentClient, workload_id: str) -> None:
        self.line = line
        self.agent: str = line.agent
        self.workload_id = workload_id
        self.offset: Offset | None = None
        self.version: str = ""
        self.warning: str = ""
        """A warning about its numbers."""
        self.quiet_s: float = QUIET_S
        """Silence after which it is reported, while it runs."""
        self.last_report_s: float = 0.0
        """Time of its last report, by the clock of the event loop."""
        self.happened: Happened | None = None
        """The latest event; None before it has accepted the workload."""
        self.final: Status | None = None
        self.error: str = ""
        self.ready: asyncio.Event = asyncio.Event()
        self.over: asyncio.Event = asyncio.Event()
        self._following: asyncio.Task[None] | None = None

    @property
    def lost(self) -> bool:
        """Whether it is over without having completed."""
        return self.over.is_set() and self.final is not Status.COMPLETED

    @property
    def ending(self) -> AgentEnd:
        """Its end, as far as is known."""
        return AgentEnd(workload_id=self.workload_id, final=self.final, error=self.error)

    async def prepare(self, spec: WorkloadSpec) -> None:
        """Check that it is reachable, free and able, and measure its clock.

        Raise if not.
        """
        status = await self.line.status(within_s=spec.ready_within_s)
        if status.state != IDLE:
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
        self, spec: WorkloadSpec, controller: str, receive: Callable[[FleetMember, AgentReport], None]
    ) -> None:
        """Request the workload, and follow its reports."""
        following = self._follow(spec, controller, receive)
        self._following = asyncio.create_task(following, name=f"agent {self.agent}")

    async def abort(self, reason: str, within_s: float) -> None:
        """Tell it to stop, and wait until it has, or until the timeout."""
        if self._following is None:
            self.give_up(reason)
        if self.over.is_set():
            return
        if self.happened is not None:
            self.happened = Happened.ABORTING
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._request_stop(reason)
                await self.over.wait()
        self.give_up(f"it did not report within {within_s:g} s")

    async def _request_stop(self, reason: str) -> None:
        """Send the stop request until it is received, or the agent is over."""
        while not self.over.is_set():
            try:
                await self.line.abort(self.workload_id, reason)
            except AgentUnavailable:
                with suppress(TimeoutError):
                    async with asyncio.timeout(TELL_AGAIN_S):
                        await self.over.wait()
            except AgentRefused:
                return  # its stream reports the end
            else:
                return

    def give_up(self, why: str) -> None:
        """Expect no more reports; an earlier end is kept."""
        if not self.over.is_set():
            self.error = self.error or why
            if self.happened is not None:
                self.happened = Happened.LOST
            self.over.set()
            self.ready.set()
        if self._following is not None:
            self._following.cancel()

    async def close(self) -> None:
        """Close the connection."""
        self.give_up("its controller went")
        if self._following is not None:
            await asyncio.wait([self._following])
        await self.line.close()

    async def _follow(
        self, spec: WorkloadSpec, controller: str, receive: Callable[[FleetMember, AgentReport], None]
    ) -> None:
        try:
            async for report in self.line.run(self.workload_id, spec, controller):
                self.last_report_s = asyncio.get_running_loop().time()
                self._note(report)
                receive(self, report)
                if report.completed:
                    return
            self.error = "its stream ended before its last report"
        except AgentRefused as error:
            self.error = error.sentence
            self.happened = Happened.LOST if self.happened else Happened.REFUSED
        except AgentUnavailable as error:
            self.error = error.sentence
        except Exception as error:  # noqa: BLE001 - an agent must not stop the others
            self.error = f"its messages cannot be decoded: {type(error).__name__}: {error}"
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
    """Return a warning about an agent of another version.

    Raise for another major version (decision 0340).
    """
    ours = version("interlock")
    if theirs == ours:
        return ""
    if not theirs:
        return f"{agent} does not report its version; this controller has {ours}."
    sentence = f"{agent} has version {theirs} of Interlock, and this controller {ours}."
    if theirs.partition(".")[0] != ours.partition(".")[0]:
        raise AgentRefused(
            sentence,
            todo="Use the same major version on both.",
            facts={"agent": agent, "version": theirs, "controller_version": ours},
        )
    return sentence
