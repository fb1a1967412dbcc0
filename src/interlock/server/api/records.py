"""Routes of records: of any kind as the store keeps them, and of the kinds that users have declared.

Both come from the declaration: states from the table of the kind, actions from the routes that send one of
its events. Each event of a declared kind that may be sent over HTTP has a route of its own, with the role
that the kind asks for and the fields that the event carries; so access, the OpenAPI document and the
buttons of the dashboard need nothing more. A record may speak of any queue, so a token that is confined to
some queues sees none; its body is as the program keeps it, so only an admin reads that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from msgspec.structs import asdict

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
    UnknownEvent,
    UnknownKind,
    UnknownName,
    UnknownRecord,
    UnknownState,
    VersionChanged,
)
from interlock.machine.table import fold_name
from interlock.server.api.journal import need_kinds
from interlock.server.api.machines import sheet_of
from interlock.server.api.visibility import is_shaped
from interlock.server.messages import (
    Cursor,
    HistoryPage,
    HistoryQuery,
    Limit,
    Reason,
    RequestId,
    entry_view,
)
from interlock.server.routes import Call, Confined, Handler, Route
from interlock.store.catalogue import Kind
from interlock.store.records import Key, Query, Record
from interlock.systems.access.principals import NotAllowed, Role
from interlock.systems.kinds import DeclaredKind, camel
from interlock.systems.records import Records, unknown
from interlock.wire.records import KindView, RecordExplanation, StoredPage, StoredRecord


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


_REFUSALS = (AlreadyThere, TerminalState, TransitionNotAllowed, EventIgnored, GuardRefused)
_VERSION = Annotated[int, Meta(ge=1, le=2**53, description="Refuse if it is in another version.")]
_ID = Annotated[str, Meta(max_length=64, pattern="^[A-Za-z0-9_-]*$", description="Drawn if it is empty.")]
_OF_RECORD = {"record_id": "The id of a record of that kind."}


class Kinds(msgspec.Struct, frozen=True, kw_only=True):
    """The kinds that users have declared."""

    kinds: tuple[KindView, ...]


class KindQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which page of which records."""

    state: Annotated[str, Meta(max_length=1_000, description="Only in these states, with commas.")] = ""
    where: Annotated[
        str, Meta(max_length=2_000, description='Values of labels, as JSON: `{"customer": "ada"}`.')
    ] = ""
    queue: Annotated[str, Meta(max_length=64, description="Only of this queue.")] = ""
    parent: Annotated[str, Meta(max_length=64, description="Only with this parent.")] = ""
    limit: Limit = 50
    cursor: Cursor = ""


async def list_kinds(call: Call) -> Kinds:
    """Return what users have declared."""
    return Kinds(kinds=tuple(await _records(call).kinds()))


KIND_ROUTES = (
    Route(
        method="GET",
        path="/api/kinds",
        name="listKinds",
        summary="List the kinds of record that users have declared, with their events and roles.",
        handler=list_kinds,
        role=Role.VIEWER,
        confined=Confined.NOTHING,
        answer=Kinds,
    ),
)


def routes_of(kinds: Iterable[DeclaredKind[Any]]) -> tuple[Route, ...]:
    """Return the routes of users' kinds; after them, those that refuse other kinds."""
    routes = tuple(route for kind in kinds for route in _routes(kind))
    return (*routes, *_elsewhere()) if routes else ()


def _routes(kind: DeclaredKind[Any]) -> Iterator[Route]:
    name, path, one = kind.name, f"/api/kinds/{kind.name}", f"/api/kinds/{kind.name}/{{record_id}}"
    title = camel(name)
    read: dict[str, Any] = {"method": "GET", "role": kind.roles.read, "everything": True}
    yield Route(
        method="POST",
        path=path,
        name=f"create{title}",
        summary=f"Create a record of the kind {name}.",
        handler=_create(kind),
        role=kind.roles.create,
        everything=True,
        bodies=(_creation(kind),),
        repeatable=True,
        answer=StoredRecord,
        status=201,
        errors=(RecordExists, InvalidData, InvalidRecord, TooLarge, RequestIdReused),
    )
    yield Route(
        path=path,
        name=f"list{title}",
        summary=f"List the records of the kind {name}, newest first.",
        handler=_list(kind),
        query=KindQuery,
        answer=StoredPage,
        errors=(UnknownState, InvalidData, InvalidRecord),
        **read,
    )
    for what, answer, handler, summary in (
        ("", StoredRecord, _get, "Show"),
        ("History", HistoryPage, _history, "Show everything that has happened to"),
        ("Explanation", RecordExplanation, _explain, "Explain what the next step is for"),
    ):
        yield Route(
            path=one + {"": "", "History": "/history", "Explanation": "/explain"}[what],
            name=f"get{title}{what}",
            summary=f"{summary} a record of the kind {name}.",
            handler=handler(kind),
            parameters=_OF_RECORD,
            answer=answer,
            errors=(UnknownRecord,),
            **read,
        )
    for event, role in kind.roles.send.items():
        if role is not None:
            yield _sending(kind, event, role, f"{one}/send/{event}", title)
    yield Route(  # after the routes of its events: what comes here is no event, or not sent over HTTP
        method="POST",
        path=f"{one}/send/{{event}}",
        name=f"send{title}",
        summary=f"Refuse an event that the kind {name} does not have, and list those that it has.",
        handler=_refuse(kind),
        role=kind.roles.read,
        everything=True,
        parameters={**_OF_RECORD, "event": "The name of an event."},
        repeatable=True,
        answer=StoredRecord,
        errors=(UnknownEvent, InvalidData, NotAllowed),
    )


def _elsewhere() -> Iterator[Route]:
    for method, verb in (("GET", "get"), ("POST", "send")):
        for path, what in (("", "Kind"), ("/{record_id}", "Record")):
            yield Route(
                method=method,
                path=f"/api/kinds/{{kind}}{path}",
                name=f"{verb}Unknown{what}",
                summary="Refuse a kind that is not declared, and list those that are.",
                handler=_no_kind,
                role=Role.VIEWER,
                everything=True,
                parameters={"kind": "The name of a kind.", **(_OF_RECORD if path else {})},
                answer=StoredRecord,
                errors=(UnknownKind,),
            )


def _sending(kind: DeclaredKind[Any], event: str, role: Role, path: str, title: str) -> Route:
    payload = kind.payloads[event]
    required = any(field.required for field in msgspec.structs.fields(payload))
    return Route(
        method="POST",
        path=path,
        name=f"send{title}{camel(event)}",
        summary=kind.machine.event(event).doc,
        handler=_send(kind, event),
        role=role,
        everything=True,
        parameters=_OF_RECORD,
        bodies=(_message(kind, event, payload, required=required),),
        body_required=required,
        repeatable=True,
        fires=None if required else (kind.name, event),
        answer=StoredRecord,
        errors=(UnknownRecord, *_REFUSALS, VersionChanged, InvalidData, TooLarge, RequestIdReused),
    )


def _creation(kind: DeclaredKind[Any]) -> type[msgspec.Struct]:
    fields = [("data", kind.data), ("id", _ID, ""), ("request_id", RequestId | None, None)]
    doc = f"Create a record of the kind {kind.name}."
    return _struct(f"Create{camel(kind.name)}", fields, doc)


def _message(
    kind: DeclaredKind[Any], event: str, payload: type[msgspec.Struct], *, required: bool
) -> type[msgspec.Struct]:
    fields: list[Any] = [
        ("data", payload) if required else ("data", payload, msgspec.field(default_factory=payload)),
        ("expected", _VERSION | None, None),
        ("reason", Reason, ""),
        ("request_id", RequestId | None, None),
    ]
    return _struct(f"Send{camel(kind.name)}{camel(event)}", fields, kind.machine.event(event).doc)


def _struct(name: str, fields: list[Any], doc: str) -> type[msgspec.Struct]:
    return msgspec.defstruct(
        name, fields, frozen=True, kw_only=True, forbid_unknown_fields=True, namespace={"__doc__": doc}
    )


# Handlers


def _create(kind: DeclaredKind[Any]) -> Handler:
    async def create(call: Call) -> StoredRecord:
        return await _records(call).create(
            kind.name,
            call.body.data,
            record_id=call.body.id,
            actor=call.actor,
            request_id=call.request_id,
        )

    return create


def _send(kind: DeclaredKind[Any], event: str) -> Handler:
    async def send(call: Call) -> StoredRecord:
        asked = call.body
        return await _records(call).send(
            kind.name,
            _id_in(call, kind),
            event,
            {} if asked is None else msgspec.to_builtins(asked.data),
            expected=None if asked is None else asked.expected,
            reason="" if asked is None else asked.reason,
            actor=call.actor,
            request_id=call.request_id,
        )

    return send


def _refuse(kind: DeclaredKind[Any]) -> Handler:
    async def refuse(call: Call) -> StoredRecord:
        event = kind.sendable(call.path["event"])
        sent = [name for name, role in kind.roles.send.items() if role is not None]
        raise NotAllowed(
            f"The event {event.name} of {kind.name} is not sent over HTTP.",
            allowed=sent,
            todo=f"Send one of: {', '.join(sent)}; or send it by a program that has the store.",
            facts={"kind": kind.name, "event": event.name},
        )

    return refuse


async def _no_kind(call: Call) -> StoredRecord:
    _records(call).kind(call.path["kind"])
    raise UnknownKind(call.path["kind"][:64], ())


def _list(kind: DeclaredKind[Any]) -> Handler:
    async def list_records(call: Call) -> StoredPage:
        asked: KindQuery = call.query
        records, cursor = await _records(call).find(
            kind.name,
            states=[name.strip() for name in asked.state.split(",") if name.strip()],
            where=_where(asked.where),
            queue=asked.queue,
            parent=asked.parent,
            limit=asked.limit,
            cursor=asked.cursor,
        )
        return StoredPage(records=tuple(records), cursor=cursor)

    return list_records


def _get(kind: DeclaredKind[Any]) -> Handler:
    async def get(call: Call) -> StoredRecord:
        return await _records(call).get(kind.name, _id_in(call, kind))

    return get


def _history(kind: DeclaredKind[Any]) -> Handler:
    async def history(call: Call) -> HistoryPage:
        entries = await _records(call).history(kind.name, _id_in(call, kind))
        return HistoryPage(entries=tuple(map(entry_view, entries)))

    return history


def _explain(kind: DeclaredKind[Any]) -> Handler:
    async def explain(call: Call) -> RecordExplanation:
        return await _records(call).explain(kind.name, _id_in(call, kind))

    return explain


def _records(call: Call) -> Records:
    return call.parts.runtime.records


def _id_in(call: Call, kind: DeclaredKind[Any]) -> str:
    record_id = call.path["record_id"]
    if not is_shaped(record_id):
        raise unknown(kind.name, record_id)
    return record_id


def _where(text: str) -> dict[str, Any]:
    if not text:
        return {}
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise InvalidData(
            f"The filter is no JSON object: {error}.",
            todo='Send where={"customer": "ada"}.',
            facts={"where": text[:200]},
        ) from None
