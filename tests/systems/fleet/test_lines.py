"""A drive over lines that a test holds in its hands: what happens there when is the test's to say."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from importlib.metadata import version
from typing import Any

import pytest
from tests.waiting import PATIENCE_S

from interlock.errors import AgentUnavailable, WorkloadFailed
from interlock.lifecycles.workload import Status
from interlock.systems.fleet.agent_client import report_of
from interlock.systems.fleet.clocks import Offset
from interlock.systems.fleet.driver import Drive, Driver, DriverPorts
from interlock.systems.fleet.member import ANSWER_S, EXCHANGES, ReferenceClock
from interlock.systems.fleet.outcome import (
    WorkloadProgress,
)
from interlock.systems.fleet.results import AgentReport
from interlock.testing.clocks import VirtualTime
from interlock.wire.fleet import fleet_pb2 as wire
from interlock.wire.workloads import (
    Verdict,
    WorkloadFact,
    WorkloadResult,
    WorkloadSpec,
)

from .test_merging import NS, packed


class HandLine:
    """An agent that takes every workload and runs it until it is stopped; see `AgentLine`."""

    def __init__(self, agent: str) -> None:
        self.agent = agent
        self.told = asyncio.Event()
        self.runs = asyncio.Event()
        self.stopped = asyncio.Event()

    async def status(self, *, within_s: float = ANSWER_S, wait_idle_s: float = 0.0) -> wire.StatusAnswer:
        del within_s, wait_idle_s
        return wire.StatusAnswer(state="IDLE", kinds=["sleep"])

    async def offset(self, exchanges: int = EXCHANGES, *, within_s: float = ANSWER_S) -> Offset:
        del within_s
        return Offset(offset_ns=0, uncertainty_ns=1_000, exchanges=exchanges)

    async def run(self, workload_id: str, spec: WorkloadSpec, controller: str) -> AsyncIterator[AgentReport]:
        del workload_id, spec, controller
        yield AgentReport(agent=self.agent, sequence=1, status=Status.READY)
        await self.told.wait()
        yield AgentReport(agent=self.agent, sequence=2, status=Status.RUNNING, operations=7, elapsed_ns=10**9)
        self.runs.set()
        await self.stopped.wait()
        last = Status.ABORTED
        yield AgentReport(agent=self.agent, sequence=3, status=last, completed=True, operations=7)

    async def start(self, workload_id: str, at_ns: int) -> int:
        del workload_id, at_ns
        self.told.set()
        return 0

    async def abort(self, workload_id: str, reason: str) -> None:
        del workload_id, reason
        self.stopped.set()

    async def close(self) -> None:
        """Nothing is held."""


class SilentAtTheStart(HandLine):
    """It does not answer when it is told the start, and by the time that is known another one runs."""

    def __init__(self, agent: str, other: HandLine) -> None:
        super().__init__(agent)
        self._other = other

    async def start(self, workload_id: str, at_ns: int) -> int:
        del workload_id, at_ns
        await self._other.runs.wait()
        raise AgentUnavailable(f"{self.agent} does not answer.", todo="Is an agent there?")


class HardOfHearing(HandLine):
    """It is not reached when it is told to stop, until the third time."""

    aborts = 0

    async def abort(self, workload_id: str, reason: str) -> None:
        self.aborts += 1
        if self.aborts < 3:
            raise AgentUnavailable(f"{self.agent} does not answer.", todo="Is an agent there?")
        await super().abort(workload_id, reason)


class FallsSilent(HandLine):
    """It runs, and its machine stands still: nothing is heard of it, and its connection is not closed."""

    async def run(self, workload_id: str, spec: WorkloadSpec, controller: str) -> AsyncIterator[AgentReport]:
        del workload_id, spec, controller
        yield AgentReport(agent=self.agent, sequence=1, status=Status.READY)
        await self.told.wait()
        yield AgentReport(agent=self.agent, sequence=2, status=Status.RUNNING, operations=7, elapsed_ns=NS)
        await self.stopped.wait()
        yield AgentReport(agent=self.agent, sequence=3, status=Status.ABORTED, completed=True, operations=7)


class Talks(HandLine):
    """It reports every second."""

    async def run(self, workload_id: str, spec: WorkloadSpec, controller: str) -> AsyncIterator[AgentReport]:
        del workload_id, spec, controller
        yield AgentReport(agent=self.agent, sequence=1, status=Status.READY)
        await self.told.wait()
        for second in range(1, 21):
            await asyncio.sleep(1.0)
            yield AgentReport(
                agent=self.agent,
                sequence=second + 1,
                status=Status.RUNNING,
                operations=5 * second,
                interval_operations=5,
                elapsed_ns=second * NS,
                histogram=packed([1_000] * 5),
            )
        last = Status.COMPLETED
        yield AgentReport(agent=self.agent, sequence=22, status=last, completed=True, operations=100)


class OfVersion(Talks):
    """It says which version it is of."""

    def __init__(self, agent: str, version: str) -> None:
        super().__init__(agent)
        self._version = version

    async def status(self, *, within_s: float = ANSWER_S, wait_idle_s: float = 0.0) -> wire.StatusAnswer:
        answer = await super().status(within_s=within_s, wait_idle_s=wait_idle_s)
        answer.version = self._version
        return answer


class Garbles(HandLine):
    """What it says cannot be understood."""

    async def run(self, workload_id: str, spec: WorkloadSpec, controller: str) -> AsyncIterator[AgentReport]:
        del workload_id, spec, controller
        yield report_of(self.agent, wire.WorkloadStats(sequence=1, status=wire.READY))
        await self.told.wait()
        number: Any = 9
        yield report_of(self.agent, wire.WorkloadStats(sequence=2, status=number))


async def no_store(_facts: Sequence[WorkloadFact]) -> None:
    """Nobody wants to know."""


async def driven(
    lines: dict[str, HandLine],
    lives: list[WorkloadProgress] | None = None,
    log: list[str] | None = None,
    **more: Any,
) -> WorkloadResult:
    """What a drive over these comes to; what is shown and said meanwhile is kept."""
    spec = WorkloadSpec(kind="sleep", agents=tuple(lines), lead_s=0.01, **more)
    shown, messages = [] if lives is None else lives, [] if log is None else log
    hands = DriverPorts(store_facts=no_store, news=shown.append, log=lambda text, _: messages.append(text))

    def line(agent: str, _reference: ReferenceClock) -> HandLine:
        return lines[agent]

    loop = asyncio.get_running_loop()
    reference = ReferenceClock(wall_ns=lambda: 0, monotonic_ns=lambda: round(loop.time() * NS))
    async with asyncio.timeout(PATIENCE_S):
        return await Drive(spec, Driver(job_id="j_0123456789ab"), hands, line, reference).run()


async def test_a_drive_returns_a_failed_result_if_an_agent_is_lost_at_the_start_after_another_has_begun() -> (
    None
):
    """It said so when one agent did not answer the start, while the others had begun."""
    first = HandLine("a:1")
    result = await driven({"a:1": first, "b:1": SilentAtTheStart("b:1", first)})
    assert (result.verdict, result.operations) == (Verdict.FAILED, 7)
    assert result.sentence == "0 of 2 agents completed, and all needs 2. b:1: b:1 does not answer."
    assert {one.agent: one.status for one in result.agents} == {"a:1": "ABORTED", "b:1": "LOST"}


async def test_the_controller_repeats_an_abort_until_the_agent_is_reached() -> None:
    """It was told once, and went on until its controller gave it up."""
    first = HardOfHearing("a:1")
    result = await driven({"a:1": first, "b:1": SilentAtTheStart("b:1", first)})
    assert {one.agent: one.status for one in result.agents} == {"a:1": "ABORTED", "b:1": "LOST"}
    assert first.aborts == 3


@pytest.fixture
async def virtual() -> AsyncIterator[None]:
    """The clock of the event loop jumps to what comes next."""
    with VirtualTime(asyncio.get_running_loop()).in_place():
        yield


@pytest.mark.usefixtures("virtual")
async def test_an_agent_that_falls_silent_is_named_in_seconds_and_the_others_are_still_shown() -> None:
    """The line repeated the last second of all, with all agents running, until its connection broke."""
    lives: list[WorkloadProgress] = []
    log: list[str] = []
    await driven({"a:1": Talks("a:1"), "b:1": FallsSilent("b:1")}, lives, log)
    named = [live for live in lives if live.silent]
    assert 3.0 < named[0].elapsed_s < 6.0
    at_ten = next(live for live in lives if live.elapsed_s > 10.0)
    assert (at_ten.running, at_ten.rate, list(at_ten.silent)) == (1, 5.0, ["b:1"])
    assert 9.0 < at_ten.silent["b:1"] < 12.0
    assert "b:1 silent for" in at_ten.sentence
    notices = [line for line in log if line.startswith("b:1 has reported nothing for ")]
    assert len(notices) == 1, "the log of the job says so, once"


@pytest.mark.usefixtures("virtual")
async def test_a_workload_fails_with_the_status_number_if_its_agent_reports_an_unknown_status() -> None:
    result = await driven({"a:1": Garbles("a:1")})
    assert result.verdict is Verdict.FAILED
    assert "status 9" in result.agents[0].error
    assert "status 9" in result.sentence


@pytest.mark.usefixtures("virtual")
async def test_an_agent_of_another_version_is_driven_and_warned_of_and_is_in_the_result() -> None:
    ours = version("interlock")
    other = ours.partition(".")[0] + ".9999.0"
    lines: dict[str, HandLine] = {"a:1": OfVersion("a:1", ours), "b:1": OfVersion("b:1", other)}
    log: list[str] = []
    result = await driven(lines, log=log)
    assert result.verdict is Verdict.COMPLETE
    assert [each.version for each in result.agents] == [ours, other]
    warning = f"b:1 has version {other} of Interlock, and this controller {ours}."
    assert result.warnings == (warning,)
    assert warning in log


@pytest.mark.usefixtures("virtual")
async def test_an_agent_of_another_major_version_is_refused() -> None:
    with pytest.raises(WorkloadFailed, match=r"a:1 has version 9.9.9 of Interlock, and this controller"):
        await driven({"a:1": OfVersion("a:1", "9.9.9")})
