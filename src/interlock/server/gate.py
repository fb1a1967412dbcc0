"""What every request passes: where it comes from, who it is, how it ends.

Nothing gets past here unnamed: also an address that does not exist is told only to those who are let
in. Whatever goes wrong behind the gate ends here as problem+json, and is counted and logged once.
The header Authorization and the query are never logged.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
import time
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from urllib.parse import urlsplit

from starlette.routing import compile_path
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from interlock.errors import InterlockError
from interlock.server.declaring import Route
from interlock.server.endpoint import EXCHANGE, Exchange
from interlock.server.limits import Buckets
from interlock.server.parts import Parts
from interlock.server.problems import ForeignOrigin, NotReady, WrongHost, response_of, unexpected
from interlock.server.reading import ClientGone
from interlock.server.settings import ServerSettings
from interlock.systems.access.checking import not_signed_in
from interlock.systems.access.principals import LOCAL, NotSignedIn, Principal, Role
from interlock.systems.runs.triggers.errors import NotSigned

GONE = 499
"""What the log says of a request whose sender did not wait."""

_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_HERE = ("localhost", "127.0.0.1", "::1")
_ALWAYS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
)
_ALWAYS_NAMES = frozenset(name for name, _ in _ALWAYS)
_ANYBODY = Principal(name="anybody", roles=(Role.ADMIN, Role.RUNNER))
_STRANGER = Principal(name="", roles=())


class Gate:
    """Stands before the routes."""

    def __init__(self, app: ASGIApp, parts: Parts, routes: Sequence[Route]) -> None:
        self._app = app
        self._parts = parts
        self._open = frozenset(route.path for route in routes if route.role is None and not route.signed)
        self._signed = tuple(compile_path(route.path)[0] for route in routes if route.signed)
        self._spelled_out = frozenset(
            route.path for route in routes if "{" not in route.path and not route.signed
        )
        self._hosts = _hosts(parts.settings)
        self._strangers = Buckets(parts.settings.stranger_rate)
        self._untold = LOCAL if parts.settings.loopback else _ANYBODY
        self._names = _names()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        exchange = Exchange(next(self._names), headers)
        scope[EXCHANGE] = exchange
        began = time.perf_counter()
        try:
            await self._answer(exchange, scope, receive, _noting(exchange, send))
        finally:
            self._note(exchange, scope, time.perf_counter() - began)

    async def _answer(self, exchange: Exchange, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._admit(exchange, scope)
            await self._app(scope, receive, send)
        except ClientGone:
            exchange.status = GONE
        except asyncio.CancelledError:
            if not self._parts.stopping.is_set():
                raise
            await self._tell(_given_up(), exchange, scope, receive, send)
        except NotSigned as error:
            await self._tell(self._not_again(error, scope), exchange, scope, receive, send)
        except InterlockError as error:
            await self._tell(error, exchange, scope, receive, send)
        except Exception:
            self._parts.log.exception("unexpected", request=exchange.request, path=scope["path"][:200])
            await self._tell(unexpected(), exchange, scope, receive, send)

    async def _tell(
        self, error: InterlockError, exchange: Exchange, scope: Scope, receive: Receive, send: Send
    ) -> None:
        exchange.code = error.code
        self._parts.metrics.refused(error)
        if not exchange.began:
            await response_of(error, exchange.request)(scope, receive, send)

    # Letting in

    async def _admit(self, exchange: Exchange, scope: Scope) -> None:
        self._check_host(exchange)
        if scope["method"] not in _SAFE:
            self._check_origin(exchange)
        if self._is_for_strangers(scope["path"]):
            exchange.principal = _STRANGER
        else:
            exchange.principal = await self._principal(exchange, scope)

    def _is_for_strangers(self, path: str) -> bool:
        """Whether nobody is asked for a token there. Most addresses are known by their very name."""
        if path in self._spelled_out:
            return path in self._open
        return any(pattern.match(path) for pattern in self._signed)

    async def _principal(self, exchange: Exchange, scope: Scope) -> Principal:
        sent = exchange.headers.get("authorization")
        if sent is None and not self._parts.tokens_required:
            return self._untold
        try:
            return await self._parts.check.principal_of(_bearer(sent), _address(scope))
        except NotSignedIn:
            self._count_stranger(scope)
            raise

    def _not_again(self, error: InterlockError, scope: Scope) -> InterlockError:
        try:
            self._count_stranger(scope)
        except InterlockError as too_many:
            return too_many
        return error

    def _count_stranger(self, scope: Scope) -> None:
        """Whoever has shown nothing that is any good may try only so often; raises when that is over."""
        self._strangers.take(_address(scope))

    def _check_host(self, exchange: Exchange) -> None:
        """A page whose name leads to this machine must not speak for it (DNS rebinding)."""
        called = _name_of(exchange.headers.get("host", ""))
        if self._hosts and called not in self._hosts:
            raise WrongHost(
                f"This server is not called {called[:100]!r}.",
                todo="Call it by a name below, or start it with --allow-host NAME.",
                allowed=sorted(self._hosts),
                facts={"host": called[:100]},
            )

    def _check_origin(self, exchange: Exchange) -> None:
        """A browser says on whose behalf it asks; anything else says nothing."""
        headers = exchange.headers
        origin, site = headers.get("origin"), headers.get("sec-fetch-site", "none")
        if origin is None and site in ("none", "same-origin"):
            return
        own = origin is not None and urlsplit(origin).netloc == headers.get("host", "")
        if not own and origin not in self._parts.settings.allowed_origins:
            raise ForeignOrigin(
                f"A page of {str(origin)[:100]} may not change anything here.",
                todo="Start the server with --allow-origin if that page is yours.",
                facts={"origin": str(origin)[:100]},
            )

    # Noting down

    def _note(self, exchange: Exchange, scope: Scope, seconds: float) -> None:
        route = exchange.route
        self._parts.metrics.answered(scope["method"], route.path if route else "", exchange.status, seconds)
        quiet = exchange.status < 400 and scope["method"] in _SAFE
        note = self._parts.log.debug if quiet else self._parts.log.info
        note(
            "request",
            method=scope["method"],
            path=scope["path"][:200],
            status=exchange.status,
            ms=round(seconds * 1_000, 2),
            actor=exchange.principal.name if exchange.principal else "",
            request=exchange.request,
            code=exchange.code,
        )


def _noting(exchange: Exchange, send: Send) -> Send:
    async def note(message: Message) -> None:
        if message["type"] == "http.response.start":
            exchange.began = True
            exchange.status = message["status"]
            given = message["headers"]
            named = {name for name, _ in given}
            if named.isdisjoint(_ALWAYS_NAMES):
                extra: Iterable[tuple[bytes, bytes]] = _ALWAYS
            else:
                extra = [(name, value) for name, value in _ALWAYS if name not in named]
            message["headers"] = [*given, *extra, (b"x-request-id", exchange.request.encode())]
        await send(message)

    return note


def _address(scope: Scope) -> str:
    """Return the address at the other end of the connection; behind a proxy that is the proxy's."""
    return str((scope.get("client") or ("somebody",))[0])


def _names() -> Iterator[str]:
    """Return what requests are called. Numbers in a row would tell how many requests others make."""
    return (secrets.token_hex(8) for _ in itertools.count())


def _given_up() -> NotReady:
    return NotReady(
        "The server has ended before the answer was ready; whether something was done may be unknown.",
        todo="Ask another server; with a request id it can be sent again without harm.",
    )


def _bearer(sent: str | None) -> str:
    if sent is None:
        raise not_signed_in("No token came with the request.")
    scheme, _, token = sent.partition(" ")
    if scheme.lower() != "bearer":
        raise not_signed_in("The header Authorization carries no bearer token.")
    return token.strip()


def _hosts(settings: ServerSettings) -> frozenset[str]:
    """The names that a server may be called by; none when any will do."""
    own: Iterable[str] = (*_HERE, _name_of(settings.host)) if settings.loopback else ()
    return frozenset({*own, *(name.lower() for name in settings.allowed_hosts)})


@lru_cache(maxsize=64)
def _name_of(host: str) -> str:
    """The header Host without its port."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.rpartition(":")[0].lower() if host.count(":") == 1 else host.lower()
