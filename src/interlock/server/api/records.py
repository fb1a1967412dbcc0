"""Records of any kind, as the store keeps them; a lifecycle that is declared needs no route of its own.

Everything here comes from the declaration: which states there are from the table of the kind, and which
actions there are from the routes that bring one of its events. A record may speak of any queue, so a token
that is confined to some sees none; and its body is as the program keeps it, so only an admin reads that.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import Meta
from msgspec.structs import asdict

from interlock.errors import InvalidRecord, UnknownName, UnknownRecord, UnknownState
from interlock.machine.names import fold_name
from interlock.server.api.journal import need_kinds
from interlock.server.api.machines import sheet_of
from interlock.server.api.visibility import is_shaped
from interlock.server.messages import Cursor, HistoryPage, HistoryQuery, Limit, entry_view
from interlock.server.routes import Call, Route
from interlock.store.catalogue import Kind
from interlock.store.records import Key, Query, Record
from interlock.systems.access.principals import Role


class UnknownRecordKind(UnknownName, code="unknown_record_kind", status=404, noun="kind"):
    """The store keeps no records of that kind."""


class RecordsQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which page of which records."""

    state: Annotated[str, Meta(max_length=1_000, description="Only in these states, with commas.")] = ""
    limit: Limit = 50
    cursor: Cursor = ""


class RecordView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A record without what only its own lifecycle understands."""

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


class RecordPage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Records, newest first. `cursor` is for the next page, and is empty at the end."""

    records: tuple[RecordView, ...]
    cursor: str


class RecordAction(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An event that can be brought to a record now, by a POST that needs no more than a request id."""

    event: str
    request: str
    """The path to post to."""
    summary: str = ""
    stops: bool = False
    """It ends the record for good."""


class RecordDetail(RecordView, frozen=True, kw_only=True, omit_defaults=True):
    """One record, and what can be done with it."""

    actions: tuple[RecordAction, ...] = ()
    body: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    """What its lifecycle keeps in it; for admins only."""


async def list_records(call: Call) -> RecordPage:
    """A page of the records of a kind."""
    asked: RecordsQuery = call.query
    kind = _kind(call)
    states = tuple(_state(kind, name.strip()) for name in asked.state.split(",") if name.strip())
    query = Query(kind=kind.name, states=states, limit=asked.limit, cursor=asked.cursor)
    page = await call.parts.store.find(query)
    return RecordPage(records=tuple(map(_view, page.records)), cursor=page.cursor)


async def get_record(call: Call) -> RecordDetail:
    """One record, with its body for those who may read it."""
    record = await _record(call)
    body = msgspec.Raw(record.body) if call.principal.may(Role.ADMIN) else msgspec.UNSET
    return RecordDetail(**asdict(_view(record)), actions=tuple(_actions(call, record)), body=body)


async def get_record_history(call: Call) -> HistoryPage:
    """What the journal says about a record, oldest first."""
    record, asked = await _record(call), call.query
    feed = await call.parts.store.history(record.key, after_version=asked.after, limit=asked.limit)
    full = len(feed.entries) == asked.limit
    entries = tuple(map(entry_view, feed.entries))
    return HistoryPage(entries=entries, after=feed.entries[-1].version if full else None)


def _kind(call: Call) -> Kind:
    name, kinds = call.path["kind"], call.parts.lifecycles.kinds
    if name not in kinds:
        raise UnknownRecordKind(name[:64], tuple(kinds))
    need_kinds(call, (name,))
    return kinds[name]


def _state(kind: Kind, said: str) -> str:
    for state in kind.states:
        if fold_name(state) == fold_name(said):
            return state
    raise UnknownState(said[:64], kind.states, where=kind.name)


async def _record(call: Call) -> Record:
    kind, record_id = _kind(call), call.path["record_id"]
    found = (await call.parts.store.load([Key(kind.name, record_id)]))[0] if is_shaped(record_id) else None
    if found is None:
        raise UnknownRecord(
            f"There is no {kind.name} {record_id[:64]}.",
            todo=f"Look for it with GET /api/records/{kind.name}; ended records are pruned after a while.",
            facts={"kind": kind.name, "id": record_id[:64]},
        )
    return found


def _view(record: Record) -> RecordView:
    return RecordView(
        kind=record.kind,
        id=record.id,
        state=record.state,
        version=record.version,
        created_at=record.created_at,
        updated_at=record.updated_at,
        parent=record.parent or "",
        queue=record.queue or "",
        labels=record.labels,
        priority=record.priority,
        ready_at=record.ready_at,
        deadline_at=record.deadline_at,
    )


def _actions(call: Call, record: Record) -> Iterator[RecordAction]:
    """Return what whoever asks may do with a record, as far as its table has something for it now."""
    machine = call.parts.lifecycles.machines.get(record.kind)
    if machine is None:
        return
    sheet = sheet_of(machine)
    legal = {row.event for row in sheet.transitions if row.source == record.state}
    legal |= {row.event for row in sheet.kept if row.state == record.state}
    for route in call.parts.routes:
        kind, event = route.fires or ("", "")
        if kind == record.kind and event in legal and route.role and call.principal.may(route.role):
            (name,) = route.parameters or {"record_id": ""}
            yield RecordAction(
                event=event,
                request=route.path.replace(f"{{{name}}}", record.id),
                summary=route.summary,
                stops=event in sheet.stop,
            )


_KIND = {"kind": "A kind of record: job, run, message."}
_RECORD = {**_KIND, "record_id": "The id of a record of that kind."}

ROUTES = (
    Route(
        method="GET",
        path="/api/records/{kind}",
        name="listRecords",
        summary="List the records of a kind, newest first, by their states.",
        handler=list_records,
        role=Role.VIEWER,
        everything=True,
        parameters=_KIND,
        query=RecordsQuery,
        answer=RecordPage,
        errors=(UnknownRecordKind, UnknownState, InvalidRecord),
    ),
    Route(
        method="GET",
        path="/api/records/{kind}/{record_id}",
        name="getRecord",
        summary="Show a record of any kind, and what can be done with it; with its body for an admin.",
        handler=get_record,
        role=Role.VIEWER,
        everything=True,
        parameters=_RECORD,
        answer=RecordDetail,
        errors=(UnknownRecordKind, UnknownRecord),
    ),
    Route(
        method="GET",
        path="/api/records/{kind}/{record_id}/history",
        name="getRecordHistory",
        summary="Show everything that has happened to a record of any kind.",
        handler=get_record_history,
        role=Role.VIEWER,
        everything=True,
        parameters=_RECORD,
        query=HistoryQuery,
        answer=HistoryPage,
        errors=(UnknownRecordKind, UnknownRecord),
    ),
)
