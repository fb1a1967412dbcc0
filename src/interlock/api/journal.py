"""The journal: read it in pages, or follow it live."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from interlock.api.messages import Cursor, EntryView, Input, Limit, Output
from interlock.api.operation import Link, Operation
from interlock.errors import BadRequest, InvalidRecord, TooMany, UnknownEvent, UnknownKind, UnknownState
from interlock.wire.access import Role


class JournalQuery(Input, frozen=True, kw_only=True):
    """Filter and page of the journal."""

    after: Cursor = ""
    limit: Limit = 200
    kind: Annotated[str, Meta(max_length=64, description="Only records of this kind.")] = ""
    id: Annotated[str, Meta(max_length=64, description="Only this record; needs its kind.")] = ""
    state: Annotated[str, Meta(max_length=64, description="Only transitions to this state.")] = ""
    actor: Annotated[str, Meta(max_length=200, description="Only entries of this actor.")] = ""
    trigger: Annotated[str, Meta(max_length=64, description="Only entries of this event.")] = ""
    newest: Annotated[
        bool,
        Meta(description="The newest entries, newest first; a filter looks at the latest ones only."),
    ] = False


class JournalPage(Output, frozen=True, kw_only=True):
    """A page of the journal. `cursor` is for the next page; `gap` when there were older entries."""

    entries: tuple[EntryView, ...]
    cursor: str
    gap: bool = False


class EventsQuery(Input, frozen=True, kw_only=True):
    """Filter of live events, and where to start."""

    after: Annotated[
        str, Meta(description="A cursor; the header Last-Event-ID takes precedence (default: from now on).")
    ] = ""
    """Without a cursor the stream starts now, or a moment earlier."""
    kind: Annotated[str, Meta(description="Kinds of records, separated by commas (default: all).")] = ""
    id: Annotated[str, Meta(description="Ids of records, separated by commas (default: all).")] = ""
    begin: Annotated[
        bool, Meta(description="Start with an event `begin`, whose id is the cursor of the start.")
    ] = False


READ_JOURNAL = Operation(
    name="readJournal",
    request="GET /api/journal",
    summary="Read the journal after a cursor, oldest first, or its newest entries, by a filter.",
    role=Role.VIEWER,
    input=JournalQuery,
    output=JournalPage,
    errors=(UnknownKind, UnknownState, UnknownEvent, InvalidRecord),
    links=(Link("readJournal", "after", "$response.body#/cursor"),),
)

FOLLOW_EVENTS = Operation(
    name="followEvents",
    request="GET /api/events",
    summary="Follow the journal live (server-sent events); resume with Last-Event-ID.",
    role=Role.VIEWER,
    input=EventsQuery,
    media="text/event-stream",
    errors=(UnknownKind, InvalidRecord, BadRequest, TooMany),
    bounded=False,
)
