"""HTTP connections with time and size limits.

A client that sends the head of a request byte by byte could hold a connection forever. Here the head has to
arrive in time and within its size limit; malformed HTTP is answered with problem+json. The middleware
measures complete heads.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections import deque
from collections.abc import Callable
from http import HTTPStatus
from typing import Any
from urllib.parse import unquote

import httptools
import msgspec
from starlette.types import ASGIApp, Scope
from uvicorn.config import Config
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT, FlowControl
from uvicorn.protocols.utils import get_local_addr, get_remote_addr, is_ssl
from uvicorn.server import ServerState

from interlock.api.problems import (
    MEDIA_TYPE,
)
from interlock.errors import ArrivedTooSlowly, InterlockError, NoHttp, TooBusy
from interlock.server.cycle import CYCLE, Cycle
from interlock.server.limits import ConnectionTable
from interlock.server.problems import problem_of
from interlock.server.settings import ServerSettings

log: logging.Logger = logging.getLogger("interlock.server")

UNSENT_BYTES = 4_096
"""Size of the write buffer above which sending to a slow client pauses.

The system has a buffer for each connection anyway. The rest is kept here, and a thousand slow readers
would hold the usual 64 KiB each.
"""


BODY_FOLLOWS_S = 0.02
"""Many clients send the body of a request after its head.

A request that needs no task when it arrives as a whole gets one if its body does not follow so soon.
"""

_ASGI = {"version": "3.0", "spec_version": "2.3"}


class BufferedTransport:
    """A transport that joins all writes of one iteration of the event loop.

    The head of a response and its body are written separately, and each would be a system call and a packet.
    """

    __slots__ = ("_loop", "_transport", "_written")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._written: list[bytes] = []

    def write_now(self, data: bytes) -> None:
        """Send the data, unless earlier data waits for the end of the iteration."""
        if self._written:
            self._written.append(data)
        else:
            self._transport.write(data)

    def write(self, data: bytes) -> None:
        """Send the data at the end of the iteration, with other writes."""
        if not self._written:
            self._loop.call_soon(self._send)
        self._written.append(data)

    def is_closing(self) -> bool:
        """Return whether the connection is closed, or about to be."""
        return self._transport.is_closing()

    def close(self) -> None:
        """Send pending data, and close the connection."""
        self._send()
        self._transport.close()

    def _send(self) -> None:
        if self._written:
            written, self._written = self._written, []
            if not self._transport.is_closing():
                self._transport.write(b"".join(written))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class BoundedConnection(asyncio.Protocol):
    """One connection of a client. The server makes it, and stops it with `shutdown`."""

    settings: ServerSettings = ServerSettings()
    registry: ConnectionTable = ConnectionTable(settings)
    refused: Callable[[int], None] = staticmethod(lambda _: None)
    """Called with the status of a response that precedes any request."""

    def __init__(self, config: Config, server_state: ServerState) -> None:
        self.client: tuple[str, int] | None = None
        self._app: ASGIApp = config.loaded_app
        self._answers_directly: Callable[[Cycle], bool] = getattr(self._app, "begin", _never)
        self._may_answer_directly: Callable[[Scope], bool] = getattr(self._app, "has_direct", _never)
        self._loop = asyncio.get_running_loop()
        self._state = server_state
        self._parser = httptools.HttpRequestParser(self)
        # The first of several requests in one piece is answered also if it ends the connection.
        self._parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self._unstarted: Cycle | None = None
        """A request whose body is being read from the current chunk."""
        self._cycle: Cycle | None = None
        """The last request whose head is there."""
        self._running: Cycle | None = None
        """The request that is being answered, or was answered last."""
        self._queued: deque[Cycle] = deque()
        """Requests that wait for the response to the one before."""
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._continues = False
        """Whether the client waits for a word before it sends the body."""
        self._keep_alive_s: float = self.settings.keep_alive_s
        self._idle_until = 0.0
        self._idle_timer: asyncio.TimerHandle | None = None
        self._head_timer: asyncio.TimerHandle | None = None
        self._body_timer: asyncio.TimerHandle | None = None
        self._head_bytes = 0
        self._in_head = False
        self._in_message = False
        self._begun = 0
        """Number of heads that began in the current chunk."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Register the connection, and start the timer of the head."""
        transport.set_write_buffer_limits(high=UNSENT_BYTES)
        self.transport: BufferedTransport = BufferedTransport(transport, self._loop)
        self._flow = FlowControl(transport)
        self._server = get_local_addr(transport)
        self.client = get_remote_addr(transport)
        self._scheme = "https" if is_ssl(transport) else "http"
        self._state.connections.add(self)  # type: ignore[arg-type]
        if self.client is not None and not self.registry.opened(self.client, self._make_room):
            self._refuse(_full(self.registry.most))
            return
        self._expect_head()

    def data_received(self, data: bytes) -> None:
        """Count the bytes of an incomplete head, and wait for the rest."""
        if self.transport.is_closing():
            return
        self._begun, between = 0, not self._in_message
        self._parse(data)
        if not self._in_head and not self._waiting:
            self._head_is_there()
            return
        if self.transport.is_closing():
            return
        if self._waiting:
            self._expect_head()
        if not self._begun or (self._begun == 1 and between):
            self._head_bytes += len(data)  # otherwise part of it belongs to earlier requests
        if self._head_bytes > self._most_bytes:
            self._too_much()

    def _parse(self, data: bytes) -> None:
        fault: Exception | None = None
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            log.warning("A request asks for another protocol, which is ignored.")
        except httptools.HttpParserError as error:
            fault = error
        if self._unstarted is not None:  # only the head, or a part of the body has arrived
            self._expect_body(self._unstarted, fault)
        if fault is not None:
            self._refuse_bytes(fault)

    def eof_received(self) -> None:
        """Close the connection."""

    def pause_writing(self) -> None:
        """Make responses wait until the client has read the sent bytes."""
        self._flow.pause_writing()

    def resume_writing(self) -> None:
        """Continue with responses."""
        self._flow.resume_writing()

    # The parser calls these

    def on_message_begin(self) -> None:
        """Mark the begin of a head."""
        self._in_head = self._in_message = True
        self._begun += 1
        self._head_bytes = 0
        self._url = b""
        self._headers = []
        self._continues = False

    def on_url(self, url: bytes) -> None:
        """Take a part of the address."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header."""
        name = name.lower()
        if name == b"expect" and value.lower() == b"100-continue":
            self._continues = True
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        """Answer the request, after those that came before it on this connection."""
        self._in_head = False
        parser, address = self._parser, httptools.parse_url(self._url)
        version, path = parser.get_http_version(), address.path.decode("ascii")
        scope: Scope = {
            "type": "http",
            "asgi": _ASGI,
            "http_version": version,
            "server": self._server,
            "client": self.client,
            "scheme": self._scheme,
            "root_path": "",
            "headers": self._headers,
            "method": parser.get_method().decode("ascii"),
            "path": unquote(path) if "%" in path else path,
            "raw_path": address.path,
            "query_string": address.query or b"",
        }
        before = self._cycle
        self._cycle = cycle = Cycle(
            scope,
            self.transport,
            self._flow,
            self._state.tasks,
            self._state.default_headers,
            self._answered,
            keep_alive=version != "1.0" and parser.should_keep_alive(),
            continues=self._continues,
        )
        scope[CYCLE] = cycle
        if before is None or before.response_complete:
            self._running = self._unstarted = cycle
        else:
            self._flow.pause_reading()
            self._queued.append(cycle)

    def _expect_body(self, cycle: Cycle, fault: Exception | None) -> None:
        """Start a request whose body has not arrived, or wait a moment for that."""
        if fault is not None or self._continues or not self._may_answer_directly(cycle.scope):
            self._start(cycle)
        elif self._body_timer is None:
            self._body_timer = self._loop.call_later(BODY_FOLLOWS_S, self._start_without_body)

    def _start_without_body(self) -> None:
        if self._unstarted is not None:
            self._start(self._unstarted)

    def _start(self, cycle: Cycle) -> None:
        if self._body_timer is not None:
            self._body_timer.cancel()
            self._body_timer = None
        self._running, self._unstarted = cycle, None
        if not (cycle.is_whole and self._answers_directly(cycle)):
            cycle.start(self._app, self._loop)

    def on_body(self, body: bytes) -> None:
        """Take a part of the body."""
        cycle = self._cycle
        if cycle is not None and not cycle.response_complete:
            cycle.arrived(body)
            if len(cycle.body) > HIGH_WATER_LIMIT:
                self._flow.pause_reading()
                self._start_without_body()

    def on_message_complete(self) -> None:
        """Mark the end of a request."""
        self._in_message = False
        cycle = self._cycle
        if cycle is not None and not cycle.response_complete:
            cycle.has_arrived()
            if cycle is self._unstarted:
                self._start(cycle)

    # Between requests

    def _answered(self) -> None:
        """Answer the next request, or wait for one."""
        self._state.total_requests += 1
        if self.transport.is_closing():
            return
        if self._flow.read_paused:
            self._flow.resume_reading()
        if self._queued:
            self._start(self._queued.popleft())
            return
        # A timer for each request would be made and cancelled thousands of times a second.
        self._idle_until = self._loop.time() + self._keep_alive_s
        if self._idle_timer is None:
            self._look_when_idle()

    def _look_when_idle(self) -> None:
        self._idle_timer = self._loop.call_at(self._idle_until, self._look)

    def _look(self) -> None:
        """Close an idle connection.

        A request under way sets the timer again when it ends.
        """
        self._idle_timer = None
        if self.transport.is_closing() or not self._waiting or self._in_message:
            return
        if self._loop.time() < self._idle_until:
            self._look_when_idle()
        else:
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Unregister the connection, and end what uses it."""
        self._state.connections.discard(self)
        if self.client is not None:
            self.registry.closed(self.client)
        self._head_is_there()
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None
        if self._body_timer is not None:
            self._body_timer.cancel()
            self._body_timer = None
        if self._running is not None:
            self._running.disconnect()
        self._flow.resume_writing()
        if exc is None:
            self.transport.close()
        del self._parser  # it refers to this connection
        self._cycle = self._running = self._unstarted = None
        self._queued.clear()

    def shutdown(self) -> None:
        """Close the connection, after the response to a request under way."""
        if self._cycle is None or self._cycle.response_complete:
            self.transport.close()
        else:
            self._cycle.keep_alive = False

    def _refuse_bytes(self, error: Exception) -> None:
        """Refuse malformed HTTP."""
        log.warning("A request is not valid HTTP: %s", type(error).__name__)
        in_body = self._in_message and not self._in_head
        cycle = self._cycle
        if cycle is not None and not cycle.response_complete and (not in_body or cycle.response_started):
            self.transport.close()  # the client would take this for the response to its earlier request
            return
        self._refuse(
            NoHttp("This is not a valid HTTP request.", facts={"parser": "Invalid HTTP request received."})
        )

    @property
    def _waiting(self) -> bool:
        """Whether no request is being answered."""
        return self._cycle is None or self._cycle.response_complete

    @property
    def _most_bytes(self) -> int:
        """Maximum bytes outside of a complete head: of a head, or of a body after its refusal."""
        return self.settings.max_body_bytes if self._is_leftover else self.settings.max_header_bytes

    @property
    def _is_leftover(self) -> bool:
        """Whether incoming data is the rest of a body whose request was already answered."""
        return self._cycle is not None and not self._in_head

    def _expect_head(self) -> None:
        if self._head_timer is None:
            self._head_timer = self._loop.call_later(self.settings.header_s, self._too_slow)

    def _head_is_there(self) -> None:
        self._head_bytes = 0
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _too_slow(self) -> None:
        if self._is_leftover:
            self._hang_up()
            return
        self._refuse(
            ArrivedTooSlowly(
                f"The head of the request did not arrive within {self.settings.header_s:g} s.",
                todo="Send it again; nothing was done.",
            )
        )

    def _too_much(self) -> None:
        if self._in_head and self._waiting:
            self._refuse(head_too_large(self.settings.max_header_bytes))
        else:
            self.transport.close()  # the client would take a response for that of another request

    def _make_room(self) -> bool:
        """Close the connection, unless an unanswered request has arrived."""
        if not self._waiting and not self._in_message:
            return False
        self._hang_up()
        return True

    def _hang_up(self) -> None:
        """Close the connection without a response, whether or not it is read."""
        self.transport.close()
        if self.transport.get_write_buffer_size():
            self.transport.abort()

    def _refuse(self, error: InterlockError) -> None:
        self._head_is_there()
        if self.transport.is_closing():
            return
        self.refused(error.status)
        body = msgspec.json.encode(problem_of(error, ""))
        head = (
            f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}\r\n"
            f"content-type: {MEDIA_TYPE}\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()


class TlsHandshake(asyncio.Protocol):
    """A connection during the TLS handshake; it counts like one without a request.

    `asyncio` reports it only after the handshake, and does not limit the number of handshakes.
    """

    def __init__(
        self, make: Callable[[], BoundedConnection], tls: ssl.SSLContext, waiting: set[Any], seconds: float
    ) -> None:
        self._make = make
        self._tls = tls
        self._waiting = waiting
        """All connections to close when the server shuts down."""
        self._seconds = seconds
        self._early: list[bytes] = []
        self._is_over = self._is_agreed = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the handshake, if the connection limit allows it."""
        transport.pause_reading()  # data must be read by TLS first
        self._transport = transport
        self._connection = self._make()
        self._registry = self._connection.registry
        self._client = get_remote_addr(transport)
        if self._client is not None and not self._registry.opened(self._client, self._make_room):
            transport.abort()
            return
        self._waiting.add(self)
        self._task = asyncio.get_running_loop().create_task(self._agree())

    def data_received(self, data: bytes) -> None:
        """Keep data that arrived together with the end of the handshake."""
        self._early.append(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forward the loss of the connection.

        It may occur in the iteration in which the handshake ended.
        """
        self._is_over = True
        if self._is_agreed:
            self._connection.connection_lost(exc)

    def shutdown(self) -> None:
        """Close the connection, because the server shuts down."""
        self._transport.abort()

    def _make_room(self) -> bool:
        self._transport.abort()
        return True

    async def _agree(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            secured = await loop.start_tls(
                self._transport, self, self._tls, server_side=True, ssl_handshake_timeout=self._seconds
            )
        except (OSError, EOFError):
            secured = None
        finally:
            self._waiting.discard(self)
            if self._client is not None:
                self._registry.closed(self._client)
        if secured is None or self._is_over:
            self._transport.abort()
            return
        self._is_agreed = True
        secured.set_protocol(self._connection)
        self._connection.connection_made(secured)
        if self._early:
            self._connection.data_received(b"".join(self._early))


def connection_for(
    settings: ServerSettings, connections: ConnectionTable, refused: Callable[[int], None]
) -> type[asyncio.Protocol]:
    """Return the connection class with these limits."""
    own = {"settings": settings, "registry": connections, "refused": staticmethod(refused)}
    return type("BoundedConnection", (BoundedConnection,), own)


def head_too_large(limit: int) -> NoHttp:
    """Return the error of a head that is too large."""
    return NoHttp(
        f"The head of a request has at most {limit} bytes.",
        todo="Send fewer or shorter headers, or a shorter address.",
        facts={"limit": limit},
    )


def _never(_: object) -> bool:
    """Return False: this application answers all requests in tasks."""
    return False


def _full(most: int) -> TooBusy:
    return TooBusy(
        f"The server has reached its limit of {most} connections, all of them busy.",
        todo="Retry in a moment, or use another server.",
        facts={"most": most},
    )
