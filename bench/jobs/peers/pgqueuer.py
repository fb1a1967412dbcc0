"""PgQueuer: asyncpg, uvloop, all tables logged (its default), big batches."""
# mypy: disable-error-code="import-not-found"

from __future__ import annotations

from typing import Any

import asyncpg
import uvloop
from pgqueuer import PgQueuer, Queries
from pgqueuer.db import AsyncpgDriver

from bench.jobs.peers.adapter import Adapter, batches, concurrency_here, own_worker
from bench.jobs.peers.handler import tick, touch

_BULK = 1_000
_DONE = """
    SELECT (SELECT count(*) FROM pgqueuer_log WHERE status = 'successful')
         + (SELECT coalesce(sum(count), 0)::bigint FROM pgqueuer_statistics WHERE status = 'successful')
"""


class Contender(Adapter):
    """A finished job leaves the queue, and a line in the log says how it ended."""

    concurrency = 500

    async def open(self) -> None:
        """See `Adapter`."""
        self._connection = await asyncpg.connect(self.url)
        self._queries = Queries(AsyncpgDriver(self._connection))
        await self._queries.install()

    async def close(self) -> None:
        """See `Adapter`."""
        await self._connection.close()

    async def submit_one(self, number: int) -> None:
        """See `Adapter`."""
        await self._queries.enqueue("tick", b"%d" % number)

    async def submit_bulk(self, numbers: range) -> None:
        """See `Adapter`."""
        for some in batches(numbers, _BULK):
            payloads = [b"%d" % number for number in some]
            await self._queries.enqueue(["tick"] * len(some), payloads, [0] * len(some))

    async def submit_touch(self, number: int) -> None:
        """See `Adapter`."""
        await self._queries.enqueue("touch", b"%d" % number)

    async def done(self, jobs: int) -> int:
        """Counting what is left is quicker; how it ended is looked at when nothing is."""
        left = await self.left()
        return jobs - left if left else int(await self._connection.fetchval(_DONE))

    async def left(self) -> int:
        """See `Adapter`."""
        return int(await self._connection.fetchval("SELECT count(*) FROM pgqueuer"))

    def worker(self, name: str) -> list[str]:
        """See `Adapter`."""
        return own_worker("pgqueuer", name)


def work(_: str) -> None:
    """What `pgq run` does, from Python as the documentation shows."""
    uvloop.run(_work())


async def _work() -> None:
    pool = await asyncpg.create_pool(Contender().url, min_size=2, max_size=5)
    queue = PgQueuer.from_asyncpg_pool(pool)
    queue.entrypoint("tick")(_tick)
    queue.entrypoint("touch")(_touch)
    await queue.run(batch_size=concurrency_here())


async def _tick(job: Any) -> None:
    tick(int(job.payload))


async def _touch(job: Any) -> None:
    touch(int(job.payload))
