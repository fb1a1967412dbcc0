"""What runs inside a worker: its process, its tasks, and the leases that they work under."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

from tests.couplings.world import Worker, World, delivers, must
from tests.systems.orchestrator.house import TTL_S
from tests.systems.supervisor.test_workers import workers

from interlock.lifecycles.durations import DEFAULTS, Durations
from interlock.store.records import Query
from interlock.wire.workers import WorkerSpec
from interlock.worker.context import Context, TaskCancelled
from interlock.worker.postponement import Snooze
from interlock.worker.tasks import Registry

REGISTRY = Registry()


@REGISTRY.task(name="quick")
async def quick() -> str:
    """Return at once."""
    return "done"


@REGISTRY.task(name="broken")
async def broken() -> None:
    """Fail at once."""
    raise ValueError("no")


@REGISTRY.task(name="snoozed")
async def snoozed() -> None:
    """Ask to be executed later."""
    raise Snooze(timedelta(hours=1))


@REGISTRY.task(name="held")
async def held(ctx: Context) -> None:
    """Work until it is told to stop."""
    await ctx.wait_cancelled()
    raise TaskCancelled


@REGISTRY.task(name="deaf")
async def deaf() -> None:
    """Work until it is cancelled, and look for no request to stop."""
    await asyncio.Event().wait()


async def at_work(world: World, task: str = "held", **settings: Any) -> tuple[Worker, str]:
    """Start a worker and wait until it executes a job that does not end by itself."""
    job_id = await world.submit(task)
    worker = world.worker(REGISTRY, **settings)
    await worker.is_at(job_id, "processing")
    return worker, job_id


async def with_another(world: World, **settings: Any) -> tuple[Worker, str, str]:
    """Start a worker that is at work, and wait until it has another job that it has not begun."""
    worker, first = await at_work(world, prefetch=1, **settings)
    second = await world.submit("quick")
    await worker.is_at(second, "claiming")
    assert await world.leases(second) == ["GRANTED"]
    return worker, first, second


# What a process wants of its tasks


@delivers("process enters connecting by error: send lease_expired to each of its tasks")
async def tasks_of_a_broken_connection(world: World) -> None:
    """A process whose connection breaks gives up what it executes."""
    worker, job_id = await at_work(world, concurrency=2)
    world.crashing = True
    await world.submit("quick")
    await worker.takes("task", job_id, "lease_expired", "processing", "abandoned")


@delivers("process enters shutting_down: send shutdown_requested to each task that has not begun")
async def tasks_that_have_not_begun(world: World) -> None:
    """A process that is asked to go leaves to others what it has not begun."""
    worker, _, job_id = await with_another(world)
    worker.process.shutdown.request()
    await worker.takes("task", job_id, "shutdown_requested", "claiming", "abandoned")


@delivers("process stays shutting_down by soft_deadline: send shutdown_requested to each of its tasks")
async def tasks_that_do_not_finish_in_time(world: World) -> None:
    """What does not finish in time is told to save what it has."""
    worker, job_id = await at_work(world)
    worker.process.shutdown.request()
    await worker.takes("task", job_id, "shutdown_requested", "processing", "reporting")


# What a task wants of its lease, and tells its process


@delivers("task enters processing: send ack to its lease")
async def lease_of_a_task_that_begins(world: World) -> None:
    """A lease that was only granted is acknowledged when there is room for its task."""
    patient = Durations(ack_window_s=DEFAULTS.lease_ttl_s)  # it does not give back what waits for room
    _, first, second = await with_another(world, durations=patient)
    await world.jobs.cancel(first)
    await world.job_takes(second, "lease", "ack", "GRANTED", "ACTIVE")
    attempts = (await world.view(second)).attempts  # a later one is acknowledged by the claim itself
    must(len(attempts) == 1, f"The lease was left to expire, and {second} has {len(attempts)} attempts.")


COMPLETE = "task enters reporting by processing_succeeded or processing_failed: send complete to its lease"


@delivers(COMPLETE, "processing_failed")
async def lease_of_a_task_that_has_failed(world: World) -> None:
    """The failure is reported under the lease."""
    job_id = await world.submit("broken", retries=0)
    world.worker(REGISTRY)
    await world.job_takes(job_id, "lease", "complete", "ACTIVE", "COMPLETED")


@delivers(COMPLETE, "processing_succeeded")
async def lease_of_a_task_that_has_a_result(world: World) -> None:
    """The result is reported under the lease."""
    job_id = await world.submit("quick")
    world.worker(REGISTRY)
    await world.job_takes(job_id, "lease", "complete", "ACTIVE", "COMPLETED")


RELEASE = "task enters reporting by shutdown_requested or processing_yielded: send release to its lease"


@delivers(RELEASE, "processing_yielded")
async def lease_of_a_task_that_is_snoozed(world: World) -> None:
    """Work that asks for a later time is given back."""
    job_id = await world.submit("snoozed")
    world.worker(REGISTRY)
    await world.job_takes(job_id, "lease", "release", "ACTIVE", "REVOKED")


@delivers(RELEASE, "shutdown_requested")
async def lease_of_a_task_that_is_interrupted(world: World) -> None:
    """Interrupted work is given back."""
    worker, job_id = await at_work(world)
    worker.process.shutdown.request()
    await world.job_takes(job_id, "lease", "release", "ACTIVE", "REVOKED")


ENDED = "task enters completed or failed or abandoned: send task_ended to its process"


@delivers(ENDED, "failed")
async def process_whose_task_has_failed(world: World) -> None:
    """A slot is free again, and the process has counted a failure."""
    job_id = await world.submit("broken", retries=0)
    worker = world.worker(REGISTRY)
    await worker.is_at(job_id, "failed")
    data = worker.process.data
    must((data.active_tasks, data.failed) == (0, 1), f"The process has not counted it: {data}.")


@delivers(ENDED, "abandoned")
async def process_whose_task_is_abandoned(world: World) -> None:
    """A slot is free again."""
    job_id = await world.submit("snoozed")
    worker = world.worker(REGISTRY)
    await worker.is_at(job_id, "abandoned")
    data = worker.process.data
    must(data.active_tasks == 0, f"The process has not counted it: {data}.")


@delivers(ENDED, "completed")
async def process_whose_task_has_ended(world: World) -> None:
    """A slot is free again, and the process has counted its task."""
    job_id = await world.submit("quick")
    worker = world.worker(REGISTRY)
    await worker.is_at(job_id, "completed")
    data = worker.process.data
    must((data.active_tasks, data.processed) == (0, 1), f"The process has not counted it: {data}.")


# What comes from outside


LEASE_ENDS = "lease enters EXPIRED or REVOKED: send lease_expired to the task under it"


@delivers(LEASE_ENDS, "REVOKED")
async def task_whose_lease_was_revoked(world: World) -> None:
    """A task learns with its next renewal that its lease was revoked, and stops."""
    worker, job_id = await at_work(world, task="deaf")
    registered = await workers(world).register(WorkerSpec(name="worker", incarnation="1"))
    await workers(world).terminate(registered.id)
    await world.recover()
    assert await world.leases(job_id) == ["REVOKED"]
    await worker.takes("task", job_id, "lease_expired", "processing", "abandoned", within_s=TTL_S / 2)


@delivers(LEASE_ENDS, "EXPIRED")
async def task_whose_lease_has_ended(world: World) -> None:
    """A task learns with its next renewal that its lease has ended, and stops."""
    worker, job_id = await at_work(world)
    await world.later(TTL_S)
    assert await world.leases(job_id) == ["EXPIRED"]
    # By its own clock it would trust the lease for longer.
    await worker.takes("task", job_id, "lease_expired", "processing", "abandoned", within_s=TTL_S / 2)


@delivers("worker enters TERMINATED: send shutdown_requested to its process")
async def process_of_a_terminated_worker(world: World) -> None:
    """The process of a worker that an operator terminates goes, wherever it runs."""
    worker, _ = await at_work(world, supervised=True)
    (registered,), _ = await workers(world).find(Query(kind="worker"))
    await workers(world).terminate(registered.id)
    await worker.takes("process", "", "shutdown_requested", "running", "shutting_down")
