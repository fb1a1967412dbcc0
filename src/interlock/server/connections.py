"""Connections that do not wait for ever.

A client that sends the head of a request byte by byte would hold a connection for as long as it
likes. Here the head has to arrive in time and within its size; what is no HTTP at all is told so in the
words of every other error. A head that is whole is measured by the gate, however it arrived.
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
from interlock.server.limits import Connections
from interlock.server.problems import problem_of
from interlock.server.settings import ServerSettings

UNSENT_BYTES = 4_096
"""Who has not taken more than this of what was said is told nothing more until it has.

The system has a buffer for each connection anyway. What does not fit into it is kept here, and a
thousand readers that do not keep up would have the usual 64 KiB each.
"""


class Gathered:
    """A transport that sends at once what is written in one turn of the loop.

    The head of an answer and its body are written one after the other, and each would be a call of the
    system and a packet of its own.
    """

    __slots__ = ("_loop", "_transport", "_written")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._written: list[bytes] = []

    def write(self, data: bytes) -> None:
        """Send it soon, with whatever else is written until then."""
        if not self._written:
            self._loop.call_soon(self._send)
        self._written.append(data)

    def close(self) -> None:
        """Send what there is, and hang up."""
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

    settings = ServerSettings()
    registry = Connections(settings)
    refused: Callable[[int], None] = staticmethod(lambda _: None)
    """Is told the status of what is answered before there is a request."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._head_timer: asyncio.TimerHandle | None = None
        self._head_bytes = 0
        self._in_head = False
        self._in_message = False
        self._begun = 0
        """How many heads began in the piece that is being read."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Somebody is there, and has to say something."""
        transport.set_write_buffer_limits(high=UNSENT_BYTES)
        super().connection_made(Gathered(transport, self.loop))  # type: ignore[arg-type]
        if self.client is not None and not self.registry.opened(self.client, self._make_room):
            self._refuse(_full(self.registry.most))
            return
        self._expect_head()

    def data_received(self, data: bytes) -> None:
        """Count what belongs to a head that is not whole, and wait for the rest."""
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
            self._head_bytes += len(data)  # otherwise a part of it belongs to requests before it
        if self._head_bytes > self._most_bytes:
            self._too_much()

    def on_message_begin(self) -> None:
        """A head begins."""
        super().on_message_begin()
        self._in_head = self._in_message = True
        self._begun += 1
        self._head_bytes = 0

    def on_headers_complete(self) -> None:
        """A head is whole."""
        self._in_head = False
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """A request is whole."""
        self._in_message = False
        super().on_message_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """They are gone."""
        if self.client is not None:
            self.registry.closed(self.client)
        self._head_is_there()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """What the parser cannot make sense of."""
        in_body = self._in_message and not self._in_head
        if not self._waiting and (not in_body or self.cycle.response_started):
            self.transport.close()  # another request is being answered, and this would be its answer
            return
        self._refuse(NoHttp("This is no HTTP request that can be understood.", facts={"parser": msg}))

    @property
    def _waiting(self) -> bool:
        """No request is being answered."""
        cycle: RequestResponseCycle | None = self.cycle  # None until the first request
        return cycle is None or cycle.response_complete

    @property
    def _most_bytes(self) -> int:
        """How much may arrive that is no whole head: of a head, or of a body after its refusal."""
        return self.settings.max_body_bytes if self._is_leftover else self.settings.max_header_bytes

    @property
    def _is_leftover(self) -> bool:
        """What arrives is the rest of a body whose request was answered already."""
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
            self.transport.close()  # anything said now would be the answer to another request

    def _make_room(self) -> bool:
        """Hang up, unless a request has arrived that is not answered yet."""
        if not self._waiting and not self._in_message:
            return False
        self._hang_up()
        return True

    def _hang_up(self) -> None:
        """Hang up without a word, also on a client that does not take what was said."""
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


class Handshake(asyncio.Protocol):
    """A connection that has not agreed on TLS yet; it is counted like one that has sent no request.

    `asyncio` would tell nobody about it until the handshake is over, and has no limit for how many there are.
    """

    def __init__(
        self, make: Callable[[], BoundedConnection], tls: ssl.SSLContext, waiting: set[Any], seconds: float
    ) -> None:
        self._make = make
        self._tls = tls
        self._waiting = waiting
        """All connections that are told when the server ends."""
        self._seconds = seconds
        self._early: list[bytes] = []
        self._is_over = self._is_agreed = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin the handshake, if there is room."""
        transport.pause_reading()  # nothing may be read before TLS reads it
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
        """Keep what arrived together with the end of the handshake."""
        self._early.append(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """They are gone; perhaps in the turn of the loop in which the handshake ended."""
        self._is_over = True
        if self._is_agreed:
            self._connection.connection_lost(exc)

    def shutdown(self) -> None:
        """The server ends."""
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
    settings: ServerSettings, connections: Connections, refused: Callable[[int], None]
) -> type[asyncio.Protocol]:
    """Connections with these bounds."""
    own = {"settings": settings, "registry": connections, "refused": staticmethod(refused)}
    return type("BoundedConnection", (BoundedConnection,), own)


def head_too_large(limit: int) -> NoHttp:
    """Say how large a head may be."""
    return NoHttp(
        f"The head of a request has at most {limit} bytes.",
        todo="Send fewer or shorter headers, or a shorter address.",
        facts={"limit": limit},
    )


def _full(most: int) -> TooBusy:
    return TooBusy(
        f"The server has {most} connections already, and answers a request on each.",
        todo="Ask again in a moment, or ask another server.",
        facts={"most": most},
    )
