"""An Interlock with a worker, for the tests of one's own tasks: real, private, and gone afterwards.

    async def test_it_doubles() -> None:
        async with at_work() as il:
            job = await il.submit(double, 21)
            assert await job.result(timeout_s=5) == 42

The worker runs in the test's own event loop, so that a debugger and `monkeypatch` work. The store is
SQLite in a temporary folder: the real thing, with the same rules.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from interlock.client import Interlock
from interlock.lifecycles.durations import Durations
from interlock.systems.embedded import EmbeddedOrchestrator
from interlock.systems.orchestrator.settings import OrchestratorSettings
from interlock.worker.logs import make_log
from interlock.worker.process import WorkerProcess
from interlock.worker.settings import WorkerSettings
from interlock.worker.tasks import DEFAULT, Registry

QUICK = Durations(
    ack_window_s=2.0,
    lease_ttl_s=3.0,
    heartbeat_every_s=0.5,
    sweep_every_s=0.2,
    cancel_deadline_s=1.5,
    shutdown_soft_s=0.5,
    shutdown_deadline_s=2.0,
    abort_warning_s=0.5,
    abort_kill_s=1.0,
    backoff_cap_s=0.2,
)
"""Everything that waits, waits briefly."""


@asynccontextmanager
async def at_work(
    registry: Registry = DEFAULT,
    *,
    settings: OrchestratorSettings | None = None,
    queues: tuple[str, ...] = ("default",),
    labels: tuple[str, ...] = (),
    concurrency: int = 10,
) -> AsyncIterator[Interlock]:
    """An Interlock whose worker knows the tasks of `registry`; by default all that were declared."""
    settings = settings or OrchestratorSettings(durations=QUICK)
    with tempfile.TemporaryDirectory(prefix="interlock-test-") as folder:
        url = f"sqlite:///{folder}/interlock.db"
        process = WorkerProcess(
            WorkerSettings(
                name="test",
                queues=queues,
                labels=labels,
                concurrency=concurrency,
                durations=settings.durations,
                log_level="warning",
            ),
            registry,
            lambda: EmbeddedOrchestrator(url, settings=settings),
            incarnation="0",
            log=make_log("warning", "text"),
        )
        async with Interlock(url, settings=settings, actor="test") as il:
            running = asyncio.create_task(process.run(), name="worker of a test")
            try:
                yield il
            finally:
                process.shutdown.request()
                await asyncio.wait([running])
        running.result()  # a worker that could not run should not go unnoticed
