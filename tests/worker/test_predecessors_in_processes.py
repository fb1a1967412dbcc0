"""A handler in a process of its own reads what the jobs before it have returned."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from tests.effort import further
from tests.server.running import running
from tests.waiting import PATIENCE_S
from tests.worker import process_tasks
from tests.worker.conftest import Start
from tests.worker.test_artifacts import Place

from interlock.wire.jobs import After, JobSpec
from interlock.worker.tasks import Registry


@pytest.fixture(params=["store", "server"])
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    url = f"sqlite:///{tmp_path}/jobs.db"
    async with running(url) as server:
        yield Place(server, url, request.param)


@pytest.fixture
def registry() -> Registry:
    registry = Registry()
    for name in ("results_before", "results_before_async"):
        registry.add(process_tasks.REGISTRY.get(name))

    @registry.task(name="double")
    async def double(number: int) -> int:
        return 2 * number

    return registry


@pytest.mark.parametrize("task", ["results_before", *further("results_before_async")])
async def test_a_handler_in_a_process_reads_the_results_of_its_predecessors_in_their_order(
    place: Place, start: Start, task: str
) -> None:
    start(connect=place.connect, supervised=False)
    jobs = place.services.jobs
    specs = [JobSpec(task="double", input=msgspec.Raw(b'{"number":%d}' % n)) for n in (3, 1, 2)]
    before = [await jobs.submit(spec, actor="test") for spec in specs]
    after = await jobs.submit(JobSpec(task=task, after=After(jobs=tuple(before))), actor="test")
    async with asyncio.timeout(PATIENCE_S):
        await place.services.waiting.ended(after)
    view = await jobs.get(after)
    assert view.state == "COMPLETED", view.attempts[-1].failure
    assert view.result == msgspec.Raw(b"[6,2,4]")
    alone = await place.done(task)
    assert alone.result == msgspec.Raw(b"[]")
