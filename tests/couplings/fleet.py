"""Load on agents, and the job that drives it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from importlib.metadata import version
from typing import Any

from tests.couplings.world import PATIENCE_S, World, delivers, must

from interlock.lifecycles.workload import Status
from interlock.systems.fleet.clocks import Offset
from interlock.systems.fleet.driver import Drive, Driver, DriverPorts
from interlock.systems.fleet.results import AgentReport
from interlock.systems.fleet.spec import (
    checked,
)
from interlock.wire.fleet import fleet_pb2 as wire
from interlock.wire.workloads import WorkloadFact, WorkloadSpec
from interlock.worker.context import Context, TaskCancelled
from interlock.worker.tasks import Registry
from interlock.workloads import CANCEL, driven

AGENT = "agent:9"


class Agent:
    """The line to an agent that runs its workload until it is told to stop, and says why that was."""

    def __init__(self) -> None:
        self.agent = AGENT
        self.told = ""
        self.stopped = asyncio.Event()

    async def status(self, **_: Any) -> wire.StatusAnswer:
        """Say that it is free."""
        return wire.StatusAnswer(state="IDLE", kinds=["sleep"], version=version("interlock"))

    async def offset(self, *_: Any, **__: Any) -> Offset:
        """Say that its clock is right."""
        return Offset(offset_ns=0, uncertainty_ns=1_000)

    async def run(self, *_: Any) -> AsyncIterator[AgentReport]:
        """Be ready, run, and end when it is told to stop."""
        yield AgentReport(agent=AGENT, sequence=1, status=Status.READY)
        yield AgentReport(agent=AGENT, sequence=2, status=Status.RUNNING)
        await self.stopped.wait()
        yield AgentReport(agent=AGENT, sequence=3, status=Status.ABORTED, completed=True)

    async def start(self, *_: Any) -> int:
        """Begin in time."""
        return 0

    async def abort(self, _: str, reason: str) -> None:
        """Stop."""
        self.told = reason
        self.stopped.set()

    async def close(self) -> None:
        """Let go of it."""


@delivers("lease stays ACTIVE by request_cancel: send ABORT_RECEIVED to each agent that its job drives")
async def agents_of_a_job_that_is_stopped(world: World) -> None:
    """A job that is stopped leaves no load behind."""
    agent, registry = Agent(), Registry()

    async def tell(_: Sequence[WorkloadFact]) -> None:
        """Keep it to ourselves."""

    @registry.task(name="load")
    async def load(ctx: Context) -> None:
        """Drive the agent until the job is stopped."""
        spec = checked(WorkloadSpec(kind="sleep", agents=(AGENT,), duration_s=3_600.0))
        hands = DriverPorts(store_facts=tell, news=lambda _: None, log=lambda *_: None)
        await driven(Drive(spec, Driver(job_id=ctx.job_id), hands, lambda *_: agent), ctx)
        raise TaskCancelled

    job_id = await world.submit("load")
    worker = world.worker(registry)
    await worker.is_at(job_id, "processing")
    await world.jobs.cancel(job_id)
    async with asyncio.timeout(2 * PATIENCE_S):
        await agent.stopped.wait()
    must(agent.told == CANCEL, f"The agent was stopped because {agent.told}.")
