"""The journal: what has happened to everything, in order."""

from __future__ import annotations

from collections.abc import Iterable

from interlock.errors import InvalidRecord, UnknownKind
from interlock.server.declaring import Call, Link, Route
from interlock.server.messages import JournalPage, JournalQuery, entry_view
from interlock.server.problems import BadRequest
from interlock.store.checking import known_kind
from interlock.store.records import Entry
from interlock.systems.access.lifecycle import TOKEN
from interlock.systems.access.principals import Role
from interlock.systems.access.sessions import SESSION

PAGE = 1_000
MAX_PAGES = 10
"""How far is read for entries that somebody wants only some of; the cursor goes on from there."""


async def read_journal(call: Call) -> JournalPage:
    """A stretch of it, after a cursor."""
    asked: JournalQuery = call.query
    if asked.kind:
        known_kind(call.parts.lifecycles.kinds, asked.kind)
        need_kinds(call, (asked.kind,))
    elif asked.id:
        raise BadRequest("An id is not enough.", todo="Say of which kind it is: kind=job&id=…")
    if not asked.kind:
        feed = await call.parts.store.feed(asked.after, limit=asked.limit)
        kinds = kinds_for(call)
        entries = (entry for entry in feed.entries if entry.kind in kinds)
        return _page(entries, feed.cursor or asked.after, gap=feed.gap)
    return await _some(call, asked)


def kinds_for(call: Call) -> frozenset[str]:
    """Return the kinds of record whose journal may be read: of tokens and sessions only by an admin."""
    every = frozenset(call.parts.lifecycles.kinds)
    return every if call.principal.may(Role.ADMIN) else every - {TOKEN.name, SESSION.name}


def need_kinds(call: Call, kinds: Iterable[str]) -> None:
    """Raise when the journal of one of these kinds is not for whoever asks."""
    if not kinds_for(call).issuperset(kinds):
        call.principal.need(Role.ADMIN)


async def _some(call: Call, asked: JournalQuery) -> JournalPage:
    found: list[Entry] = []
    cursor, gap = asked.after, False
    for _ in range(MAX_PAGES):
        feed = await call.parts.store.feed(cursor, limit=PAGE)
        gap = gap or feed.gap
        for entry in feed.entries:
            if entry.kind == asked.kind and asked.id in ("", entry.id):
                found.append(entry)
                if len(found) == asked.limit:
                    return _page(found, entry.cursor, gap=gap)
        cursor = feed.cursor or cursor
        if len(feed.entries) < PAGE:
            break
    return _page(found, cursor, gap=gap)


def _page(entries: Iterable[Entry], cursor: str, *, gap: bool) -> JournalPage:
    return JournalPage(entries=tuple(map(entry_view, entries)), cursor=cursor, gap=gap)


ROUTES = (
    Route(
        method="GET",
        path="/api/journal",
        name="readJournal",
        summary="Read the journal after a cursor, oldest first; of everything, of a kind, or of one record.",
        handler=read_journal,
        role=Role.VIEWER,
        everything=True,
        query=JournalQuery,
        answer=JournalPage,
        errors=(UnknownKind, InvalidRecord),
        links=(Link("readJournal", "after", "$response.body#/cursor"),),
    ),
)
