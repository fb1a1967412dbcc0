"""What is real at a place: a job, its lease, and what stands beside them, as far along as the job."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any, cast

import msgspec
from tests.server.fuzzing.world import World
from tests.server.loads import finished

from interlock.systems.access.principals import (
    Principal,
)
from interlock.systems.fleet.spec import TASK
from interlock.systems.fleet.workloads import workload_id_of
from interlock.systems.quarantine import LostWork
from interlock.wire.access import Role
from interlock.wire.jobs import SHELL, JobSpec, JobView
from interlock.wire.runner import ClaimRequest, Grant
from interlock.wire.runs import Plan, PlannedJob, RunSpec, RunView, Source
from interlock.wire.simulations import SimulationSpec
from interlock.wire.workers import WorkerSpec
from interlock.wire.workloads import Happened, WorkloadFact

RUNNER = "runner-7"
UNLUCKY = "runner-8"
"""A runner that has lost something, so that there is something to lift."""
ARTIFACT = "report"
FORK = Source(repository="acme/shop", ref="refs/pull/7/head", sha="5f" * 20, from_fork=True)
DECIDED = ("/approve", "/decline")
"""What is asked about runs that wait for an approval."""
SAVED = "deps-1"
"""The key of something that was saved for later."""


class Real(Mapping[str, str]):
    """The values of one job, its lease and the journal; what is costly is made when somebody asks for it."""

    def __init__(self, world: World, job_id: str, grant: Grant | None = None) -> None:
        self._made: dict[str, str] = {
            **dict.fromkeys(("job_id", "job", "parent", "id", "record_id"), job_id),
            "kind": "job",
            "name": "job",
            "attempt_id": f"{job_id}.1.1",
            "attempt": "1.1",
            "runner_id": RUNNER,
            "after": world.run(world.parts.store.latest()),
            "q": "queue:default",
            "filter": f"id:{job_id}",
            "task": TASK,
            "artifact": ARTIFACT,
            "key": SAVED,
            "runner": UNLUCKY,
        }
        self._makers: dict[str, Callable[[], str]] = {
            "run_id": lambda: evaluate(world, job_id),
            "worker_id": lambda: hire(world, job_id),
            "token_name": lambda: issue(world, job_id),
            "session_id": lambda: sign_in(world, job_id),
        }
        if grant is not None:
            self._made |= {"token": grant.token, "workload_id": load_of(grant).workload_id}

    def __getitem__(self, name: str) -> str:
        if name in self._makers:
            self._made[name] = self._makers.pop(name)()
        return self._made[name]

    def __contains__(self, name: object) -> bool:
        return name in self._made or name in self._makers

    def __iter__(self) -> Iterator[str]:
        return iter((*self._made, *self._makers))

    def __len__(self) -> int:
        return len(self._made) + len(self._makers)


def submit(world: World) -> str:
    """A job."""
    return cast(str, world.run(world.parts.runtime.jobs.submit(JobSpec(task=TASK), actor="fuzzer")))


def lease(world: World) -> Grant:
    """A job that is leased."""
    job_id = submit(world)
    here = world.parts.runtime
    request = ClaimRequest(runner_id=RUNNER, limit=500, queues=("default",))
    grants: list[Grant] = world.run(here.orchestrator.claim(request))
    grant = next(grant for grant in grants if grant.job_id == job_id)
    lost = LostWork(runner=UNLUCKY, job_id=job_id, attempt="1.1")
    beside: dict[str, Callable[[], Any]] = {
        "artifacts": lambda: here.artifacts.keep(grant.token, RUNNER, ARTIFACT, _pieces(b"well")),
        "caches": lambda: here.caches.keep(grant.token, RUNNER, SAVED, _pieces(b"wheels")),
        "workloads": lambda: here.workloads.apply([load_of(grant)]),
        "quarantine": lambda: here.quarantine.count([lost]),
    }
    for word, make in beside.items():
        if not world.about or word in world.about:
            world.run(make())
    return grant


def load_of(grant: Grant) -> WorkloadFact:
    """What the job drives on an agent: all jobs here could drive a fleet."""
    name = workload_id_of(grant.job_id, grant.fence, 0)
    return WorkloadFact(workload_id=name, job_id=grant.job_id, happened=Happened.READY, kind="sleep")


def hear(world: World, message: Any) -> None:
    """A message past the API."""
    world.run(world.parts.runtime.orchestrator.report([message]))


def evaluate(world: World, job_id: str) -> str:
    """A run, as far along as the job beside it: stopped where that one is."""
    runs = world.parts.runtime.runs
    plan = Plan(jobs=(PlannedJob(name="only", task=SHELL, queue="elsewhere"),))
    source = FORK if world.about.endswith(DECIDED) else Source()
    made: RunView = world.run(runs.submit(RunSpec(workflow="a", plan=plan, source=source), actor="fuzzer"))
    if source is FORK:
        world.run(runs.keep())
    view = _look(world, job_id)
    if view.completed_at is not None or view.stop_reason is not None:
        world.run(runs.cancel(made.id, actor="fuzzer"))
    simulate(world, made.id, view)
    return made.id


def simulate(world: World, run_id: str, beside: JobView) -> None:
    """A simulation of the same name, as far along as a job: it waits, runs, stands or has ended."""
    manager = world.parts.runtime.simulations
    world.run(manager.create_run(SimulationSpec(task="a.b", run_id=run_id, queue="elsewhere")))
    if beside.completed_at is not None:
        world.run(manager.cancel(run_id))
    elif beside.started_at is not None:
        world.run(manager.transition(run_id, "running", worker_id=RUNNER))
        if beside.stop_reason is not None:
            world.run(manager.transition(run_id, "interrupted"))


def hire(world: World, job_id: str) -> str:
    """A worker, as far along as the job beside it: idle, at work, held, or gone."""
    workers = world.parts.runtime.workers
    worker_id: str = world.run(workers.register(WorkerSpec(name=RUNNER, capacity=2))).id
    view = _look(world, job_id)
    if view.started_at is not None:
        world.run(workers.start(worker_id))
    if view.completed_at is not None:
        world.run(workers.terminate(worker_id))
    elif view.stop_reason is not None:
        world.run(workers.pause(worker_id))
    return worker_id


def issue(world: World, job_id: str) -> str:
    """A token, as far along as the job beside it: active, rotating, or revoked."""
    tokens = world.parts.tokens
    name: str = world.run(tokens.create(f"of-{job_id}", Role.VIEWER, queues=("mail",))).view.name
    view = _look(world, job_id)
    if view.started_at is not None:
        world.run(tokens.rotate(name))
    if view.completed_at is not None:
        world.run(tokens.revoke(name))
    return name


def sign_in(world: World, job_id: str) -> str:
    """Open a session, and revoke it where the job beside it has ended."""
    sessions = world.parts.sessions
    secret = world.run(sessions.open(Principal(name="ann", roles=(Role.VIEWER,))))
    if _look(world, job_id).completed_at is not None:
        world.run(sessions.revoke(secret.id))
    return cast(str, secret.id)


@functools.cache
def measured() -> msgspec.Raw:
    """Return what a job that drove a fleet returns: all jobs here could have."""
    return msgspec.Raw(msgspec.json.encode(finished()))


def _look(world: World, job_id: str) -> JobView:
    return cast(JobView, world.run(world.parts.runtime.jobs.get(job_id)))


async def _pieces(content: bytes) -> AsyncIterator[bytes]:
    yield content
