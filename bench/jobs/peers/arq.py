"""Arq on Redis: uvloop, hiredis, polled a hundred times a second."""
# mypy: disable-error-code="import-not-found"

from __future__ import annotations

import logging
from typing import Any

import arq
import uvloop
from arq.connections import RedisSettings
from arq.worker import func, run_worker

from bench.jobs.peers.adapter import Adapter, concurrency_here, own_worker
from bench.jobs.peers.handler import tick, touch

_QUEUE, _RESULTS = "arq:queue", "arq:result:*"
_POLLED_EVERY_S = 0.01


class Contender(Adapter):
    """A job leaves the queue in the transaction that stores its result."""

    bulk = False
    concurrency = 50

    async def open(self) -> None:
        """See `Adapter`."""
        self._redis = await arq.create_pool(RedisSettings.from_dsn(self.url))

    async def close(self) -> None:
        """See `Adapter`."""
        await self._redis.aclose()

    async def submit_one(self, number: int) -> None:
        """See `Adapter`."""
        await self._redis.enqueue_job("tick", number)

    async def submit_touch(self, number: int) -> None:
        """See `Adapter`."""
        await self._redis.enqueue_job("touch", number)

    async def done(self, jobs: int) -> int:
        """Counting what is left is quicker; the results are counted when nothing is."""
        left = await self.left()
        return jobs - left if left else len([key async for key in self._redis.scan_iter(_RESULTS, 5_000)])

    async def left(self) -> int:
        """See `Adapter`."""
        return int(await self._redis.zcard(_QUEUE))

    def worker(self, name: str) -> list[str]:
        """See `Adapter`."""
        return own_worker("arq", name)


async def _tick(_: dict[str, Any], number: int) -> None:
    tick(number)


async def _touch(_: dict[str, Any], number: int) -> None:
    touch(number)


def work(_: str) -> None:
    """What the command `arq` does, on uvloop."""
    uvloop.install()
    logging.disable(logging.INFO)
    run_worker(
        {
            "functions": [func(_tick, name="tick"), func(_touch, name="touch")],
            "redis_settings": RedisSettings.from_dsn(Contender().url),
            "max_jobs": concurrency_here(),
            "poll_delay": _POLLED_EVERY_S,
        }
    )
