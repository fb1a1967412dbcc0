"""Routes of records: of any kind as the store keeps them, and of the kinds that users have declared.

Both come from the declaration: states from the table of the kind, actions from the routes that send one of
its events. Each event of a declared kind that may be sent over HTTP has a route of its own, with the role
that the kind asks for and the fields that the event carries; so access, the OpenAPI document and the
buttons of the dashboard need nothing more. A record may speak of any queue, so a token that is confined to
some queues sees none; its body is as the program keeps it, so only an admin reads that.

Why: decision 0364.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import msgspec
from msgspec.structs import asdict

from interlock.api import kinds
from interlock.api import records as api
from interlock.api.messages import HistoryPage, Reason, RequestId
from interlock.api.operation import Operation
from interlock.errors import (
    InvalidData,
    NotAllowed,
    UnknownEvent,
    UnknownKind,
    UnknownRecord,
    UnknownRecordKind,
    UnknownState,
)
from interlock.machine.table import fold_name
from interlock.server.api.journal import need_kinds
from interlock.server.api.machines import sheet_of
from interlock.server.api.visibility import is_shaped
from interlock.server.history import entry_view, history_of
from interlock.server.routes import Call, Handler, Route, bound, handles
from interlock.store.catalogue import StoredKind
from interlock.store.records import Key, Query, Record
from interlock.systems.kinds import DeclaredKind, camel
from interlock.systems.records import RecordService, unknown
from interlock.wire.access import (
    Role,
)
from interlock.wire.records import RecordExplanation, StoredPage, StoredRecord


@handles(api.LIST_RECORDS)
async def list_records(call: Call) -> api.RecordPage:
    """Return a page of the records of a kind."""
    request: api.RecordsQuery = call.query
    kind = _kind(call)
    states = tuple(_state(kind, name.strip()) for name in request.state.split(",") if name.strip())
    query = Query(kind=kind.name, states=states, limit=request.limit, cursor=request.cursor)
    page = await call.parts.store.find(query)
    return api.RecordPage(records=tuple(map(_view, page.records)), cursor=page.cursor)


@handles(api.GET_RECORD)
async def get_record(call: Call) -> api.RecordDetail:
    """Return one record; its body is for admins."""
    record = await _record(call)
    body = msgspec.Raw(record.body) if call.principal.may(Role.ADMIN) else msgspec.UNSET
    return api.RecordDetail(**asdict(_view(record)), actions=tuple(_actions(call, record)), body=body)


@handles(api.GET_RECORD_HISTORY)
async def get_record_history(call: Call) -> HistoryPage:
    """Return the journal of a record, oldest first."""
    return await history_of(call.parts.store, call.query, (await _record(call)).key)


def _kind(call: Call) -> StoredKind:
    name, kinds = call.path["kind"], call.parts.lifecycles.kinds
    if name not in kinds:
        raise UnknownRecordKind(name[:64], tuple(kinds))
    need_kinds(call, (name,))
    return kinds[name]


def _state(kind: StoredKind, text: str) -> str:
    for state in kind.states:
        if fold_name(state) == fold_name(text):
            return state
    raise UnknownState(text[:64], kind.states, where=kind.name)


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


def _view(record: Record) -> api.RecordView:
    return api.RecordView(
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


def _actions(call: Call, record: Record) -> Iterator[api.RecordAction]:
    """Yield the legal actions that the principal may take on this record."""
    machine = call.parts.lifecycles.machines.get(record.kind)
    if machine is None:
        return
    sheet = sheet_of(machine)
    legal = {row.event for row in sheet.transitions if row.source == record.state}
    legal |= {row.event for row in sheet.kept if row.state == record.state}
    for route in call.parts.routes:
        kind, event = route.fires or ("", "")
        if kind == record.kind and event in legal and route.role and call.principal.may(route.role):
            (name,) = tuple(route.parameters) or ("record_id",)
            yield api.RecordAction(
                event=event,
                request=route.path.replace(f"{{{name}}}", record.id),
                summary=route.summary,
                stops=event in sheet.stop,
            )


@handles(api.LIST_KINDS)
async def list_kinds(call: Call) -> api.Kinds:
    """Return the kinds that users have declared."""
    return api.Kinds(kinds=tuple(await _records(call).kinds()))


def routes_of(declared: Iterable[DeclaredKind[Any]]) -> tuple[Route, ...]:
    """Return the routes of declared kinds, then those that refuse others."""
    routes = tuple(route for kind in declared for route in _routes(kind))
    return (*routes, *_routes_of_unknown_kinds()) if routes else ()


def _routes(kind: DeclaredKind[Any]) -> Iterator[Route]:
    read = kind.roles.read
    yield _route_of(kind, kinds.CREATE, _create(kind), role=kind.roles.create, input=_creation(kind))
    yield _route_of(kind, kinds.LIST, _list(kind), role=read)
    yield _route_of(kind, kinds.GET, _get(kind), role=read)
    yield _route_of(kind, kinds.GET_HISTORY, _history(kind), role=read)
    yield _route_of(kind, kinds.EXPLAIN, _explain(kind), role=read)
    for event, role in kind.roles.send.items():
        if role is not None:
            yield _sending(kind, event, role)
    yield _route_of(  # after the routes of its events: matches an unknown event, or one not sent over HTTP
        kind,
        kinds.SEND,
        _refuse(kind),
        role=read,
        input=None,
        summary=f"Refuse an event that the kind {kind.name} does not have, and list those that it has.",
        errors=(UnknownEvent, InvalidData, NotAllowed),
    )


def _route_of(
    kind: DeclaredKind[Any], operation: Operation[Any, Any], handler: Handler, **changes: Any
) -> Route:
    """Return the route of an operation for one kind."""
    fields = {
        "name": operation.name.replace("{Kind}", camel(kind.name)),
        "request": operation.request.replace("{kind}", kind.name),
        "summary": operation.summary.format(kind=kind.name),
        "parameters": {name: each for name, each in operation.parameters.items() if name != "kind"},
    }
    return bound(replace(operation, **{**fields, **changes}), handler)


def _routes_of_unknown_kinds() -> Iterator[Route]:
    for method, verb in (("GET", "get"), ("POST", "send")):
        for path, what in (("", "Kind"), ("/{record_id}", "Record")):
            yield Route(
                request=f"{method} /api/kinds/{{kind}}{path}",
                name=f"{verb}Unknown{what}",
                summary="Refuse a kind that is not declared, and list those that are.",
                handler=_no_kind,
                role=Role.VIEWER,
                parameters=kinds.RECORD if path else kinds.KIND,
                output=StoredRecord,
                errors=(UnknownKind,),
            )


def _sending(kind: DeclaredKind[Any], event: str, role: Role) -> Route:
    payload = kind.payloads[event]
    required = any(field.required for field in msgspec.structs.fields(payload))
    parameters = {"record_id": kinds.RECORD["record_id"]}
    return _route_of(
        kind,
        kinds.SEND,
        _send(kind, event),
        name=f"send{camel(kind.name)}{camel(event)}",
        request=kinds.SEND.request.replace("{kind}", kind.name).replace("{event}", event),
        summary=kind.machine.event(event).doc,
        role=role,
        parameters=parameters,
        input=_message(kind, event, payload, required=required),
        required=required,
        fires=None if required else (kind.name, event),
    )


def _creation(kind: DeclaredKind[Any]) -> type[msgspec.Struct]:
    fields = [("data", kind.data), ("id", kinds.RecordId, ""), ("request_id", RequestId | None, None)]
    doc = f"Create a record of the kind {kind.name}."
    return _struct(f"Create{camel(kind.name)}", fields, doc)


def _message(
    kind: DeclaredKind[Any], event: str, payload: type[msgspec.Struct], *, required: bool
) -> type[msgspec.Struct]:
    fields: list[Any] = [
        ("data", payload) if required else ("data", payload, msgspec.field(default_factory=payload)),
        ("expected", kinds.Version | None, None),
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
        body = call.body
        return await _records(call).send(
            kind.name,
            _id_in(call, kind),
            event,
            {} if body is None else msgspec.to_builtins(body.data),
            expected=None if body is None else body.expected,
            reason="" if body is None else body.reason,
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
            todo=f"Send one of: {', '.join(sent)}; or send it from a program that opens the store.",
            facts={"kind": kind.name, "event": event.name},
        )

    return refuse


async def _no_kind(call: Call) -> StoredRecord:
    _records(call).kind(call.path["kind"])
    raise UnknownKind(call.path["kind"][:64], ())


def _list(kind: DeclaredKind[Any]) -> Handler:
    async def list_records(call: Call) -> StoredPage:
        query: kinds.KindQuery = call.query
        records, cursor = await _records(call).find(
            kind.name,
            states=[name.strip() for name in query.state.split(",") if name.strip()],
            where=_where(query.where),
            queue=query.queue,
            parent=query.parent,
            limit=query.limit,
            cursor=query.cursor,
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


def _records(call: Call) -> RecordService:
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
            f"The filter is not a JSON object: {error}.",
            todo='Send where={"customer": "ada"}.',
            facts={"where": text[:200]},
        ) from None
