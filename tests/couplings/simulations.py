"""Simulations and the jobs that execute them."""

from __future__ import annotations

from tests.couplings.world import World, delivers
from tests.systems.orchestrator.house import failed, release, stopped
from tests.systems.simulations.worker import running, simulations

from interlock.wire.simulations import Paused


@delivers("attempt enters STALE: send interrupt to the simulation it executed")
async def simulation_that_is_given_back(world: World) -> None:
    """A simulation whose attempt was given back is interrupted, although its job goes on."""
    view, player = await running(world)
    await world.heard(release(player.grant))
    await world.recover()
    await world.took("simulation", view.run_id, "simulation", "interrupt", "running", "interrupted")


@delivers("job enters FAILED or CANCELED: send interrupt to the simulation it executed", "CANCELED")
async def simulation_whose_job_is_canceled(world: World) -> None:
    """A simulation whose job was canceled can be resumed."""
    view, player = await running(world)
    await world.jobs.cancel(player.grant.job_id)
    await world.heard(stopped(player.grant))
    await world.recover()
    await world.took("simulation", view.run_id, "simulation", "interrupt", "running", "interrupted")


@delivers("job enters FAILED or CANCELED: send interrupt to the simulation it executed", "FAILED")
async def simulation_whose_job_failed(world: World) -> None:
    """A simulation whose job has failed can be resumed."""
    view, player = await running(world)
    await world.heard(failed(player.grant))
    await world.recover()
    await world.took("simulation", view.run_id, "simulation", "interrupt", "running", "interrupted")


@delivers("simulation enters paused, if it was asked to stop: send cancel to itself")
async def simulation_that_is_canceled_at_work(world: World) -> None:
    """A simulation that was canceled at work ends after its step."""
    view, player = await running(world)
    await simulations(world).cancel(view.run_id)
    await player.say(Paused(step=3))
    await world.took("simulation", view.run_id, "simulation", "cancel", "paused", "cancelled")
