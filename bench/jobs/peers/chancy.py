"""Chancy: psycopg 3, the async executor, eager polling, outcomes written back as soon as there are some."""
# mypy: disable-error-code="import-not-found"

from __future__ import annotations

import asyncio
import logging

import chancy
import psycopg

from bench.jobs.peers.adapter import Adapter, concurrency_here, own_worker
from bench.jobs.peers.handler import tick, touch

_QUEUE = "bench"
_BULK = 1_000
_WRITTEN_BACK_EVERY_S = 0.02
_COUNT = "SELECT count(*) FROM chancy_jobs WHERE (state = 'succeeded') = %s"


class Contender(Adapter):
    """Every job keeps its row, with its state."""

    concurrency = 3_000

    async def open(self) -> None:
        """See `Adapter`."""
        self._connection = psycopg.connect(self.url, autocommit=True)
        self._chancy = chancy.Chancy(self.url)
        await self._chancy.pool.open()
        await self._chancy.migrate()

    async def close(self) -> None:
        """See `Adapter`."""
        await self._chancy.pool.close()
        self._connection.close()

    async def submit_one(self, number: int) -> None:
        """See `Adapter`."""
        await self._chancy.push(TICK.job.with_kwargs(number=number))

    async def submit_bulk(self, numbers: range) -> None:
        """See `Adapter`."""
        jobs = [TICK.job.with_kwargs(number=number) for number in numbers]
        async for _ in self._chancy.push_many(jobs, batch_size=_BULK):
            pass

    async def submit_touch(self, number: int) -> None:
        """See `Adapter`."""
        await self._chancy.push(TOUCH.job.with_kwargs(number=number))

    async def done(self, jobs: int) -> int:  # noqa: ARG002
        """See `Adapter`."""
        return self._count(succeeded=True)

    async def left(self) -> int:
        """See `Adapter`."""
        return self._count(succeeded=False)

    def _count(self, *, succeeded: bool) -> int:
        row = self._connection.execute(_COUNT, (succeeded,)).fetchone()
        assert row is not None
        return int(row[0])

    def worker(self, name: str) -> list[str]:
        """See `Adapter`."""
        return own_worker("chancy", name)


def work(_: str) -> None:
    """A worker as its documentation starts one."""
    asyncio.run(_work())


async def _work() -> None:
    async with chancy.Chancy(Contender().url) as app:
        app.log.setLevel(logging.WARNING)
        queue = chancy.Queue(
            _QUEUE,
            concurrency=concurrency_here(),
            executor=chancy.Chancy.Executor.Async,
            polling_interval=1,
            eager_polling=True,
        )
        await app.declare(queue, upsert=True)
        worker = chancy.Worker(app)
        worker.send_outgoing_interval = _WRITTEN_BACK_EVERY_S
        async with worker:
            await worker.wait_for_shutdown()


async def tick_job(*, number: int) -> None:
    """Found by its name, so it has to be public."""
    tick(number)


async def touch_job(*, number: int) -> None:
    """The same."""
    touch(number)


TICK = chancy.job(queue=_QUEUE)(tick_job)
TOUCH = chancy.job(queue=_QUEUE)(touch_job)
