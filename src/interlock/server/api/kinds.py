"""The routes of kinds that users have declared: made from the declaration, one set for each kind.

Each event that may be sent over HTTP has a route of its own, with the role that the kind asks for and the
fields that the event carries. So access, the OpenAPI document and the buttons of the dashboard need nothing
more. A record may speak of any queue: a token that is confined to some queues is not let in.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, Any

import msgspec
from msgspec import Meta

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
    UnknownRecord,
    UnknownState,
    VersionChanged,
)
from interlock.server.api.visibility import is_shaped
from interlock.server.messages import Cursor, HistoryPage, Limit, Reason, RequestId, entry_view
from interlock.server.routes import Call, Confined, Handler, Route
from interlock.systems.access.principals import NotAllowed, Role
from interlock.systems.kinds import DeclaredKind, camel
from interlock.systems.records import Records, unknown
from interlock.wire.records import KindView, RecordExplanation, StoredPage, StoredRecord

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


ROUTES = (
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
