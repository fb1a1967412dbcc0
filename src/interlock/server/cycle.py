"""One request of a connection, and its response.

Most requests arrive as a whole, and most responses leave as a whole. Those pass without ASGI messages: the
endpoint takes the body from the cycle, and gives it the response, which is written at once. Everything else,
such as a stream, uses ASGI messages as in any server.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Iterable, Sequence
from http import HTTPStatus
from typing import Any, Protocol

from starlette.types import ASGIApp, Message, Scope
from uvicorn.protocols.http.flow_control import FlowControl

CYCLE = "interlock.cycle"
"""Key of the cycle in the scope of a request; missing where another server calls the application."""

Header = tuple[bytes, bytes]
_STATUSES = frozenset(HTTPStatus)
_NAME = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(rb"[^\x00-\x08\x0a-\x1f\x7f]*")
"""One line, so that no value can add a header, or a response."""
_FAILED = b"Internal Server Error"

log: logging.Logger = logging.getLogger("interlock.server")


class ResponseTransport(Protocol):
    """The transport of a connection, as far as responses need it."""

    def write(self, data: bytes) -> None:
        """Send data, together with other data of this iteration of the loop."""
        ...

    def write_now(self, data: bytes) -> None:
        """Send data at once."""
        ...

    def is_closing(self) -> bool:
        """Return whether the connection is closed, or about to be."""
        ...

    def close(self) -> None:
        """Close the connection."""
        ...


class Abandonable(Protocol):
    """A request being answered, as far as a server that ends needs it."""

    def cancel(self, msg: str | None = None) -> object:
        """Give up."""
        ...


class Cycle:
    """One request and its response."""

    disconnected: bool = False
    """Whether the client has gone."""
    more_body: bool = True
    """Whether more of the body has to arrive."""
    response_started: bool = False
    response_complete: bool = False
    _fresh: bool = False
    """Whether something has arrived since the last message."""
    _news: asyncio.Event | None = None
    """Set when data arrives; made when a task waits for that."""
    _left: int | None = 0
    """Number of bytes that the response still needs; None if it is sent in chunks."""

    def __init__(
        self,
        scope: Scope,
        transport: ResponseTransport,
        flow: FlowControl,
        tasks: set[Any],
        common: Sequence[Header],
        ended: Callable[[], None],
        *,
        keep_alive: bool,
        continues: bool,
    ) -> None:
        """`common`: headers of all responses. `ended`: called after the response.

        `tasks`: the server waits for them when it ends. `continues`: the client waits for a word before it
        sends the body.
        """
        self.scope = scope
        self.flow = flow
        self.keep_alive: bool = keep_alive
        self.body: bytes = b""
        """The part of the body that has arrived since the last message."""
        self._transport = transport
        self._tasks = tasks
        self._common = common
        self._ended = ended
        self._continues = continues
        self._task: asyncio.Task[None] | None = None

    def start(self, app: ASGIApp, loop: asyncio.AbstractEventLoop) -> None:
        """Answer the request in a task of its own."""
        self._task = loop.create_task(self._run(app))
        self._tasks.add(self._task)

    def start_without_task(self, answer: Abandonable) -> None:
        """Let the server wait for this answer when it ends, as for a task."""
        self._tasks.add(answer)

    def end_without_task(self, answer: Abandonable) -> None:
        """Mark the request as answered, or as handed over to a task."""
        self._tasks.discard(answer)

    async def _run(self, app: ASGIApp) -> None:
        """Call the application.

        If it fails, which would be a fault of it, respond for it.
        """
        try:
            await app(self.scope, self.receive, self.send)
            if not self.response_complete and not self.disconnected:
                log.error("The application returned without a complete response.")
                await self._give_up()
        except BaseException:  # a request whose task is cancelled has to be answered as well
            log.exception("The application failed.")
            await self._give_up()
        finally:
            if self._task is not None:
                self._tasks.discard(self._task)
                self._task = None
            self.scope.pop(CYCLE, None)  # without this reference cycle, the collector is not needed

    async def _give_up(self) -> None:
        if self.response_started:
            self._transport.close()
            return
        media, length = (b"content-type", b"text/plain; charset=utf-8"), b"%d" % len(_FAILED)
        headers = [media, (b"content-length", length), (b"connection", b"close")]
        await self.send({"type": "http.response.start", "status": 500, "headers": headers})
        await self.send({"type": "http.response.body", "body": _FAILED})

    # The request

    def arrived(self, part: bytes) -> None:
        """Take a part of the body."""
        self.body = self.body + part if self.body else part
        self._stir()

    def has_arrived(self) -> None:
        """Take note that all of the body has arrived."""
        self.more_body = False
        self._stir()

    def disconnect(self) -> None:
        """Take note that the client has gone."""
        self.disconnected = self.disconnected or not self.response_complete
        self._stir()

    def _stir(self) -> None:
        self._fresh = True
        if self._news is not None:
            self._news.set()

    @property
    def is_whole(self) -> bool:
        """Whether all of the body has arrived, and the client is there."""
        return not self.more_body and not self.disconnected

    def whole_body(self) -> bytes | None:
        """Return the body and mark it as received, or None if it is partial."""
        if not self.is_whole:
            return None
        body, self.body, self._fresh = self.body, b"", False
        if self.flow.read_paused:
            self.flow.resume_reading()
        return body

    async def receive(self) -> Message:
        """Return the next part of the body as an ASGI message.

        After the end of the connection, the message reports that end.
        """
        if self._continues and not self._transport.is_closing():
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            self._continues = False
        if not self._is_over:
            self.flow.resume_reading()
            while not self._fresh and not self._is_over:
                self._news = self._news or asyncio.Event()
                await self._news.wait()
            self._fresh, self._news = False, None
        if self._is_over:
            return {"type": "http.disconnect"}
        body, self.body = self.body, b""
        return {"type": "http.request", "body": body, "more_body": self.more_body}

    @property
    def _is_over(self) -> bool:
        return self.disconnected or self.response_complete

    # The response

    async def respond(self, head: bytes, body: bytes) -> None:
        """Send a whole response.

        `head` has its status line and headers, without the length.
        """
        if self.flow.write_paused and not self.disconnected:
            await self.flow.drain()
        self.respond_now(head, body)

    def respond_now(self, head: bytes, body: bytes) -> None:
        """Send a whole response, whether or not the client has read those before."""
        if self.disconnected:
            return
        self.response_started = True
        end = b"\r\n" if self.keep_alive else b"connection: close\r\n\r\n"
        sent = body if self.scope["method"] != "HEAD" else b""
        common = _LINES.of(self._common)
        self._transport.write_now(b"%s%scontent-length: %d\r\n%s%s" % (head, common, len(body), end, sent))
        self._end()

    async def send(self, message: Message) -> None:
        """Send a part of the response from an ASGI message."""
        if self.flow.write_paused and not self.disconnected:
            await self.flow.drain()
        if self.disconnected:
            return
        is_start = message["type"] == "http.response.start"
        if self.response_complete or is_start is self.response_started:
            raise RuntimeError(f"unexpected message of the application: {message['type']}")
        if is_start:
            self._start_response(message["status"], message.get("headers", ()))
        else:
            self._continue_response(message.get("body", b""), more=message.get("more_body", False))

    def _start_response(self, status: int, headers: Iterable[Header]) -> None:
        self.response_started = True
        self._left = None
        lines = [_status_line(status), _LINES.of(self._common)]
        for given, value in headers:
            name = given.lower()
            if not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
                raise RuntimeError(f"invalid header of the application: {name!r}")
            if name == b"content-length":
                self._left = int(value)
            elif name == b"connection" and b"close" in value.lower():
                self.keep_alive = False
                continue
            lines.append(b"%s: %s\r\n" % (name, value))
        if not self.keep_alive:
            lines.append(b"connection: close\r\n")
        if self.scope["method"] == "HEAD" or status in (204, 304):
            self._left = 0
        elif self._left is None:
            lines.append(b"transfer-encoding: chunked\r\n")
        self._transport.write(b"%s\r\n" % b"".join(lines))

    def _continue_response(self, body: bytes, *, more: bool) -> None:
        if self.scope["method"] == "HEAD":
            body = b""
        if self._left is None:
            chunk = b"%x\r\n%s\r\n" % (len(body), body) if body else b""
            self._transport.write(chunk if more else chunk + b"0\r\n\r\n")
        else:
            self._left -= len(body)
            if self._left < 0 or (self._left and not more):
                raise RuntimeError("the response of the application has another length than its header says")
            self._transport.write(body)
        if not more:
            self._end()

    def _end(self) -> None:
        self.response_complete = True
        self._continues = False
        self._stir()
        if not self.keep_alive:
            self._transport.close()
        self._ended()


class _CommonLines:
    """The headers of all responses as lines. The server makes them anew each second."""

    def __init__(self) -> None:
        self._headers: Sequence[Header] = ()
        self._lines = b""

    def of(self, headers: Sequence[Header]) -> bytes:
        if headers is not self._headers:
            self._headers = headers
            self._lines = b"".join([b"%s: %s\r\n" % each for each in headers])
        return self._lines


_LINES = _CommonLines()


def _status_line(status: int) -> bytes:
    phrase = HTTPStatus(status).phrase if status in _STATUSES else ""
    return b"HTTP/1.1 %d %s\r\n" % (status, phrase.encode())
