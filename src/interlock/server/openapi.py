"""The OpenAPI 3.1 document made from the routes, and the pages that serve it.

Schemas are made from the structs of the requests and responses. The page for people needs no script and no
external resource, so it works without a network.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from html import escape
from importlib.metadata import version
from typing import Any

import msgspec
from msgspec import _json_schema
from starlette.responses import Response

from interlock.api.jobs import MAX_BULK
from interlock.api.operation import BYTES, PARAMETER, SHAPE, QueueConfinement
from interlock.api.problems import (
    MEDIA_TYPE,
    Problem,
)
from interlock.errors import (
    BadRequest,
    ConflictingRequestIds,
    NotAllowed,
    NotSignedIn,
    NotUtf8,
    RequestTooLarge,
    TooBusy,
    TooMany,
    UnsupportedMedia,
)
from interlock.server.authentication import NAME, PREFIX
from interlock.server.problems import every_error, title_of
from interlock.server.routes import Call, Handler, Route
from interlock.wire.access import (
    MEANINGS,
    Role,
)

REF = "#/components/schemas/{name}"


def schemas_of(types: Iterable[Any]) -> tuple[dict[Any, Any], dict[str, Any]]:
    """Return the reference of each type, and the schemas of its structs."""
    distinct = list(dict.fromkeys(types))
    with _raw_defaults():
        references, components = msgspec.json.schema_components(
            distinct, schema_hook=_anything, ref_template=REF
        )
    return dict(zip(distinct, references, strict=True)), components


def _anything(kind: type) -> dict[str, Any]:
    """Return the schema of any value, for facts."""
    if kind is object:
        return {"description": "Any JSON value."}
    raise TypeError(f"no JSON Schema is known for {kind}")


@contextmanager
def _raw_defaults() -> Iterator[None]:
    """Hide defaults of raw JSON fields while schemas are made.

    msgspec cannot write these defaults into a schema.
    """
    plain: Any = vars(_json_schema)["to_builtins"]

    def to_builtins(value: Any, **options: Any) -> Any:
        return msgspec.json.decode(value) if isinstance(value, msgspec.Raw) else plain(value, **options)

    vars(_json_schema)["to_builtins"] = to_builtins
    try:
        yield
    finally:
        vars(_json_schema)["to_builtins"] = plain


_BINARY = {"type": "string", "format": "binary"}
_EVENT = {
    "type": "object",
    "description": "One event of the stream.",
    "properties": {
        "id": {"type": "string", "description": "The cursor after it, for Last-Event-ID."},
        "event": {"type": "string"},
        "data": {"type": "string", "description": "JSON."},
        "retry": {"type": "integer"},
    },
}
_CREDENTIALS = {
    "token": {
        "type": "http",
        "scheme": "bearer",
        "bearerFormat": "il_…",
        "description": "An access token: `interlock token create NAME --role ROLE`.",
    },
    "session": {
        "type": "apiKey",
        "in": "cookie",
        "name": NAME,
        "description": "A browser that has signed in (`POST /api/sessions`). The name of the cookie ends "
        f"with the port of the address, if it has one (`{NAME}_8088`), and begins with `{PREFIX}` under TLS. "
        "With a cookie, a request that changes something must come from a page of this server.",
    },
}
_NAMES = {"token_name": r"^[A-Za-z0-9_.@-]{1,64}$"}
"""Patterns of path parameters that are not ids."""

ABOUT = f"""Submit, inspect and cancel jobs. The lifecycles are the tables under /api/machines.

Errors are `{MEDIA_TYPE}`. Requests that change something may carry a `request_id` in the body, or the header
`Idempotency-Key`: repeating a request with the same id has no further effect. Lists are paged by a
`cursor`. Up to {MAX_BULK:,} jobs are submitted at once."""


def document_of(routes: Sequence[Route], *, tokens_required: bool = True) -> dict[str, Any]:
    """Return the whole document."""
    schemas, components = _schemas(routes)
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, schemas, routes)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Interlock", "version": version("interlock"), "description": ABOUT},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": _CREDENTIALS,
        },
        "security": [*({name: []} for name in _CREDENTIALS), *(() if tokens_required else ({},))],
    }


def _operation(route: Route, schemas: Mapping[Any, Any], routes: Sequence[Route]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": route.name,
        "summary": route.summary,
        "tags": [route.tag],
        "parameters": [*_path_parameters(route), *_query_parameters(route), *_header_parameters(route)],
        "responses": _responses(route, schemas, routes),
    }
    if route.role is None:
        operation["security"] = []
        if route.signed:
            operation["description"] = "Needs no token: the body is signed."
        elif route.shows_token:
            operation["description"] = "Needs no header Authorization: the token is in the body."
    else:
        operation["description"] = f"Needs the role {route.role}."
        operation["x-role"] = str(route.role)
        if route.everything:
            operation["x-everything"] = True
    if route.bodies:
        content: dict[str, Any] = {"schema": _one_of([schemas[body] for body in route.bodies])}
        if route.example is not None:
            content["example"] = route.example
        operation["requestBody"] = {
            "required": route.body_required,
            "content": {"application/json": content},
        }
    if route.streamed:
        operation["requestBody"] = {"required": True, "content": {BYTES: {"schema": _BINARY}}}
    return operation


def _responses(
    route: Route, schemas: Mapping[Any, Any], routes: Sequence[Route]
) -> dict[str, dict[str, Any]]:
    answers = [schemas[answer] for answer in route.answers]
    content: dict[str, Any] = {"schema": _one_of(answers) if answers else _raw(route)}
    if route.answer_example is not None:
        content["example"] = route.answer_example
    good: dict[str, Any] = {"description": route.summary, "content": {route.media: content}}
    if links := _links(route, routes):
        good["links"] = links
    responses = {str(route.status): good}
    by_status: dict[int, list[str]] = {}
    for error in _errors(route):
        by_status.setdefault(error.status, []).append(f"`{error.code}`: {title_of(error)}")
    problem = {MEDIA_TYPE: {"schema": schemas[Problem]}}
    for status, sentences in sorted(by_status.items()):
        responses[str(status)] = {"description": "\n".join(sentences), "content": problem}
    responses["default"] = {"description": "Another error.", "content": problem}
    return responses


def _raw(route: Route) -> dict[str, Any]:
    known: dict[str, dict[str, Any]] = {BYTES: _BINARY, "text/event-stream": _EVENT}
    return known.get(route.media, {"type": "string"})


def _errors(route: Route) -> Iterable[Any]:
    """Return the errors of a route, and those of all routes."""
    found: dict[Any, None] = dict.fromkeys(route.errors)
    if route.role is not None:
        found |= dict.fromkeys((NotSignedIn, NotAllowed, TooMany, TooBusy))
    if route.bodies:
        found |= dict.fromkeys((BadRequest, NotUtf8, RequestTooLarge, UnsupportedMedia))
    if route.streamed:
        found |= dict.fromkeys((RequestTooLarge,))
    if route.repeatable:
        found |= dict.fromkeys((ConflictingRequestIds,))
    if route.query is not None:
        found |= dict.fromkeys((BadRequest, NotUtf8))
    return found


def _links(route: Route, routes: Sequence[Route]) -> dict[str, Any]:
    known = {other.name for other in routes}
    return {
        f"{link.operation}.{link.parameter}": {
            "operationId": link.operation,
            "parameters": {link.parameter: link.source},
        }
        for link in route.links
        if link.operation in known
    }


def _path_parameters(route: Route) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "in": "path",
            "required": True,
            "description": route.parameters[name].meaning if name in route.parameters else "",
            "schema": {"type": "string", "pattern": _NAMES.get(name, f"^{SHAPE}$")},
        }
        for name in PARAMETER.findall(route.path)
    ]


def _query_parameters(route: Route) -> list[dict[str, Any]]:
    if route.query is None:
        return []
    _, components = schemas_of([route.query])
    schema = components[route.query.__name__]
    required = schema.get("required", [])
    return [
        {
            "name": name,
            "in": "query",
            "required": name in required,
            "description": described.get("description", ""),
            "schema": {key: value for key, value in described.items() if key != "description"},
        }
        for name, described in schema["properties"].items()
    ]


def _header_parameters(route: Route) -> list[dict[str, Any]]:
    parameters = [
        {
            "name": name,
            "in": "header",
            "required": True,
            "description": meaning,
            "schema": {"type": "string", "minLength": 1, "maxLength": 200},
        }
        for name, meaning in route.headers.items()
    ]
    if not route.repeatable:
        return parameters
    return [
        *parameters,
        {
            "name": "Idempotency-Key",
            "in": "header",
            "required": False,
            "description": "Request id, as an alternative to `request_id` in the body.",
            "schema": {"type": "string", "minLength": 1, "maxLength": 64},
        },
    ]


def _schemas(routes: Sequence[Route]) -> tuple[dict[Any, Any], dict[str, Any]]:
    """Return the reference of each struct, and all schemas."""
    types: dict[Any, None] = {Problem: None}
    for route in routes:
        types |= dict.fromkeys((*route.bodies, *route.answers))
    places, components = schemas_of(types)
    for body in {body for route in routes for body in route.bodies}:
        if (tag := getattr(body.__struct_config__, "tag_field", None)) is not None:
            places[body] = _with_implied_tag(components[body.__name__], tag)
    return places, components


def _with_implied_tag(schema: Mapping[str, Any], tag: str) -> dict[str, Any]:
    """Return the schema of a message whose type the path implies."""
    return {**schema, "required": [name for name in schema["required"] if name != tag]}


def _one_of(schemas: Sequence[Any]) -> Any:
    return schemas[0] if len(schemas) == 1 else {"oneOf": list(schemas)}


_HEAD = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Interlock API</title>
<meta name="viewport" content="width=device-width">
<style>
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
code { font: 0.95em ui-monospace, monospace; }
table { border-collapse: collapse; width: 100%; }
td, th { text-align: left; vertical-align: top; padding: 0.3rem 0.8rem 0.3rem 0; }
tr { border-bottom: 1px solid #8885; }
tr:target { background: #fc03; }
</style>
"""
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
}


def with_pages(routes: Sequence[Route]) -> tuple[Route, ...]:
    """Return the routes, and those of the OpenAPI document and its page."""
    listed: list[Route] = [*routes]
    listed += [
        Route(
            request="GET /openapi.json",
            name="openapi",
            summary="Return the OpenAPI document.",
            handler=_openapi(listed),
            role=Role.VIEWER,
            confined=QueueConfinement.NOTHING,
            output=dict,
        ),
        Route(
            request="GET /docs",
            name="docs",
            summary="Show the HTTP API as a page, with every error.",
            handler=_docs(listed),
            role=Role.VIEWER,
            confined=QueueConfinement.NOTHING,
            media="text/html",
        ),
    ]
    return tuple(listed)


def _openapi(routes: Sequence[Route]) -> Handler:
    made: dict[bool, bytes] = {}

    async def openapi(call: Call) -> Response:
        required = call.parts.tokens_required
        if required not in made:
            made[required] = msgspec.json.encode(document_of(routes, tokens_required=required))
        return Response(made[required], media_type="application/json")

    return openapi


def _docs(routes: Sequence[Route]) -> Handler:
    async def docs(_: Call) -> Response:
        return Response("\n".join(_page(routes)), media_type="text/html", headers=_HEADERS)

    return docs


def _page(routes: Sequence[Route]) -> Iterator[str]:
    yield _HEAD
    yield '<h1>Interlock API</h1><p>For programs: <a href="/openapi.json">openapi.json</a>.</p>'
    yield "<h2>Operations</h2><table><tr><th>request<th>what<th>role"
    for route in routes:
        yield _row(
            f"<code>{route.method} {escape(route.path)}</code>", escape(route.summary), route.role or ""
        )
    yield "</table><h2>Roles</h2><table>"
    for role, meaning in MEANINGS.items():
        yield _row(f"<code>{role}</code>", escape(meaning))
    yield "</table><h2>Errors</h2><table><tr><th>code<th>status<th>what"
    for kind in every_error():
        cells = _row(f"<code>{kind.code}</code>", str(kind.status), escape(title_of(kind)))
        yield cells.replace("<tr>", f'<tr id="{kind.code}">')
    yield "</table></html>"


def _row(*cells: str) -> str:
    return "<tr>" + "".join(f"<td>{cell}" for cell in cells)
