"""Entries of the journal for display, and the history of one record."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from interlock.api.messages import EntryView, HistoryPage, HistoryQuery, StepView
from interlock.engine.loader import every_entry
from interlock.store.contract import Store
from interlock.store.records import Entry, Key, StepLine

_WIDER = 8


async def history_of(store: Store, query: HistoryQuery, key: Key) -> HistoryPage:
    """Return the journal of a record, oldest first."""
    if query.newest:
        entries, older = await _last(store, key, query.limit)
        return HistoryPage(entries=tuple(map(entry_view, entries)), older=older)
    feed = await store.history(key, after_version=query.after, limit=query.limit)
    full = len(feed.entries) == query.limit
    return HistoryPage(
        entries=tuple(map(entry_view, feed.entries)), after=feed.entries[-1].version if full else None
    )


async def _last(store: Store, key: Key, limit: int) -> tuple[Sequence[Entry], bool]:
    """Return the last entries of a record, and whether there are older ones.

    Most versions may have no entry, as those of a lease that is renewed; so ever more of them are looked at.
    """
    (record,) = await store.load([key])
    versions = limit
    while True:
        after = max(0, record.version - versions) if record else 0
        last: deque[Entry] = deque(maxlen=limit + 1)
        async for entry in every_entry(store, key, after):
            last.append(entry)
        if after == 0 or len(last) > limit:
            return list(last)[-limit:], len(last) > limit
        versions *= _WIDER


def entry_view(entry: Entry) -> EntryView:
    """Return an entry for display."""
    note = entry.note
    return EntryView(
        cursor=entry.cursor,
        at=entry.at,
        kind=entry.kind,
        id=entry.id,
        version=entry.version,
        steps=tuple(map(_step_view, note.steps)),
        actor=note.actor,
        reason=note.reason,
        cause=note.cause,
        request_id=note.request_id,
        refusal=note.refusal,
    )


def _step_view(step: StepLine) -> StepView:
    return StepView(
        machine=step.machine,
        event=step.event,
        source=step.source,
        target=step.target,
        owner=step.owner,
        entity=step.entity,
        moves=step.moves,
    )
