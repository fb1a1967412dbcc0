"""Sentry, structlog and OpenTelemetry with the code of docs/guides/middleware.md, in real programs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

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


def written(folder: Path, name: str, beginning: str, rest: str) -> None:
    """Write a program with the block of the page that begins like this."""
    (block,) = [each for each in blocks(PAGE, "python") if each.startswith(beginning)]
    imports = (
        "from collections.abc import Iterator\nfrom interlock import Context, JobSpec, middleware, task\n"
    )
    (folder / name).write_text(imports + block + rest)


def run(folder: Path, *words: str) -> str:
    answer = subprocess.run(
        [sys.executable, *words], cwd=folder, capture_output=True, text=True, timeout=PROGRAM_S, check=False
    )
    assert answer.returncode == 0, answer.stderr
    return answer.stdout


def test_sentry_gets_the_error_of_each_attempt_with_its_job(tmp_path: Path) -> None:
    written(tmp_path, "program.py", "import sentry_sdk", SENTRY)
    job_id, events = json.loads(run(tmp_path, "program.py"))
    assert [(task.rpartition(".")[2], job, error) for task, job, error in events] == [
        ("pay", {"id": job_id, "attempt": attempt}, "no money for order 17") for attempt in (1, 2)
    ]


def test_lines_of_structlog_name_the_job_and_only_while_it_runs(tmp_path: Path) -> None:
    written(tmp_path, "program.py", "import structlog", STRUCTLOG)
    paid, submitted = (json.loads(line) for line in run(tmp_path, "program.py").splitlines())
    assert paid == {"event": "paid", "order": 17, "job_id": submitted["id"], "tenant": None}
    assert submitted.keys() == {"event", "id"}


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
