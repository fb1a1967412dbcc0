"""Taskiq on Redis: the acknowledged stream broker, results kept in Redis, uvloop."""
# mypy: disable-error-code="import-not-found"

from __future__ import annotations

import os

import redis
from taskiq_redis import RedisAsyncResultBackend, RedisStreamBroker

from bench.jobs.peers.adapter import URL, Adapter, concurrency_here, program
from bench.jobs.peers.handler import tick, touch

_STREAM = _GROUP = "taskiq"
_READ_AT_ONCE = 100
_KEPT_S = 3_600


class Contender(Adapter):
    """A result is stored for each job, then its message is acknowledged."""

    bulk = False
    concurrency = 10

    async def open(self) -> None:
        """See `Adapter`."""
        self._queue, self._results = redis.Redis.from_url(self.url), redis.Redis.from_url(_results_url())
        await BROKER.startup()

    async def close(self) -> None:
        """See `Adapter`."""
        await BROKER.shutdown()
        self._queue.close()
        self._results.close()

    async def submit_one(self, number: int) -> None:
        """See `Adapter`."""
        await TICK.kiq(number)

    async def submit_touch(self, number: int) -> None:
        """See `Adapter`."""
        await TOUCH.kiq(number)

    async def done(self, jobs: int) -> int:
        """What has a result; of the last ones only those that are acknowledged as well."""
        results = int(self._results.dbsize())
        return results if results < jobs else results - await self.left()

    async def left(self) -> int:
        """See `Adapter`."""
        return int(self._queue.xpending(_STREAM, _GROUP)["pending"])

    def worker(self, name: str) -> list[str]:  # noqa: ARG002
        """See `Adapter`."""
        at_once = str(concurrency_here())
        limits = ("--workers", "1", "--max-async-tasks", at_once, "--max-prefetch", at_once)
        return program(
            "taskiq", "worker", f"{__name__}:BROKER", *limits, "--no-parse", "--log-level", "WARNING"
        )


def _results_url() -> str:
    return os.environ[URL].removesuffix("/0") + "/1"


async def _tick(number: int) -> None:
    tick(number)


async def _touch(number: int) -> None:
    touch(number)


BROKER = RedisStreamBroker(
    os.environ[URL],
    queue_name=_STREAM,
    consumer_group_name=_GROUP,
    consumer_id="0",
    xread_count=_READ_AT_ONCE,
).with_result_backend(RedisAsyncResultBackend(_results_url(), result_ex_time=_KEPT_S))
TICK = BROKER.register_task(_tick, task_name="tick")
TOUCH = BROKER.register_task(_touch, task_name="touch")
