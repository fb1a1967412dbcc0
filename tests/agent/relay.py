"""A wire between a controller and an agent that can be cut: nothing is passed on, nothing is closed.

Where the system permits it, as it does root, nothing is acknowledged either, by a filter on the sockets
that lets nothing in: either end then sees what it would see of a cable that was pulled.
"""

from __future__ import annotations

import asyncio
import ctypes
import socket
import struct
from contextlib import suppress
from types import TracebackType
from typing import Self

ATTACH_FILTER = 26
"""SO_ATTACH_FILTER, which Python has no name for."""
LET_NOTHING_IN = struct.pack("HBBI", 0x06, 0, 0, 0)
"""One instruction: return 0, which is how many bytes of a packet are kept."""


class Relay:
    """Passes bytes on until it is cut."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._to = (host, int(port))
        self._open = asyncio.Event()
        self._open.set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: list[asyncio.StreamWriter] = []
        self._server: asyncio.Server | None = None
        self.address = ""

    def cut(self) -> None:
        """From now on neither end hears anything of the other."""
        self._open.clear()
        program = ctypes.create_string_buffer(LET_NOTHING_IN)
        for writer in self._writers:
            if writer.is_closing():  # one end has missed the other already, on a machine that stood still
                continue
            with suppress(PermissionError):
                writer.get_extra_info("socket").setsockopt(
                    socket.SOL_SOCKET, ATTACH_FILTER, struct.pack("HL", 1, ctypes.addressof(program))
                )

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._pass_on, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for writer in self._writers:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(*self._to)
        self._writers += [writer, back]
        for one, other in ((reader, back), (there, writer)):
            task = asyncio.create_task(self._pump(one, other))
            self._tasks.add(task)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(65_536):
                await self._open.wait()
                writer.write(data)
                await writer.drain()
