"""Records of any kind, and the kinds that users have declared."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import Meta

from interlock.api.messages import Cursor, HistoryPage, HistoryQuery, Input, Limit, Output
from interlock.api.operation import Operation, Parameter, QueueConfinement
from interlock.errors import (
    InvalidRecord,
    UnknownRecord,
    UnknownRecordKind,
    UnknownState,
)
from interlock.wire.access import Role
from interlock.wire.records import KindView

_KIND = {"kind": Parameter("A kind of record: job, run, message.")}
_RECORD = {**_KIND, "record_id": Parameter("The id of a record of that kind.")}


class RecordsQuery(Input, frozen=True, kw_only=True):
    """Filter and page of records."""

    state: Annotated[
        str, Meta(max_length=1_000, description="Only records in these states, separated by commas.")
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
    summary="Show a record of any kind and its possible actions; with its body for an admin.",
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
    confined=QueueConfinement.NOTHING,
    output=Kinds,
)
