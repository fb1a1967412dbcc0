"""Workers in the books of the supervisor, and the leases that they hold."""

from __future__ import annotations

from itertools import count

from tests.couplings.world import World, delivers
from tests.systems.orchestrator.house import beat
from tests.systems.supervisor.test_workers import SILENCE_S, running, workers

from interlock.lifecycles.worker import MAX_TRANSIENT_ERRORS
from interlock.wire.workers import WorkerBeat, WorkerView


@delivers("worker enters TERMINATED by terminate: send revoke to each lease it holds")
async def leases_of_a_terminated_worker(world: World) -> None:
    """The work of a worker that an operator terminates returns to the queue."""
    made = await running(world)
    grant = await world.started()
    await workers(world).terminate(made.id)
    await world.recover()
    await world.job_took(grant.job_id, "lease", "revoke", "ACTIVE", "REVOKED")


LOST = (
    "worker enters FAILED or TERMINATED by error_unrecoverable or error_transient or supervisor_timeout or "
    "process_died: send holder_lost to each lease it holds"
)


@delivers(LOST, "TERMINATED by process_died")
async def leases_of_a_worker_that_died(world: World) -> None:
    """What a worker held counts as lost when its process has died."""
    await running(world)
    grant = await world.started()
    await workers(world).died("runner", "1", reason="killed by SIGKILL")
    await world.job_took(grant.job_id, "lease", "holder_lost", "ACTIVE", "EXPIRED")


@delivers(LOST, "TERMINATED by supervisor_timeout")
async def leases_of_a_silent_worker(world: World) -> None:
    """What a worker held counts as lost when the supervisor hears nothing of it, although it renews."""
    made = await running(world)
    grant = await world.started()
    sequences = count(1)
    while (await workers(world).get(made.id)).state == "RUNNING":
        await world.heard(beat(grant, next(sequences)))
        await world.later(SILENCE_S / 2)
    await world.recover()
    await world.job_took(grant.job_id, "lease", "holder_lost", "ACTIVE", "EXPIRED")


@delivers(LOST, "FAILED by error_unrecoverable")
async def leases_of_a_broken_worker(world: World) -> None:
    """What a worker held counts as lost when it cannot go on."""
    broken = await running(world)
    grant = await world.started()
    await trouble(world, broken, "unrecoverable")
    await world.job_took(grant.job_id, "lease", "holder_lost", "ACTIVE", "EXPIRED")


@delivers(LOST, "FAILED by error_transient")
async def leases_of_a_worker_without_a_try_left(world: World) -> None:
    """What a worker held counts as lost when an error that might have passed has come too often."""
    made = await running(world)
    grant = await world.started()
    for _ in range(MAX_TRANSIENT_ERRORS + 1):
        await trouble(world, made, "transient")
    await world.job_took(grant.job_id, "lease", "holder_lost", "ACTIVE", "EXPIRED")


async def trouble(world: World, made: WorkerView, kind: str) -> None:
    """Report trouble of a worker."""
    await workers(world).beat(made.id, WorkerBeat(trouble=kind, active=1, begun=True))
    await world.recover()


@delivers("worker enters PAUSED by resources_exhausted: send holder_lost to each lease it holds")
async def leases_of_an_exhausted_worker(world: World) -> None:
    """A worker that has run out of memory lets go of what it holds."""
    made = await running(world)
    grant = await world.started()
    await workers(world).beat(made.id, WorkerBeat(trouble="exhausted", active=1, begun=True))
    await world.recover()
    await world.job_took(grant.job_id, "lease", "holder_lost", "ACTIVE", "EXPIRED")
