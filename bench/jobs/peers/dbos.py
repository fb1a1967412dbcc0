"""DBOS Transact: a job is a workflow without steps; queues are polled a hundred times a second."""
# mypy: disable-error-code="import-not-found"

from __future__ import annotations

import os
import signal

import sqlalchemy
from dbos import DBOS, DBOSClient

from bench.jobs.peers.adapter import Adapter, batches, concurrency_here, own_worker
from bench.jobs.peers.handler import GATE, opened, tick, touch

_QUEUE = "bench"
_BULK = 1_000
_THREADS, _CONNECTIONS = 16, 20
_POLLED_EVERY_S = 0.01


class Contender(Adapter):
    """Every job keeps its row, with its status."""

    concurrency = 1_000

    async def open(self) -> None:
        """An application that is launched makes the tables."""
        self._app("prepare")
        DBOS.launch()
        DBOS.destroy()
        self._client = DBOSClient(system_database_url=self.url)
        self._engine = sqlalchemy.create_engine(self.url.replace("postgresql:", "postgresql+psycopg:"))
        if self._on_sqlite:
            self.concurrency = 200

    @property
    def _on_sqlite(self) -> bool:
        return self.url.startswith("sqlite:")

    def _app(self, name: str) -> None:
        DBOS(
            config={
                "name": "bench",
                "system_database_url": self.url,
                "log_level": "WARNING",
                "application_version": "1",
                "executor_id": name,
                "max_executor_threads": _THREADS,
                "sys_db_pool_size": _CONNECTIONS,
            }
        )

    async def close(self) -> None:
        """See `Adapter`."""
        self._client.destroy()
        self._engine.dispose()

    async def submit_one(self, number: int) -> None:
        """See `Adapter`."""
        self._client.enqueue({"workflow_name": "tick", "queue_name": _QUEUE}, number)

    async def submit_bulk(self, numbers: range) -> None:
        """Many in one transaction, which is what it has for that."""
        options = {"workflow_name": "tick", "queue_name": _QUEUE}
        for some in batches(numbers, _BULK):
            with self._engine.begin() as connection:
                for number in some:
                    self._client.enqueue_in_transaction(connection, options, number)

    async def submit_touch(self, number: int) -> None:
        """See `Adapter`."""
        self._client.enqueue({"workflow_name": "touch", "queue_name": _QUEUE}, number)

    async def done(self, jobs: int) -> int:  # noqa: ARG002
        """See `Adapter`."""
        return self._count("status = 'SUCCESS'")

    async def left(self) -> int:
        """See `Adapter`."""
        return self._count("status <> 'SUCCESS'")

    def _count(self, condition: str) -> int:
        table = "workflow_status" if self._on_sqlite else "dbos.workflow_status"
        with self._engine.connect() as connection:
            sql = f"SELECT count(*) FROM {table} WHERE {condition}"
            return int(connection.exec_driver_sql(sql).scalar() or 0)

    def worker(self, name: str) -> list[str]:
        """See `Adapter`."""
        return own_worker("dbos", name)

    def work(self, name: str) -> None:
        """An application that listens to the queue until it is ended."""
        self._app(name)
        DBOS.workflow(name="tick")(tick)
        DBOS.workflow(name="touch")(touch)
        DBOS.launch()
        gated = GATE in os.environ
        queue = DBOS.register_queue(
            _QUEUE,
            # What waits for a thread does not count for it, so it would claim everything at the gate.
            worker_concurrency=1 if gated else concurrency_here(),
            polling_interval_sec=_POLLED_EVERY_S,
            on_conflict="always_update",
        )
        if gated:
            opened.wait()
            queue.set_worker_concurrency(concurrency_here())
        signal.pause()


def work(name: str) -> None:
    """See `Contender.work`."""
    Contender().work(name)
