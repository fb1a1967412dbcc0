"""A client that costs as little as can be: one connection that stays open, and no library."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from bench.stores.bare.loop import Unexpected


class Line:
    """One connection to a server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str) -> None:
        self.reader = reader
        self._writer = writer
        self._host = host.encode()

    @classmethod
    async def to(cls, address: tuple[str, int]) -> Line:
        """A new one."""
        return cls(*await asyncio.open_connection(*address), f"{address[0]}:{address[1]}")

    def close(self) -> None:
        """Hang up."""
        self._writer.close()

    def send(self, method: bytes, path: bytes, body: bytes = b"") -> None:
        """Ask."""
        kind = b"content-type: application/json\r\n" if body else b""
        self._writer.write(
            b"%s %s HTTP/1.1\r\nhost: %s\r\n%scontent-length: %d\r\n\r\n%s"
            % (method, path, self._host, kind, len(body), body)
        )

    async def head(self) -> tuple[int, int]:
        """The status and the length of what comes after the head."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        length = head.find(b"content-length: ")
        return int(head[9:12]), int(head[length + 16 : head.index(b"\r\n", length)]) if length >= 0 else -1

    async def ask(self, method: bytes, path: bytes, body: bytes = b"") -> bytes:
        """Ask, and read the answer."""
        self.send(method, path, body)
        status, length = await self.head()
        answer = await self.reader.readexactly(length)
        if status not in (200, 201):
            raise Unexpected(f"{method.decode()} {path.decode()} was answered {status}: {answer[:500]!r}")
        return answer

    async def post(self, path: bytes, body: Any) -> Any:
        """Say something in JSON."""
        return msgspec.json.decode(await self.ask(b"POST", path, msgspec.json.encode(body)))
