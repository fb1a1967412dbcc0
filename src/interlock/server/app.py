"""The application: every declared route, behind the middleware.

It is a plain Starlette router. Routes are declared and encoded with our own structs, so the models of a
larger framework would be unused, and importing one takes longer than the rest of the start. Additional
routes are passed to `make_app`.
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
    """Return all routes of a server; tests iterate over them."""
    return with_pages((*ROUTES, *more))


def make_app(parts: Parts, *, more: Sequence[Route] = ()) -> ASGIApp:
    """Return the application of one server; `more` are additional routes."""
    parts.routes = routes = every_route((*routes_of(parts.lifecycles.own), *more))
    web = Web(built(), routes)
    endpoints = endpoints_of(routes, parts)
    direct = {place: way for each in endpoints.values() for place, way in each.direct_ways().items()}
    return Gate(Addresses(endpoints, web).of, parts, routes, web, direct)


class Addresses:
    """Finds what answers a request. Most paths have no parameters and are found in a dict."""

    def __init__(self, endpoints: Mapping[str, Endpoint], web: Web) -> None:
        self._web = web
        self._spelled_out = {path: endpoint for path, endpoint in endpoints.items() if "{" not in path}
        patterns = [Mounted(path, endpoint) for path, endpoint in endpoints.items() if "{" in path]
        self._router = Router(patterns, redirect_slashes=False, default=_unknown_page)

    def of(self, scope: Scope) -> ASGIApp:
        """Return what answers a request."""
        endpoint = self._spelled_out.get(scope["path"])
        if endpoint is not None:
            scope["path_params"] = {}
            return endpoint
        return self._web if self._web.serves(scope) else self._router


async def _unknown_page(scope: Scope, _: Receive, __: Send) -> None:
    path = scope["path"][:200]
    raise UnknownPage(
        f"There is nothing at {path}.", todo="See /docs for all addresses.", facts={"path": path}
    )
