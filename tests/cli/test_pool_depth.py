"""A supervisor counts the jobs that its workers could execute, and no others."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.server.running import Running, running
from tests.waiting import until

from interlock.cli import project
from interlock.cli.nouns import worker_start
from interlock.cli.nouns.worker_start import Depth
from interlock.wire.jobs import After, JobSpec, JobView
from interlock.wire.limits import LimitSpec

pytestmark = pytest.mark.parametrize("over_http", [False, True])


@asynccontextmanager
async def seen(
    folder: Path, monkeypatch: pytest.MonkeyPatch, *, over_http: bool, **options: Any
) -> AsyncIterator[tuple[Running, Depth]]:
    monkeypatch.chdir(folder)  # no project file is found from here
    url = f"sqlite:///{folder}/jobs.db"
    async with running(url) as server:
        depth = Depth(project.load(server.url if over_http else url), ("mail",), **options)
        yield server, depth
        await depth.close()


async def submit(server: Running, number: int, **words: Any) -> list[str]:
    specs = [JobSpec(task="work", queue="mail", **words) for _ in range(number)]
    return [await server.parts.runtime.jobs.submit(spec, actor="test") for spec in specs]


async def test_the_pool_supervisor_does_not_count_jobs_that_wait_for_a_slot_of_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, over_http: bool
) -> None:
    async with seen(tmp_path, monkeypatch, over_http=over_http) as (server, depth):
        await server.parts.runtime.limits.set("printer", LimitSpec(max=2), actor="test")
        jobs = await submit(server, 7, limits=("printer",))

        async def admitted() -> bool:
            return sum(view.ready_at is not None for view in await views()) == 2

        async def views() -> list[JobView]:
            return [await server.parts.runtime.jobs.get(job) for job in jobs]

        await until(admitted, "two have a slot")
        assert await depth.look() == 2, "the others could not start on any worker"
        await submit(server, 3)
        assert await depth.look() == 5


async def test_the_pool_supervisor_does_not_count_jobs_that_wait_for_predecessors_or_a_delay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, over_http: bool
) -> None:
    async with seen(tmp_path, monkeypatch, over_http=over_http) as (server, depth):
        [first] = await submit(server, 1)
        await submit(server, 2, after=After(jobs=(first,)))
        await submit(server, 2, delay_s=timedelta(days=1).total_seconds())
        assert await depth.look() == 1


async def test_the_supervisor_estimates_startable_jobs_from_a_sample_of_the_newest_waiting_jobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, over_http: bool
) -> None:
    monkeypatch.setattr(worker_start, "PAGE", 4)
    monkeypatch.setattr(worker_start, "PAGES", 2)
    async with seen(tmp_path, monkeypatch, over_http=over_http) as (server, depth):
        await submit(server, 10, delay_s=600.0)
        await submit(server, 4)
        await submit(server, 4, delay_s=600.0)
        assert await depth.look() == 9, "half of the newest eight can start, so half of all"
        await submit(server, 2)
        assert await depth.look() == 10, "the share is used again"


async def test_few_jobs_are_counted_without_looking_and_many_only_up_to_the_largest_pool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, over_http: bool
) -> None:
    monkeypatch.setattr(worker_start, "PAGE", 4)
    async with seen(tmp_path, monkeypatch, over_http=over_http, sizes=(5, 8)) as (server, depth):
        await submit(server, 5, delay_s=600.0)
        assert await depth.look() == 5, "the smallest pool is enough for all"
        await submit(server, 9)
        assert await depth.look() == 14, "the largest pool is not enough, whatever the others wait for"
