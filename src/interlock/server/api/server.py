"""Routes of the server itself: health, readiness, metrics, figures, overview, state for admins."""

from __future__ import annotations

import asyncio
import os
import platform
import time
from importlib.metadata import version
from pathlib import Path
from urllib.parse import urlsplit

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.responses import Response

from interlock.api import server as api
from interlock.errors import NotReady, StoreError, StoreUnavailable
from interlock.server import queue_metrics
from interlock.server.parts import Parts
from interlock.server.routes import Call, handles
from interlock.store.contract import StoreStatus
from interlock.systems.catalogue import CATALOGUE
from interlock.systems.figures.figures import Question
from interlock.wire.access import SessionView
from interlock.wire.figures import FiguresView, OverviewView

STORE_S = 2.0
MAX_FAILURES = 3
"""Consecutive failures after which a loop makes the server not ready."""
DISPENSABLE = frozenset({"figures"})
"""Loops without which jobs are still done: the overview reports them, and the server stays ready."""


@handles(api.HEALTHZ)
async def healthz(_: Call) -> api.Alive:
    """Report that the process is alive."""
    return api.Alive(status="ok")


@handles(api.READYZ)
async def readyz(call: Call) -> api.Readiness:
    """Report whether the store answers and essential loops make progress."""
    parts = call.parts
    if parts.stopping.is_set():
        raise NotReady("The server is shutting down.", todo="Ask another one.")
    try:
        async with asyncio.timeout(STORE_S):
            store_at = await parts.store.now()
    except (StoreError, TimeoutError) as error:
        why = error.sentence if isinstance(error, StoreError) else f"no answer within {STORE_S:g} s"
        raise NotReady(f"The store cannot be reached: {why}", todo="Check the database.") from None
    loops = parts.health()
    ailing = [
        loop.name for loop in loops if loop.failures_in_a_row >= MAX_FAILURES and loop.name not in DISPENSABLE
    ]
    if ailing or not parts.looked_after:
        raise NotReady(
            f"Background loops are failing: {', '.join(ailing)}."
            if ailing
            else "No background loop is running.",
            todo="See the server's log.",
            facts={"loops": {loop.name: loop.failures_in_a_row for loop in loops}},
        )
    views = tuple(
        api.LoopView(
            name=loop.name,
            rounds=loop.rounds,
            failures_in_a_row=loop.failures_in_a_row,
            last_success_at=loop.last_success_at,
        )
        for loop in loops
    )
    return api.Readiness(status="ready", store_at=store_at, loops=views)


@handles(api.METRICS)
async def metrics(call: Call) -> Response:
    """Return all metrics."""
    parts = call.parts
    records, queues = await parts.record_gauges.take(), await queue_metrics.look(parts.queue_board)
    page = parts.metrics.page(parts.health(), records, queues)
    return Response(page, media_type=CONTENT_TYPE_LATEST)


@handles(api.GET_FIGURES)
async def get_figures(call: Call) -> FiguresView:
    """Return figures of the visible queues."""
    query: api.FiguresQuery = call.query
    if query.queue:
        call.principal.need_queues([query.queue])
    question = Question(
        minutes=query.minutes, queue=query.queue, task=query.task, queues=frozenset(call.principal.queues)
    )
    return await call.parts.runtime.figures.read(question)


@handles(api.GET_OVERVIEW)
async def get_overview(call: Call) -> OverviewView:
    """Return numbers and findings about the visible queues."""
    parts = call.parts
    return await parts.runtime.overview.take(frozenset(call.principal.queues), parts.health())


STATUS_FOR_S = 30.0
"""Time for which the status of the store is cached: it counts every state of every kind, up to a cap."""
STATUS_S = 5.0


@handles(api.SHOW_SERVER)
async def show_server(call: Call) -> api.ServerView:
    """Return the status of this process."""
    parts = call.parts
    return api.ServerView(
        version=version("interlock"),
        python=platform.python_version(),
        at=await parts.runtime.engine.clock.now(),
        started_at=parts.started_at,
        memory_bytes=_memory(),
        connections=len(parts.connections),
        max_connections=parts.connections.most,
        waiting_runners=parts.long_poll.waiting,
        streams=parts.readers.open,
        tokens_required=parts.tokens_required,
        counted_until=await parts.runtime.figures.counted_until(),
        loops=tuple(parts.health()),
    )


@handles(api.SHOW_STORE)
async def show_store(call: Call) -> api.StoreView:
    """Return the status of the store, at most `STATUS_FOR_S` old."""
    parts = call.parts
    status, able = await _status(parts), parts.store.capabilities
    retention = parts.settings.retention
    return api.StoreView(
        url=status.url,
        server=status.server,
        schema_version=status.schema_version,
        wanted_version=status.wanted_version,
        durable=able.durable,
        durability=able.durability,
        shared=able.shared,
        size_bytes=status.size_bytes,
        records=status.records,
        entries=status.entries,
        oldest_entry_at=status.oldest_entry_at,
        cap=status.cap,
        connections=status.connections,
        retention=tuple(
            api.Kept(kind=name, seconds=age.total_seconds(), states=tuple(sorted(states)), queue=queue)
            for name, kind in sorted({**CATALOGUE, **parts.runtime.records.catalogue}.items())
            for queue, age, states in retention.rules(name, kind.ended)
        ),
        pruned=parts.runtime.pruned.records,
    )


@handles(api.SHOW_WEBHOOKS)
async def show_webhooks(call: Call) -> api.WebhooksView:
    """Return the configured webhooks and failing deliveries."""
    runtime = call.parts.runtime
    edges = runtime.settings.runs
    hooks = [
        api.Incoming(name=one.name, path=f"/api/webhooks/generic/{one.name}", keys=len(one.keys))
        for one in edges.triggers.hooks
    ]
    if edges.triggers.github_secrets or edges.triggers.rules:
        keys = len(edges.triggers.github_secrets)
        hooks.insert(0, api.Incoming(name="github", path="/api/webhooks/github", keys=keys))
    return api.WebhooksView(
        incoming=tuple(hooks),
        receivers=(
            *(
                api.Receiver(name=one.name, kind="github", to=_host(one.api), able=one.token is not None)
                for one in edges.reporting.github
            ),
            *(
                api.Receiver(
                    name=one.name, kind="webhook", to=_host(one.url), able=bool(one.keys), words=one.words
                )
                for one in edges.reporting.webhooks
            ),
        ),
        failing=tuple(await runtime.runs.reporting.failing()),
    )


@handles(api.LIST_SESSIONS)
async def list_sessions(call: Call) -> api.OpenSessions:
    """Return the browsers that have signed in."""
    return api.OpenSessions(sessions=tuple(await call.parts.sessions.list()), own=call.principal.session_id)


@handles(api.REVOKE_SESSION)
async def revoke_session(call: Call) -> SessionView:
    """End the session of a browser; other servers notice within seconds."""
    body: api.RevokeSession = call.body
    return await call.parts.sessions.revoke(call.path["session_id"], actor=call.actor, reason=body.reason)


async def _status(parts: Parts) -> StoreStatus:
    known = parts.store_status
    if known is not None and time.monotonic() < known[0] + STATUS_FOR_S:
        return known[1]
    try:
        async with asyncio.timeout(STATUS_S):
            status = await parts.store.status()
    except TimeoutError:
        raise StoreUnavailable(
            f"The store did not report its status within {STATUS_S:g} s.", todo="Try again in a moment."
        ) from None
    parts.store_status = (time.monotonic(), status)
    return status


def _host(url: str) -> str:
    return urlsplit(url).hostname or ""


def _memory() -> int | None:
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")
