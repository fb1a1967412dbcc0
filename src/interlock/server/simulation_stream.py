"""What happens to one simulation, live: its journal as it grows, and its steps as they are saved.

Steps leave no entry in the journal, so how far it is is looked at now and then. Whatever is told is so
already: the journal is what was committed. A reader that comes back with the id of the last event it
has seen misses nothing but steps, of which the latest is told at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec

from interlock.errors import StoreUnavailable
from interlock.server.event_streams import SILENCE_S, Broadcast, gap_after
from interlock.systems.simulations.news import KINDS, news_of
from interlock.wire.simulations import SimulationNews, SimulationView

LOOK_EVERY_S = 0.5
PAGE = 500

_ENCODER = msgspec.json.Encoder()


class SimulationStream:
    """What one reader is sent about one simulation."""

    def __init__(
        self,
        broadcast: Broadcast,
        run_id: str,
        cursor: str,
        look: Callable[[], Awaitable[SimulationView | None]],
    ) -> None:
        self._broadcast = broadcast
        self._run_id = run_id
        self.cursor = cursor
        self._look = look
        self._seen: tuple[object, ...] = ()

    def beginning(self) -> bytes:
        """Where the reader is, so that it can come back there although nothing has happened yet."""
        return b"retry: 1000\nid: %s\n\n" % self.cursor.encode()

    async def next(self) -> bytes:
        """What has happened; after a long silence a sign of life."""
        loop = asyncio.get_running_loop()
        until = loop.time() + SILENCE_S
        while True:
            try:
                piece = await self._entries() + await self._step()
            except StoreUnavailable:
                piece = b""
            if piece:
                return piece
            if loop.time() >= until:
                return b": still here\nid: %s\n\n" % self.cursor.encode()
            await self._broadcast.news(LOOK_EVERY_S)

    async def _entries(self) -> bytes:
        pieces: list[bytes] = []
        while True:
            feed = await self._broadcast.read(self.cursor, PAGE)
            if feed.gap:
                pieces.append(gap_after(self.cursor))
            self.cursor = feed.entries[-1].cursor if feed.entries else feed.cursor or self.cursor
            pieces += [
                _event(news, entry.cursor)
                for entry in feed.entries
                if entry.id == self._run_id and entry.kind in KINDS
                for news in news_of(entry)
            ]
            if len(feed.entries) < PAGE:
                return b"".join(pieces)

    async def _step(self) -> bytes:
        view = await self._look()
        if view is None:
            return b""
        seen = (
            view.status,
            view.current_step,
            view.total_steps,
            view.danger_count,
            view.resuming,
            view.stale,
        )
        if seen == self._seen:
            return b""
        self._seen = seen
        return _event(SimulationNews(event="step", run_id=view.run_id, simulation=view), self.cursor)


def _event(news: SimulationNews, cursor: str) -> bytes:
    return b"id: %s\nevent: %s\ndata: %s\n\n" % (
        cursor.encode(), news.event.encode(), _ENCODER.encode(news),
    )  # fmt: skip
