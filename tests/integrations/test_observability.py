"""Sentry, logging, structlog and OpenTelemetry with the code of guides/middleware.md, in real programs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from tests.docs.test_pages_tell_the_truth import blocks
from tests.waiting import PROGRAM_S

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/guides/middleware.md"
IMPORTS = """
from collections.abc import Iterator
from interlock import Context, JobSpec, middleware, task
"""

SENTRY = """
import asyncio, json
from contextlib import suppress
from interlock.errors import JobFailed
from interlock.testing import in_memory
from sentry_sdk.transport import Transport

class Kept(Transport):
    events = []

    def capture_envelope(self, envelope):
        if (event := envelope.get_event()) is not None:
            self.events.append(event)

sentry_sdk.init(dsn="https://key@localhost/1", transport=Kept, default_integrations=False)

@task(retries=1)
async def pay(order: int) -> None:
    raise ValueError(f"no money for order {order}")

async def main():
    async with in_memory() as il:
        job = await il.submit(pay, 17)
        with suppress(JobFailed):
            await job.result()
        told = [
            [event["tags"]["task"], event["contexts"]["job"], event["exception"]["values"][-1]["value"]]
            for event in Kept.events
        ]
        print(json.dumps([job.id, told]))

asyncio.run(main())
"""
STRUCTLOG = """
import asyncio
from interlock.testing import in_memory

structlog.configure(processors=[structlog.contextvars.merge_contextvars, structlog.processors.JSONRenderer()])

@task
async def pay(order: int) -> None:
    structlog.get_logger().info("paid", order=order)

async def main():
    async with in_memory() as il:
        job = await il.submit(pay, 17)
        await il.drain()
        structlog.get_logger().info("submitted", id=job.id)

asyncio.run(main())
"""
LOGGING = """
import asyncio
from tests_support import at_once
from interlock import task

@task
async def pay(order: int) -> None:
    logging.getLogger("shop").warning("asked for %d", order)
    await at_once(2)
    logging.getLogger("shop").warning("paid %d", order)
"""
TOGETHER = """
import asyncio
here, all_here = 0, asyncio.Event()

async def at_once(wanted):
    global here
    here += 1
    if here == wanted:
        all_here.set()
    await all_here.wait()
"""
SHOP = """
import json, sys
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter
from interlock.sync import Interlock

class Lines(SpanExporter):
    def export(self, spans):
        with open("spans.jsonl", "a") as file:
            for span in spans:
                parent = span.parent.span_id if span.parent else 0
                print(json.dumps([span.name, span.context.trace_id, span.context.span_id, parent]), file=file)

provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(Lines()))
trace.set_tracer_provider(provider)

@task(name="child")
async def child() -> None:
    pass

@task(name="parent")
async def parent(ctx: Context) -> None:
    await ctx.submit(child)

if __name__ == "__main__":
    with trace.get_tracer("web").start_as_current_span("request"), Interlock("sqlite:///jobs.db") as il:
        il.submit(parent)
"""

METRICS = """
import asyncio, json
from contextlib import suppress
from interlock.errors import JobFailed
from interlock.testing import in_memory
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

reader = InMemoryMetricReader()
metrics.set_meter_provider(MeterProvider([reader]))

@task(name="pay", retries=1)
async def pay(order: int) -> None:
    if order == 17:
        raise ValueError("no money")

async def main():
    async with in_memory() as il:
        jobs = [await il.submit(pay, order) for order in (16, 17, 18)]
        for job in jobs:
            with suppress(JobFailed):
                await job.result()
    (resource,) = reader.get_metrics_data().resource_metrics
    (metric,) = resource.scope_metrics[0].metrics
    points = [[dict(point.attributes), point.count] for point in metric.data.data_points]
    print(json.dumps([metric.name, metric.unit, points]))

asyncio.run(main())
"""


ONE = """
from interlock import task

@task(name="one")
async def one() -> None:
    pass
"""


class Collector(ThreadingHTTPServer):
    """An endpoint of OTLP over HTTP; keeps what it gets."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Receiving)
        self.requests: list[tuple[str, Message, ExportTraceServiceRequest]] = []


class _Receiving(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.requests.append((self.path, self.headers, ExportTraceServiceRequest.FromString(body)))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Print nothing."""


def written(folder: Path, name: str, beginning: str, rest: str) -> None:
    """Write a program with the block of the page that begins like this."""
    (block,) = [each for each in blocks(PAGE, "python") if each.startswith(beginning)]
    imports = (
        "from collections.abc import Iterator\nfrom interlock import Context, JobSpec, middleware, task\n"
    )
    (folder / name).write_text(imports + block + rest)


def run(folder: Path, *words: str, env: Mapping[str, str] | None = None) -> str:
    answer = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env={**os.environ, **(env or {})},
        capture_output=True,
        text=True,
        timeout=PROGRAM_S,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    return answer.stdout


def test_sentry_gets_the_error_of_each_attempt_with_its_job(tmp_path: Path) -> None:
    written(tmp_path, "program.py", "import sentry_sdk", SENTRY)
    job_id, events = json.loads(run(tmp_path, "program.py"))
    assert [(task.rpartition(".")[2], job, error) for task, job, error in events] == [
        ("pay", {"id": job_id, "attempt": attempt}, "no money for order 17") for attempt in (1, 2)
    ]


def test_a_histogram_of_opentelemetry_counts_each_attempt_by_its_outcome(tmp_path: Path) -> None:
    written(tmp_path, "program.py", "from time import perf_counter", METRICS)
    name, unit, points = json.loads(run(tmp_path, "program.py"))
    assert (name, unit) == ("job.duration", "s")
    assert sorted(points, key=str) == [
        [{"task": "pay", "outcome": "completed"}, 2],
        [{"task": "pay", "outcome": "failed"}, 2],
    ]


def test_a_worker_with_the_variables_of_the_page_sends_its_spans_to_the_endpoint(tmp_path: Path) -> None:
    (block,) = [each for each in blocks(PAGE, "sh") if "export " in each]
    variables = dict(re.findall(r"^export (\w+)=(.+)$", block, re.M))
    (tmp_path / "tasks.py").write_text(ONE)
    (start,) = re.findall(r"^interlock (worker start .+)$", block, re.M)
    with Collector() as collector:
        Thread(target=collector.serve_forever, daemon=True).start()
        variables["OTEL_EXPORTER_OTLP_ENDPOINT"] = f"http://127.0.0.1:{collector.server_port}"
        variables |= {"INTERLOCK_URL": "sqlite:///jobs.db", "OTEL_EXPORTER_OTLP_HEADERS": "key=17"}
        try:
            run(tmp_path, "-m", "interlock", "submit", "tasks.py:one", env=variables)
            run(tmp_path, "-m", "interlock", *start.split(), "--burst", env=variables)
        finally:
            collector.shutdown()
    ((path, headers, request),) = collector.requests
    assert (path, headers["key"]) == ("/v1/traces", "17")
    (sent,) = request.resource_spans
    names = {each.key: each.value.string_value for each in sent.resource.attributes}
    assert names["service.name"] == variables["OTEL_SERVICE_NAME"] == "shop-worker"
    assert [span.name for scope in sent.scope_spans for span in scope.spans] == ["one"]


def test_lines_of_structlog_name_the_job_and_only_while_it_runs(tmp_path: Path) -> None:
    written(tmp_path, "program.py", "import structlog", STRUCTLOG)
    paid, submitted = (json.loads(line) for line in run(tmp_path, "program.py").splitlines())
    assert paid == {"event": "paid", "order": 17, "job_id": submitted["id"], "tenant": None}
    assert submitted.keys() == {"event", "id"}


def test_lines_of_logging_name_the_job_of_their_handler_in_the_log_of_the_worker_and_in_ones_own(
    tmp_path: Path,
) -> None:
    context, formatter = (
        blocks(PAGE, "python")[0],
        next(each for each in blocks(PAGE, "python") if each.startswith("import logging")),
    )
    (tmp_path / "tests_support.py").write_text(TOGETHER)
    (tmp_path / "shop.py").write_text(context + formatter + LOGGING)
    store = ("--store", "sqlite:///jobs.db")
    ids = {
        order: run(tmp_path, "-m", "interlock", "submit", "shop.py:pay", f"order={order}", *store).strip()
        for order in (17, 18)
    }
    worker = subprocess.run(
        [sys.executable, "-m", "interlock", "worker", "start", "shop.py", "--burst", *store],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PROGRAM_S,
        check=True,
    )
    lines = worker.stderr.splitlines()
    logged = [json.loads(line) for line in lines if line.startswith("{")]
    found = [(line["message"], line["task_id"]) for line in logged if line.get("logger") == "shop"]
    expected = [(f"{what} {order}", ids[order]) for what in ("asked for", "paid") for order in ids]
    assert sorted(found) == sorted(expected)
    assert sorted(line for line in lines if line.startswith("WARNING")) == sorted(
        f"WARNING {job_id} {what}" for what, job_id in expected
    )


def test_a_trace_leads_from_the_request_through_the_handler_to_its_child(tmp_path: Path) -> None:
    written(tmp_path, "shop.py", "import msgspec\n", SHOP)
    run(tmp_path, "shop.py")
    run(tmp_path, "-m", "interlock", "worker", "start", "shop.py", "--burst", "--store", "sqlite:///jobs.db")
    spans = [json.loads(line) for line in (tmp_path / "spans.jsonl").read_text().splitlines()]
    (request,), (parent,), (child,) = (
        [span for span in spans if span[0].endswith(name)] for name in ("request", "parent", "child")
    )
    assert request[1] == parent[1] == child[1], "one trace"
    assert (parent[3], child[3]) == (request[2], parent[2])
