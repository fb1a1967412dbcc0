"""A workload is a job: what holds for jobs and runs holds for fleets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import msgspec
import pytest
from tests.journeys.crew import STEADY
from tests.waiting import PATIENCE_S, until

from interlock.client import Interlock
from interlock.errors import JobFailed
from interlock.store.records import Query
from interlock.systems.embedded import EmbeddedOrchestrator
from interlock.systems.fleet.spec import (
    TASK,
)
from interlock.systems.settings import Settings
from interlock.testing.agent_process import AgentProcess
from interlock.testing.at_work import at_work
from interlock.wire.runner import ClaimRequest, Heard, Release
from interlock.wire.runs import Plan, PlannedJob, RunSpec
from interlock.wire.workloads import QUEUE, Verdict, WorkloadResult, WorkloadSpec, WorkloadView
from interlock.worker.process import WorkerProcess
from interlock.worker.settings import WorkerSettings
from interlock.worker.tasks import Registry
from interlock.worker.telemetry import make_log
from interlock.workloads import drive_workload

from .fleets import asked, fleet, gated, states


@pytest.fixture(scope="module")
def agents(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[AgentProcess]]:
    with fleet(tmp_path_factory.mktemp("fleet"), [{}, {}]) as agents:
        yield agents


@pytest.fixture
async def il() -> AsyncIterator[Interlock]:
    """An Interlock whose worker drives fleets."""
    registry = Registry()
    registry.add(drive_workload)
    async with at_work(registry, queues=(QUEUE,), settings=Settings(durations=STEADY)) as il:
        yield il


async def workloads(il: Interlock) -> list[WorkloadView]:
    views, _ = await il.services.workloads.find(Query(kind="workload"))
    return views


async def all_running(il: Interlock, number: int) -> None:
    async def running() -> bool:
        return [view.state for view in await workloads(il)] == ["RUNNING"] * number

    await until(running, f"{number} agents run it")


async def test_a_workload_leaves_a_result_files_and_a_record_of_each_agent(
    il: Interlock, agents: list[AgentProcess]
) -> None:
    job = await il.submit(drive_workload, asked(agents))
    result = await job.result(timeout_s=PATIENCE_S, as_type=WorkloadResult)
    assert (result.verdict, result.operations) == (Verdict.COMPLETE, 200)
    names = [view.name for view in await il.services.artifacts.list(job.id)]
    assert names == ["result.json", "seconds.csv", "latencies.hlog", "report.html"]
    found = {view.agent: (view.state, view.final, view.operations) for view in await workloads(il)}
    assert found == {agent.address: ("IDLE", "COMPLETED", 100) for agent in agents}


async def test_a_canceled_run_reaches_the_agents_of_its_workload(
    il: Interlock, agents: list[AgentProcess], tmp_path: Path
) -> None:
    spec = msgspec.json.encode({"workload": gated(agents, tmp_path / "gate")})
    plan = Plan(jobs=(PlannedJob(name="load", task=TASK, queue=QUEUE, input=msgspec.Raw(spec)),))
    run = await il.services.runs.submit(RunSpec(plan=plan))
    await all_running(il, 2)
    await il.services.runs.cancel(run.id, reason="wrong target")

    async def over() -> bool:
        return (await il.services.runs.view(run.id)).outcome is not None

    await until(over, "the run is over")
    assert await states(agents) == ["IDLE", "IDLE"]
    assert {(view.state, view.final) for view in await workloads(il)} == {("IDLE", "ABORTED")}
    (job,) = (await il.jobs())[0]
    assert job.state == "CANCELED"
    assert (await il.services.artifacts.find(job.id, "result.json")).size > 0


async def test_a_run_that_fails_stops_the_agents_of_its_workload(
    il: Interlock, agents: list[AgentProcess], tmp_path: Path
) -> None:
    """The job that drives them is canceled with what is left of the run."""
    spec = msgspec.json.encode({"workload": gated(agents, tmp_path / "gate")})
    load = PlannedJob(name="load", task=TASK, queue=QUEUE, input=msgspec.Raw(spec))
    run = await il.services.runs.submit(
        RunSpec(plan=Plan(jobs=(load, PlannedJob(name="tests", task="tests"))))
    )
    await all_running(il, 2)
    (tests,) = [job.job_id for job in (await il.services.runs.view(run.id)).jobs if job.name == "tests"]
    await il.services.jobs.cancel(tests)

    async def stopped() -> bool:
        return {(view.state, view.final) for view in await workloads(il)} == {("IDLE", "ABORTED")}

    await until(stopped, "the workloads are stopped")
    assert (await il.services.runs.view(run.id)).outcome == "FAILED"
    assert await states(agents) == ["IDLE", "IDLE"]


async def test_a_workload_that_a_worker_gives_back_does_not_start_again_by_itself(tmp_path: Path) -> None:
    """A worker that lost its connection gave its workload back, and load began anew a moment later."""
    url = f"sqlite:///{tmp_path}/interlock.db"
    async with Interlock(url) as il:
        job = await il.submit(drive_workload, WorkloadSpec(kind="sleep", agents=("127.0.0.1:1",)))
        (grant,) = await il.services.claim(ClaimRequest(runner_id="first#1", queues=(QUEUE,)))
        lost = Release(token=grant.token, runner_id="first#1", sequence=1, reason="connection lost")
        assert isinstance((await il.services.orchestrator.report([lost]))[0], Heard)
        registry = Registry()
        registry.add(drive_workload)
        second = WorkerProcess(
            WorkerSettings(name="second", queues=(QUEUE,), log_level="error"),
            registry,
            lambda: EmbeddedOrchestrator(url),
            incarnation="1",
            log=make_log("error", "text"),
        )
        working = asyncio.create_task(second.run())
        try:
            with pytest.raises(JobFailed, match="load is never restarted automatically"):
                await job.result(timeout_s=PATIENCE_S)
        finally:
            second.shutdown.request()
            await asyncio.wait([working])
        assert await workloads(il) == []


async def test_a_workload_that_fails_is_not_tried_again(il: Interlock, agents: list[AgentProcess]) -> None:
    nowhere = WorkloadSpec(kind="sleep", agents=(agents[0].address, "127.0.0.1:1"), ready_within_s=60.0)
    job = await il.submit(drive_workload, nowhere)
    with pytest.raises(JobFailed, match=r"Nothing was started: 1 of 2 agents .* 127.0.0.1:1 does not answer"):
        await job.result(timeout_s=PATIENCE_S)
    assert len((await job.view()).attempts) == 1
    assert await states(agents) == ["IDLE", "IDLE"]
