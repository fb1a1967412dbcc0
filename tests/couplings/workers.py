"""Workers in the books of the supervisor, and the leases that they hold."""

from __future__ import annotations

from tests.couplings.world import World, delivers
from tests.systems.supervisor.test_workers import running, workers

from interlock.wire.workers import WorkerBeat


@delivers("worker enters TERMINATED by terminate: send revoke to each lease it holds")
async def leases_of_a_terminated_worker(world: World) -> None:
    """The work of a worker that an operator terminates returns to the queue."""
    made = await running(world)
    grant = await world.started()
    await workers(world).terminate(made.id)
    await world.recover()
    await world.job_took(grant.job_id, "lease", "revoke", "ACTIVE", "REVOKED")


@delivers(
    "worker enters FAILED or TERMINATED by error_unrecoverable or error_transient or supervisor_timeout or "
    "process_died: send holder_lost to each lease it holds"
)
async def leases_of_a_lost_worker(world: World) -> None:
    """What a worker held counts as lost, whether it died or cannot go on."""
    await running(world)
    grant = await world.started()
    await workers(world).died("runner", "1", reason="killed by SIGKILL")
    await world.job_took(grant.job_id, "lease", "holder_lost", "ACTIVE", "EXPIRED")
    await world.jobs.cancel(grant.job_id)
    broken = await running(world)
    grant = await world.started()
    await workers(world).beat(broken.id, WorkerBeat(trouble="unrecoverable", active=1, begun=True))
    await world.recover()
    await world.job_took(grant.job_id, "lease", "holder_lost", "ACTIVE", "EXPIRED")


@delivers("worker enters PAUSED by resources_exhausted: send holder_lost to each lease it holds")
async def leases_of_an_exhausted_worker(world: World) -> None:
    """A worker that has run out of memory lets go of what it holds."""
    made = await running(world)
    grant = await world.started()
    await workers(world).beat(made.id, WorkerBeat(trouble="exhausted", active=1, begun=True))
    await world.recover()
    await world.job_took(grant.job_id, "lease", "holder_lost", "ACTIVE", "EXPIRED")
