"""A client that speaks HTTP by hand, sends what it likes when it likes, and hears everything."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from tests.waiting import PATIENCE_S

DROP_EVERY_S = 0.02


class ByHand(asyncio.Protocol):
    """One connection.

    A stream forgets what was received when the connection is reset after it, which is what happens when
    a last drop crosses the answer. This does not.
    """

    def __init__(self) -> None:
        self.heard = b""
        self.gone = asyncio.Event()
        self._news = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connected."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        """Part of an answer."""
        self.heard += data
        self._news.set()

    def connection_lost(self, _: Exception | None) -> None:
        """Hung up on, or reset."""
        self.gone.set()
        self._news.set()

    def say(self, *parts: bytes) -> None:
        """Send this."""
        self.transport.write(b"".join(parts))

    async def hear(self, words: bytes) -> None:
        """Wait until this was heard, and forget it and all before it."""
        async with asyncio.timeout(PATIENCE_S):
            while words not in self.heard:
                assert not self.gone.is_set(), f"hung up on after {self.heard!r}"
                self._news.clear()
                await self._news.wait()
        self.heard = self.heard.partition(words)[2]

    async def drip(self, drop: bytes) -> bytes:
        """Send a drop now and then until there is an answer; return all of it."""
        async with asyncio.timeout(PATIENCE_S):
            while not self._news.is_set():
                self._let_fall(drop)
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._news.wait(), DROP_EVERY_S)
        return await self.all()

    def _let_fall(self, drop: bytes) -> None:
        """Send it past the transport, which would forget an unread answer when the drop meets a reset."""
        with suppress(OSError):
            os.write(self.transport.get_extra_info("socket").fileno(), drop)

    async def all(self) -> bytes:
        """Return all that was heard by the time that the server has hung up."""
        async with asyncio.timeout(PATIENCE_S):
            await self.gone.wait()
        return self.heard


@asynccontextmanager
async def by_hand(address: tuple[str, int]) -> AsyncIterator[ByHand]:
    """A connection, closed at the end."""
    _, client = await asyncio.get_running_loop().create_connection(ByHand, *address)
    try:
        yield client
    finally:
        client.transport.abort()
