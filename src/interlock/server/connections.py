"""Connections that do not wait for ever.

A client that sends the head of a request byte by byte would hold a connection for as long as it
likes. Here the head has to arrive in time and within its size, whichever parser is installed; what
is no HTTP at all is told so in the words of every other error.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from interlock.errors import InterlockError
from interlock.server.problems import MEDIA_TYPE, ArrivedTooSlowly, BadRequest, problem_of
from interlock.server.settings import ServerSettings

if TYPE_CHECKING:
    from uvicorn.protocols.http.h11_impl import H11Protocol as Protocol
    from uvicorn.protocols.http.h11_impl import RequestResponseCycle
else:
    Protocol = AutoHTTPProtocol


UNSENT_BYTES = 4_096
"""Who has not taken more than this of what was said is told nothing more until it has.

The system has a buffer for each connection anyway. What does not fit into it is kept here, and a
thousand readers that do not keep up would have the usual 64 KiB each.
"""


class _NoHttp(BadRequest):
    """What was sent is no HTTP request, or its head is too large."""

    code = "no_http"
    status = 400


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


class BoundedConnection(Protocol):
    """One connection of a client."""

    settings = ServerSettings()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._head_timer: asyncio.TimerHandle | None = None
        self._head_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Somebody is there, and has to say something."""
        transport.set_write_buffer_limits(high=UNSENT_BYTES)
        super().connection_made(Gathered(transport, self.loop))  # type: ignore[arg-type]
        self._expect_head()

    def data_received(self, data: bytes) -> None:
        """Whatever arrives belongs to a head until a request has begun."""
        before: object = self.cycle
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self.cycle is not before or not self._waiting:
            self._head_is_there()
            return
        self._expect_head()
        self._head_bytes += len(data)
        if self._head_bytes > self.settings.max_header_bytes:
            self._refuse(
                _NoHttp(f"The head of a request has at most {self.settings.max_header_bytes} bytes.")
            )

    def connection_lost(self, exc: Exception | None) -> None:
        """They are gone."""
        self._head_is_there()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """What the parser cannot make sense of."""
        self._refuse(_NoHttp("This is no HTTP request that can be understood.", facts={"parser": msg}))

    @property
    def _waiting(self) -> bool:
        """No request is being answered."""
        cycle: RequestResponseCycle | None = self.cycle  # None until the first request
        return cycle is None or cycle.response_complete

    def _expect_head(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(self.settings.header_s, self._too_slow)

    def _head_is_there(self) -> None:
        self._head_bytes = 0
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _too_slow(self) -> None:
        self._refuse(
            ArrivedTooSlowly(
                f"The head of the request did not arrive within {self.settings.header_s:g} s.",
                todo="Send it again; nothing was done.",
            )
        )

    def _refuse(self, error: InterlockError) -> None:
        self._head_is_there()
        if self.transport.is_closing():
            return
        body = msgspec.json.encode(problem_of(error, ""))
        head = (
            f"HTTP/1.1 {error.status} {'Request Timeout' if error.status == 408 else 'Bad Request'}\r\n"
            f"content-type: {MEDIA_TYPE}\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()


def connection_for(settings: ServerSettings) -> type[asyncio.Protocol]:
    """Connections with these bounds."""
    return type("BoundedConnection", (BoundedConnection,), {"settings": settings})
