"""A drive over lines that a test holds in its hands: what happens there when is the test's to say."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

from tests.waiting import PATIENCE_S

from interlock.lifecycles.workload import Status
from interlock.systems.fleet.clocks import Offset
from interlock.systems.fleet.coverage import Verdict
from interlock.systems.fleet.driving import Drive, Driver, Hands
from interlock.systems.fleet.lines import ANSWER_S, EXCHANGES, Reference
from interlock.systems.fleet.merging import Report
from interlock.systems.fleet.results import WorkloadResult
from interlock.systems.fleet.spec import WorkloadSpec
from interlock.wire.fleet import fleet_pb2 as wire
from interlock.wire.fleet.errors import AgentUnavailable
from interlock.wire.workloads import WorkloadFact


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

    async def run(self, workload_id: str, spec: WorkloadSpec, controller: str) -> AsyncIterator[Report]:
        del workload_id, spec, controller
        yield Report(agent=self.agent, sequence=1, status=Status.READY)
        await self.told.wait()
        yield Report(agent=self.agent, sequence=2, status=Status.RUNNING, operations=7, elapsed_ns=10**9)
        self.runs.set()
        await self.stopped.wait()
        last = Status.ABORTED
        yield Report(agent=self.agent, sequence=3, status=last, completed=True, operations=7)

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


async def no_store(_facts: Sequence[WorkloadFact]) -> None:
    """Nobody wants to know."""


async def driven(lines: dict[str, HandLine]) -> WorkloadResult:
    """What a drive over these comes to."""
    spec = WorkloadSpec(kind="sleep", agents=tuple(lines), lead_s=0.01)
    hands = Hands(tell=no_store, news=lambda _: None, log=lambda *_: None)

    def line(agent: str, _reference: Reference) -> HandLine:
        return lines[agent]

    async with asyncio.timeout(PATIENCE_S):
        return await Drive(spec, Driver(job_id="j_0123456789ab"), hands, line).run()


async def test_a_drive_of_which_some_have_begun_has_a_result_and_does_not_say_that_nothing_was_started() -> (
    None
):
    """It said so when one agent did not answer the start, while the others had begun."""
    first = HandLine("a:1")
    result = await driven({"a:1": first, "b:1": SilentAtTheStart("b:1", first)})
    assert (result.verdict, result.operations) == (Verdict.FAILED, 7)
    assert result.sentence == "0 of 2 agents completed, and all needs 2. b:1: b:1 does not answer."
    assert {one.agent: one.status for one in result.agents} == {"a:1": "ABORTED", "b:1": ""}


async def test_an_agent_that_is_not_reached_when_it_is_told_to_stop_is_told_again() -> None:
    """It was told once, and went on until its controller gave it up."""
    first = HardOfHearing("a:1")
    result = await driven({"a:1": first, "b:1": SilentAtTheStart("b:1", first)})
    assert {one.agent: one.status for one in result.agents} == {"a:1": "ABORTED", "b:1": ""}
    assert first.aborts == 3
