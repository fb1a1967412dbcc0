"""A small HTTP server that can also do what servers should not: be slow, fall silent, and hang up."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeAlias

import h11
import msgspec


class Asked(msgspec.Struct, frozen=True):
    """A request."""

    method: str
    path: str
    token: str
    body: bytes


class Reply(msgspec.Struct, frozen=True):
    """An answer."""

    status: int
    body: object
    headers: tuple[tuple[str, str], ...] = ()


class HangUp(Exception):
    """The connection is closed without an answer."""


Answering: TypeAlias = Callable[[Asked], Awaitable[Reply]]


class Line:
    """Listens, and passes on what is asked."""

    def __init__(self, answer: Answering) -> None:
        self._answer = answer
        self._server: asyncio.Server | None = None
        self._calls: set[asyncio.Task[None]] = set()
        self.url = ""

    async def open(self, host: str, port: int) -> None:
        """Listen there; port 0 is any."""
        self._server = await asyncio.start_server(self._accept, host, port)
        port = self._server.sockets[0].getsockname()[1]
        self.url = f"http://{host}:{port}"

    async def close(self) -> None:
        """Listen no more, and hang up on everybody."""
        if self._server is not None:
            self._server.close()
        for call in self._calls:
            call.cancel()
        if self._calls:
            await asyncio.wait(self._calls)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        call = asyncio.ensure_future(self._converse(reader, writer))
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(HangUp, ConnectionError, h11.RemoteProtocolError, asyncio.CancelledError):
                connection = h11.Connection(h11.SERVER)
                while (asked := await _read(connection, reader)) is not None:
                    await _write(connection, writer, await self._answer(asked))
                    if connection.our_state is not h11.DONE or connection.their_state is not h11.DONE:
                        return
                    connection.start_next_cycle()
        finally:
            writer.close()


async def _read(connection: h11.Connection, reader: asyncio.StreamReader) -> Asked | None:
    head: h11.Request | None = None
    body = bytearray()
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            connection.receive_data(await reader.read(65_536))
        elif isinstance(event, h11.Request):
            head = event
        elif isinstance(event, h11.Data):
            body += event.data
        elif isinstance(event, h11.EndOfMessage) and head is not None:
            headers = {name.decode(): value.decode("latin-1") for name, value in head.headers}
            token = headers.get("authorization", "").removeprefix("Bearer ")
            path = head.target.decode("latin-1").partition("?")[0]
            return Asked(head.method.decode(), path, token, bytes(body))
        else:
            return None


async def _write(connection: h11.Connection, writer: asyncio.StreamWriter, reply: Reply) -> None:
    body = msgspec.json.encode(reply.body)
    kind = "application/json" if reply.status < 400 else "application/problem+json"
    headers = [("Content-Type", kind), ("Content-Length", str(len(body))), *reply.headers]
    for event in (
        h11.Response(status_code=reply.status, headers=headers),
        h11.Data(data=body),
        h11.EndOfMessage(),
    ):
        writer.write(connection.send(event) or b"")
    await writer.drain()
