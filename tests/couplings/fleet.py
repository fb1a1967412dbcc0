"""Workloads on agents, and the runs whose jobs drive them."""

from __future__ import annotations

from tests.couplings.runs import job_named
from tests.couplings.world import World, delivers
from tests.systems.fleet.test_workloads import fact, workloads
from tests.systems.orchestrator.house import RUNNER
from tests.systems.runs.site import planned

from interlock.systems.fleet.spec import TASK
from interlock.wire.workloads import Happened


async def under_load(world: World) -> tuple[str, str]:
    """Begin a run of which one job drives a workload that runs on an agent; return both ids."""
    run_id = await world.begin(planned("load", task=TASK), planned("tests", queue="others"))
    (grant,) = await world.claim()
    told = fact(grant, Happened.RUNNING)
    await workloads(world).tell_under(grant.token, RUNNER, [told])
    return run_id, told.workload_id


@delivers("run enters CANCEL_REQUESTED: send ABORT_RECEIVED to each of its agents")
async def agents_of_a_canceled_run(world: World) -> None:
    """A canceled run leaves no load behind."""
    run_id, workload_id = await under_load(world)
    await world.runs.cancel(run_id)
    await world.recover()
    await world.took("workload", workload_id, "workload", "ABORT_RECEIVED", "RUNNING", "ABORTING")


@delivers("run enters FAILED or TIMEOUT, if fail-fast is on: send ABORT_RECEIVED to each of its agents")
async def agents_of_a_failed_run(world: World) -> None:
    """Nor does one that has failed."""
    run_id, workload_id = await under_load(world)
    await world.jobs.cancel(await job_named(world, run_id, "tests"))
    await world.recover()
    assert (await world.look(run_id)).outcome == "FAILED"
    await world.took("workload", workload_id, "workload", "ABORT_RECEIVED", "RUNNING", "ABORTING")
