"""HTTP connections with time and size limits.

A client that sends the head of a request byte by byte could hold a connection forever. Here the head has to
arrive in time and within its size limit; malformed HTTP is answered with problem+json. The middleware
measures complete heads.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

import msgspec
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.protocols.utils import get_remote_addr

from interlock.api.problems import (
    MEDIA_TYPE,
)
from interlock.errors import ArrivedTooSlowly, InterlockError, NoHttp, TooBusy
from interlock.server.limits import ConnectionTable
from interlock.server.problems import problem_of
from interlock.server.settings import ServerSettings

UNSENT_BYTES = 4_096
"""Size of the write buffer above which sending to a slow client pauses.

The system has a buffer for each connection anyway. The rest is kept here, and a thousand slow readers
would hold the usual 64 KiB each.
"""


class Gathered:
    """A transport that joins all writes of one iteration of the event loop.

    The head of a response and its body are written separately, and each would be a system call and a packet.
    """

    __slots__ = ("_loop", "_transport", "_written")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._written: list[bytes] = []

    def write(self, data: bytes) -> None:
        """Send the data at the end of the iteration, with other writes."""
        if not self._written:
            self._loop.call_soon(self._send)
        self._written.append(data)

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


class BoundedConnection(HttpToolsProtocol):
    """One connection of a client."""

    settings: ServerSettings = ServerSettings()
    registry: ConnectionTable = ConnectionTable(settings)
    refused: Callable[[int], None] = staticmethod(lambda _: None)
    """Called with the status of a response that precedes any request."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._head_timer: asyncio.TimerHandle | None = None
        self._head_bytes = 0
        self._in_head = False
        self._in_message = False
        self._begun = 0
        """Number of heads that began in the current chunk."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Register the connection, and start the timer of the head."""
        transport.set_write_buffer_limits(high=UNSENT_BYTES)
        super().connection_made(Gathered(transport, self.loop))  # type: ignore[arg-type]
        if self.client is not None and not self.registry.opened(self.client, self._make_room):
            self._refuse(_full(self.registry.most))
            return
        self._expect_head()

    def data_received(self, data: bytes) -> None:
        """Count the bytes of an incomplete head, and wait for the rest."""
        if self.transport.is_closing():
            return
        self._begun, between = 0, not self._in_message
        super().data_received(data)
        if self.transport.is_closing():
            return
        if not self._in_head and not self._waiting:
            self._head_is_there()
            return
        if self._waiting:
            self._expect_head()
        if not self._begun or (self._begun == 1 and between):
            self._head_bytes += len(data)  # otherwise part of it belongs to earlier requests
        if self._head_bytes > self._most_bytes:
            self._too_much()

    def on_message_begin(self) -> None:
        """Mark the begin of a head."""
        super().on_message_begin()
        self._in_head = self._in_message = True
        self._begun += 1
        self._head_bytes = 0

    def on_headers_complete(self) -> None:
        """Mark the end of a head."""
        self._in_head = False
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Mark the end of a request."""
        self._in_message = False
        super().on_message_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Unregister the connection."""
        if self.client is not None:
            self.registry.closed(self.client)
        self._head_is_there()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Refuse malformed HTTP."""
        in_body = self._in_message and not self._in_head
        if not self._waiting and (not in_body or self.cycle.response_started):
            self.transport.close()  # the client would take this for the response to its earlier request
            return
        self._refuse(NoHttp("This is not a valid HTTP request.", facts={"parser": msg}))

    @property
    def _waiting(self) -> bool:
        """Whether no request is being answered."""
        cycle: RequestResponseCycle | None = self.cycle  # None until the first request
        return cycle is None or cycle.response_complete

    @property
    def _most_bytes(self) -> int:
        """Maximum bytes outside of a complete head: of a head, or of a body after its refusal."""
        return self.settings.max_body_bytes if self._is_leftover else self.settings.max_header_bytes

    @property
    def _is_leftover(self) -> bool:
        """Whether incoming data is the rest of a body whose request was already answered."""
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is not None and not self._in_head

    def _expect_head(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(self.settings.header_s, self._too_slow)

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
        """Close the connection without a response, even if the client does not read."""
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
        """Forward the loss, which may occur in the iteration in which the handshake ended."""
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


def _full(most: int) -> TooBusy:
    return TooBusy(
        f"The server has reached its limit of {most} connections, all of them busy.",
        todo="Retry in a moment, or use another server.",
        facts={"most": most},
    )
