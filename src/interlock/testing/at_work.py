"""An Interlock with a worker for tests of your own tasks: real, private and temporary.

    async def test_it_doubles() -> None:
        async with at_work() as il:
            job = await il.submit(double, 21)
            assert await job.result(timeout_s=5) == 42

The worker runs in the test's own event loop, so that a debugger and `monkeypatch` work. The store is
SQLite in a temporary directory, with the same rules as in production.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from interlock.client import Interlock
from interlock.lifecycles.durations import Durations
from interlock.systems.embedded import EmbeddedOrchestrator
from interlock.systems.settings import Settings
from interlock.worker.process import WorkerProcess
from interlock.worker.settings import WorkerSettings, stop_grace_s
from interlock.worker.tasks import DEFAULT, Registry
from interlock.worker.telemetry import make_log

QUICK = Durations(
    heartbeat_every_s=0.5,
    sweep_every_s=0.2,
    backoff_cap_s=0.2,
    ack_window_s=60.0,
    lease_ttl_s=90.0,
    abort_warning_s=15.0,
    abort_kill_s=30.0,
    cancel_deadline_s=45.0,
    shutdown_soft_s=30.0,
    shutdown_deadline_s=60.0,
)
"""The worker polls often, and no deadline passes while a slow machine pauses."""
STOP_GRACE_S = 1.0


@asynccontextmanager
async def at_work(
    registry: Registry = DEFAULT,
    *,
    settings: Settings | None = None,
    queues: tuple[str, ...] = ("default",),
    labels: tuple[str, ...] = (),
    concurrency: int = 10,
) -> AsyncIterator[Interlock]:
    """Yield an Interlock whose worker has the tasks of `registry`.

    By default these are all declared tasks.
    """
    durations = QUICK if settings is None else settings.durations
    grace_s = STOP_GRACE_S if settings is None else stop_grace_s(durations)
    settings = settings or Settings(durations=QUICK)
    # A worker abandons connections that do not close soon. One that still writes must not fail the test.
    with tempfile.TemporaryDirectory(prefix="interlock-test-", ignore_cleanup_errors=True) as folder:
        url = f"sqlite:///{folder}/interlock.db"
        process = WorkerProcess(
            WorkerSettings(
                name="test",
                queues=queues,
                labels=labels,
                concurrency=concurrency,
                durations=durations,
                stop_grace_s=grace_s,
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
                process.shutdown.hurry()  # tasks in progress are discarded together with the store
                await asyncio.wait([running])
        running.result()  # raise the error of a worker that could not run
