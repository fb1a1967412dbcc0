"""`http`: requests to a URL on the same machine, each an operation.

Connections are kept and reused; there are as many as concurrent operations. The answer is read to its end,
and the size of its body counts as bytes. A response with an unexpected status, or after the timeout, is a
failure.

A request must not choose which hosts the fleet calls, so only loopback addresses are allowed.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Iterator
from typing import ClassVar
from urllib.parse import SplitResult, urlsplit

import httptools
import msgspec

from interlock.agent.port import Load, Workload
from interlock.agent.settings import is_loopback

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
PORTS = {"http": 80, "https": 443}
_IN_A_URL = re.compile(r"[!-~]+")
_IN_A_HEADER = re.compile(r"[ -~]*")


class HttpSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The request, and the expected answer."""

    url: str
    method: str = "GET"
    headers: dict[str, str] = {}
    body: str = ""
    expect: tuple[int, ...] = ()
    """Statuses of a successful answer; by default all below 400."""
    timeout_s: float = 10.0
    verify: bool = True
    """Whether the certificate of an https server is checked."""


class Http(Workload[HttpSpec]):
    """A workload whose operations are HTTP requests."""

    kind = "http"
    spec_type: ClassVar[type[msgspec.Struct]] = HttpSpec

    def __init__(self, spec: HttpSpec) -> None:
        super().__init__(spec)
        self._free: list[_HttpConnection] = []
        self._all: set[_HttpConnection] = set()
        self._request = _request(spec)
        self._address = urlsplit(spec.url)

    @classmethod
    def check(cls, spec: HttpSpec) -> None:
        """Check that the URL is local and the request is valid."""
        if faults := list(_faults(spec)):
            raise ValueError("; ".join(faults))

    async def prepare(self) -> None:
        """Connect once, so that a missing server is detected before the start."""
        self._free.append(await self._connect())

    async def run(self, load: Load) -> None:
        """Send requests repeatedly."""
        await load.drive(self._request_once)

    async def cleanup(self) -> None:
        """Close every connection."""
        for connection in self._all:
            connection.close()

    async def _request_once(self) -> int:
        async with asyncio.timeout(self.spec.timeout_s):
            connection = self._free.pop() if self._free else await self._connect()
            try:
                answer = await connection.send(self._request)
            except BaseException:
                self._let_go(connection)
                raise
        if connection.usable:
            self._free.append(connection)
        else:
            self._let_go(connection)
        good = answer.status in self.spec.expect if self.spec.expect else answer.status < 400
        if not good:
            raise UnexpectedStatus(f"status {answer.status}")
        return answer.size

    def _let_go(self, connection: _HttpConnection) -> None:
        connection.close()
        self._all.discard(connection)

    async def _connect(self) -> _HttpConnection:
        port = self._address.port or PORTS[self._address.scheme]
        context = None
        if self._address.scheme == "https":
            context = ssl.create_default_context()
            if not self.spec.verify:
                context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        _, connection = await asyncio.get_running_loop().create_connection(
            _HttpConnection, self._address.hostname or "", port, ssl=context
        )
        self._all.add(connection)
        return connection


class UnexpectedStatus(Exception):
    """The status of an answer is not an expected one."""


class _Answer(msgspec.Struct):
    status: int = 0
    size: int = 0


class _HttpConnection(asyncio.Protocol):
    """A connection with one request at a time; the parser calls the methods that begin with `on_`."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._answer = _Answer()
        self._complete: asyncio.Future[_Answer] | None = None
        self._parser = httptools.HttpResponseParser(self)
        self.usable = True

    async def send(self, request: bytes) -> _Answer:
        """Return the answer, once it has been read to its end."""
        assert self._transport is not None
        self._answer = _Answer()
        self._complete = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return await self._complete

    def close(self) -> None:
        """Close the connection."""
        self.usable = False
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(ConnectionError(f"the response is not HTTP: {error}"))

    def connection_lost(self, exc: Exception | None) -> None:
        self.usable = False
        if self._answer.status and exc is None:
            self.on_message_complete()  # an answer without a length ends with the connection
        else:
            self._fail(exc or ConnectionError("the connection was closed before a response arrived"))

    def on_headers_complete(self) -> None:
        self._answer.status = self._parser.get_status_code()

    def on_body(self, body: bytes) -> None:
        self._answer.size += len(body)

    def on_message_complete(self) -> None:
        if self._complete is None or self._complete.done():
            return
        self.usable = self.usable and self._parser.should_keep_alive()
        self._complete.set_result(self._answer)
        self._parser = httptools.HttpResponseParser(self)

    def _fail(self, error: Exception) -> None:
        self.usable = False
        if self._complete is not None and not self._complete.done():
            self._complete.set_exception(error)


def _faults(spec: HttpSpec) -> Iterator[str]:
    try:
        address = urlsplit(spec.url)
        port = address.port
    except ValueError as error:
        yield f"url: {error}"
        return
    if address.scheme not in PORTS or not address.hostname or port == 0:
        yield f"url must look like http://127.0.0.1:8000/path, and is {spec.url!r}"
    elif not is_loopback(address.hostname):
        yield f"url must be of this machine (127.0.0.1, ::1 or localhost), and is of {address.hostname}"
    if spec.method not in METHODS:
        yield f"method must be one of {', '.join(METHODS)}"
    if not spec.timeout_s > 0:
        yield "timeout_s must be more than 0"
    if not _IN_A_URL.fullmatch(spec.url):
        yield "url must have no spaces and nothing but ASCII; write others as %20 and so on"
    if not all(_IN_A_HEADER.fullmatch(text) for pair in spec.headers.items() for text in pair):
        yield "a header must be one line of ASCII"


def _request(spec: HttpSpec) -> bytes:
    """Return the bytes of the request, which are the same each time."""
    address = urlsplit(spec.url)
    body = spec.body.encode()
    headers = {"Host": address.netloc.rpartition("@")[2], "User-Agent": "interlock-agent", **spec.headers}
    if body or spec.method in ("POST", "PUT", "PATCH"):
        headers["Content-Length"] = str(len(body))
    lines = [f"{spec.method} {_target(address)} HTTP/1.1", *(f"{n}: {v}" for n, v in headers.items())]
    return "\r\n".join((*lines, "", "")).encode() + body


def _target(address: SplitResult) -> str:
    return (address.path or "/") + (f"?{address.query}" if address.query else "")
