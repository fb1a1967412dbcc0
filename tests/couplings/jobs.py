"""Jobs, their attempts and leases, and the trees that jobs are in."""

from __future__ import annotations

from contextlib import suppress

from tests.couplings.world import World, delivers, must
from tests.systems.orchestrator.house import CANCEL_DEADLINE_S, TTL_S, beat, done, failed, release, stopped

from interlock.wire.jobs import After

# What a job wants of its attempts


@delivers("job enters PENDING: create the first attempt of each shard")
async def first_attempts(world: World) -> None:
    """Each shard of a new job can be claimed."""
    await world.attempts(await world.submit(worker_count=2), "QUEUED", "QUEUED")


@delivers("job stays RUNNING by cancel or timeout: send cancel to each of its attempts", "cancel")
async def attempts_of_a_stopping_job(world: World) -> None:
    """What is active is asked to stop when a person wants that."""
    canceled = await world.started()
    await world.jobs.cancel(canceled.job_id)
    await world.job_took(canceled.job_id, "attempt", "cancel", "STARTING", "CANCEL_REQUESTED")


@delivers("job stays RUNNING by cancel or timeout: send cancel to each of its attempts", "timeout")
async def attempts_of_an_overdue_job(world: World) -> None:
    """What is active is asked to stop when the job has taken too long."""
    overdue = await world.started(job_timeout_s=50.0)
    await world.later(50)
    await world.job_took(overdue.job_id, "attempt", "cancel", "STARTING", "CANCEL_REQUESTED")


@delivers("job enters CANCELED or FAILED: send cancel to each of its attempts", "CANCELED")
async def attempts_of_a_canceled_job(world: World) -> None:
    """Shards that wait are not given out after the job was canceled."""
    canceled = await world.submit(queue="waiting")
    await world.jobs.cancel(canceled)
    await world.job_took(canceled, "attempt", "cancel", "QUEUED", "CANCEL_REQUESTED")


@delivers("job enters CANCELED or FAILED: send cancel to each of its attempts", "FAILED")
async def attempts_of_a_failed_job(world: World) -> None:
    """Shards that wait are not given out after the job has failed."""
    hopeless = await world.submit(worker_count=2, retries=0)
    await world.heard(failed(await world.grant()))
    await world.job_took(hopeless, "attempt", "cancel", "QUEUED", "CANCEL_REQUESTED")


# What an attempt wants of its lease


@delivers("attempt enters LEASED: create its lease")
async def lease_of_an_attempt(world: World) -> None:
    """A runner that is given an attempt has a lease on it."""
    job_id = await world.submit()
    with suppress(Exception):  # a claim that has no lease to give may crash
        await world.claim(acknowledge=False)
    must(await world.leases(job_id) == ["GRANTED"], "The attempt has no lease.")


@delivers("attempt enters CANCEL_REQUESTED out of CREATED or QUEUED: send withdraw to itself")
async def attempt_that_waits(world: World) -> None:
    """An attempt that waits is canceled at once."""
    job_id = await world.submit()
    await world.jobs.cancel(job_id)
    await world.job_took(job_id, "attempt", "withdraw", "CANCEL_REQUESTED", "CANCELED")


@delivers("attempt enters CANCEL_REQUESTED out of LEASED: send revoke to its lease")
async def lease_that_was_only_granted(world: World) -> None:
    """A lease without an acknowledgement ends with the cancel."""
    job_id = await world.submit()
    await world.claim(acknowledge=False)
    await world.jobs.cancel(job_id)
    await world.job_took(job_id, "lease", "revoke", "GRANTED", "REVOKED")


@delivers(
    "attempt enters CANCEL_REQUESTED out of STARTING or RUNNING or UPLOADING: "
    "send request_cancel to its lease"
)
async def lease_of_a_runner_at_work(world: World) -> None:
    """The runner learns of the cancel with its next heartbeat."""
    grant = await world.started()
    await world.jobs.cancel(grant.job_id)
    await world.job_took(grant.job_id, "lease", "request_cancel", "ACTIVE", "ACTIVE")
    must((await world.heard(beat(grant))).cancel_requested, "The runner is not told of the cancel.")


@delivers("attempt enters TIMED_OUT: send revoke to its lease")
async def lease_of_an_overdue_attempt(world: World) -> None:
    """The runner of an attempt that took too long is not believed any more."""
    grant = await world.started(timeout_s=50.0)
    await world.later(50)
    await world.job_took(grant.job_id, "lease", "revoke", "ACTIVE", "REVOKED")


@delivers("attempt enters CANCELED by force_cancel: send revoke to its lease")
async def lease_of_a_runner_that_does_not_stop(world: World) -> None:
    """After a forced cancel no completion is accepted."""
    grant = await world.started()
    await world.jobs.cancel(grant.job_id)
    await world.later(CANCEL_DEADLINE_S)
    await world.job_took(grant.job_id, "lease", "revoke", "ACTIVE", "REVOKED")


# What a lease tells its attempt


@delivers("lease enters ACTIVE: send acknowledged to its attempt")
async def attempt_that_a_runner_takes(world: World) -> None:
    """The attempt starts when its runner acknowledges the lease."""
    grant = await world.started()
    await world.job_took(grant.job_id, "attempt", "acknowledged", "LEASED", "STARTING")


@delivers("lease stays ACTIVE by heartbeat: send heartbeat to its attempt")
async def attempt_with_a_sign_of_life(world: World) -> None:
    """The first heartbeat makes the attempt RUNNING."""
    grant = await world.started()
    await world.heard(beat(grant))
    await world.job_took(grant.job_id, "attempt", "heartbeat", "STARTING", "RUNNING")


@delivers("lease enters COMPLETED: send completed to its attempt")
async def attempt_with_a_result(world: World) -> None:
    """A result under the lease ends the attempt."""
    grant = await world.started()
    await world.heard(done(grant))
    await world.job_took(grant.job_id, "attempt", "completed", "UPLOADING", "SUCCEEDED")


@delivers("lease enters CANCELED: send cancel_acknowledged to its attempt")
async def attempt_whose_runner_has_stopped(world: World) -> None:
    """The word of the runner that it has stopped ends the attempt."""
    grant = await world.started()
    await world.jobs.cancel(grant.job_id)
    await world.say(stopped(grant))
    await world.job_took(grant.job_id, "attempt", "cancel_acknowledged", "CANCEL_REQUESTED", "CANCELED")


@delivers("lease enters EXPIRED: send lease_expired to its attempt")
async def attempt_whose_runner_is_lost(world: World) -> None:
    """The attempt of a silent runner is stale."""
    grant = await world.started()
    await world.later(TTL_S)
    await world.job_took(grant.job_id, "attempt", "lease_expired", "STARTING", "STALE")


@delivers("lease enters REVOKED: send lease_revoked to its attempt")
async def attempt_that_is_given_back(world: World) -> None:
    """The attempt that a runner gives back is stale."""
    grant = await world.started()
    await world.heard(release(grant))
    await world.job_took(grant.job_id, "attempt", "lease_revoked", "STARTING", "STALE")


# What an attempt tells its job


@delivers("attempt enters LEASED: send allocate_resources to its job")
async def job_that_begins(world: World) -> None:
    """A job runs as soon as a runner has a lease on it."""
    job_id = await world.submit()
    await world.claim()
    await world.job_took(job_id, "job", "allocate_resources", "PENDING", "RUNNING")


@delivers(
    "attempt enters SUCCEEDED, if no stop was requested and it was the last shard: send success to its job"
)
async def job_that_succeeds(world: World) -> None:
    """The success of the last shard completes the job."""
    job_id = await world.submit(worker_count=2)
    for _ in range(2):
        await world.heard(done(await world.grant()))
    await world.job_took(job_id, "job", "success", "RUNNING", "COMPLETED")


@delivers(
    "attempt enters FAILED or TIMED_OUT, if no stop was requested and its failure may be retried and "
    "a try is left: create the next attempt of the shard",
    "FAILED",
)
async def attempt_after_a_failure(world: World) -> None:
    """A failure is followed by another attempt."""
    grant = await world.started(retries=1)
    await world.heard(failed(grant))
    await world.attempts(grant.job_id, "FAILED", "CREATED")


@delivers(
    "attempt enters FAILED or TIMED_OUT, if no stop was requested and its failure may be retried and "
    "a try is left: create the next attempt of the shard",
    "TIMED_OUT",
)
async def attempt_after_a_timeout(world: World) -> None:
    """A timeout is followed by another attempt."""
    overdue = await world.started(retries=1, timeout_s=50.0)
    await world.later(50)
    await world.attempts(overdue.job_id, "TIMED_OUT", "CREATED")


@delivers(
    "attempt enters FAILED or TIMED_OUT, if no stop was requested and its failure may not be retried "
    "or no try is left: send error to its job",
    "FAILED",
)
async def job_without_a_try_left_after_a_failure(world: World) -> None:
    """A failure fails the job when no try is left."""
    grant = await world.started(retries=0)
    await world.heard(failed(grant))
    await world.job_took(grant.job_id, "job", "error", "RUNNING", "FAILED")


@delivers(
    "attempt enters FAILED or TIMED_OUT, if no stop was requested and its failure may not be retried "
    "or no try is left: send error to its job",
    "TIMED_OUT",
)
async def job_without_a_try_left_after_a_timeout(world: World) -> None:
    """A timeout fails the job when no try is left."""
    overdue = await world.started(retries=0, timeout_s=50.0)
    await world.later(50)
    await world.job_took(overdue.job_id, "job", "error", "RUNNING", "FAILED")


@delivers(
    "attempt enters STALE by lease_expired, if no stop was requested and its losses are within their "
    "own budget: create the next attempt of the shard"
)
async def attempt_after_a_loss(world: World) -> None:
    """A lost attempt is followed by another one."""
    grant = await world.started(losses=1)
    await world.later(TTL_S)
    await world.attempts(grant.job_id, "STALE", "QUEUED")


@delivers(
    "attempt enters STALE by lease_expired, if no stop was requested and it was lost too often: "
    "send error to its job"
)
async def job_that_was_lost_too_often(world: World) -> None:
    """A job that kills its workers fails."""
    grant = await world.started(losses=0)
    await world.later(TTL_S)
    await world.job_took(grant.job_id, "job", "error", "RUNNING", "FAILED")


@delivers(
    "attempt enters STALE by lease_revoked, if no stop was requested: create the next attempt of the shard"
)
async def attempt_after_a_release(world: World) -> None:
    """Work that was given back is given out again, and costs no loss."""
    grant = await world.started(losses=0)
    await world.heard(release(grant))
    await world.attempts(grant.job_id, "STALE", "QUEUED")


@delivers(
    "attempt enters SUCCEEDED or FAILED or CANCELED or TIMED_OUT or STALE, if it was asked to stop and "
    "nothing of it is active any more: send cancel to its job",
    "CANCELED",
)
async def job_whose_last_attempt_has_stopped(world: World) -> None:
    """The last attempt to stop makes the cancel final."""
    grant = await world.started()
    await world.jobs.cancel(grant.job_id)
    await world.heard(stopped(grant))
    await world.job_took(grant.job_id, "job", "cancel", "RUNNING", "CANCELED")


# Trees


@delivers("job enters CANCELED: send cancel to each of its children")
async def children_of_a_canceled_job(world: World) -> None:
    """The children of a job that was never begun are canceled with it."""
    parent = await world.submit()
    child = await world.submit(parent_job_id=parent)
    await world.jobs.cancel(parent)
    await world.recover()
    await world.job_took(child, "job", "cancel", "PENDING", "CANCELED")


@delivers("job stays RUNNING by cancel or timeout: send cancel to each of its children", "cancel")
async def children_of_a_stopping_job(world: World) -> None:
    """The children are stopped while their parent is asked to stop."""
    canceled = await world.started()
    child = await world.submit(parent_job_id=canceled.job_id, queue="children")
    await world.jobs.cancel(canceled.job_id)
    await world.recover()
    await world.job_took(child, "job", "cancel", "PENDING", "CANCELED")


@delivers("job stays RUNNING by cancel or timeout: send cancel to each of its children", "timeout")
async def children_of_an_overdue_job(world: World) -> None:
    """The children are stopped when their parent has taken too long."""
    overdue = await world.started(job_timeout_s=50.0)
    child = await world.submit(parent_job_id=overdue.job_id, queue="children")
    await world.later(50)
    await world.job_took(child, "job", "cancel", "PENDING", "CANCELED")


@delivers(
    "job enters FAILED or CANCELED, if its submitter said that its siblings are stopped then: "
    "send cancel to each of its siblings",
    "FAILED",
)
async def siblings_of_a_failed_job(world: World) -> None:
    """Children that are wanted together or not at all are stopped with the first that fails."""
    parent = await world.submit(queue="parents")
    sibling = await world.submit(parent_job_id=parent, queue="siblings")
    child = await world.started(parent_job_id=parent, if_fails="cancel_siblings", retries=0)
    await world.heard(failed(child))
    await world.recover()
    await world.job_took(sibling, "job", "cancel", "PENDING", "CANCELED")


@delivers(
    "job enters FAILED or CANCELED, if its submitter said that its siblings are stopped then: "
    "send cancel to each of its siblings",
    "CANCELED",
)
async def siblings_of_a_canceled_job(world: World) -> None:
    """They are stopped as well with the first that is canceled."""
    parent = await world.submit(queue="parents")
    sibling = await world.submit(parent_job_id=parent, queue="siblings")
    child = await world.submit(parent_job_id=parent, if_fails="cancel_siblings")
    await world.jobs.cancel(child)
    await world.recover()
    await world.job_took(sibling, "job", "cancel", "PENDING", "CANCELED")


@delivers(
    "job enters FAILED or CANCELED, if jobs come after it and it was not skipped: "
    "send cancel to each job that comes after it",
    "FAILED",
)
async def followers_of_a_failed_job(world: World) -> None:
    """A job that waits for a success is canceled when that cannot come any more."""
    first = await world.started(retries=0)
    follower = await world.submit(after=After(jobs=(first.job_id,)))
    await world.heard(failed(first))
    await world.recover()
    await world.job_took(follower, "job", "cancel", "PENDING", "CANCELED")


@delivers(
    "job enters FAILED or CANCELED, if jobs come after it and it was not skipped: "
    "send cancel to each job that comes after it",
    "CANCELED",
)
async def followers_of_a_canceled_job(world: World) -> None:
    """A cancel ends the wait for a success, too."""
    first = await world.submit()
    follower = await world.submit(after=After(jobs=(first,)))
    await world.jobs.cancel(first)
    await world.recover()
    await world.job_took(follower, "job", "cancel", "PENDING", "CANCELED")


@delivers(
    "job enters FAILED or CANCELED, if its submitter said that its parent fails with it: "
    "send error to its parent",
    "CANCELED",
)
async def parent_of_a_canceled_job(world: World) -> None:
    """A parent that cannot do without its child fails when that is canceled."""
    parent = await world.started(queue="parents")
    child = await world.submit(parent_job_id=parent.job_id, if_fails="fail_parent")
    await world.jobs.cancel(child)
    await world.recover()
    await world.job_took(parent.job_id, "job", "error", "RUNNING", "FAILED")


@delivers(
    "job enters FAILED or CANCELED, if its submitter said that its parent fails with it: "
    "send error to its parent",
    "FAILED",
)
async def parent_of_a_failed_job(world: World) -> None:
    """A parent that cannot do without its child fails with it."""
    parent = await world.started(queue="parents")
    child = await world.started(parent_job_id=parent.job_id, if_fails="fail_parent", retries=0)
    await world.heard(failed(child))
    await world.recover()
    await world.job_took(parent.job_id, "job", "error", "RUNNING", "FAILED")
