"""A worker in trouble, and what its supervisor makes of it: a real store, and a port that fails."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec
import pytest
from tests.waiting import PATIENCE_S
from tests.worker.conftest import QUICK, Start, Worker

from interlock.errors import InvalidWorker
from interlock.store.records import Query
from interlock.systems.embedded import EmbeddedOrchestrator
from interlock.systems.orchestrator.waiters import waker
from interlock.systems.settings import Settings
from interlock.wire.jobs import JobSpec
from interlock.wire.runner import ClaimRequest, Grant
from interlock.wire.workers import WorkerSpec, WorkerView
from interlock.worker.tasks import Registry

ONE = msgspec.Raw(b'{"value": 1}')


class Ailing(EmbeddedOrchestrator):
    """A port whose claims meet whatever is in its list, one after the other."""

    ails: list[Exception]
    knows_tasks: bool = True

    async def register(self, spec: WorkerSpec) -> str:
        """A server of an earlier version refuses a registration with tasks."""
        if spec.tasks is not None and not self.knows_tasks:
            raise InvalidWorker("Object contains unknown field `tasks`.")
        return await super().register(spec)

    async def claim(self, request: ClaimRequest) -> list[Grant]:
        """Work, unless something is wrong."""
        if self.ails:
            raise self.ails.pop(0)
        return await super().claim(request)


class Place:
    """A store, somebody who looks at it, and a worker on it."""

    def __init__(self, url: str, looking: EmbeddedOrchestrator, ails: list[Exception]) -> None:
        self.url = url
        self.looking = looking
        self.ails = ails
        self.worker: Worker | None = None
        self.knows_tasks = True

    def connect(self) -> Ailing:
        port = Ailing(self.url, settings=self.looking.settings)
        port.knows_tasks = self.knows_tasks
        port.ails = self.ails
        return port

    async def until(self, holds: Callable[[WorkerView], bool]) -> WorkerView:
        """The newest life in the books, once something is true of it."""
        here, news = self.looking.services, asyncio.Event()
        stop = here.store.subscribe(waker(news))
        seen: list[WorkerView] = []
        try:
            async with asyncio.timeout(PATIENCE_S):
                while not (seen and holds(seen[0])):
                    seen, _ = await here.workers.find(Query(kind="worker"))
                    if not (seen and holds(seen[0])):
                        await news.wait()
                        news.clear()
        except TimeoutError:
            raise AssertionError(f"it never was so; the last was {seen[:1]}") from None
        finally:
            stop()
        return seen[0]

    async def ails_with(self, error: Exception, holds: Callable[[WorkerView], bool]) -> WorkerView:
        """Let the next claim fail; what the books say of it."""
        self.ails.append(error)
        await self.looking.services.jobs.submit(JobSpec(task="echo", input=ONE), actor="t")
        return await self.until(holds)


@pytest.fixture
async def place(tmp_path: Path, start: Start, echo: str) -> AsyncIterator[Place]:
    """A worker that has had a task."""
    durations = msgspec.structs.replace(QUICK, worker_beat_every_s=0.1)
    url = f"sqlite:///{tmp_path}/interlock.db"
    looking = EmbeddedOrchestrator(url, settings=Settings(durations=durations))
    await looking.connect()
    place = Place(url, looking, [])
    place.worker = start(connect=place.connect, durations=durations, stop_grace_s=0.2)
    await looking.services.jobs.submit(JobSpec(task=echo, input=ONE), actor="t")
    await place.until(lambda view: view.state == "RUNNING")
    yield place
    await place.worker.stop()
    await looking.disconnect()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EMFILE, errno.ENOMEM])
async def test_a_worker_that_has_exhausted_a_resource_is_paused_until_an_operator_resumes_it(
    place: Place, number: int
) -> None:
    held = await place.ails_with(OSError(number, "there is no more"), lambda view: view.state == "PAUSED")
    assert "there is no more" in held.reason
    assert held.give_back
    await place.until(lambda view: view.heeded)
    jobs = place.looking.services.jobs
    job_id = await jobs.submit(JobSpec(task="echo", input=ONE), actor="t")
    assert (await jobs.get(job_id)).state == "PENDING", "it takes nothing"
    await place.looking.services.workers.resume(held.id, reason="there is room again")
    await place.until(lambda view: view.processed == 3)
    assert (await jobs.get(job_id)).state == "COMPLETED"


async def test_pausing_a_worker_with_give_back_stops_a_handler_that_ignores_the_stop_request(
    place: Place, registry: Registry
) -> None:
    """It was only told, so that it went on for as long as it liked, and its lease was kept alive."""
    began = asyncio.Event()

    @registry.task(name="deaf")
    async def deaf() -> None:
        began.set()
        await asyncio.Event().wait()

    here = place.looking.services
    job_id = await here.jobs.submit(JobSpec(task="deaf"), actor="t")
    async with asyncio.timeout(PATIENCE_S):
        await began.wait()
    held = await here.workers.pause((await place.until(lambda _: True)).id, give_back=True)
    await place.until(lambda view: view.heeded)
    job = await here.jobs.get(job_id)
    assert ([one.state for one in job.attempts], job.losses) == (["STALE", "QUEUED"], 0)
    assert held.state == "PAUSED"


async def test_a_transient_error_is_tried_again_three_times_and_the_fourth_ends_the_worker(
    place: Place,
) -> None:
    for tries in (1, 2, 3):
        still = await place.ails_with(
            RuntimeError("the network"),
            lambda view, n=tries: view.transient_errors == n,  # type: ignore[misc]
        )
        assert still.state == "RUNNING"
    ended = await place.ails_with(RuntimeError("the network"), lambda view: view.state == "FAILED")
    assert (ended.outcome, ended.completed_at is not None) == ("FAILED", True)
    assert place.worker is not None
    async with asyncio.timeout(PATIENCE_S):
        await place.worker.running
    history = await place.looking.services.workers.history(ended.id)
    events = [step.event for entry in history for step in entry.note.steps]
    assert [event for event in events if event != "heartbeat"] == ["start_task", *["error_transient"] * 4]


@pytest.mark.parametrize("knows_tasks", [True, False])
async def test_a_worker_registers_with_its_tasks_where_they_are_understood(
    place: Place, knows_tasks: bool, start: Start
) -> None:
    place.knows_tasks = knows_tasks
    worker = start(connect=place.connect, name="other")
    found = await place.until(lambda view: view.name == "other")
    view = await place.looking.services.workers.get(found.id)
    assert view.tasks == (("echo", "interlock.shell") if knows_tasks else None)
    assert await worker.stop() == 0
