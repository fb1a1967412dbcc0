"""Operations of records of a declared kind.

A server has each of them once for every declared kind, with the name of the kind in place of `{kind}`, the
roles that the kind requires, and one `SEND` for each event. A client does not know the kinds, so it calls
them as they are declared here.
"""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from interlock.api.messages import Cursor, HistoryPage, Input, Limit, Reason, RequestId
from interlock.api.operation import Operation, Parameter
from interlock.errors import (
    AlreadyThere,
    EventIgnored,
    GuardRefused,
    InvalidData,
    InvalidRecord,
    RecordExists,
    RequestIdReused,
    TerminalState,
    TooLarge,
    TransitionNotAllowed,
    UnknownKind,
    UnknownRecord,
    UnknownState,
    VersionChanged,
)
from interlock.wire.access import Role
from interlock.wire.records import RecordExplanation, StoredPage, StoredRecord

RecordId = Annotated[
    str, Meta(max_length=64, pattern="^[A-Za-z0-9_-]*$", description="Id of the record (default: generated).")
]
Version = Annotated[int, Meta(ge=1, le=2**53, description="Refuse if the record is in another version.")]


class KindQuery(Input, frozen=True, kw_only=True):
    """Filter and page of records."""

    state: Annotated[
        str, Meta(max_length=1_000, description="Only in these states, separated by commas.")
    ] = ""
    where: Annotated[
        str, Meta(max_length=2_000, description='Values of labels, as JSON: `{"customer": "ada"}`.')
    ] = ""
    queue: Annotated[str, Meta(max_length=64, description="Only in this queue.")] = ""
    parent: Annotated[str, Meta(max_length=64, description="Only with this parent.")] = ""
    limit: Limit = 50
    cursor: Cursor = ""


class NewRecord(Input, frozen=True, kw_only=True):
    """A record to create. A server has a struct for each kind, with the fields of its data."""

    data: Any
    id: RecordId = ""
    request_id: RequestId | None = None


class SentEvent(Input, frozen=True, kw_only=True):
    """An event to send. A server has a struct for each event, with the fields that it carries."""

    data: Any
    expected: Version | None = None
    reason: Reason = ""
    request_id: RequestId | None = None


def _unknown_record(path: dict[str, str]) -> UnknownRecord:
    kind, record_id = path["kind"], path["record_id"][:64]
    return UnknownRecord(
        f"There is no {kind} {record_id}.",
        todo=f"Look for it with `interlock record list {kind}`.",
        facts={"kind": kind, "id": record_id},
    )


KIND = {"kind": Parameter("The name of a kind.", lambda path: UnknownKind(path["kind"][:64], ()))}
RECORD = {**KIND, "record_id": Parameter("The id of a record of that kind.", _unknown_record)}

CREATE = Operation(
    name="create{Kind}",
    request="POST /api/kinds/{kind}",
    summary="Create a record of the kind {kind}.",
    role=Role.SUBMITTER,
    parameters=KIND,
    input=NewRecord,
    output=StoredRecord,
    status=201,
    errors=(RecordExists, InvalidData, InvalidRecord, TooLarge, RequestIdReused),
)

LIST = Operation(
    name="list{Kind}",
    request="GET /api/kinds/{kind}",
    summary="List the records of the kind {kind}, newest first.",
    role=Role.VIEWER,
    parameters=KIND,
    input=KindQuery,
    output=StoredPage,
    errors=(UnknownState, InvalidData, InvalidRecord),
)

GET = Operation(
    name="get{Kind}",
    request="GET /api/kinds/{kind}/{record_id}",
    summary="Show a record of the kind {kind}.",
    role=Role.VIEWER,
    parameters=RECORD,
    output=StoredRecord,
    errors=(UnknownRecord,),
)

GET_HISTORY = Operation(
    name="get{Kind}History",
    request="GET /api/kinds/{kind}/{record_id}/history",
    summary="Show the history of a record of the kind {kind}.",
    role=Role.VIEWER,
    parameters=RECORD,
    output=HistoryPage,
    errors=(UnknownRecord,),
)

EXPLAIN = Operation(
    name="get{Kind}Explanation",
    request="GET /api/kinds/{kind}/{record_id}/explain",
    summary="Explain the next step of a record of the kind {kind}.",
    role=Role.VIEWER,
    parameters=RECORD,
    output=RecordExplanation,
    errors=(UnknownRecord,),
)

SEND = Operation(
    name="send{Kind}",
    request="POST /api/kinds/{kind}/{record_id}/send/{event}",
    summary="Send an event to a record of the kind {kind}.",
    role=Role.OPERATOR,
    parameters={**RECORD, "event": Parameter("The name of an event.")},
    input=SentEvent,
    output=StoredRecord,
    errors=(
        UnknownRecord,
        AlreadyThere,
        TerminalState,
        TransitionNotAllowed,
        EventIgnored,
        GuardRefused,
        VersionChanged,
        InvalidData,
        TooLarge,
        RequestIdReused,
    ),
)
