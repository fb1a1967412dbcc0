"""Metrics by queue: what alerts and autoscalers ask, from bounded reads, with a bounded number of series."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import httpx2
import pytest
from tests.server.promql import scrape
from tests.server.running import FOR_EVER_S, Running, running

from interlock.engine.clock import StoreClock
from interlock.errors import StoreUnavailable
from interlock.server import queue_metrics, queues
from interlock.server.queue_metrics import OTHERS, QueueNumbers, numbers_of
from interlock.server.queues import KnownQueues
from interlock.store.memory import MemoryStore
from interlock.store.records import Query
from interlock.systems.figures import figures
from interlock.wire.figures import Figure
from interlock.wire.jobs import JobSpec, QueueView

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)


@pytest.fixture
async def server(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Running]:
    """A server that counts when it is told to, and looks at its queues with every request."""
    monkeypatch.setattr(figures, "EVERY_S", FOR_EVER_S)
    monkeypatch.setattr(queues, "FRESH_S", 0.0)
    async with running() as one:
        one.parts.runtime.figures._spacing = timedelta(seconds=-FOR_EVER_S)
        await one.parts.runtime.figures.round()
        yield one


def jump(server: Running, seconds: float) -> None:
    """Set the clock of the store ahead, and let the server ask for it."""
    server.jump(seconds)
    clock = server.parts.runtime.engine.clock
    assert isinstance(clock, StoreClock)
    clock._read_at = float("-inf")


async def series(client: httpx2.AsyncClient, name: str) -> dict[str, float]:
    """The numbers of a metric by the values of its labels, but for the server's."""
    page = scrape(0.0, (await client.get("/metrics")).text)
    found = page.series.get(name, {})
    return {
        " ".join(value for label, value in sorted(labels) if label not in ("instance", "job")): number
        for labels, number in found.items()
    }


async def test_metrics_report_jobs_slots_and_the_age_of_the_oldest_ready_job_by_queue(
    server: Running, client: httpx2.AsyncClient
) -> None:
    await server.submit(queue="mail")
    jump(server, 40)
    await server.submit(queue="mail")
    await server.submit(queue="later", at=datetime(2100, 1, 1, tzinfo=UTC))
    worker = {"name": "w", "queues": ["mail", "idle"], "capacity": 4}
    assert (await client.post("/api/workers", json=worker)).status_code == 201
    jobs = await series(client, "interlock_queue_jobs")
    assert (jobs["mail PENDING"], jobs["mail RUNNING"], jobs["later PENDING"]) == (2, 0, 1)
    oldest = await series(client, "interlock_queue_oldest_ready_seconds")
    assert oldest["mail"] >= 40
    assert (oldest["later"], oldest["idle"]) == (0, 0)
    assert await series(client, "interlock_queue_slots") == {"idle": 4, "later": 0, "mail": 4}


async def test_a_paused_queue_has_no_job_that_could_be_started(
    server: Running, client: httpx2.AsyncClient
) -> None:
    await server.submit(queue="mail")
    jump(server, 40)
    await client.post("/api/queues/pause", json={"queue": "mail"})
    assert (await series(client, "interlock_queue_oldest_ready_seconds"))["mail"] == 0
    await client.post("/api/queues/resume", json={"queue": "mail"})
    assert (await series(client, "interlock_queue_oldest_ready_seconds"))["mail"] >= 40


async def test_the_oldest_job_of_a_queue_behind_a_long_one_is_found(
    server: Running, client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await server.parts.runtime.jobs.submit_many([JobSpec(task="a.b", queue="bulk")] * (queues.JOBS + 10))
    await server.submit(queue="mail")
    jump(server, 40)
    await server.parts.runtime.figures.round()
    oldest = await series(client, "interlock_queue_oldest_ready_seconds")
    assert oldest["mail"] >= 40
    assert oldest["bulk"] >= 40
    monkeypatch.setattr(queues, "EXAMINED", 5)
    assert "mail" not in await series(client, "interlock_queue_oldest_ready_seconds"), "unknown, not zero"
    assert (await series(client, "interlock_queue_jobs"))["mail PENDING"] == 1


async def test_a_scrape_counts_no_table_by_queue_and_reads_few_jobs(
    server: Running, client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    for queue in ("a", "b", "c"):
        specs = [JobSpec(task="a.b", queue=queue)] * 300
        await server.parts.runtime.jobs.submit_many(specs)
    await server.parts.runtime.figures.round()
    read = 0
    find = MemoryStore.find

    async def counting(store: MemoryStore, query: Query) -> object:
        nonlocal read
        page = await find(store, query)
        read += len(page.records)
        return page

    monkeypatch.setattr(MemoryStore, "find", counting)
    assert (await series(client, "interlock_queue_jobs"))["c PENDING"] == 300
    assert read <= queues.JOBS + 2 * queues.FIRST + queues.WORKERS


async def test_a_store_that_does_not_answer_leaves_the_queues_out(
    server: Running, client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await server.submit(queue="mail")

    async def unanswered(*_: object) -> None:
        raise StoreUnavailable("The store does not answer.")

    monkeypatch.setattr(server.parts.queue_board, "look", unanswered)
    assert await series(client, "interlock_queue_jobs") == {}


def test_queues_beyond_the_limit_share_an_empty_label() -> None:
    views = [
        QueueView(
            name=f"q{number:03}",
            pending=number,
            running=1,
            slots=2,
            oldest_ready_at=NOW - timedelta(seconds=number) if number else None,
            lately=Figure(wait_p50_s=1.0, wait_p95_s=2.0),
        )
        for number in range(queue_metrics.QUEUES + 3)
    ]
    numbers = numbers_of(KnownQueues(tuple(views), False, NOW))
    assert len(numbers) == queue_metrics.QUEUES + 1
    assert {"q000", "q001", "q002"}.isdisjoint(numbers)
    assert numbers[OTHERS] == QueueNumbers(3, 3, 2.0, 6)
    assert numbers["q102"] == QueueNumbers(102, 1, 102.0, 2, (("0.5", 1.0), ("0.95", 2.0)))


def test_an_age_that_is_not_known_is_left_out() -> None:
    waiting = QueueView(name="mail", pending=5)
    assert numbers_of(KnownQueues((waiting,), False, NOW))["mail"].oldest_s is None
    assert numbers_of(KnownQueues((waiting,), True, NOW))["mail"].oldest_s == 0.0
    assert numbers_of(KnownQueues((QueueView(name="mail"),), False, NOW))["mail"].oldest_s == 0.0
