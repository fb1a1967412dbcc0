"""The block about completing a job with one's own writes is executed by a worker, on PostgreSQL."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from tests.docs.test_every_block import blocks_of
from tests.waiting import PROGRAM_S

from interlock import Context, Interlock, task
from interlock.systems.embedded import EmbeddedOrchestrator
from interlock.systems.settings import Settings
from interlock.testing.at_work import QUICK, STOP_GRACE_S
from interlock.testing.servers import PostgresServer
from interlock.worker.middleware import NO_MIDDLEWARE
from interlock.worker.process import WorkerProcess
from interlock.worker.settings import WorkerSettings
from interlock.worker.tasks import DEFAULT
from interlock.worker.telemetry import make_log

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "submit-in-your-own-transaction.md"


async def test_the_handler_of_the_page_commits_its_row_and_completes_its_job(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    (block,) = [each.text for each in blocks_of(PAGE) if each.language == "py"]
    monkeypatch.setattr(DEFAULT, "_tasks", {})
    monkeypatch.setattr(DEFAULT, "chain", NO_MIDDLEWARE)
    url, settings = postgres.new_database(), Settings(durations=QUICK)
    async with Interlock(url, settings=settings) as il, asyncpg.create_pool(url, min_size=1) as pool:
        await pool.execute("CREATE TABLE orders (id int PRIMARY KEY, paid boolean NOT NULL)")
        await pool.execute("INSERT INTO orders VALUES (17, false), (18, false)")
        names: dict[str, Any] = {"__name__": "shop", "task": task, "Context": Context, "il": il, "pool": pool}
        exec(compile(block, PAGE.name, "exec", dont_inherit=True), names)
        worker = WorkerProcess(
            WorkerSettings(name="test", durations=QUICK, stop_grace_s=STOP_GRACE_S, log_level="warning"),
            DEFAULT,
            lambda: EmbeddedOrchestrator(url, settings=settings),
            incarnation="0",
            log=make_log("warning", "text"),
        )
        running = asyncio.create_task(worker.run(), name="worker of a test")
        try:
            job = await il.submit(names["charge"], 17)
            assert await job.result(timeout_s=PROGRAM_S) == "order 17 is paid"
            assert [each.state for each in (await job.view()).attempts] == ["SUCCEEDED"]
            paid = await pool.fetch("SELECT id FROM orders WHERE paid")
            assert [row["id"] for row in paid] == [17]
        finally:
            worker.shutdown.hurry()
            await asyncio.wait([running])
