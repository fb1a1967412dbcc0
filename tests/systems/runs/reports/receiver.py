"""A receiver of reports on a real socket of this machine, which answers as it is told to."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Heard:
    """One request."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def said(self) -> Any:
        """The body, read."""
        return json.loads(self.body)


@dataclass
class Says:
    """One answer: with `raw` these very bytes, with `cut` nothing but the end of the connection."""

    status: int = 201
    body: Any = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    cut: bool = False
    silent: bool = False
    raw: bytes = b""

    def bytes(self) -> bytes:
        """On the wire."""
        if self.raw:
            return self.raw
        body = json.dumps(self.body).encode()
        head = {"Content-Type": "application/json", "Content-Length": str(len(body)), **self.headers}
        lines = [f"HTTP/1.1 {self.status} X", *(f"{name}: {value}" for name, value in head.items()), "", ""]
        return "\r\n".join(lines).encode() + body


class Receiver:
    """Answers with what is next in `answers`, and when there is nothing more with `otherwise`."""

    def __init__(self) -> None:
        self.heard: list[Heard] = []
        self.answers: list[Says] = []
        self.otherwise: Callable[[Heard], Says] = lambda _: Says()
        self.before: Callable[[Heard], Awaitable[None]] | None = None
        """What is waited for before an answer."""
        self.url = ""
        self.port = 0
        self.news = asyncio.Event()

    async def until(self, number: int) -> None:
        """Wait until so many requests were heard."""
        while len(self.heard) < number:
            self.news.clear()
            await self.news.wait()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, until it ends."""
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                while await self._exchange(reader, writer):
                    pass
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, path, _ = head[0].split(" ")
        headers = {n.lower(): v.strip() for n, _, v in (line.partition(":") for line in head[1:] if line)}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        request = Heard(method, path, headers, body)
        self.heard.append(request)
        self.news.set()
        if self.before is not None:
            await self.before(request)
        says = self.answers.pop(0) if self.answers else self.otherwise(request)
        if says.silent:
            await reader.read()  # until the other side has had enough
            return False
        if not says.cut:
            writer.write(says.bytes())
            await writer.drain()
        return not says.cut and not says.raw


@asynccontextmanager
async def receiving() -> AsyncIterator[Receiver]:
    """A receiver while this lasts."""
    receiver = Receiver()
    connections: set[asyncio.Task[Any]] = set()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Awaitable[None] | None:
        task = asyncio.create_task(receiver.serve(reader, writer))
        connections.add(task)
        task.add_done_callback(connections.discard)
        return None

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    receiver.port = server.sockets[0].getsockname()[1]
    receiver.url = f"http://127.0.0.1:{receiver.port}"
    try:
        yield receiver
    finally:
        server.close()
        for task in connections:
            task.cancel()
        await asyncio.gather(*connections, return_exceptions=True)
        await server.wait_closed()
