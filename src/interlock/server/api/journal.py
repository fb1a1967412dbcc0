"""The journal: what has happened to everything, in order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from interlock.errors import InvalidRecord, UnknownEvent, UnknownKind, UnknownState
from interlock.machine.names import fold_name
from interlock.server.messages import JournalPage, JournalQuery, entry_view
from interlock.server.problems import BadRequest
from interlock.server.routes import Call, Link, Route
from interlock.store.checking import known_kind
from interlock.store.records import Entry, Key
from interlock.systems.access.lifecycle import TOKEN
from interlock.systems.access.principals import Role
from interlock.systems.access.sessions import SESSION

PAGE = 1_000
STORY = 1_000
MAX_PAGES = 10
"""How far is read for entries that somebody wants only some of; the cursor goes on from there."""


async def read_journal(call: Call) -> JournalPage:
    """A stretch of it, after a cursor."""
    asked: JournalQuery = call.query
    wanted = _wanted(call, asked)
    if asked.newest:
        return await _newest(call, asked, wanted)
    if not any((asked.kind, asked.state, asked.actor, asked.trigger)):
        feed = await call.parts.store.feed(asked.after, limit=asked.limit)
        return _page(filter(wanted, feed.entries), feed.cursor or asked.after, gap=feed.gap)
    return await _some(call, asked, wanted)


Wants = Callable[[Entry], bool]


def _wanted(call: Call, asked: JournalQuery) -> Wants:
    """Return whether an entry is asked for; raise for words that no entry can have."""
    if asked.kind:
        known_kind(call.parts.lifecycles.kinds, asked.kind)
        need_kinds(call, (asked.kind,))
    elif asked.id:
        raise BadRequest("An id is not enough.", todo="Say of which kind it is: kind=job&id=…")
    if asked.newest and asked.after:
        raise BadRequest("The newest entries come after no cursor.", todo="Leave out newest, or after.")
    states, events = _steps_meant(call, asked)
    kinds = frozenset((asked.kind,)) if asked.kind else kinds_for(call)

    def wants(entry: Entry) -> bool:
        steps = entry.note.steps
        return (
            entry.kind in kinds
            and asked.id in ("", entry.id)
            and asked.actor in ("", entry.note.actor)
            and (not states or any(step.target in states and step.moves for step in steps))
            and (not events or any(step.event in events for step in steps))
        )

    return wants


def _steps_meant(call: Call, asked: JournalQuery) -> tuple[frozenset[str], frozenset[str]]:
    """Return the states and events that are asked for; machines spell the same word differently."""
    machines, kinds, _ = call.parts.lifecycles
    # An entry speaks of the machine of its kind, and of those that live inside of records.
    meant = [
        each
        for name, each in machines.items()
        if asked.kind in ("", name) or (asked.kind and name not in kinds)
    ]
    states = sorted({str(state) for machine in meant for state in machine.states})
    events = sorted({event.name for machine in meant for event in machine.events})
    found = [_named(asked.state, states), _named(asked.trigger, events)]
    if asked.state and not found[0]:
        raise UnknownState(asked.state, states, where=asked.kind)
    if asked.trigger and not found[1]:
        raise UnknownEvent(asked.trigger, events, where=asked.kind)
    return found[0], found[1]


def _named(said: str, names: Iterable[str]) -> frozenset[str]:
    return frozenset(name for name in names if said and fold_name(name) == fold_name(said))


async def _newest(call: Call, asked: JournalQuery, wanted: Wants) -> JournalPage:
    """Return the newest entries, newest first, and the cursor after them.

    The story of one record has an index. Otherwise a journal that is short is read whole, and of a long one
    there is what the server has read lately, because a store reads its journal in one direction.
    """
    parts, gap = call.parts, False
    cursor = parts.broadcast.cursor
    entries: Sequence[Entry]
    if asked.id:
        key = Key(asked.kind, asked.id)
        (record,) = await parts.store.load([key])
        first = max(0, record.version - STORY) if record else 0  # a version has an entry at most
        entries = (await parts.store.history(key, after_version=first, limit=STORY)).entries
    else:
        entries, gap = parts.broadcast.remembered(), True
        if len(entries) < PAGE:
            feed = await parts.store.feed("", limit=PAGE)
            if len(feed.entries) < PAGE:
                entries, cursor, gap = feed.entries, feed.cursor or cursor, feed.gap
    return _page([entry for entry in reversed(entries) if wanted(entry)][: asked.limit], cursor, gap=gap)


def kinds_for(call: Call) -> frozenset[str]:
    """Return the kinds of record whose journal may be read: of tokens and sessions only by an admin."""
    every = frozenset(call.parts.lifecycles.kinds)
    return every if call.principal.may(Role.ADMIN) else every - {TOKEN.name, SESSION.name}


def need_kinds(call: Call, kinds: Iterable[str]) -> None:
    """Raise when the journal of one of these kinds is not for whoever asks."""
    if not kinds_for(call).issuperset(kinds):
        call.principal.need(Role.ADMIN)


async def _some(call: Call, asked: JournalQuery, wanted: Wants) -> JournalPage:
    found: list[Entry] = []
    cursor, gap = asked.after, False
    for _ in range(MAX_PAGES):
        feed = await call.parts.store.feed(cursor, limit=PAGE)
        gap = gap or feed.gap
        for entry in feed.entries:
            if wanted(entry):
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
        summary="Read the journal after a cursor, oldest first, or its newest entries, by a filter.",
        handler=read_journal,
        role=Role.VIEWER,
        everything=True,
        query=JournalQuery,
        answer=JournalPage,
        errors=(UnknownKind, UnknownState, UnknownEvent, InvalidRecord),
        links=(Link("readJournal", "after", "$response.body#/cursor"),),
    ),
)
