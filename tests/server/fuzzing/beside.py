"""Records beside a job, each as far along as that job: it waits, is executed, is stopped, or has ended."""

from __future__ import annotations

from typing import cast

from tests.server.fuzzing.jobs import RUNNER, hear, hold, look, submit
from tests.server.fuzzing.world import World

from interlock.systems.access.principals import Principal
from interlock.wire.access import Role
from interlock.wire.batches import BatchAddition, BatchSpec
from interlock.wire.jobs import SHELL, JobSpec, JobView
from interlock.wire.limits import LimitSpec
from interlock.wire.runner import Complete, Failed, Release
from interlock.wire.runs import Plan, PlannedJob, RunSpec, RunView, Source
from interlock.wire.schedules import ScheduleSpec
from interlock.wire.simulations import SimulationSpec
from interlock.wire.waits import ApprovalQuestion, WaitAnswer, WaitRequest
from interlock.wire.workers import WorkerSpec

FORK = Source(repository="acme/shop", ref="refs/pull/7/head", sha="5f" * 20, from_fork=True)
DECIDED = ("/approve", "/decline")
"""What is asked about runs that wait for an approval."""
ELSEWHERE = "elsewhere"
"""A queue from which no runner takes jobs."""
LIMIT = "vendor-x"


def evaluate(world: World, job_id: str) -> str:
    """Submit a run; cancel it where the job is stopped or has ended. Return its id."""
    runs = world.parts.runtime.runs
    plan = Plan(jobs=(PlannedJob(name="only", task=SHELL, queue=ELSEWHERE),))
    source = FORK if world.about.endswith(DECIDED) else Source()
    made: RunView = world.run(runs.submit(RunSpec(workflow="a", plan=plan, source=source), actor="fuzzer"))
    if source is FORK:
        world.run(runs.keep())
    view = look(world, job_id)
    if view.completed_at is not None or view.stop_reason is not None:
        world.run(runs.cancel(made.id, actor="fuzzer"))
    simulate(world, made.id, view)
    return made.id


def simulate(world: World, run_id: str, beside: JobView) -> None:
    """Create a simulation of the same name: it waits, runs, is interrupted or canceled."""
    manager = world.parts.runtime.simulations
    world.run(manager.create_run(SimulationSpec(task="a.b", run_id=run_id, queue=ELSEWHERE)))
    if beside.completed_at is not None:
        world.run(manager.cancel(run_id))
    elif beside.started_at is not None:
        world.run(manager.transition(run_id, "running", worker_id=RUNNER))
        if beside.stop_reason is not None:
            world.run(manager.transition(run_id, "interrupted"))


def hire(world: World, job_id: str) -> str:
    """Register a worker: idle, at work, paused, or terminated. Return its id."""
    workers = world.parts.runtime.workers
    worker_id: str = world.run(workers.register(WorkerSpec(name=RUNNER, capacity=2))).id
    view = look(world, job_id)
    if view.started_at is not None:
        world.run(workers.start(worker_id))
    if view.completed_at is not None:
        world.run(workers.terminate(worker_id))
    elif view.stop_reason is not None:
        world.run(workers.pause(worker_id))
    return worker_id


def issue(world: World, job_id: str) -> str:
    """Create a token: active, rotating, or revoked. Return its name."""
    tokens = world.parts.tokens
    name: str = world.run(tokens.create(f"of-{job_id}", Role.VIEWER, queues=("mail",))).view.name
    view = look(world, job_id)
    if view.started_at is not None:
        world.run(tokens.rotate(name))
    if view.completed_at is not None:
        world.run(tokens.revoke(name))
    return name


def sign_in(world: World, job_id: str) -> str:
    """Open a session, and revoke it where the job has ended; return its id."""
    sessions = world.parts.sessions
    secret = world.run(sessions.open(Principal(name="ann", roles=(Role.VIEWER,))))
    if look(world, job_id).completed_at is not None:
        world.run(sessions.revoke(secret.id))
    return cast(str, secret.id)


def ask(world: World, job_id: str) -> str:
    """Park another job until a person approves; answer where the job has ended. Return the approval's id."""
    waits, grant = world.parts.runtime.waits, hold(world)
    question = ApprovalQuestion(text="Deploy?")
    response: WaitAnswer = world.run(
        waits.wait(WaitRequest(token=grant.token, runner_id=RUNNER, question=question))
    )
    parked = Release(
        token=grant.token, runner_id=RUNNER, sequence=1, reason="signal", await_signal=response.id
    )
    hear(world, parked)
    if look(world, job_id).completed_at is not None:
        world.run(waits.approve(response.id, actor="fuzzer"))
    return response.id


def gather(world: World, job_id: str) -> str:
    """Create a batch of two jobs: open, closed while they are executed, or canceled. Return its id."""
    batches, view = world.parts.runtime.batches, look(world, job_id)
    jobs = [JobSpec(task=SHELL, queue=ELSEWHERE)] * 2
    made: BatchAddition = world.run(
        batches.create(BatchSpec(), jobs, close=view.stop_reason is not None, actor="fuzzer")
    )
    if view.completed_at is not None:
        world.run(batches.cancel(made.batch_id, actor="fuzzer"))
    return made.batch_id


def bury(world: World, job_id: str) -> str:
    """Fail another job for good: an open dead letter, a retried or a discarded one. Return the job's id."""
    letters, grant = world.parts.runtime.dead_letters, hold(world)
    outcome = Failed(error="no such address", failure_class="permanent")
    hear(world, Complete(token=grant.token, runner_id=RUNNER, sequence=1, outcome=outcome))
    view = look(world, job_id)
    if view.completed_at is not None:
        world.run(letters.discard(grant.job_id, actor="fuzzer"))
    elif view.stop_reason is not None:
        world.run(letters.retry(grant.job_id, actor="fuzzer"))
    return grant.job_id


def schedule(world: World, job_id: str) -> str:
    """Create a schedule: new, with a job, paused, or deleted. Return its name."""
    schedules, view, name = world.parts.runtime.schedules, look(world, job_id), f"of-{job_id}"
    daily = ScheduleSpec(every="1d", job=JobSpec(task=SHELL, queue=ELSEWHERE))
    world.run(schedules.create(name, daily, actor="fuzzer"))
    if view.started_at is not None:
        world.run(schedules.run(name, actor="fuzzer"))
    if view.completed_at is not None:
        world.run(schedules.delete(name, actor="fuzzer"))
    elif view.stop_reason is not None:
        world.run(schedules.pause(name, actor="fuzzer"))
    return name


def restrict(world: World, job_id: str) -> str:
    """Declare a limit again: without jobs, with one that holds its slot and more that wait, or deleted.

    Its name is always the same: a store has room for a thousand limits, and a world needs more than that.
    """
    limits, view = world.parts.runtime.limits, look(world, job_id)
    world.run(limits.set(LIMIT, LimitSpec(max=1), actor="fuzzer"))
    if view.started_at is not None:
        submit(world, ELSEWHERE, limits=(LIMIT,))
    if view.completed_at is not None:
        world.run(limits.delete(LIMIT, actor="fuzzer"))
    return LIMIT
