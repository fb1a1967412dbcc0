"""Runs and their jobs."""

from __future__ import annotations

from collections.abc import Callable

from tests.couplings.world import World, delivers, must
from tests.systems.orchestrator.house import done, failed, stopped
from tests.systems.runs.site import plan, planned

from interlock.wire.runner import Complete, Grant
from interlock.wire.runs import RunSpec

# What a run wants of its jobs, and of itself


@delivers("run enters QUEUED: create each job of the plan")
async def jobs_of_a_plan(world: World) -> None:
    """Each job of the plan is there, also the one that waits for another."""
    await world.begin(planned("a"), planned("b", "a"))
    must(await world.number_of_jobs() == 2, "The jobs of the plan were not created.")


@delivers("run enters QUEUED, if every required job has succeeded: send required_jobs_succeeded to itself")
async def run_without_a_required_job(world: World) -> None:
    """A run of which no job is required succeeds at once."""
    run_id = await world.begin(planned("a", required=False))
    await world.took("run", run_id, "run", "required_jobs_succeeded", "RUNNING", "SUCCESS")


@delivers("run enters CANCEL_REQUESTED: send cancel to each of its jobs")
async def jobs_of_a_canceled_run(world: World) -> None:
    """The jobs of a canceled run are canceled."""
    run_id = await world.begin(planned("a"))
    await world.runs.cancel(run_id)
    await world.recover()
    (job_id,) = await world.names(run_id)
    await world.job_took(job_id, "job", "cancel", "PENDING", "CANCELED")


@delivers("run enters CANCEL_REQUESTED, if nothing of it is active any more: send all_stopped to itself")
async def run_with_nothing_active(world: World) -> None:
    """The cancel of a run that has no jobs yet is final at once."""
    view = await world.runs.submit(RunSpec(plan=plan(planned("a"))))
    await world.runs.cancel(view.id)
    await world.took("run", view.id, "run", "all_stopped", "CANCEL_REQUESTED", "CANCELED")


@delivers(
    "run enters FAILED or TIMEOUT, if fail-fast is on: send cancel to each of its unfinished jobs", "FAILED"
)
async def jobs_of_a_failed_run(world: World) -> None:
    """Jobs that cannot change the outcome are canceled after a failure."""
    run_id = await world.begin(planned("a"), planned("b", queue="others"))
    await world.finish(run_id, "a")
    await world.job_took(await job_named(world, run_id, "b"), "job", "cancel", "PENDING", "CANCELED")


@delivers(
    "run enters FAILED or TIMEOUT, if fail-fast is on: send cancel to each of its unfinished jobs", "TIMEOUT"
)
async def jobs_of_an_overdue_run(world: World) -> None:
    """Jobs that cannot change the outcome are canceled after a timeout."""
    run_id = await world.begin(planned("a"), timeout_s=50.0)
    await world.later(50)
    await world.job_took(await job_named(world, run_id, "a"), "job", "cancel", "PENDING", "CANCELED")


# What jobs tell their run, and each other through it


@delivers(
    "job enters FAILED or CANCELED, if the job is required: send cancel to each job that needs it", "CANCELED"
)
async def job_that_needs_a_canceled_one(world: World) -> None:
    """What was to follow a canceled job is canceled."""
    run_id = await world.begin(planned("a"), planned("b", "a"), fail_fast=False)
    await world.jobs.cancel(await job_named(world, run_id, "a"))
    await world.recover()
    await world.job_took(await job_named(world, run_id, "b"), "job", "cancel", "PENDING", "CANCELED")


@delivers(
    "job enters FAILED or CANCELED, if the job is required: send cancel to each job that needs it", "FAILED"
)
async def job_that_needs_a_failed_one(world: World) -> None:
    """What was to follow a failed job is canceled, also where the rest of the run goes on."""
    run_id = await world.begin(planned("a"), planned("b", "a"), fail_fast=False)
    await world.finish(run_id, "a")
    await world.job_took(await job_named(world, run_id, "b"), "job", "cancel", "PENDING", "CANCELED")


@delivers("job enters RUNNING: send begin to its run")
async def run_that_begins(world: World) -> None:
    """The first job to be given out makes the run RUNNING."""
    run_id = await world.begin(planned("a"))
    await world.claim()
    await world.recover()
    await world.took("run", run_id, "run", "begin", "QUEUED", "RUNNING")


@delivers(
    "job enters COMPLETED, if every required job has succeeded: send required_jobs_succeeded to its run"
)
async def run_that_succeeds(world: World) -> None:
    """The last required job decides."""
    run_id = await world.begin(planned("a"), planned("b", "a"))
    await world.finish(run_id)
    await world.finish(run_id)
    await world.took("run", run_id, "run", "required_jobs_succeeded", "RUNNING", "SUCCESS")


@delivers(
    "job enters FAILED or CANCELED, if the job is required: send required_job_failed to its run", "FAILED"
)
async def run_that_fails(world: World) -> None:
    """A required job that fails, fails the run."""
    failing = await world.begin(planned("a"))
    await world.finish(failing, "a")
    await world.took("run", failing, "run", "required_job_failed", "RUNNING", "FAILED")


@delivers(
    "job enters FAILED or CANCELED, if the job is required: send required_job_failed to its run", "CANCELED"
)
async def run_whose_job_is_canceled(world: World) -> None:
    """A required job that is canceled, fails the run."""
    canceled = await world.begin(planned("a"))
    await world.jobs.cancel(await job_named(world, canceled, "a"))
    await world.recover()
    await world.took("run", canceled, "run", "required_job_failed", "RUNNING", "FAILED")


STOPPED = (
    "job enters COMPLETED or FAILED or CANCELED, if it was asked to stop and nothing of it is active any "
    "more: send all_stopped to its run"
)


@delivers(STOPPED, "COMPLETED")
async def run_whose_last_job_completes(world: World) -> None:
    """The last job may have completed when its run is canceled."""
    await stopped_run(world, done)


@delivers(STOPPED, "FAILED")
async def run_whose_last_job_fails(world: World) -> None:
    """The last job may have failed when its run is canceled."""
    await stopped_run(world, failed)


@delivers(STOPPED, "CANCELED")
async def run_whose_last_job_has_stopped(world: World) -> None:
    """The last job to stop makes the cancel of its run final."""
    run_id = await world.begin(planned("a"))
    (grant,) = await world.claim()
    await world.runs.cancel(run_id)
    await world.recover()
    await world.say(stopped(grant))
    await world.recover()
    await world.took("run", run_id, "run", "all_stopped", "CANCEL_REQUESTED", "CANCELED")


async def stopped_run(world: World, report: Callable[[Grant], Complete]) -> None:
    """Cancel a run whose only job has ended, which the run has yet to learn."""
    run_id = await world.begin(planned("a"))
    (grant,) = await world.claim()
    await world.recover()
    await world.heard(report(grant))
    await world.runs.cancel(run_id)
    await world.recover()
    await world.took("run", run_id, "run", "all_stopped", "CANCEL_REQUESTED", "CANCELED")


async def job_named(world: World, run_id: str, name: str) -> str:
    """Return the id of a job of a run."""
    return next(job_id for job_id, each in (await world.names(run_id)).items() if each == name)
