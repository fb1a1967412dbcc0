"""The application: every declared route, behind the gate.

It is a plain Starlette router. The routes are declared, read and written by our own structs, so of a
framework that does this by its own models nothing would be used, and importing it alone takes longer
than all the rest of the start. Whoever adds routes hands their declarations to `make_app`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from starlette.routing import Route as Mounted
from starlette.routing import Router
from starlette.types import ASGIApp, Receive, Scope, Send

from interlock.errors import UnknownPage
from interlock.server.api import ROUTES
from interlock.server.api.records import routes_of
from interlock.server.endpoint import Endpoint, endpoints_of
from interlock.server.middleware import Gate
from interlock.server.openapi import with_pages
from interlock.server.parts import Parts
from interlock.server.routes import Route
from interlock.server.web import Web, built


def every_route(more: Sequence[Route] = ()) -> tuple[Route, ...]:
    """Everything that a server answers; the tests walk it."""
    return with_pages((*ROUTES, *more))


def make_app(parts: Parts, *, more: Sequence[Route] = ()) -> ASGIApp:
    """The application of one server; `more` are routes beside our own."""
    parts.routes = routes = every_route((*routes_of(parts.lifecycles.own), *more))
    web = Web(built(), routes)
    return Gate(Addresses(endpoints_of(routes, parts), web), parts, routes, web)


class Addresses:
    """Finds the endpoint of an address. Most are spelled out, so that nothing has to be searched for."""

    def __init__(self, endpoints: Mapping[str, Endpoint], web: Web) -> None:
        self._web = web
        self._spelled_out = {path: endpoint for path, endpoint in endpoints.items() if "{" not in path}
        patterns = [Mounted(path, endpoint) for path, endpoint in endpoints.items() if "{" in path]
        self._router = Router(patterns, redirect_slashes=False, default=_unknown_page)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        endpoint = self._spelled_out.get(scope["path"])
        if endpoint is None and self._web.serves(scope):
            await self._web(scope, receive, send)
            return
        if endpoint is None:
            await self._router(scope, receive, send)
            return
        scope["path_params"] = {}
        await endpoint(scope, receive, send)


async def _unknown_page(scope: Scope, _: Receive, __: Send) -> None:
    path = scope["path"][:200]
    raise UnknownPage(
        f"There is nothing at {path}.", todo="See /docs for what there is.", facts={"path": path}
    )
