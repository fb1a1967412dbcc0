"""The board for workers in other processes: served on a unix socket, with a port that speaks to it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
from tests.worker.board import Board

from interlock.errors import StoreUnavailable
from interlock.wire.runner import Answer, ClaimRequest, Grant, Message

_ANSWERS = msgspec.json.Decoder(list[Answer])
_GRANTS = msgspec.json.Decoder(list[Grant])
_MESSAGES = msgspec.json.Decoder(list[Message])
_REQUEST = msgspec.json.Decoder(ClaimRequest)
_LIMIT = 1 << 24


@contextlib.asynccontextmanager
async def served(board: Board, path: Path) -> AsyncIterator[asyncio.Server]:
    """Answer whoever connects: a line with the method and its argument, a line with the answer."""
    writers: set[asyncio.StreamWriter] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.add(writer)
        with contextlib.suppress(ConnectionError, asyncio.CancelledError):
            while line := await reader.readline():
                method, _, argument = line.partition(b" ")
                board.before(method.decode())
                writer.write(msgspec.json.encode(_answer(board, method, argument)) + b"\n")
                await writer.drain()
        writers.discard(writer)
        writer.close()

    server = await asyncio.start_unix_server(serve, path, limit=_LIMIT)
    try:
        yield server
    finally:
        server.close()
        for writer in list(writers):
            writer.close()
        await server.wait_closed()


def _answer(board: Board, method: bytes, argument: bytes) -> Any:
    match method:
        case b"claim":
            return board.claim(_REQUEST.decode(argument))
        case b"report":
            return board.report(_MESSAGES.decode(argument))
        case b"recover":
            return board.recover()
        case _:
            return None


class RemotePort:
    """A port to a board in another process. Polls, for nobody calls it."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._lock = asyncio.Lock()

    async def connect(self) -> None:
        try:
            self._reader, self._writer = await asyncio.open_unix_connection(self._path, limit=_LIMIT)
        except OSError as error:
            raise StoreUnavailable("The board is away.") from error

    async def disconnect(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    async def claim(self, request: ClaimRequest) -> list[Grant]:
        return _GRANTS.decode(await self._ask(b"claim", request))

    async def report(self, messages: Sequence[Message]) -> list[Answer]:
        return _ANSWERS.decode(await self._ask(b"report", list(messages)))

    async def recover(self) -> int:
        return int(await self._ask(b"recover", None))

    async def now(self) -> datetime:
        return datetime.now(UTC)

    def subscribe(self, _wake: Callable[[], None]) -> Callable[[], None]:
        return lambda: None

    async def _ask(self, method: bytes, argument: object) -> bytes:
        async with self._lock:
            if self._reader is None or self._writer is None:
                raise StoreUnavailable("There is no connection.")
            try:
                self._writer.write(method + b" " + msgspec.json.encode(argument) + b"\n")
                line = await self._reader.readline()
            except OSError as error:
                raise StoreUnavailable("The board has gone.") from error
            if not line:
                raise StoreUnavailable("The board has gone.")
            return line
