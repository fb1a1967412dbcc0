"""Live events: the journal as it grows, as server-sent events that can be resumed."""

from __future__ import annotations

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from interlock.errors import InvalidRecord, UnknownKind
from interlock.server.api.journal import kinds_for, need_kinds
from interlock.server.event_streams import EventStream, Readers, Stream, Wanted
from interlock.server.problems import BadRequest, TooMany
from interlock.server.routes import Call, Route
from interlock.store.checking import known_kind
from interlock.systems.access.principals import Role

MAX_IDS = 100


class EventsQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which events, and from where on."""

    after: str = ""
    """A cursor; the header Last-Event-ID goes before it. Without one: from now on, or a moment earlier."""
    kind: str = ""
    """Only of these kinds, separated by commas."""
    id: str = ""
    """Only about these records, separated by commas."""
    begin: bool = False
    """Whether the stream begins with an event `begin`, whose id is the cursor that it begins at."""


async def follow_events(call: Call) -> Response:
    """A stream of entries; `gap` where some were pruned before they were read."""
    asked: EventsQuery = call.query
    parts = call.parts
    after = call.headers.get("last-event-id", asked.after)
    if after:
        await parts.broadcast.read(after, 1)  # a cursor that is none is refused before the stream begins
    # Whoever wants what comes now begins where all others are: there nothing has to be read for it alone.
    wanted, cursor = _wanted(call, asked), after or parts.broadcast.cursor
    stream = Stream(parts.broadcast, wanted, cursor, announced=asked.begin)
    return Admitted(
        EventStream(stream, parts.broadcast, parts.ending(call.principal)),
        parts.readers,
        call.principal.name,
        parts.settings.streams_each,
    )


class Admitted(Response):
    """A stream, for as long as which somebody has one more open."""

    def __init__(self, stream: EventStream, readers: Readers, name: str, most: int) -> None:
        super().__init__()
        self._stream = stream
        self._readers = readers
        self._name = name
        self._most = most

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it, unless there are too many already."""
        self._readers.enter(self._name, self._most)
        try:
            await self._stream(scope, receive, send)
        finally:
            self._readers.leave(self._name)


def _wanted(call: Call, asked: EventsQuery) -> Wanted:
    kinds = frozenset(filter(None, asked.kind.split(",")))
    for kind in kinds:
        known_kind(call.parts.lifecycles.kinds, kind)
    need_kinds(call, kinds)
    if not kinds and not call.principal.may(Role.ADMIN):
        kinds = kinds_for(call)
    ids = frozenset(filter(None, asked.id.split(",")))
    if len(ids) > MAX_IDS:
        raise BadRequest(
            f"At most {MAX_IDS} records are followed by their ids, not {len(ids)}.",
            todo="Follow the whole kind, and pass over the others.",
            facts={"ids": len(ids), "most": MAX_IDS},
        )
    return Wanted(kinds, ids)


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
        errors=(UnknownKind, InvalidRecord, BadRequest, TooMany),
    ),
)
