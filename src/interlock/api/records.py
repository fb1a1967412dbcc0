"""Records of any kind, records of declared kinds, and the journal."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import Meta

from interlock.api.messages import Cursor, EntryView, HistoryPage, HistoryQuery, Input, Limit, Output
from interlock.api.operation import Confined, Link, Operation, Parameter
from interlock.errors import (
    BadRequest,
    InvalidRecord,
    TooMany,
    UnknownEvent,
    UnknownKind,
    UnknownRecord,
    UnknownRecordKind,
    UnknownState,
)
from interlock.wire.access import Role
from interlock.wire.records import KindView

_KIND = {"kind": Parameter("A kind of record: job, run, message.")}
_RECORD = {**_KIND, "record_id": Parameter("The id of a record of that kind.")}


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

    after: str = ""
    """A cursor; the header Last-Event-ID takes precedence. Without one: from now on, or a moment earlier."""
    kind: str = ""
    """Kinds of records, separated by commas."""
    id: str = ""
    """Ids of records, separated by commas."""
    begin: bool = False
    """Whether the stream starts with an event `begin`, whose id is the cursor of the start."""


class RecordsQuery(Input, frozen=True, kw_only=True):
    """Filter and page of records."""

    state: Annotated[
        str, Meta(max_length=1_000, description="Only in these states, separated by commas.")
    ] = ""
    limit: Limit = 50
    cursor: Cursor = ""


class RecordView(Output, frozen=True, kw_only=True):
    """A record without the data of its lifecycle."""

    kind: str
    id: str
    state: str
    version: int
    created_at: datetime
    updated_at: datetime
    parent: str = ""
    queue: str = ""
    labels: tuple[str, ...] = ()
    priority: int = 0
    ready_at: datetime | None = None
    deadline_at: datetime | None = None


class RecordPage(Output, frozen=True, kw_only=True):
    """Records, newest first. `cursor` is for the next page, and is empty at the end."""

    records: tuple[RecordView, ...]
    cursor: str


class RecordAction(Output, frozen=True, kw_only=True):
    """An event that can be sent to a record now, by a POST that needs no more than a request id."""

    event: str
    request: str
    """The path to post to."""
    summary: str = ""
    stops: bool = False
    """The event ends the record for good."""


class RecordDetail(RecordView, frozen=True, kw_only=True, omit_defaults=True):
    """A record, and its possible actions."""

    actions: tuple[RecordAction, ...] = ()
    body: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    """Data of its lifecycle; for admins only."""


class Kinds(msgspec.Struct, frozen=True, kw_only=True):
    """The declared kinds."""

    kinds: tuple[KindView, ...]


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

LIST_RECORDS = Operation(
    name="listRecords",
    request="GET /api/records/{kind}",
    summary="List the records of a kind, newest first, by their states.",
    role=Role.VIEWER,
    parameters=_KIND,
    input=RecordsQuery,
    output=RecordPage,
    errors=(UnknownRecordKind, UnknownState, InvalidRecord),
)

GET_RECORD = Operation(
    name="getRecord",
    request="GET /api/records/{kind}/{record_id}",
    summary="Show a record of any kind, and what can be done with it; with its body for an admin.",
    role=Role.VIEWER,
    parameters=_RECORD,
    output=RecordDetail,
    errors=(UnknownRecordKind, UnknownRecord),
)

GET_RECORD_HISTORY = Operation(
    name="getRecordHistory",
    request="GET /api/records/{kind}/{record_id}/history",
    summary="Show the history of a record of any kind.",
    role=Role.VIEWER,
    parameters=_RECORD,
    input=HistoryQuery,
    output=HistoryPage,
    errors=(UnknownRecordKind, UnknownRecord),
)

LIST_KINDS = Operation(
    name="listKinds",
    request="GET /api/kinds",
    summary="List the kinds of record that users have declared, with their events and roles.",
    role=Role.VIEWER,
    confined=Confined.NOTHING,
    output=Kinds,
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
