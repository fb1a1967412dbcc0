"""The middleware around all routes: check the host, authenticate, limit, log, and answer errors.

Every request is authenticated here, even for unknown paths. Every error of the inner layers is answered here
as problem+json, and is counted and logged once. The header Authorization and the query are never logged.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain

from starlette.routing import compile_path
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from interlock.errors import (
    ForeignOrigin,
    InterlockError,
    NoHttp,
    NotReady,
    NotSigned,
    NotSignedIn,
    WrongHost,
)
from interlock.server.authentication import session_of
from interlock.server.connections import head_too_large
from interlock.server.cross_origin import CrossOrigin
from interlock.server.cycle import CYCLE, Cycle
from interlock.server.endpoint import ALWAYS, EXCHANGE, HSTS, Endpoint, Exchange, PreparedRoute
from interlock.server.limits import NOWHERE, Buckets, origin_of
from interlock.server.parts import Parts
from interlock.server.problems import response_of, unexpected
from interlock.server.requests import ClientGone
from interlock.server.routes import Route
from interlock.server.settings import ServerSettings
from interlock.server.web import NO_PAGES, Web
from interlock.systems.access.authentication import not_signed_in
from interlock.systems.access.principals import LOCAL, Principal
from interlock.wire.access import (
    Role,
)
from interlock.wire.artifacts import LEASE, RUNNER

GONE = 499
"""Status in the log of a request whose client disconnected."""

_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_HERE = ("localhost", "127.0.0.1", "::1")
_ALWAYS_NAMES = frozenset(name for name, _ in ALWAYS)
_HOST = re.compile(r"(?:\[(?P<six>[0-9a-fA-F:.]{2,45})\]|(?P<name>[0-9A-Za-z._~-]*))(?::[0-9]{0,5})?")
_ONCE = frozenset(
    {
        "authorization",
        "content-encoding",
        "content-length",
        "content-type",
        "cookie",
        "host",
        "idempotency-key",
        "last-event-id",
        "origin",
        "sec-fetch-site",
        "transfer-encoding",
        "webhook-id",
        "webhook-signature",
        "webhook-timestamp",
        "x-github-event",
        "x-hub-signature-256",
        *(name.lower() for name in (LEASE, RUNNER)),
    }
)
"""Headers that must be unique. With a duplicate, a proxy may have used the other one."""
_FORWARDED = frozenset(
    {
        "forwarded",
        "via",
        "x-forwarded-for",
        "x-forwarded-host",
        "x-forwarded-port",
        "x-forwarded-proto",
        "x-forwarded-server",
        "x-real-ip",
    }
)
"""Headers by which a proxy identifies its client."""
_ID_BYTES, _IDS_AT_ONCE = 8, 256
_LINE = len("  HTTP/1.1\r\n\r\n")
_PER_HEADER = len(": \r\n")
_ANYBODY = Principal(name="anybody", roles=(Role.ADMIN, Role.RUNNER))
_STRANGER = Principal(name="", roles=())


class Gate:
    """The middleware in front of the routes."""

    def __init__(
        self,
        find: Callable[[Scope], ASGIApp],
        parts: Parts,
        routes: Sequence[Route],
        web: Web,
        direct: Mapping[tuple[str, str], tuple[Endpoint, PreparedRoute]],
    ) -> None:
        """`find` returns what answers a request.

        `direct`: the routes that may be answered without a task.
        """
        self._find = find
        self._direct = direct
        self._request_ids = RequestIds()
        self._web = web
        self._parts = parts
        self._open = frozenset(
            route.path for route in routes if route.role is None and not route.for_strangers
        )
        self._for_strangers = tuple(compile_path(route.path)[0] for route in routes if route.for_strangers)
        self._spelled_out = frozenset(
            route.path for route in routes if "{" not in route.path and not route.for_strangers
        )
        self._for_tokens = frozenset(
            path for path in self._spelled_out - self._open if path.startswith(NO_PAGES)
        )
        self._hosts = _hosts(parts.settings)
        self._strangers = Buckets(parts.settings.stranger_rate)
        self._default_hosts = LOCAL if parts.settings.loopback else _ANYBODY
        self._cross_origin = CrossOrigin(parts.settings.allowed_origins)
        self._tls = parts.settings.tls_cert is not None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        exchange: Exchange = scope.get(EXCHANGE) or self._exchange_of(scope)
        send = _noting(exchange, send)
        try:
            self._check(exchange, scope)
            if preflight := self._cross_origin.preflight(scope["method"], exchange.headers):
                await preflight(scope, receive, send)  # browsers send no token with it
                return
            exchange.principal = await self._principal(exchange, scope)
            await self._find(scope)(scope, receive, send)
        except ClientGone:
            exchange.status = GONE
        except asyncio.CancelledError:
            if not self._parts.stopping.is_set():
                raise
            await self._respond(_given_up(), exchange, scope, receive, send)
        except (NotSigned, NotSignedIn) as error:
            await self._respond(self._not_again(error, scope), exchange, scope, receive, send)
        except InterlockError as error:
            await self._respond(error, exchange, scope, receive, send)
        except Exception:
            self._parts.log.exception("unexpected", request=exchange.request, path=scope["path"][:200])
            await self._respond(unexpected(), exchange, scope, receive, send)
        finally:
            self._note(exchange, scope)

    def _exchange_of(self, scope: Scope) -> Exchange:
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        cors = self._cross_origin.headers_for(headers)
        exchange = scope[EXCHANGE] = Exchange(self._request_ids.next(), headers, cors=cors)
        return exchange

    def _check(self, exchange: Exchange, scope: Scope) -> None:
        """Raise if a request has failed, or is refused for all senders."""
        if exchange.failure is not None:
            raise exchange.failure
        self._check_head(exchange, scope)
        self._check_host(exchange)
        if scope["method"] not in _SAFE:
            self._check_origin(exchange)

    # Without a task: see `direct`

    def has_direct(self, scope: Scope) -> bool:
        """Return whether a request needs no task if it arrives as a whole."""
        return (scope["method"], scope["path"]) in self._direct

    def begin(self, cycle: Cycle) -> bool:
        """Begin to answer a whole request; return False if it needs a task.

        That task continues with the known facts, such as a failure.
        """
        scope = cycle.scope
        found = self._direct.get((scope["method"], scope["path"]))
        if found is None or cycle.flow.write_paused:
            return False
        endpoint, way = found
        exchange = self._exchange_of(scope)
        try:
            self._check(exchange, scope)
            exchange.principal = self._known_principal(exchange, scope)
            return exchange.principal is not None and endpoint.begin(way, exchange, cycle, self)
        except Exception as error:  # noqa: BLE001 - raised in the task
            exchange.failure = error
            return False

    def answered(self, exchange: Exchange, cycle: Cycle) -> None:
        """Log and count a request that was answered without a task."""
        self._note(exchange, cycle.scope)
        cycle.scope.pop(CYCLE, None)

    def failed(self, cycle: Cycle) -> None:
        """Answer a request that has failed without a task, in one."""
        cycle.start(self, asyncio.get_running_loop())

    async def _respond(
        self, error: InterlockError, exchange: Exchange, scope: Scope, receive: Receive, send: Send
    ) -> None:
        exchange.code = error.code
        self._parts.metrics.refused(error)
        if not exchange.began:
            await response_of(error, exchange.request)(scope, receive, send)

    # Authentication

    def _is_for_strangers(self, path: str) -> bool:
        """Return whether a path needs no token. Most paths are found by name."""
        if path in self._spelled_out:
            return path in self._open
        return any(pattern.match(path) for pattern in self._for_strangers)

    async def _principal(self, exchange: Exchange, scope: Scope) -> Principal:
        path = scope["path"]
        if path not in self._for_tokens and (self._is_for_strangers(path) or self._web.serves(scope)):
            return _STRANGER
        known = self._known_principal(exchange, scope)
        if known is not None:
            return known
        sent = exchange.headers.get("authorization")
        if sent is None and await self._parts.door.is_open():
            return self._without_token(exchange)
        if sent is None and (session := session_of(exchange.headers, tls=self._tls)):
            if scope["method"] not in _SAFE:
                self._check_own_page(exchange.headers)
            return await self._parts.sessions.principal_of(session, _address(scope))
        shown = _bearer(sent)
        if "." in shown and (by_claim := await self._parts.claims.principal_of(shown)):
            return by_claim
        return await self._parts.check.principal_of(shown, _address(scope))

    def _known_principal(self, exchange: Exchange, scope: Scope) -> Principal | None:
        """Return the principal of a request, unless the store has to be asked."""
        sent = exchange.headers.get("authorization")
        if sent is None:
            return self._without_token(exchange) if self._parts.door.is_surely_open else None
        return self._parts.check.known_principal(_bearer(sent), _address(scope))

    def _without_token(self, exchange: Exchange) -> Principal:
        """Return the principal of a request without a token.

        A request through a proxy is not local.
        """
        forwarded = _FORWARDED.intersection(exchange.headers)
        if not forwarded:
            return self._default_hosts
        if self._parts.settings.insecure:
            return _ANYBODY
        raise NotSignedIn(
            f"The request came through a proxy (header {min(forwarded)}), so it needs a token.",
            todo="Create one (interlock token create NAME --role ROLE) and send it as "
            "`Authorization: Bearer il_…`; to serve without authentication, start the server with "
            "--insecure.",
            facts={"headers": sorted(forwarded)},
        )

    def _not_again(self, error: InterlockError, scope: Scope) -> InterlockError:
        try:
            self._limit_failed_auth(scope)
        except InterlockError as too_many:
            return too_many
        return error

    def _limit_failed_auth(self, scope: Scope) -> None:
        """Rate-limit failed authentication attempts.

        Raise when the limit is exceeded.
        """
        self._strangers.take(_origin(scope))

    def _check_head(self, exchange: Exchange, scope: Scope) -> None:
        """Refuse a head that is too large, or contains contradictory headers."""
        given: list[tuple[bytes, bytes]] = scope["headers"]
        size = sum(map(len, chain.from_iterable(given))) + len(given) * _PER_HEADER
        size += len(scope["method"]) + len(scope["raw_path"]) + len(scope["query_string"]) + _LINE
        size += bool(scope["query_string"])
        if size > self._parts.settings.max_header_bytes:
            raise head_too_large(self._parts.settings.max_header_bytes)
        if len(exchange.headers) < len(given):
            _check_once(given)
        if "host" not in exchange.headers and scope["http_version"] == "1.1":
            raise NoHttp("The request has no header Host.", todo="Send one; HTTP/1.1 requires it.")

    def _check_host(self, exchange: Exchange) -> None:
        """Refuse unknown host names, to prevent DNS rebinding."""
        called = _name_of(exchange.headers.get("host", ""))
        if called is None:
            raise NoHttp(
                "The header Host is not a name or address with an optional port.",
                todo="Send the name of the server alone: Host: ci.example.org",
                facts={"host": exchange.headers["host"][:100]},
            )
        exchange.hsts = self._tls and called not in _HERE
        if self._hosts and called not in self._hosts:
            raise WrongHost(
                f"This server does not answer to the name {called[:100]!r}.",
                todo="Use one of its names below, or start it with --allow-host NAME.",
                allowed=sorted(self._hosts),
                facts={"host": called[:100]},
            )

    def _check_origin(self, exchange: Exchange) -> None:
        """Refuse changes by pages of other origins.

        Clients other than browsers send no origin.
        """
        headers = exchange.headers
        origin, site = headers.get("origin"), headers.get("sec-fetch-site", "none")
        if origin is None and site in ("none", "same-origin"):
            return
        if not self._is_own(headers) and origin not in self._parts.settings.allowed_origins:
            raise ForeignOrigin(
                f"A page of {str(origin)[:100]} may not change anything here.",
                todo="If that page is yours, start the server with --allow-origin ORIGIN.",
                facts={"origin": str(origin)[:100]},
            )

    def _check_own_page(self, headers: Mapping[str, str]) -> None:
        """Refuse a change with a cookie from a foreign page (CSRF)."""
        site = headers.get("sec-fetch-site", "same-origin" if "origin" in headers else "")
        if site != "same-origin" or ("origin" in headers and not self._is_own(headers)):
            raise ForeignOrigin(
                "A session may change something only from a page of this server.",
                todo="Programs and other pages send a token: Authorization: Bearer il_…",
            )

    def _is_own(self, headers: Mapping[str, str]) -> bool:
        """Return whether the header Origin names this server.

        Without TLS here, a proxy may have it.
        """
        host, origin = headers.get("host", ""), headers.get("origin")
        return origin == f"https://{host}" or (origin == f"http://{host}" and not self._tls)

    # Logging

    def _note(self, exchange: Exchange, scope: Scope) -> None:
        route, seconds = exchange.route, time.perf_counter() - exchange.began_at
        self._parts.metrics.answered(scope["method"], route.path if route else "", exchange.status, seconds)
        level = "debug" if scope["method"] in _SAFE else "info"
        if exchange.status < 400 and not self._parts.log.has(level):
            return
        actor = exchange.principal.name if exchange.principal else ""
        facts = {
            "method": scope["method"],
            "path": scope["path"][:200],
            "status": exchange.status,
            "ms": round(seconds * 1_000, 2),
            "actor": actor,
            "request": exchange.request,
            "code": exchange.code,
        }
        if exchange.status >= 400:
            alike = {"status": exchange.status, "code": exchange.code}
            alike |= {"actor": actor} if actor else {"address": _origin(scope)}
            self._parts.log.seldom("request", alike, **facts)
        else:
            self._parts.log.write(level, "request", facts)


class RequestIds:
    """Random ids of requests, so that clients cannot count them.

    Randomness is drawn for many at once, because each time is a call of the system.
    """

    def __init__(self) -> None:
        self._drawn: Iterator[str] = iter(())

    def next(self) -> str:
        """Return a new id."""
        for request_id in self._drawn:
            return request_id
        drawn = os.urandom(_ID_BYTES * _IDS_AT_ONCE).hex()
        length = 2 * _ID_BYTES
        self._drawn = iter([drawn[start : start + length] for start in range(0, len(drawn), length)])
        return self.next()


def _noting(exchange: Exchange, send: Send) -> Send:
    async def note(message: Message) -> None:
        if message["type"] == "http.response.start":
            exchange.began = True
            exchange.status = message["status"]
            given = message["headers"]
            named = {name for name, _ in given}
            if named.isdisjoint(_ALWAYS_NAMES):
                extra: Iterable[tuple[bytes, bytes]] = ALWAYS
            else:
                extra = [(name, value) for name, value in ALWAYS if name not in named]
            message["headers"] = [
                *given,
                *extra,
                *exchange.cors,
                (b"x-request-id", exchange.request.encode()),
            ]
            if exchange.hsts:
                message["headers"].append(HSTS)
        await send(message)

    return note


def _address(scope: Scope) -> str:
    """Return the address at the other end of the connection.

    Behind a proxy that is the proxy's.
    """
    return str((scope.get("client") or ("somebody",))[0])


def _given_up() -> NotReady:
    return NotReady(
        "The server stopped before the response was ready; the request may have been executed.",
        todo="Use another server; with a request id it is safe to repeat the request.",
    )


def _bearer(sent: str | None) -> str:
    if sent is None:
        raise not_signed_in("The request has no token.")
    scheme, _, token = sent.partition(" ")
    if scheme.lower() != "bearer":
        raise not_signed_in("The header Authorization has no bearer token.")
    return token.strip()


def _hosts(settings: ServerSettings) -> frozenset[str]:
    """Return the accepted host names; empty if all are accepted."""
    own: Iterable[str] = (*_HERE, settings.host.strip("[]").lower()) if settings.loopback else ()
    return frozenset({*own, *(name.lower() for name in settings.allowed_hosts)})


@lru_cache(maxsize=64)
def _name_of(host: str) -> str | None:
    """Return the header Host without its port.

    Return None if it is invalid according to RFC 9110.
    """
    found = _HOST.fullmatch(host)
    if found is None:
        return None
    if found["six"] is None:
        return found["name"].lower()
    try:
        return str(ipaddress.IPv6Address(found["six"]))
    except ValueError:
        return None


def _check_once(given: Iterable[tuple[bytes, bytes]]) -> None:
    numbers = Counter(name.decode("latin-1") for name, _ in given)
    twice = sorted(name for name, number in numbers.items() if number > 1 and name in _ONCE)
    if twice:
        raise NoHttp(
            f"The header {twice[0]} is there {numbers[twice[0]]} times.",
            todo="Send it once.",
            facts={"headers": twice},
        )


def _origin(scope: Scope) -> str:
    """Return the address that a request came from, as limits count it."""
    return origin_of((scope.get("client") or NOWHERE)[0])
