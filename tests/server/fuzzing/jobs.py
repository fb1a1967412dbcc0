"""Jobs of a world, past the API: submitted, leased, and reported on."""

from __future__ import annotations

from typing import Any, cast

from tests.server.fuzzing.world import World

from interlock.systems.fleet.spec import TASK
from interlock.wire.jobs import JobSpec, JobView
from interlock.wire.runner import ClaimRequest, Grant

RUNNER = "runner-7"
READY, LEASED = "default", "leased"
"""The queue of jobs that wait for any runner, and the one from which jobs are leased here.

Requests leave jobs behind in the queues that they name, so there may be more ready ones than a claim takes.
"""


def submit(world: World, queue: str = READY, **more: Any) -> str:
    """Submit a job; return its id."""
    spec = JobSpec(task=TASK, queue=queue, **more)
    return cast(str, world.run(world.parts.runtime.jobs.submit(spec, actor="fuzzer")))


def hold(world: World) -> Grant:
    """Submit a job and lease it."""
    job_id = submit(world, LEASED)
    request = ClaimRequest(runner_id=RUNNER, limit=500, queues=(LEASED,))
    grants: list[Grant] = world.run(world.parts.runtime.orchestrator.claim(request))
    return next(grant for grant in grants if grant.job_id == job_id)


def hear(world: World, message: Any) -> None:
    """Receive a message of a runner."""
    world.run(world.parts.runtime.orchestrator.report([message]))


def look(world: World, job_id: str) -> JobView:
    """Return a job as it is now."""
    return cast(JobView, world.run(world.parts.runtime.jobs.get(job_id)))
