"""Live events: the journal as it grows, as server-sent events that can be resumed."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec
from starlette.responses import StreamingResponse

from interlock.errors import InvalidRecord, UnknownKind
from interlock.server.declaring import Call, Route
from interlock.server.problems import TooMany
from interlock.server.streaming import Stream, Wanted
from interlock.store.checking import known_kind
from interlock.systems.access.principals import Role
from interlock.systems.catalogue import CATALOGUE

MAX_IDS = 100


class EventsQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which events, and from where on."""

    after: str = ""
    """A cursor; the header Last-Event-ID goes before it. Without one: from now on."""
    kind: str = ""
    """Only of these kinds, separated by commas."""
    id: str = ""
    """Only about these records, separated by commas."""


async def follow_events(call: Call) -> StreamingResponse:
    """A stream of entries; `gap` where some were pruned before they were read."""
    asked: EventsQuery = call.query
    kinds = frozenset(filter(None, asked.kind.split(",")))
    for kind in kinds:
        known_kind(CATALOGUE, kind)
    wanted = Wanted(kinds, frozenset(filter(None, asked.id.split(",")[:MAX_IDS])))
    after = call.headers.get("last-event-id", asked.after)
    if after:
        await call.parts.store.feed(
            after, limit=1
        )  # a cursor that is none is refused before the stream begins
    else:
        after = await call.parts.store.latest()
    stream = Stream(call.parts.broadcast, wanted, after, call.parts.stopping)
    name = call.principal.name
    call.parts.readers.enter(name, call.parts.settings.streams_each)

    async def pieces() -> AsyncIterator[bytes]:
        try:
            async for piece in stream.pieces():
                yield piece
        finally:
            call.parts.readers.leave(name)

    return StreamingResponse(
        pieces(),
        media_type="text/event-stream",
        headers={"X-Accel-Buffering": "no", "Connection": "keep-alive"},
    )


ROUTES = (
    Route(
        method="GET",
        path="/api/events",
        name="followEvents",
        summary="Follow the journal live (server-sent events); resume with Last-Event-ID.",
        handler=follow_events,
        role=Role.VIEWER,
        everything=True,
        query=EventsQuery,
        media="text/event-stream",
        bounded=False,
        errors=(UnknownKind, InvalidRecord, TooMany),
    ),
)
