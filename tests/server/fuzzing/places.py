"""The places that a request is sent to: how far along the job is that it speaks of."""

from __future__ import annotations

from collections.abc import Mapping

from tests.server.fuzzing.jobs import RUNNER, hear, submit
from tests.server.fuzzing.real import Real, lease, measured
from tests.server.fuzzing.world import Place, World

from interlock.wire.runner import Complete, Heartbeat, Succeeded


def as_made(_: World) -> Mapping[str, str]:
    """Nothing is put right."""
    return {}


def waiting(world: World) -> Mapping[str, str]:
    """A job that nobody has begun."""
    return Real(world, submit(world))


def at_work(world: World) -> Mapping[str, str]:
    """A job that a runner has in hand."""
    grant = lease(world)
    return Real(world, grant.job_id, grant)


def stopping(world: World) -> Mapping[str, str]:
    """A job that a runner shall stop."""
    grant = lease(world)
    hear(world, Heartbeat(token=grant.token, runner_id=RUNNER, sequence=1))
    world.run(world.parts.runtime.jobs.cancel(grant.job_id, reason="enough", actor="fuzzer"))
    return Real(world, grant.job_id, grant)


def ended(world: World) -> Mapping[str, str]:
    """A job that is done, and the lease that did it."""
    grant = lease(world)
    done = Succeeded(measured())
    hear(world, Complete(token=grant.token, runner_id=RUNNER, sequence=1, outcome=done))
    return Real(world, grant.job_id, grant)


PLACES: tuple[Place, ...] = (as_made, waiting, at_work, stopping, ended)
