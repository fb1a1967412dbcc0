"""Entries of the journal for display, and the history of one record."""

from __future__ import annotations

from interlock.api.messages import EntryView, HistoryPage, HistoryQuery, StepView
from interlock.server.routes import Call
from interlock.store.records import Entry, Key, StepLine


async def history_of(call: Call, key: Key) -> HistoryPage:
    """Return the journal of a record, oldest first."""
    asked: HistoryQuery = call.query
    feed = await call.parts.store.history(key, after_version=asked.after, limit=asked.limit)
    full = len(feed.entries) == asked.limit
    return HistoryPage(
        entries=tuple(map(entry_view, feed.entries)), after=feed.entries[-1].version if full else None
    )


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
