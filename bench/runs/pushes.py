"""From a push to its first job: a signed webhook comes in over HTTP, and a waiting runner gets the job.

Beside it the least that this could be: a job that is submitted over HTTP to the same server, with the
same runner waiting. What lies between them is the run: verified, mapped, submitted, planned from its
workflow file, and its job made. The server, the sender and the runner share one process and one store.
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from itertools import count
from time import perf_counter
from typing import Any

import httpx2
import msgspec

from bench.report import Line, Section
from bench.rounds import Figure, Pace
from bench.runs.places import kinds_of, places
from bench.stores.bare.loop import Unexpected
from interlock.server.logs import ServerLog
from interlock.server.parts import Parts
from interlock.server.settings import ServerSettings
from interlock.server.sockets import Listener, serve
from interlock.systems.orchestrator.waiters import waker
from interlock.systems.runs.settings import RunSettings
from interlock.systems.runs.trigger_events import Evaluation, Rule, TriggerSettings
from interlock.systems.runs.webhook_security import Secret, github_signature
from interlock.systems.settings import Settings
from interlock.wire.runner import ClaimRequest

PUSH, JOB = "push → first job", "job submitted → given"
SECRET = Secret(b"the secret of the bench")
WORKFLOW = "jobs: {test: {steps: [{run: 'true'}]}}"
TRIGGERS = TriggerSettings(
    github_secrets=(SECRET,), rules=(Rule(run=Evaluation(workflow="ci", definition=WORKFLOW)),)
)
LOOK_AGAIN_S = 0.05

_NUMBERS = count(1)


def run(pace: Pace) -> Section:
    """One and the other, in turns."""
    found: dict[str, dict[str, Figure]] = {}
    kinds = kinds_of(pace)
    with places(kinds) as fresh:
        for kind in kinds:
            with fresh(kind) as url:
                times = asyncio.run(_measured(url, pace))
            found[kind] = {name: Figure(tuple(each)) for name, each in times.items()}
    return Section(
        "Runs: from a webhook to the first job that a waiting runner is given",
        JOB,
        lines=tuple(Line(f"{kind}, on the wall", "ms", figures) for kind, figures in found.items()),
        notes=("The sender, the server and the runner are one process.",),
    )


async def _measured(url: str, pace: Pace) -> dict[str, list[float]]:
    turns: dict[str, Callable[[httpx2.AsyncClient], Awaitable[None]]] = {JOB: _submit, PUSH: _push}
    times: dict[str, list[float]] = {name: [] for name in turns}
    async with _server(url) as (parts, client):
        for round_number in range(pace.job_probes + 1):
            for name, turn in turns.items():
                began = perf_counter()
                await turn(client)
                await _given(parts)
                if round_number:
                    times[name].append((perf_counter() - began) * 1e3)
    return times


async def _submit(client: httpx2.AsyncClient) -> None:
    _expect(await client.post("/api/jobs", json={"task": "noop"}), 201, 200, 202)


async def _push(client: httpx2.AsyncClient) -> None:
    commit = f"{next(_NUMBERS):040x}"
    body = msgspec.json.encode(
        {
            "ref": "refs/heads/main",
            "before": "a" * 40,
            "after": commit,
            "repository": {"full_name": "acme/shop", "id": 1},
            "commits": [{"id": commit, "message": "x", "modified": ["a.py"]}],
        }
    )
    headers = {
        "Content-Type": "application/json",
        "X-GitHub-Event": "push",
        "X-Hub-Signature-256": github_signature(SECRET, body),
    }
    _expect(await client.post("/api/webhooks/github", content=body, headers=headers), 202)


def _expect(answer: httpx2.Response, *statuses: int) -> None:
    if answer.status_code not in statuses:
        raise Unexpected(f"The server answered {answer.status_code}: {answer.text[:200]}")


async def _given(parts: Parts) -> None:
    """A runner that waits is given the one job that there is."""
    news = asyncio.Event()
    unsubscribe = parts.store.subscribe(waker(news))
    try:
        while not await parts.runtime.orchestrator.claim(ClaimRequest(runner_id="bench", limit=1)):
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_AGAIN_S):
                    await news.wait()
            news.clear()
    finally:
        unsubscribe()


@asynccontextmanager
async def _server(url: str) -> AsyncIterator[tuple[Parts, httpx2.AsyncClient]]:
    ready: asyncio.Future[tuple[Listener, Parts]] = asyncio.get_running_loop().create_future()
    settings = ServerSettings(port=0, shutdown_s=5.0)
    serving: asyncio.Task[Any] = asyncio.create_task(
        serve(
            url,
            settings,
            orchestration=Settings(runs=RunSettings(triggers=TRIGGERS)),
            log=ServerLog("error", "json", io.StringIO()),
            started=lambda listener, parts: ready.set_result((listener, parts)),
            signals=False,
        )
    )
    listener, parts = await ready
    async with httpx2.AsyncClient(base_url=listener.url, trust_env=False, timeout=30.0) as client:
        yield parts, client
    listener.stop()
    await serving
