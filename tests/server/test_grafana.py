"""The dashboard for Grafana: every query is asked of what real servers and workers tell after real work."""

from __future__ import annotations

import asyncio
import itertools
import json
import math
import urllib.request
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard
from tests.server import promql
from tests.server.promql import OURS, Scrape, faults_of, metric_of, scrape
from tests.server.running import Running
from tests.server.test_runs import made, work
from tests.waiting import PATIENCE_S
from tests.worker.board import Board
from tests.worker.conftest import Start, board, echo, registry, start

from interlock.lifecycles import MACHINES
from interlock.lifecycles.process import initialized
from interlock.server.grafana import dashboard
from interlock.server.metrics import RecordGauges
from interlock.wire import metrics as table
from interlock.worker.telemetry import Metrics

__all__ = ["board", "echo", "registry", "start"]

FILE = Path(__file__).parents[2] / "docs" / "grafana" / "interlock.json"
WORKERS = tuple(metric.name for metric in table.WORKER)


def queries(data: dict[str, Any]) -> list[str]:
    """What the panels ask, with what Grafana puts in for its variables."""
    expressions = [target["expr"] for panel in data["panels"] for target in panel.get("targets", ())]
    return [each.replace("$__rate_interval", "1m").replace("$machine", ".*") for each in expressions]


QUERIES = queries(dashboard())
OF_WORKERS = [query for query in QUERIES if any(name in query for name in WORKERS)]
OF_SERVERS = [query for query in QUERIES if query not in OF_WORKERS]


def unanswered(expressions: Sequence[str], scrapes: Sequence[Scrape]) -> list[str]:
    """The queries that give nothing, or nothing that is a number."""
    answers = {query: promql.answer(query, scrapes) for query in expressions}
    return [query for query, got in answers.items() if not got or not all(map(math.isfinite, got.values()))]


def test_every_query_names_metrics_and_labels_that_there_are() -> None:
    assert len(QUERIES) > 20
    assert [fault for query in QUERIES for fault in faults_of(query)] == []


@pytest.mark.parametrize(
    ("query", "fault"),
    [
        ("sum(rate(interlock_transitons_total[5m]))", "there is no metric interlock_transitons_total"),
        ('worker_state{stat="x"}', "worker_state has no label stat"),
        ("sum by (machine) (interlock_loop_rounds)", "interlock_loop_rounds has no label machine"),
    ],
)
def test_a_query_that_names_something_else_is_found_out(query: str, fault: str) -> None:
    assert faults_of(query) == [fault]


def test_every_metric_is_used_by_a_query_of_the_grafana_dashboard() -> None:
    named = {metric_of(selector.name or "") for query in QUERIES for selector in promql.selectors(query)}
    assert {metric.name for metric in named if metric} == set(OURS)


def test_the_dashboard_file_is_up_to_date_and_the_grafana_sdk_keeps_every_field() -> None:
    data = json.loads(FILE.read_text(encoding="utf-8"))
    assert data == dashboard(), "make docs"
    kept = json.loads(JSONEncoder(sort_keys=True).encode(Dashboard.from_json(data)))
    assert lost(data, kept) == []
    assert lost({**data, "titel": "a slip"}, kept) == ["titel"]


def lost(sent: Any, kept: Any, place: str = "") -> list[str]:
    """Everything in the one that is not in the other."""
    match sent:
        case dict():
            missing = [f"{place}{name}" for name in sent if not isinstance(kept, dict) or name not in kept]
            known = [name for name in sent if isinstance(kept, dict) and name in kept]
            return missing + [
                way for name in known for way in lost(sent[name], kept[name], f"{place}{name}.")
            ]
        case list():
            if not isinstance(kept, list) or len(kept) != len(sent):
                return [place]
            return [
                w for n, (a, b) in enumerate(zip(sent, kept, strict=True)) for w in lost(a, b, f"{place}{n}.")
            ]
    return [] if sent == kept else [place]


# Real pages


async def test_a_server_answers_every_query_about_it(server: Running, client: httpx2.AsyncClient) -> None:
    seconds = itertools.count(step=60)
    server.parts.record_gauges = RecordGauges(server.parts.store, monotonic=lambda: float(next(seconds)))
    server.parts.runtime.figures._spacing = timedelta(seconds=-60)
    scrapes = []
    for turn in range(2):
        await a_day(server, client, turn)
        await server.parts.following.round()
        await server.parts.runtime.figures.round()
        server.parts.queue_board.forget()
        page = (await client.get("/metrics")).text
        scrapes.append(scrape(float(turn * 15), page, page))
    assert unanswered(OF_SERVERS, scrapes) == []
    hits = next(query for query in OF_SERVERS if "request_ids" in query)
    assert promql.answer(hits, scrapes) == {frozenset(): pytest.approx(3 / 5)}, "three of five are repeats"
    machines = {dict(labels)["machine"] for labels in scrapes[-1].series["interlock_transitions_total"]}
    assert machines >= {"run", "job", "attempt", "lease", "worker"}
    jobs = promql.answer('max by (state) (interlock_records{machine="job"})', scrapes)
    assert jobs[frozenset({("state", "PENDING")})] == len(await pending(client))
    assert exposed(page) == {metric.name for metric in table.SERVER}


async def test_a_worker_answers_every_query_about_it(board: Board, start: Start, echo: str) -> None:
    metrics = Metrics("tester")
    port, stop = metrics.serve(0, "127.0.0.1")
    worker = start(metrics=metrics)
    scrapes = []
    try:
        for turn in range(2):
            await board.until_state(board.pin(echo), "succeeded")
            await board.until(lambda: worker.process.state == "backing_off", "nothing is left")
            worker.process.send(initialized)
            metrics.stalled("renewals", silent=False)
            page = await asyncio.to_thread(read, f"http://127.0.0.1:{port}/metrics")
            scrapes.append(scrape(float(turn * 15), page))
    finally:
        stop()
    assert unanswered(OF_WORKERS, scrapes) == []
    assert exposed(page) == set(WORKERS)


def test_each_machine_is_counted_by_a_server_or_by_a_worker() -> None:
    journalled = {"run", "job", "attempt", "lease", "worker", "workload", "simulation", "schedule"}
    assert journalled | {"process", "task"} == set(MACHINES)


async def a_day(server: Running, client: httpx2.AsyncClient, turn: int) -> None:
    """Something of everything that a server counts."""
    await work(server, client, await made(client))
    await client.post("/api/jobs", json={"task": "a.b", "queue": "later"})
    await repeats(client, turn)
    job_id = await server.submit()
    spec = {"name": "anna", "incarnation": str(turn), "queues": ["default"]}
    worker = (await client.post("/api/workers", json=spec)).json()
    runner = f"anna#{turn}"
    leased = (await client.post("/api/runner/lease", json={"runner_id": runner})).json()["grants"]
    (grant,) = [each for each in leased if each["job_id"] == job_id]
    for verb in ("pause", "terminate", "terminate"):  # refused, done, refused
        await client.post(f"/api/supervisor/workers/{worker['id']}/{verb}")
    late = {"token": grant["token"], "runner_id": runner, "outcome": {"outcome": "succeeded"}}
    refused = await client.post("/api/runner/complete", json=late)
    assert (refused.status_code, refused.json()["code"]) == (409, "LEASE_REVOKED")
    for _ in range(2):
        await client.post(f"/api/jobs/{job_id}/cancel")


async def repeats(client: httpx2.AsyncClient, turn: int) -> None:
    """Two requests, three repeats: one that the commit notices, two that would be refused by now."""
    body = {"task": "a.b", "queue": "later", "request_id": f"make-{turn}"}
    made, again = [(await client.post("/api/jobs", json=body)).json()["id"] for _ in range(2)]
    assert made == again
    for _ in range(3):
        answer = await client.post(f"/api/jobs/{made}/cancel", json={"request_id": f"stop-{turn}"})
        assert answer.status_code == 200, answer.text


async def pending(client: httpx2.AsyncClient) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await client.get("/api/jobs", params={"q": "state:pending"})).json()[
        "jobs"
    ]
    return found


def exposed(page: str) -> set[str]:
    """The names on a page, as the table has them."""
    named = {line.split()[2] for line in page.splitlines() if line.startswith("# TYPE")}
    return {name for name in named if not name.endswith("_created")}


def read(url: str) -> str:
    with urllib.request.urlopen(url, timeout=PATIENCE_S) as got:
        text: str = got.read().decode()
    return text
