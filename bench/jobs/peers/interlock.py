"""Interlock itself: its client submits, and its worker process executes async tasks."""

from __future__ import annotations

import sys

from bench.jobs.peers.adapter import Adapter, batches, concurrency_here, own_worker
from bench.jobs.peers.handler import tick, touch
from interlock.client import Interlock
from interlock.lifecycles import job
from interlock.store.records import Query
from interlock.systems.embedded import EmbeddedOrchestrator
from interlock.worker.entry import run_worker
from interlock.worker.settings import WorkerSettings
from interlock.worker.tasks import Registry

TASKS = Registry()
_BULK = 5_000
_EVERYTHING = 1_000_000_000
_DONE = str(job.COMPLETED)
_NOT_DONE = tuple(str(state) for state in job.JOB.states if state != job.COMPLETED)


@TASKS.task(name="tick")
async def tick_job(number: int) -> None:
    """See `handler.tick`."""
    tick(number)


@TASKS.task(name="touch")
async def touch_job(number: int) -> None:
    """See `handler.touch`."""
    touch(number)


class Contender(Adapter):
    """Every job keeps its record, with its attempts, and its journal."""

    concurrency = 500

    async def open(self) -> None:
        """See `Adapter`."""
        self._interlock = Interlock(self.url)
        await self._interlock.open()

    async def close(self) -> None:
        """See `Adapter`."""
        await self._interlock.close()

    async def submit_one(self, number: int) -> None:
        """See `Adapter`."""
        await self._interlock.submit(tick_job, number)

    async def submit_bulk(self, numbers: range) -> None:
        """See `Adapter`."""
        for some in batches(numbers, _BULK):
            await self._interlock.submit_many([tick_job.spec(number) for number in some])

    async def submit_touch(self, number: int) -> None:
        """See `Adapter`."""
        await self._interlock.submit(touch_job, number)

    async def done(self, jobs: int) -> int:  # noqa: ARG002
        """See `Adapter`."""
        return await self._count(_DONE)

    async def left(self) -> int:
        """See `Adapter`."""
        return await self._count(*_NOT_DONE)

    async def _count(self, *states: str) -> int:
        query = Query(kind=job.JOB.name, states=states)
        return (await self._interlock.services.store.count(query, cap=_EVERYTHING)).number

    def worker(self, name: str) -> list[str]:
        """See `Adapter`."""
        return own_worker("interlock", name)


def work(name: str) -> None:
    """What `interlock worker start` does."""
    url, concurrency = Contender().url, concurrency_here()
    settings = WorkerSettings(name=name, concurrency=concurrency, log_level="warning")
    sys.exit(run_worker(settings, TASKS, lambda: EmbeddedOrchestrator(url)))
