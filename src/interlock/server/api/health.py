"""How the server itself is: alive, ready, and counted."""

from __future__ import annotations

import asyncio

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.responses import Response

from interlock.errors import StoreError
from interlock.server.messages import Alive, LoopView, Readiness
from interlock.server.problems import NotReady
from interlock.server.routes import Call, Lane, Route
from interlock.systems.access.principals import Role

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


ROUTES = (
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
