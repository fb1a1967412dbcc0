"""What runs inside a worker: its process, its tasks, and the leases that they work under."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tests.couplings.world import Worker, World, delivers, must, until
from tests.systems.orchestrator.house import TTL_S
from tests.systems.supervisor.test_workers import workers

from interlock.store.records import Query
from interlock.worker.context import Context, TaskCancelled
from interlock.worker.tasks import Registry

REGISTRY = Registry()


@REGISTRY.task(name="quick")
async def quick() -> str:
    """Return at once."""
    return "done"


@REGISTRY.task(name="held")
async def held(ctx: Context) -> None:
    """Work until it is told to stop."""
    await ctx.wait_cancelled()
    raise TaskCancelled


async def at_work(world: World, **settings: object) -> tuple[Worker, str]:
    """Start a worker and wait until it executes a job that does not end by itself."""
    job_id = await world.submit("held")
    worker = world.worker(REGISTRY, **settings)
    await worker.took("task", job_id, "claim_succeeded", "claiming", "processing")
    return worker, job_id


async def prefetched(world: World) -> tuple[Worker, str]:
    """Start a worker that is at work, and wait until it holds another job that it has not begun."""
    worker, _ = await at_work(world, prefetch=1)
    job_id = await world.submit("quick")
    await worker.took("task", job_id, "claim_requested", "pending", "claiming")
    return worker, job_id


async def job_takes(world: World, job_id: str, machine: str, *step: str) -> None:
    """Wait until a machine of a job has taken a step; raise when it does not."""

    async def taken() -> bool:
        return step in await world.steps("job", job_id, machine)

    await until(taken, lambda: f"The {machine} of {job_id} has not taken {step}.")


# What a process wants of its tasks


@delivers("process enters connecting by error: send lease_expired to each of its tasks")
async def tasks_of_a_broken_connection(world: World) -> None:
    """A process whose connection breaks gives up what it executes."""
    worker, job_id = await at_work(world, concurrency=2)
    world.crashing = True
    await world.submit("quick")
    await worker.took("process", "", "error", "running", "connecting")
    await worker.took("task", job_id, "lease_expired", "processing", "abandoned")


@delivers("process enters shutting_down: send shutdown_requested to each task that has not begun")
async def tasks_that_have_not_begun(world: World) -> None:
    """A process that is asked to go leaves to others what it has not begun."""
    worker, job_id = await prefetched(world)
    worker.process.shutdown.request()
    await worker.took("task", job_id, "shutdown_requested", "claiming", "abandoned")


@delivers("process stays shutting_down by soft_deadline: send shutdown_requested to each of its tasks")
async def tasks_that_do_not_finish_in_time(world: World) -> None:
    """What does not finish in time is told to save what it has."""
    worker, job_id = await at_work(world)
    worker.process.shutdown.request()
    await worker.took("task", job_id, "shutdown_requested", "processing", "reporting")


# What a task wants of its lease, and tells its process


@delivers("task enters processing: send ack to its lease")
async def lease_of_a_task_that_begins(world: World) -> None:
    """The runner takes the work: a lease that was only granted is acknowledged when the task begins."""
    worker, job_id = await prefetched(world)
    (first,) = [view.id for view in (await world.jobs.find(Query(kind="job", states=("RUNNING",))))[0]
                if view.id != job_id]
    must(await world.leases(job_id) == ["GRANTED"], "The lease was acknowledged before there was room.")
    await world.jobs.cancel(first)
    await worker.took("task", job_id, "claim_succeeded", "claiming", "processing")
    await job_takes(world, job_id, "lease", "ack", "GRANTED", "ACTIVE")


@delivers(
    "task enters reporting by processing_succeeded or processing_failed: send complete to its lease"
)
async def lease_of_a_task_that_has_a_result(world: World) -> None:
    """The result is reported under the lease."""
    job_id = await world.submit("quick")
    worker = world.worker(REGISTRY)
    await worker.took("task", job_id, "processing_succeeded", "processing", "reporting")
    await job_takes(world, job_id, "lease", "complete", "ACTIVE", "COMPLETED")


@delivers(
    "task enters reporting by shutdown_requested or processing_yielded: send release to its lease"
)
async def lease_of_a_task_that_is_interrupted(world: World) -> None:
    """Interrupted work is given back."""
    worker, job_id = await at_work(world)
    worker.process.shutdown.request()
    await worker.took("task", job_id, "shutdown_requested", "processing", "reporting")
    await job_takes(world, job_id, "lease", "release", "ACTIVE", "REVOKED")


@delivers("task enters completed or failed or abandoned: send task_ended to its process")
async def process_whose_task_has_ended(world: World) -> None:
    """A slot is free again, and the process has counted its task."""
    job_id = await world.submit("quick")
    worker = world.worker(REGISTRY)
    await worker.took("task", job_id, "report_succeeded", "reporting", "completed")
    data = worker.process.data
    must((data.active_tasks, data.processed) == (0, 1), f"The process has not counted it: {data}.")


# What comes from outside


@delivers("lease enters EXPIRED or REVOKED: send lease_expired to the task under it")
async def task_whose_lease_has_ended(world: World) -> None:
    """A task learns with its next renewal that its lease has ended, and stops."""
    worker, job_id = await at_work(world)
    await world.later(TTL_S)
    await world.job_took(job_id, "lease", "expire", "ACTIVE", "EXPIRED")
    await worker.took("task", job_id, "lease_expired", "processing", "abandoned")


@delivers("worker enters TERMINATED: send shutdown_requested to its process")
async def process_of_a_terminated_worker(world: World) -> None:
    """The process of a worker that an operator terminates goes, wherever it runs."""
    worker, _ = await at_work(world, supervised=True)

    (registered,), _ = await workers(world).find(Query(kind="worker"))
    await workers(world).terminate(registered.id)
    await worker.took("process", "", "shutdown_requested", "running", "shutting_down")
