"""What is real at a place: a job, its lease, and what stands beside them, as far along as the job."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any

import msgspec
from tests.server.fuzzing import beside
from tests.server.fuzzing.jobs import LEASED, READY, RUNNER, hold
from tests.server.fuzzing.world import World
from tests.server.loads import finished

from interlock.systems.fleet.spec import TASK
from interlock.systems.fleet.workloads import workload_id_of
from interlock.systems.quarantine import LostWork
from interlock.wire.runner import Grant
from interlock.wire.workloads import Happened, WorkloadFact

UNLUCKY = "runner-8"
"""A runner that has lost something, so that there is something to lift."""
ARTIFACT = "report"
SAVED = "deps-1"
"""The key of something that was saved for later."""
PERIOD = {"since": "2020-01-01", "until": "2020-01-04"}
"""A period that can be backfilled; of a job without a lease the period stays as it was made up."""
MAKERS: dict[str, Callable[[World, str], str]] = {
    "run_id": beside.evaluate,
    "worker_id": beside.hire,
    "token_name": beside.issue,
    "session_id": beside.sign_in,
    "approval_id": beside.ask,
    "batch_id": beside.gather,
    "letter_id": beside.bury,
    "schedule_name": beside.schedule,
    "limit_name": beside.restrict,
}
"""What is made when a request names it."""


class Real(Mapping[str, str]):
    """The values of one job, its lease and the journal; what is costly is made on demand."""

    def __init__(self, world: World, job_id: str, grant: Grant | None = None) -> None:
        self._made: dict[str, str] = {
            **dict.fromkeys(("job_id", "job", "parent", "id", "record_id"), job_id),
            "kind": "job",
            "name": "job",
            "attempt_id": f"{job_id}.1.1",
            "attempt": "1.1",
            "runner_id": RUNNER,
            "after": world.run(world.parts.store.latest()),
            "q": f"queue:{READY if grant is None else LEASED}",
            "filter": f"id:{job_id}",
            "task": TASK,
            "artifact": ARTIFACT,
            "key": SAVED,
            "runner": UNLUCKY,
        }
        self._makers: dict[str, Callable[[], str]] = {
            name: functools.partial(make, world, job_id) for name, make in MAKERS.items()
        }
        if grant is not None:
            self._made |= {"token": grant.token, "workload_id": load_of(grant).workload_id, **PERIOD}

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


def lease(world: World) -> Grant:
    """Lease a job; its attempt has an artifact, a cache entry and a workload, and another runner lost one."""
    grant, here = hold(world), world.parts.runtime
    lost = LostWork(runner=UNLUCKY, job_id=grant.job_id, attempt="1.1")
    attached: dict[str, Callable[[], Any]] = {
        "artifacts": lambda: here.artifacts.keep(grant.token, RUNNER, ARTIFACT, _pieces(b"well")),
        "caches": lambda: here.caches.keep(grant.token, RUNNER, SAVED, _pieces(b"wheels")),
        "workloads": lambda: here.workloads.apply([load_of(grant)]),
        "quarantine": lambda: here.quarantine.count([lost]),
    }
    for word, make in attached.items():
        if not world.about or word in world.about:
            world.run(make())
    return grant


def load_of(grant: Grant) -> WorkloadFact:
    """What the job drives on an agent: all jobs here could drive a fleet."""
    name = workload_id_of(grant.job_id, grant.fence, 0)
    return WorkloadFact(workload_id=name, job_id=grant.job_id, happened=Happened.READY, kind="sleep")


@functools.cache
def measured() -> msgspec.Raw:
    """Return what a job that drove a fleet returns: all jobs here could have."""
    return msgspec.Raw(msgspec.json.encode(finished()))


async def _pieces(content: bytes) -> AsyncIterator[bytes]:
    yield content
