"""The journal of a record, read page by page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from interlock.api.messages import MAX_PAGE, EntryView, HistoryPage, HistoryQuery, StepView
from interlock.api.operation import Operation
from interlock.store.records import Entry, Note, StepLine

if TYPE_CHECKING:
    from interlock.remote.http_client import ApiClient


async def history_of(api: ApiClient, operation: Operation[Any, HistoryPage], **path: str) -> list[Entry]:
    """Return the journal of a record, oldest first."""
    entries: list[Entry] = []
    after: int | None = 0
    while after is not None:
        query = None if operation.query is None else HistoryQuery(after=after, limit=MAX_PAGE)
        page = await api.call(operation, query, **path)
        entries += map(entry_of, page.entries)
        after = page.after
    return entries


def entry_of(view: EntryView) -> Entry:
    """Return an entry as the journal keeps it."""
    note = Note(
        steps=tuple(map(_line, view.steps)),
        actor=view.actor,
        reason=view.reason,
        cause=view.cause,
        request_id=view.request_id,
        refusal=view.refusal,
    )
    return Entry(cursor=view.cursor, at=view.at, kind=view.kind, id=view.id, version=view.version, note=note)


def _line(step: StepView) -> StepLine:
    return StepLine(step.machine, step.entity, step.event, step.source, step.target, step.owner, step.moves)
