"""Endpoints: all routes of one path.

One endpoint per path lets the answer to a wrong method list the allowed methods.

Why: decisions 0151 and 0324.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from http import HTTPStatus
from typing import Any, Protocol

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from interlock.api.operation import TrafficClass
from interlock.engine.unit_of_work import OwnRequestId
from interlock.errors import MethodNotAllowed, RequestIdReused, TookTooLong
from interlock.server.authentication import only_for_tokens
from interlock.server.cross_origin import Headers
from interlock.server.cycle import CYCLE, Cycle
from interlock.server.limits import NOWHERE, Buckets, Crowd, Deadlines, Places, Within, origin_of
from interlock.server.parts import Parts
from interlock.server.requests import (
    check_body,
    check_text,
    decode,
    read_body,
    read_query,
    request_id_of,
    stream_body,
)
from interlock.server.routes import Call, Route
from interlock.server.settings import ServerSettings
from interlock.systems.access.principals import Principal

log: logging.Logger = logging.getLogger("interlock.server")

EXCHANGE = "interlock.exchange"
"""Key of the exchange in the scope of a request."""
ALWAYS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
)
"""Headers of all responses that do not have others of these names."""
HSTS = (b"strict-transport-security", b"max-age=31536000")


@dataclass(slots=True)
class Exchange:
    """One request and its response so far."""

    request: str
    headers: Mapping[str, str]
    principal: Principal | None = None
    route: Route | None = None
    status: int = 0
    began: bool = False
    """Whether part of the response has been sent."""
    code: str = ""
    began_at: float = field(default_factory=time.perf_counter)
    failure: BaseException | None = None
    """The error of an answer without a task; raised again in a task, which answers it."""
    counted: bool = False
    """Whether it was counted against the rate limit of its token."""
    hsts: bool = False
    """Whether to send Strict-Transport-Security."""
    cors: Headers = ()
    """Headers for pages of other origins."""


class TrafficLimits:
    """Rate limits, concurrency limits and deadlines of each traffic.

    Each traffic has its own places, so that unauthenticated clients and API users take none from runners.
    """

    def __init__(self, settings: ServerSettings) -> None:
        self.answers: Deadlines[Within | DirectAnswer] = Deadlines(settings.request_s)
        self._bodies: Deadlines[Within] = Deadlines(settings.body_s)
        self._signed = Places(settings.body_s, settings.max_signed, settings.max_signed_bytes)
        self._bounded = {traffic: _requests(settings) for traffic in TrafficClass}
        self._unbounded = {traffic: _streams(settings) for traffic in TrafficClass}
        self._unbounded[TrafficClass.RUNNER] = _long_polls(settings)
        self._buckets = {
            TrafficClass.API: Buckets(settings.api_rate),
            TrafficClass.RUNNER: Buckets(settings.runner_rate),
        }

    def too_late(self) -> TookTooLong:
        """Return the error of an answer that was not ready in time."""
        limit_s = self.answers.limit_s
        return TookTooLong(
            f"The answer was not ready within {limit_s:g} s.",
            todo="Check whether it was executed; with a request id it is safe to repeat.",
            facts={"limit_s": limit_s},
        )

    def take(self, traffic: TrafficClass, principal: Principal) -> None:
        """Count one request against the rate limit of its token."""
        if traffic is not TrafficClass.FREE:
            self._buckets[traffic].take(principal.name)

    def crowd(self, route: Route) -> Crowd:
        """Return the concurrency limit for requests of a route."""
        return (self._bounded if route.bounded else self._unbounded)[route.traffic]

    def arrival(self, route: Route, scope: Scope) -> Within:
        """Return the deadline for the body of a request."""
        if not route.for_strangers:
            return self._bodies()
        return self._signed(origin_of((scope.get("client") or NOWHERE)[0]))


def _requests(settings: ServerSettings) -> Crowd:
    return Crowd(
        settings.max_concurrent,
        settings.concurrent_each,
        what="requests to answer",
        todo="Wait for responses before you send more requests.",
    )


def _streams(settings: ServerSettings) -> Crowd:
    return Crowd(
        settings.max_streams,
        settings.max_streams,
        what="streams and downloads open",
        todo="Close some of them first.",
    )


def _long_polls(settings: ServerSettings) -> Crowd:
    return Crowd(
        settings.max_waiting,
        settings.polls_each,
        what="long polls open",
        todo="Give some of the runners another token, or start the server with --polls-each.",
    )


@dataclass(slots=True)
class Endpoint:
    """All routes of one path."""

    parts: Parts
    limits: TrafficLimits
    path: str
    _ways: dict[str, PreparedRoute] = field(default_factory=dict)

    def add(self, route: Route) -> None:
        """Add a route."""
        self._ways[route.method] = PreparedRoute(route, self.limits.crowd(route))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange: Exchange = scope[EXCHANGE]
        way = self._ways.get("GET" if scope["method"] == "HEAD" else scope["method"])
        if way is None:
            raise self._wrong_method(scope["method"])
        exchange.route = route = way.route
        principal = _admitted(exchange, route, self.limits)
        if route.role is None and not route.for_strangers:
            await self._respond(way, principal, exchange, scope, receive, send)
            return
        if route.before is not None:
            route.before(self.parts, scope["path_params"], exchange.headers)
        self._occupy(way, exchange, scope)
        try:
            await self._respond(way, principal, exchange, scope, receive, send)
        finally:
            self.release(way, exchange, scope)

    def direct_ways(self) -> dict[tuple[str, str], tuple[Endpoint, PreparedRoute]]:
        """Return the routes that may do without a task, by method and path."""
        return {
            (method, self.path): (self, way)
            for method, way in self._ways.items()
            if way.route.direct is not None and way.takes_whole and way.route.before is None
        }

    def begin(self, way: PreparedRoute, exchange: Exchange, cycle: Cycle, owner: AnswerOwner) -> bool:
        """Begin to answer a whole request; return False if it needs a task."""
        exchange.route = route = way.route
        scope = cycle.scope
        scope["path_params"] = {}
        principal = _admitted(exchange, route, self.limits)
        self._occupy(way, exchange, scope)
        begun = False
        try:
            answer = DirectAnswer(self, way, exchange, cycle, owner)
            call = way.call_with(cycle.body, self.parts, principal, exchange, scope)
            begun = route.direct is not None and route.direct(call, answer)
        finally:
            if not begun:
                self.release(way, exchange, scope)
        if begun:
            cycle.whole_body()
            answer.begin()
        return begun

    def _occupy(self, way: PreparedRoute, exchange: Exchange, scope: Scope) -> None:
        """Take a place for the request, and keep its connection."""
        assert exchange.principal is not None, "the gate admits no request without one"
        way.crowd.enter(exchange.principal)
        client = scope.get("client") or NOWHERE
        self.parts.connections.busy(client, known=not way.route.for_strangers)

    def release(self, way: PreparedRoute, exchange: Exchange, scope: Scope) -> None:
        """Release both."""
        assert exchange.principal is not None, "the gate admits no request without one"
        self.parts.connections.idle(scope.get("client") or NOWHERE)
        way.crowd.leave(exchange.principal)

    async def _respond(
        self,
        way: PreparedRoute,
        principal: Principal,
        exchange: Exchange,
        scope: Scope,
        receive: Receive,
        send: Send,
    ) -> None:
        cycle: Cycle | None = scope.get(CYCLE)
        arrived = cycle.whole_body() if cycle is not None and way.takes_whole else None
        if arrived is None:
            in_time = self.limits.arrival(way.route, scope)
            call = await way.call(self.parts, principal, exchange, scope, receive, in_time)
        else:
            call = way.call_with(arrived, self.parts, principal, exchange, scope)
        answer = await way.answer(call, self.limits)
        if isinstance(answer, Response):
            await answer(scope, receive, send)
        else:
            await way.send(answer, exchange, cycle, send)

    def _wrong_method(self, method: str) -> MethodNotAllowed:
        known = sorted({*self._ways, *(("HEAD",) if "GET" in self._ways else ())})
        return MethodNotAllowed(
            f"{method} is not supported at {self.path}.", allowed=known, todo=f"Use {' or '.join(known)}."
        )


class AnswerOwner(Protocol):
    """The middleware that has begun a request, as far as its answer needs it."""

    def answered(self, exchange: Exchange, cycle: Cycle) -> None:
        """Log and count a request that was answered."""
        ...

    def failed(self, cycle: Cycle) -> None:
        """Answer a request that has failed, in a task."""
        ...


class DirectAnswer:
    """The answer to one request that has no task, to be set by the line that the request is in.

    A request as such needs a task: it is started, suspended, woken and ended by the event loop, through all
    layers of the server. A claim or a message only has to get into a line, and is answered with others when
    they have been committed. So the connection hands it to the middleware at once, which checks it with the
    functions that check all requests, and the line passes the answer to this object, which writes it.

    Everything else goes the ordinary way, in a task: a body that arrives slowly, a token that has to be
    looked up, a long poll, and every refusal and failure. An error is raised again in that task, where all
    errors are answered, counted and logged.

    Why: decision 0530.
    """

    __slots__ = ("_cycle", "_endpoint", "_exchange", "_is_over", "_owner", "_way", "until")

    def __init__(
        self, endpoint: Endpoint, way: PreparedRoute, exchange: Exchange, cycle: Cycle, owner: AnswerOwner
    ) -> None:
        self._endpoint = endpoint
        self._way = way
        self._exchange = exchange
        self._cycle = cycle
        self._owner = owner
        self._is_over = False
        self.until: float = 0.0
        """The deadline, by the clock of the loop."""

    def begin(self) -> None:
        """Watch the deadline, and let a server that ends wait for the answer."""
        self._cycle.start_without_task(self)
        if self._way.route.bounded:
            self.until = self._endpoint.limits.answers.begin(self)

    def done(self) -> bool:
        """Return whether the request is answered, or was given up."""
        return self._is_over

    def set_result(self, result: Any) -> None:
        """Send the answer."""
        if self._is_over:
            return
        try:
            body = self._way.encoded(result)
        except Exception as error:  # noqa: BLE001 - answered as any other failure is
            self.set_exception(error)
            return
        self._end()
        try:
            self._way.respond_now(body, self._exchange, self._cycle)
            self._owner.answered(self._exchange, self._cycle)
        except Exception:
            log.exception("The application failed.")  # the answers of others follow

    def set_exception(self, error: BaseException) -> None:
        """Send an error."""
        if not self._is_over:
            self._end()
            self._exchange.failure = error
            self._owner.failed(self._cycle)

    def cancel(self, msg: str | None = None) -> None:
        """Give up, because the server ends.

        Like a task, in the next turn: the server is going through all that it waits for.
        """
        asyncio.get_running_loop().call_soon(self.set_exception, asyncio.CancelledError(msg))

    def is_over(self, now: float) -> bool:
        """Return whether the deadline has passed; in that case answer so."""
        if now < self.until:
            return False
        self.until = 0.0  # the deadlines have stopped watching it
        self.set_exception(self._endpoint.limits.too_late())
        return True

    def _end(self) -> None:
        """Release the place of the request.

        That is before its response, after which the next one on its connection begins.
        """
        self._is_over = True
        if self.until:
            self._endpoint.limits.answers.end(self)
        self._endpoint.release(self._way, self._exchange, self._cycle.scope)
        self._cycle.end_without_task(self)


_encoder = msgspec.json.Encoder()


@cache
def _decoder_of(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)


class PreparedRoute:
    """One route, with its decoders prepared."""

    def __init__(self, route: Route, crowd: Crowd) -> None:
        self.route = route
        self.crowd = crowd
        self.takes_whole: bool = not route.streamed and not route.for_strangers
        """Whether a body that has arrived is taken as it is. Those of strangers have limited places."""
        self.encoded: Callable[[Any], bytes] = _encoder.encode
        """Encodes an answer."""
        self._read = route.read
        if self._read is None and route.bodies:
            self._read = partial(decode, _decoder_of(route.bodies[0]))
        self._media = (b"content-type", route.media.encode("latin-1"))
        lines = b"".join([b"%s: %s\r\n" % each for each in (self._media, *ALWAYS)])
        phrase = HTTPStatus(route.status).phrase.encode()
        self._head = b"HTTP/1.1 %d %s\r\n%s" % (route.status, phrase, lines)

    async def call(
        self,
        parts: Parts,
        principal: Principal,
        exchange: Exchange,
        scope: Scope,
        receive: Receive,
        in_time: Within,
    ) -> Call:
        """Decode the request."""
        route, headers = self.route, exchange.headers
        query = None if route.query is None else read_query(route.query, scope["query_string"])
        most = route.most(parts) if route.most is not None else None
        body: Any = None
        if route.streamed and most is not None:
            body = stream_body(headers, receive, parts.settings, most)
        elif self._read is not None:
            body = self._decoded(await read_body(headers, receive, parts.settings, in_time, most))
        return self._call(parts, principal, exchange, scope, query, body)

    def call_with(
        self, arrived: bytes, parts: Parts, principal: Principal, exchange: Exchange, scope: Scope
    ) -> Call:
        """Decode a request whose body has arrived as a whole."""
        route = self.route
        query = None if route.query is None else read_query(route.query, scope["query_string"])
        body: Any = None
        if self._read is not None:
            most = route.most(parts) if route.most is not None else None
            check_body(arrived, exchange.headers, parts.settings, most)
            body = self._decoded(arrived)
        return self._call(parts, principal, exchange, scope, query, body)

    def _decoded(self, sent: bytes) -> Any:
        assert self._read is not None
        if not sent.isascii() and not self.route.signed:  # signed bodies are parsed after verification
            check_text(sent)
        return self._read(sent or (b"" if self.route.body_required else b"{}"))

    def _call(
        self, parts: Parts, principal: Principal, exchange: Exchange, scope: Scope, query: Any, body: Any
    ) -> Call:
        headers = exchange.headers
        asked_as = request_id_of(headers, body) if self.route.repeatable else None
        return Call(
            parts=parts,
            principal=principal,
            request=exchange.request,
            path=scope["path_params"],
            query=query,
            body=body,
            request_id=own_request_id(principal, asked_as) if asked_as else None,
            asked_as=asked_as,
            headers=headers,
            address=str((scope.get("client") or NOWHERE)[0]),
        )

    async def answer(self, call: Call, limits: TrafficLimits) -> Any:
        """Return the answer of the handler, within the deadline.

        Errors spell the request id as the client does.
        """
        limit: Within | None = None
        try:
            if not self.route.bounded:
                return await self.route.handler(call)
            with (limit := Within(limits.answers)):
                return await self.route.handler(call)
        except RequestIdReused as error:
            raise reused_as(error, call) from None
        except TimeoutError:
            if limit is None or not limit.expired:
                raise
            raise limits.too_late() from None

    async def send(self, answer: Any, exchange: Exchange, cycle: Cycle | None, send: Send) -> None:
        """Send the answer.

        Headers are prepared once, since there are thousands of responses a second.
        """
        body = self.encoded(answer)
        if cycle is None:
            headers = [(b"content-length", b"%d" % len(body)), self._media]
            await send({"type": "http.response.start", "status": self.route.status, "headers": headers})
            await send({"type": "http.response.body", "body": body})
            return
        await cycle.respond(self._head_for(exchange), body)

    def respond_now(self, body: bytes, exchange: Exchange, cycle: Cycle) -> None:
        """Send an encoded answer, whether or not the client has read those before."""
        cycle.respond_now(self._head_for(exchange), body)

    def _head_for(self, exchange: Exchange) -> bytes:
        exchange.began, exchange.status = True, self.route.status
        hsts = b"%s: %s\r\n" % HSTS if exchange.hsts else b""
        cors = b"".join([b"%s: %s\r\n" % each for each in exchange.cors]) if exchange.cors else b""
        return b"%sx-request-id: %s\r\n%s%s" % (self._head, exchange.request.encode(), hsts, cors)


def own_request_id(principal: Principal, asked_as: str) -> str:
    """Return the request id for the store, which is distinct for each token."""
    if not principal.token_id:
        return asked_as
    stored = hashlib.sha256(msgspec.json.encode((principal.name, asked_as))).hexdigest()[:48]
    return OwnRequestId(stored, asked_as)


def reused_as(error: RequestIdReused, call: Call) -> RequestIdReused:
    """Return the error with the request id as the client has spelled it."""
    stored, asked_as = call.request_id, call.asked_as
    if stored is None or asked_as is None or stored == asked_as:
        return error
    facts = (
        {**error.facts, "request_id": asked_as} if error.facts.get("request_id") == stored else error.facts
    )
    return RequestIdReused(error.sentence.replace(stored, asked_as), todo=error.todo, facts=facts)


def endpoints_of(routes: Sequence[Route], parts: Parts) -> dict[str, Endpoint]:
    """Return one endpoint for each path.

    Literal paths precede those with parameters.
    """
    limits = TrafficLimits(parts.settings)
    found: dict[str, Endpoint] = {}
    for route in sorted(routes, key=lambda route: (route.path.count("{"), -len(route.path))):
        found.setdefault(route.path, Endpoint(parts, limits, route.path)).add(route)
    return found


def _admitted(exchange: Exchange, route: Route, limits: TrafficLimits) -> Principal:
    principal = exchange.principal
    if principal is None:
        raise LookupError("the gate admitted a request without a principal")
    if route.role is not None:
        if principal.token_id and not exchange.counted:  # local requests without a token are free
            limits.take(route.traffic, principal)
            exchange.counted = True
        if principal.claim:
            if not route.by_claim:
                raise only_for_tokens(principal, f"{route.method} {route.path}")
            return principal
        principal.need(route.role)
        if route.everything:
            principal.need_everything(f"{route.method} {route.path}")
    return principal
