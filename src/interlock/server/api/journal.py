"""Routes of the journal: read it in pages, or follow it live as resumable server-sent events."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from interlock.api import journal as api
from interlock.errors import BadRequest, UnknownEvent, UnknownState
from interlock.machine.table import fold_name
from interlock.server.event_streams import EntryFilter, EventStream, Readers, Stream
from interlock.server.history import entry_view
from interlock.server.routes import Call, handles
from interlock.store.records import Entry, Key
from interlock.store.validation import known_kind
from interlock.systems.access.authentication import SESSION
from interlock.systems.access.tokens import TOKEN
from interlock.wire.access import Role

PAGE = 1_000
STORY = 1_000
MAX_PAGES = 10
"""Maximum pages of the journal read for one filtered request; the cursor continues from there."""


@handles(api.READ_JOURNAL)
async def read_journal(call: Call) -> api.JournalPage:
    """Return a page of the journal after a cursor."""
    query: api.JournalQuery = call.query
    wanted = _wanted(call, query)
    if query.newest:
        return await _newest(call, query, wanted)
    if not any((query.kind, query.state, query.actor, query.trigger)):
        feed = await call.parts.store.feed(query.after, limit=query.limit)
        return _page(filter(wanted, feed.entries), feed.cursor or query.after, gap=feed.gap)
    return await _some(call, query, wanted)


Wants = Callable[[Entry], bool]


def _wanted(call: Call, query: api.JournalQuery) -> Wants:
    """Return the predicate of the filter.

    Raise for values that no entry can have.
    """
    if query.kind:
        known_kind(call.parts.lifecycles.kinds, query.kind)
        need_kinds(call, (query.kind,))
    elif query.id:
        raise BadRequest("An id needs its kind.", todo="Add the kind: kind=job&id=…")
    if query.newest and query.after:
        raise BadRequest("newest and after exclude each other.", todo="Leave out newest, or after.")
    states, events = _steps_meant(call, query)
    kinds = frozenset((query.kind,)) if query.kind else kinds_for(call)

    def wants(entry: Entry) -> bool:
        steps = entry.note.steps
        return (
            entry.kind in kinds
            and query.id in ("", entry.id)
            and query.actor in ("", entry.note.actor)
            and (not states or any(step.target in states and step.moves for step in steps))
            and (not events or any(step.event in events for step in steps))
        )

    return wants


def _steps_meant(call: Call, query: api.JournalQuery) -> tuple[frozenset[str], frozenset[str]]:
    """Return the states and events of the filter.

    Machines spell the same word differently.
    """
    machines, kinds, _ = call.parts.lifecycles
    # An entry contains steps of the machine of its kind, and of machines inside its record.
    meant = [
        each
        for name, each in machines.items()
        if query.kind in ("", name) or (query.kind and name not in kinds)
    ]
    states = sorted({str(state) for machine in meant for state in machine.states})
    events = sorted({event.name for machine in meant for event in machine.events})
    found = [_named(query.state, states), _named(query.trigger, events)]
    if query.state and not found[0]:
        raise UnknownState(query.state, states, where=query.kind)
    if query.trigger and not found[1]:
        raise UnknownEvent(query.trigger, events, where=query.kind)
    return found[0], found[1]


def _named(text: str, names: Iterable[str]) -> frozenset[str]:
    return frozenset(name for name in names if text and fold_name(name) == fold_name(text))


async def _newest(call: Call, query: api.JournalQuery, wanted: Wants) -> api.JournalPage:
    """Return the newest entries, newest first, and the cursor after them.

    The history of one record has an index. Otherwise a filter looks at the entries that the server has read
    lately, or at the last ones of the store if little has happened since the server was started.
    """
    parts, gap = call.parts, False
    cursor = parts.broadcast.cursor
    entries: Sequence[Entry]
    if query.id:
        key = Key(query.kind, query.id)
        (record,) = await parts.store.load([key])
        first = max(0, record.version - STORY) if record else 0  # each version has at most one entry
        entries = (await parts.store.history(key, after_version=first, limit=STORY)).entries
    else:
        entries, gap = parts.broadcast.remembered(), True
        if len(entries) < PAGE:
            feed = await parts.store.feed(await parts.store.latest(back=PAGE), limit=2 * PAGE)
            entries, cursor = feed.entries, feed.cursor or cursor
            gap = feed.gap or len(entries) >= PAGE
    return _page([entry for entry in reversed(entries) if wanted(entry)][: query.limit], cursor, gap=gap)


def kinds_for(call: Call) -> frozenset[str]:
    """Return the kinds whose journal the principal may read.

    Tokens and sessions are for admins, and a kind of users for the role that it declares.
    """
    return frozenset(name for name in call.parts.lifecycles.kinds if call.principal.may(_reading(call, name)))


def need_kinds(call: Call, kinds: Iterable[str]) -> None:
    """Raise if the principal may not read the journal of one of these kinds."""
    for name in kinds:
        call.principal.need(_reading(call, name))


def _reading(call: Call, kind: str) -> Role:
    if kind in (TOKEN.name, SESSION.name):
        return Role.ADMIN
    declared = (each.roles.read for each in call.parts.lifecycles.own if each.name == kind)
    return next(declared, Role.VIEWER)


async def _some(call: Call, query: api.JournalQuery, wanted: Wants) -> api.JournalPage:
    found: list[Entry] = []
    cursor, gap = query.after, False
    for _ in range(MAX_PAGES):
        feed = await call.parts.store.feed(cursor, limit=PAGE)
        gap = gap or feed.gap
        for entry in feed.entries:
            if wanted(entry):
                found.append(entry)
                if len(found) == query.limit:
                    return _page(found, entry.cursor, gap=gap)
        cursor = feed.cursor or cursor
        if len(feed.entries) < PAGE:
            break
    return _page(found, cursor, gap=gap)


def _page(entries: Iterable[Entry], cursor: str, *, gap: bool) -> api.JournalPage:
    return api.JournalPage(entries=tuple(map(entry_view, entries)), cursor=cursor, gap=gap)


MAX_IDS = 100


@handles(api.FOLLOW_EVENTS)
async def follow_events(call: Call) -> Response:
    """Return a stream of entries, with a `gap` event where some were pruned."""
    query: api.EventsQuery = call.query
    parts = call.parts
    after = call.headers.get("last-event-id", query.after)
    if after:
        await parts.broadcast.read(after, 1)  # an invalid cursor is refused before the stream begins
    # A reader without a cursor begins at the broadcast's position, so no extra read is needed.
    wanted, cursor = _wanted_events(call, query), after or parts.broadcast.cursor
    stream = Stream(parts.broadcast, wanted, cursor, announced=query.begin)
    return AdmittedStream(
        EventStream(stream, parts.broadcast, parts.ending(call.principal)),
        parts.readers,
        call.principal.name,
        parts.settings.streams_each,
    )


class AdmittedStream(Response):
    """A stream that counts towards the open streams of its principal."""

    def __init__(self, stream: EventStream, readers: Readers, name: str, most: int) -> None:
        super().__init__()
        self._stream = stream
        self._readers = readers
        self._name = name
        self._most = most

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the stream, unless the principal has too many open."""
        self._readers.enter(self._name, self._most)
        try:
            await self._stream(scope, receive, send)
        finally:
            self._readers.leave(self._name)


def _wanted_events(call: Call, query: api.EventsQuery) -> EntryFilter:
    kinds = frozenset(filter(None, query.kind.split(",")))
    for kind in kinds:
        known_kind(call.parts.lifecycles.kinds, kind)
    need_kinds(call, kinds)
    if not kinds and not call.principal.may(Role.ADMIN):
        kinds = kinds_for(call)
    ids = frozenset(filter(None, query.id.split(",")))
    if len(ids) > MAX_IDS:
        raise BadRequest(
            f"At most {MAX_IDS} records are followed by their ids, not {len(ids)}.",
            todo="Follow the whole kind, and skip other records.",
            facts={"ids": len(ids), "most": MAX_IDS},
        )
    return EntryFilter(kinds, ids)
