"""The document that says what can be asked for, for programs and for people.

The page needs no script and nothing from elsewhere, so it can be read where there is no network.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import Any

import msgspec
from starlette.responses import Response

from interlock.server.openapi import document_of
from interlock.server.problems import every_error, title_of
from interlock.server.routes import Call, Confined, Handler, Route
from interlock.systems.access.principals import MEANINGS, Role

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
    """The routes, and those that tell about all of them."""
    told: list[Route] = [*routes]
    told += [
        Route(
            method="GET",
            path="/openapi.json",
            name="openapi",
            summary="The OpenAPI document.",
            handler=_openapi(told),
            role=Role.VIEWER,
            confined=Confined.NOTHING,
            answer=dict[str, Any],
        ),
        Route(
            method="GET",
            path="/docs",
            name="docs",
            summary="The same for people, with every error that can be answered.",
            handler=_docs(told),
            role=Role.VIEWER,
            confined=Confined.NOTHING,
            media="text/html",
        ),
    ]
    return tuple(told)


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
    yield "<h2>What can be asked for</h2><table><tr><th>request<th>what<th>role"
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
