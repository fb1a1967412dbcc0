"""Routes of the server itself: health, readiness, metrics, figures, overview, state for admins."""

from __future__ import annotations

import asyncio
import os
import platform
import time
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.responses import Response

from interlock.errors import StoreError, StoreUnavailable
from interlock.server.messages import Alive, LoopView, Readiness, Reason
from interlock.server.parts import Parts
from interlock.server.problems import NotReady
from interlock.server.routes import Call, Confined, Lane, Route
from interlock.store.contract import ServerConnections, StoreStatus
from interlock.systems.access.authentication import SessionView, UnknownSession
from interlock.systems.access.principals import Role
from interlock.systems.catalogue import CATALOGUE
from interlock.systems.figures.figures import LONGEST_MIN, Question
from interlock.systems.runs.reporting.reporter import FailedReport
from interlock.wire.figures import FiguresView, OverviewView

STORE_S = 2.0
MAX_FAILURES = 3
"""A loop that has failed so often in a row is more than unlucky."""
DISPENSABLE = frozenset({"figures"})
"""Loops without which jobs are still done: the overview reports them, and the server stays ready."""


async def healthz(_: Call) -> Alive:
    """The process answers."""
    return Alive(status="ok")


async def readyz(call: Call) -> Readiness:
    """The store answers, its schema was found fine when it was opened, and every loop does its work."""
    parts = call.parts
    if parts.stopping.is_set():
        raise NotReady("The server is shutting down.", todo="Ask another one.")
    try:
        async with asyncio.timeout(STORE_S):
            store_at = await parts.store.now()
    except (StoreError, TimeoutError) as error:
        why = error.sentence if isinstance(error, StoreError) else f"no answer within {STORE_S:g} s"
        raise NotReady(f"The store cannot be reached: {why}", todo="Look after the database.") from None
    loops = parts.health()
    ailing = [
        loop.name for loop in loops if loop.failures_in_a_row >= MAX_FAILURES and loop.name not in DISPENSABLE
    ]
    if ailing or not parts.looked_after:
        raise NotReady(
            f"Nobody looks after {', '.join(ailing) or 'the store'}.",
            todo="See the server's log.",
            facts={"loops": {loop.name: loop.failures_in_a_row for loop in loops}},
        )
    views = tuple(
        LoopView(
            name=loop.name,
            rounds=loop.rounds,
            failures_in_a_row=loop.failures_in_a_row,
            last_success_at=loop.last_success_at,
        )
        for loop in loops
    )
    return Readiness(status="ready", store_at=store_at, loops=views)


async def metrics(call: Call) -> Response:
    """Everything that is counted."""
    parts = call.parts
    page = parts.metrics.page(parts.health(), await parts.census.take())
    return Response(page, media_type=CONTENT_TYPE_LATEST)


HEALTH_ROUTES = (
    Route(
        method="GET",
        path="/healthz",
        name="healthz",
        summary="Say that the process is up.",
        handler=healthz,
        role=None,
        lane=Lane.FREE,
        answer=Alive,
    ),
    Route(
        method="GET",
        path="/readyz",
        name="readyz",
        summary="Say whether the server can do its work.",
        handler=readyz,
        role=None,
        lane=Lane.FREE,
        answer=Readiness,
        errors=(NotReady,),
    ),
    Route(
        method="GET",
        path="/metrics",
        name="metrics",
        summary="Show what is counted, for Prometheus.",
        handler=metrics,
        role=Role.VIEWER,
        everything=True,
        media="text/plain",
    ),
)


class FiguresQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which figures, and of how long."""

    minutes: Annotated[
        int, Meta(ge=1, le=LONGEST_MIN, description="How many minutes up to now; 10080 are seven days.")
    ] = 60
    queue: Annotated[str, Meta(max_length=64, description="Of this queue only.")] = ""
    task: Annotated[str, Meta(max_length=200, description="Of this task only.")] = ""


async def get_figures(call: Call) -> FiguresView:
    """Figures of the queues that can be seen."""
    asked: FiguresQuery = call.query
    if asked.queue:
        call.principal.need_queues([asked.queue])
    question = Question(
        minutes=asked.minutes, queue=asked.queue, task=asked.task, queues=frozenset(call.principal.queues)
    )
    return await call.parts.runtime.figures.read(question)


async def get_overview(call: Call) -> OverviewView:
    """Numbers and findings about the queues that can be seen."""
    return await call.parts.overview.take(frozenset(call.principal.queues))


FIGURE_ROUTES = (
    Route(
        method="GET",
        path="/api/figures",
        name="getFigures",
        summary="Show what happened to jobs over time: counts, durations and backlog.",
        handler=get_figures,
        role=Role.VIEWER,
        confined=Confined.HIDES,
        query=FiguresQuery,
        answer=FiguresView,
    ),
    Route(
        method="GET",
        path="/api/overview",
        name="getOverview",
        summary="Show what is wrong now, in sentences with a remedy for each, and a few live numbers.",
        handler=get_overview,
        role=Role.VIEWER,
        confined=Confined.HIDES,
        answer=OverviewView,
    ),
)


STATUS_FOR_S = 30.0
"""How long the status of a store serves: it counts every state of every kind, up to a cap."""
STATUS_S = 5.0


class LoopHealth(msgspec.Struct, frozen=True, kw_only=True):
    """How a loop is, with its last error."""

    name: str
    rounds: int
    done: int
    """How much it has found to do."""
    failures_in_a_row: int
    last_success_at: datetime | None
    last_error: str


class ServerView(msgspec.Struct, frozen=True, kw_only=True):
    """One server process."""

    version: str
    python: str
    at: datetime
    """The store's clock."""
    started_at: datetime | None
    memory_bytes: int | None
    """What the process holds in memory; null where the system does not tell."""
    connections: int
    max_connections: int
    waiting_runners: int
    """Runners that wait for work."""
    streams: int
    """Live streams that are open."""
    tokens_required: bool
    counted_until: datetime | None
    """Up to when the journal has been counted for the figures; null when no server has begun to."""
    loops: tuple[LoopHealth, ...]


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """How long records of a kind are kept after they have ended."""

    kind: str
    seconds: float
    states: tuple[str, ...]
    """Where they have ended."""


class StoreView(msgspec.Struct, frozen=True, kw_only=True):
    """The store of a server, and what is kept for how long."""

    url: str
    """Without its password."""
    server: str
    schema_version: int
    wanted_version: int
    durable: bool
    durability: str
    shared: bool
    """Several hosts may use it at once."""
    size_bytes: int | None
    records: dict[str, dict[str, int]]
    """By kind and state, counted up to `cap`."""
    entries: int
    oldest_entry_at: datetime | None
    cap: int | None
    connections: ServerConnections | None
    retention: tuple[Kept, ...]
    pruned: int
    """Records that the last round of retention has removed."""


class Incoming(msgspec.Struct, frozen=True, kw_only=True):
    """A webhook that starts runs."""

    name: str
    path: str
    keys: int
    """How many secrets this server has for it; with none it is refused."""


class Receiver(msgspec.Struct, frozen=True, kw_only=True):
    """Who is told about runs."""

    name: str
    kind: str
    to: str
    """Its host; the rest of its address may be a secret."""
    able: bool
    """Whether this server has the secret that it needs."""
    words: tuple[str, ...] = ()


class WebhooksView(msgspec.Struct, frozen=True, kw_only=True):
    """Webhooks in both directions, as the project file of this server names them."""

    incoming: tuple[Incoming, ...]
    receivers: tuple[Receiver, ...]
    failing: tuple[FailedReport, ...]
    """Deliveries that have failed and are tried again, or were given up on; the newest."""


class OpenSessions(msgspec.Struct, frozen=True, kw_only=True):
    """Browsers that have signed in, the newest first."""

    sessions: tuple[SessionView, ...]
    own: str
    """The session of this request; empty where it came with a token."""


class RevokeSession(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Why a session is ended."""

    reason: Reason = ""


async def show_server(call: Call) -> ServerView:
    """Return how this process is."""
    parts = call.parts
    return ServerView(
        version=version("interlock"),
        python=platform.python_version(),
        at=await parts.runtime.engine.clock.now(),
        started_at=parts.started_at,
        memory_bytes=_memory(),
        connections=len(parts.connections),
        max_connections=parts.connections.most,
        waiting_runners=parts.waiting_room.waiting,
        streams=parts.readers.open,
        tokens_required=parts.tokens_required,
        counted_until=await parts.runtime.figures.counted_until(),
        loops=tuple(LoopHealth(**msgspec.structs.asdict(loop)) for loop in parts.health()),
    )


async def show_store(call: Call) -> StoreView:
    """Return what the store says about itself, at most `STATUS_FOR_S` old."""
    parts = call.parts
    status, able = await _status(parts), parts.store.capabilities
    retention = parts.settings.retention
    return StoreView(
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
            Kept(kind=name, seconds=retention.of(name).total_seconds(), states=tuple(sorted(kind.ended)))
            for name, kind in sorted({**CATALOGUE, **parts.runtime.records.catalogue}.items())
            if kind.ended
        ),
        pruned=parts.runtime.pruned.records,
    )


async def show_webhooks(call: Call) -> WebhooksView:
    """Return which webhooks there are, and which deliveries fail."""
    runtime = call.parts.runtime
    edges = runtime.settings.runs
    hooks = [
        Incoming(name=one.name, path=f"/api/webhooks/generic/{one.name}", keys=len(one.keys))
        for one in edges.triggers.hooks
    ]
    if edges.triggers.github_secrets or edges.triggers.rules:
        keys = len(edges.triggers.github_secrets)
        hooks.insert(0, Incoming(name="github", path="/api/webhooks/github", keys=keys))
    return WebhooksView(
        incoming=tuple(hooks),
        receivers=(
            *(
                Receiver(name=one.name, kind="github", to=_host(one.api), able=one.token is not None)
                for one in edges.reporting.github
            ),
            *(
                Receiver(
                    name=one.name, kind="webhook", to=_host(one.url), able=bool(one.keys), words=one.words
                )
                for one in edges.reporting.webhooks
            ),
        ),
        failing=tuple(await runtime.runs.reporting.failing()),
    )


async def list_sessions(call: Call) -> OpenSessions:
    """Return the browsers that have signed in."""
    return OpenSessions(sessions=tuple(await call.parts.sessions.list()), own=call.principal.session_id)


async def revoke_session(call: Call) -> SessionView:
    """End the session of a browser; other servers notice within seconds."""
    asked: RevokeSession = call.body
    return await call.parts.sessions.revoke(call.path["session_id"], actor=call.actor, reason=asked.reason)


async def _status(parts: Parts) -> StoreStatus:
    known = parts.store_status
    if known is not None and time.monotonic() < known[0] + STATUS_FOR_S:
        return known[1]
    try:
        async with asyncio.timeout(STATUS_S):
            status = await parts.store.status()
    except TimeoutError:
        raise StoreUnavailable(
            f"The store has not told its status within {STATUS_S:g} s.", todo="Try again in a moment."
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


_SESSION = {"session_id": "The id of a session."}

ADMIN_ROUTES = (
    Route(
        method="GET",
        path="/api/server",
        name="showServer",
        summary="Show how this server is: its loops, connections and memory.",
        handler=show_server,
        role=Role.ADMIN,
        everything=True,
        answer=ServerView,
    ),
    Route(
        method="GET",
        path="/api/server/store",
        name="showStore",
        summary="Show the store: its kind, schema and size, and how long ended records are kept.",
        handler=show_store,
        role=Role.ADMIN,
        everything=True,
        answer=StoreView,
        errors=(StoreUnavailable,),
    ),
    Route(
        method="GET",
        path="/api/server/webhooks",
        name="showWebhooks",
        summary="Show which webhooks are configured, and which deliveries fail.",
        handler=show_webhooks,
        role=Role.ADMIN,
        everything=True,
        answer=WebhooksView,
    ),
    Route(
        method="GET",
        path="/api/server/sessions",
        name="listSessions",
        summary="List the browsers that have signed in.",
        handler=list_sessions,
        role=Role.ADMIN,
        everything=True,
        answer=OpenSessions,
    ),
    Route(
        method="POST",
        path="/api/server/sessions/{session_id}/revoke",
        name="revokeSession",
        summary="Sign a browser out; other servers notice within seconds.",
        handler=revoke_session,
        role=Role.ADMIN,
        everything=True,
        parameters=_SESSION,
        bodies=(RevokeSession,),
        body_required=False,
        answer=SessionView,
        errors=(UnknownSession,),
        example={"reason": "the laptop was lost"},
    ),
)
