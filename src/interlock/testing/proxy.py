"""A proxy between a client and a server that can cut connections at the worst moment.

It does not know the protocol. A message is recognised by a marker in it (the intent of a commit), and then
either it is dropped, or it is forwarded and the answer is dropped; both ends are closed. The proxy can also
become a black hole, which reads everything and sends nothing, and a connection can be left half open: its far
end is closed, and the near end gets no notification.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal, TypeAlias
from urllib.parse import urlsplit, urlunsplit

LostPart: TypeAlias = Literal["request", "reply"]

LONGEST_MARKER = 64
_CHUNK = 65_536
_TURNS = 5
"""Turns of the event loop in which it hands over a connection that it has accepted, and some more."""


class Wires:
    """All connections through one port. `losses` are the next messages to lose, by marker; each once."""

    def __init__(self, upstream: Path | tuple[str, int]) -> None:
        self.port = 0
        self.losses: dict[bytes, LostPart] = {}
        self.counts: Counter[str] = Counter()
        self.swallowing = False
        self.half_open: int = 0
        """Number of connections whose near end does not know yet that the far one is closed."""
        self._upstream = upstream
        self._tasks: set[asyncio.Task[None]] = set()
        self._parting = asyncio.Event()
        self._closed = False

    def url(self, url: str) -> str:
        """Return the URL of a database of the server, through this port."""
        parts = urlsplit(url)
        user, _, _ = parts.netloc.rpartition("@")
        place = f"{user}@127.0.0.1:{self.port}" if user else f"127.0.0.1:{self.port}"
        if parts.scheme == "unix":
            return f"redis://{place}/0"
        return urlunsplit(parts._replace(netloc=place, query=""))

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a new connection, which is always closed at the end."""
        if self._closed:
            writer.transport.abort()
            return
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: writer.transport.abort())

    async def cut_all(self) -> None:
        """Close every present connection; new ones are not affected."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def close(self) -> None:
        """Close every connection, also those that are being accepted.

        No further connection is accepted.
        """
        self._closed = True
        await self.cut_all()
        for _ in range(_TURNS):
            await asyncio.sleep(0)

    def halve(self) -> int:
        """Leave every connection half open; return their number.

        A power failure of the far host does the same.
        """
        parting, self._parting = self._parting, asyncio.Event()
        parting.set()
        self.counts["left half open"] += len(self._tasks)
        return len(self._tasks)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection, until either end is closed."""
        with contextlib.suppress(OSError):  # cut connections are expected, and the server may be down
            if self.swallowing:
                await self._swallow(reader)
            else:
                await self._pass_on(reader, writer)

    async def _swallow(self, reader: asyncio.StreamReader) -> None:
        while chunk := await reader.read(_CHUNK):
            self.counts["swallowed bytes"] += len(chunk)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        up_reader, up_writer = await self._connect()
        wire, parting = _ProxiedConnection(self), self._parting
        pumps = [
            asyncio.create_task(wire.ask(reader, up_writer)),
            asyncio.create_task(wire.answer(up_reader, writer)),
            asyncio.create_task(_set(parting)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            up_writer.close()  # first of all: this task may be cancelled while it waits
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            with contextlib.suppress(ConnectionError):
                await up_writer.wait_closed()
        if parting.is_set():
            self.half_open += 1
            try:
                await self._swallow(reader)
            finally:
                self.half_open -= 1

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if isinstance(self._upstream, Path):
            return await asyncio.open_unix_connection(self._upstream)
        return await asyncio.open_connection(*self._upstream)


class _ProxiedConnection:
    """A connection in both directions; each ends when the connection is cut."""

    def __init__(self, wires: Wires) -> None:
        self._wires = wires
        self._eating = False

    async def ask(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward from the client to the server."""
        before = b""
        while chunk := await reader.read(_CHUNK):
            if self._wires.swallowing:
                self._wires.counts["swallowed bytes"] += len(chunk)
                continue
            loss = self._loss_in(before + chunk)
            if loss == "request":
                self._wires.counts["requests lost"] += 1
                return
            self._eating = self._eating or loss == "reply"
            before = chunk[-LONGEST_MARKER:]
            writer.write(chunk)
            await writer.drain()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward from the server to the client."""
        while chunk := await reader.read(_CHUNK):
            if self._eating:
                self._wires.counts["replies eaten"] += 1
                return
            if not self._wires.swallowing:
                writer.write(chunk)
                await writer.drain()

    def _loss_in(self, chunk: bytes) -> LostPart | None:
        """Return the first loss in a chunk.

        The others apply when they are sent again.
        """
        for marker in self._wires.losses:
            if marker in chunk:
                return self._wires.losses.pop(marker)
        return None


async def _set(event: asyncio.Event) -> None:
    await event.wait()


@asynccontextmanager
async def wires_to(upstream: Path | tuple[str, int]) -> AsyncIterator[Wires]:
    """Yield a proxy to a server."""
    wires = Wires(upstream)
    server = await asyncio.start_server(wires.accept, "127.0.0.1", 0)
    wires.port = server.sockets[0].getsockname()[1]
    try:
        yield wires
    finally:
        # A server that is closed while it hands over a connection leaves that connection open (CPython 3.11).
        for listening in server.sockets:
            asyncio.get_running_loop().remove_reader(listening)
        await wires.close()
        server.close()
        await server.wait_closed()
