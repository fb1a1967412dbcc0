"""Dramatiq on Redis: one process with 32 threads, no results kept (its default)."""
# mypy: disable-error-code="import-not-found"

from __future__ import annotations

import os

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from bench.jobs.peers.adapter import URL, Adapter, concurrency_here, python
from bench.jobs.peers.handler import tick, touch

_MESSAGES = "dramatiq:default.msgs"


class Contender(Adapter):
    """A message is removed when it was acknowledged; nothing else is kept of it."""

    bulk = False
    concurrency = 32

    async def submit_one(self, number: int) -> None:
        """See `Adapter`."""
        TICK.send(number)

    async def submit_touch(self, number: int) -> None:
        """See `Adapter`."""
        TOUCH.send(number)

    async def done(self, jobs: int) -> int:
        """See `Adapter`."""
        return jobs - await self.left()

    async def left(self) -> int:
        """See `Adapter`."""
        return int(BROKER.client.hlen(_MESSAGES))

    async def close(self) -> None:
        """See `Adapter`."""
        BROKER.close()

    def worker(self, name: str) -> list[str]:  # noqa: ARG002
        """See `Adapter`."""
        return python("-m", "dramatiq", __name__, "--processes", "1", "--threads", str(concurrency_here()))


BROKER = RedisBroker(url=os.environ[URL])
dramatiq.set_broker(BROKER)
TICK = dramatiq.actor(tick, actor_name="tick")
TOUCH = dramatiq.actor(touch, actor_name="touch")
