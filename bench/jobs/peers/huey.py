"""Huey on Redis or SQLite: threads, and results kept, for else the store would not know what is done."""
# mypy: disable-error-code="import-not-found"

from __future__ import annotations

import os
from typing import Any

import huey

from bench.jobs.peers.adapter import URL, Adapter, concurrency_here, program
from bench.jobs.peers.handler import tick, touch

_NAME = "bench"


class Contender(Adapter):
    """A job leaves the queue when it begins; its result stays."""

    bulk = False

    async def open(self) -> None:
        """See `Adapter`."""
        self.concurrency = 2 if _on_sqlite() else 1

    async def submit_one(self, number: int) -> None:
        """See `Adapter`."""
        TICK(number)

    async def submit_touch(self, number: int) -> None:
        """See `Adapter`."""
        TOUCH(number)

    async def done(self, jobs: int) -> int:  # noqa: ARG002
        """See `Adapter`."""
        return int(HUEY.result_count())

    async def left(self) -> int:
        """See `Adapter`."""
        return int(HUEY.pending_count())

    def worker(self, name: str) -> list[str]:  # noqa: ARG002
        """See `Adapter`; where it has to poll, it does so often."""
        often = ("--delay", "0.005", "--max-delay", "0.05", "--backoff", "1.1")
        few = ("--workers", str(concurrency_here()), "--worker-type", "thread")
        return program("huey_consumer", f"{__name__}.HUEY", *few, *often, "--no-periodic", "--quiet")


def _on_sqlite() -> bool:
    return os.environ[URL].startswith("sqlite:")


def _huey() -> Any:
    """On SQLite with WAL and every commit flushed, as the other contenders have it."""
    url = os.environ[URL]
    if not _on_sqlite():
        return huey.RedisHuey(_NAME, url=url, store_none=True)
    return huey.SqliteHuey(
        _NAME, filename=url.removeprefix("sqlite:///"), store_none=True, fsync=True, timeout=60
    )


HUEY = _huey()
TICK = HUEY.task(name="tick")(tick)
TOUCH = HUEY.task(name="touch")(touch)
