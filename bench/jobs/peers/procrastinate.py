"""Procrastinate: psycopg 3; the client on the sync connector and the worker on the async one, its fastest."""
# mypy: disable-error-code="import-not-found"

from __future__ import annotations

import os

import procrastinate
import psycopg

from bench.jobs.peers.adapter import CONCURRENCY, URL, Adapter, batches, concurrency_here, python
from bench.jobs.peers.handler import tick, touch

_BULK = 1_000
_COUNT = "SELECT count(*) FROM procrastinate_jobs WHERE (status = 'succeeded') = %s"


class Contender(Adapter):
    """Every job keeps its row, and its events have theirs."""

    concurrency = 10

    async def open(self) -> None:
        """See `Adapter`."""
        self._connection = psycopg.connect(self.url, autocommit=True)
        self._app = procrastinate.App(connector=procrastinate.SyncPsycopgConnector(conninfo=self.url))
        self._app.open()
        self._app.schema_manager.apply_schema()
        self._tick = self._app.configure_task("tick")
        self._touch = self._app.configure_task("touch")

    async def close(self) -> None:
        """See `Adapter`."""
        self._app.close()
        self._connection.close()

    async def submit_one(self, number: int) -> None:
        """See `Adapter`."""
        self._tick.defer(number=number)

    async def submit_bulk(self, numbers: range) -> None:
        """See `Adapter`."""
        for some in batches(numbers, _BULK):
            self._tick.batch_defer(*({"number": number} for number in some))

    async def submit_touch(self, number: int) -> None:
        """See `Adapter`."""
        self._touch.defer(number=number)

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

    def worker(self, name: str) -> list[str]:  # noqa: ARG002
        """See `Adapter`."""
        words = ("--app", f"{__name__}.APP", "worker", "--concurrency", str(concurrency_here()))
        return python("-m", "procrastinate", *words)


async def _tick(number: int) -> None:
    tick(number)


async def _touch(number: int) -> None:
    touch(number)


APP = procrastinate.App(
    connector=procrastinate.PsycopgConnector(
        conninfo=os.environ[URL], min_size=2, max_size=int(os.environ.get(CONCURRENCY, "10")) + 2
    )
)
APP.task(_tick, name="tick")
APP.task(_touch, name="touch")
