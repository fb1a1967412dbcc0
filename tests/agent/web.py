"""A server that answers every request with the same bytes, or hangs up."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress


class Web:
    """What has been asked of it."""

    def __init__(self, answer: bytes) -> None:
        self._answer = answer
        self.url = ""
        self.requests: list[bytes] = []
        self.connections = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = re.search(rb"Content-Length: (\d+)", head)
                body = await reader.readexactly(int(length[1])) if length else b""
                self.requests.append(head + body)
                if not self._answer:
                    break
                writer.write(self._answer)
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


@asynccontextmanager
async def answering(answer: bytes) -> AsyncIterator[Web]:
    web = Web(answer)
    server = await asyncio.start_server(web.serve, "127.0.0.1", 0)
    web.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield web
    finally:
        server.close()
