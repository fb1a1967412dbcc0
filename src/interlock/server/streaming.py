"""The journal as it grows, for any number of readers: read once, encoded once, sent to each.

A reader that joins catches up from its cursor by reading the store, and then lives on what the
process reads for everybody. One that does not keep up has its buffer thrown away and catches up
again: it costs itself time, never the others, and never more memory than its buffer.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress

import msgspec

from interlock.server.following import Following
from interlock.server.messages import entry_view
from interlock.server.problems import TooMany
from interlock.store.contract import Store
from interlock.store.records import Entry

BUFFER = 1_000
PAGE = 500
SILENCE_S = 15.0
"""After so long without news a comment is sent, so that nobody in between takes it for dead."""

_PING = b": still here\n\n"
_ENCODER = msgspec.json.Encoder()


class Wanted(msgspec.Struct, frozen=True):
    """Which entries somebody wants; nothing named means all."""

    kinds: frozenset[str] = frozenset()
    ids: frozenset[str] = frozenset()

    def has(self, entry: Entry) -> bool:
        """Whether this entry is among them."""
        return (not self.kinds or entry.kind in self.kinds) and (not self.ids or entry.id in self.ids)


class Piece(msgspec.Struct, frozen=True):
    """An entry, and how it is sent."""

    entry: Entry
    sent_as: bytes


class Broadcast:
    """Hands every entry that the process reads to every stream."""

    def __init__(self, store: Store, following: Following) -> None:
        self.store = store
        self._streams: set[Stream] = set()
        self._leave = following.add(self._news)

    @property
    def readers(self) -> int:
        """How many there are."""
        return len(self._streams)

    def close(self) -> None:
        """Hand on nothing more."""
        self._leave()

    def join(self, stream: Stream) -> Callable[[], None]:
        """One more stream; returns how to leave."""
        self._streams.add(stream)
        return lambda: self._streams.discard(stream)

    def _news(self, entries: Sequence[Entry], gap: bool) -> None:
        if self._streams:
            pieces = [Piece(entry, event_of(entry)) for entry in entries]
            for stream in tuple(self._streams):
                stream.offer(pieces, gap=gap)


class Stream:
    """What one reader is sent, from its cursor on."""

    def __init__(self, broadcast: Broadcast, wanted: Wanted, cursor: str, stopping: asyncio.Event) -> None:
        self._broadcast = broadcast
        self._wanted = wanted
        self._cursor = cursor
        self._stopping = stopping
        self._waiting: deque[Piece] = deque()
        self._missed = True
        """What is live cannot be used before everything up to it was read."""
        self._news = asyncio.Event()

    def offer(self, pieces: Sequence[Piece], *, gap: bool) -> None:
        """Something new; called for every stream, so it must not wait."""
        if gap or len(self._waiting) + len(pieces) > BUFFER:
            self._waiting.clear()
            self._missed = True
        else:
            self._waiting.extend(pieces)
        self._news.set()

    async def pieces(self) -> AsyncIterator[bytes]:
        """Everything from the cursor on, until somebody stops."""
        leave = self._broadcast.join(self)
        try:
            yield b"retry: 1000\n\n"
            while not self._stopping.is_set():
                if self._missed:
                    async for piece in self._catch_up():
                        yield piece
                for piece in self._take():
                    yield piece
                if not self._waiting and not self._missed and not await self._more():
                    yield _PING
        finally:
            leave()

    async def _catch_up(self) -> AsyncIterator[bytes]:
        """Read the store up to its end; what comes meanwhile is buffered, and known by its cursor."""
        self._missed = False
        while True:
            feed = await self._broadcast.store.feed(self._cursor, limit=PAGE)
            if feed.gap:
                yield gap_after(self._cursor)
            wanted = [event_of(entry) for entry in feed.entries if self._wanted.has(entry)]
            self._cursor = feed.cursor or self._cursor
            if wanted:
                yield b"".join(wanted)
            read = {entry.cursor for entry in feed.entries}
            while self._waiting and self._waiting[0].entry.cursor in read:
                self._waiting.popleft()
            if len(feed.entries) < PAGE:
                return

    def _take(self) -> list[bytes]:
        """What is live and wanted, in one piece, so that many small ones are one write."""
        taken = []
        while self._waiting:
            piece = self._waiting.popleft()
            self._cursor = piece.entry.cursor
            if self._wanted.has(piece.entry):
                taken.append(piece.sent_as)
        return [b"".join(taken)] if taken else []

    async def _more(self) -> bool:
        """Whether something came before the silence became long."""
        self._news.clear()
        stop = asyncio.create_task(self._stopping.wait())
        stop.add_done_callback(lambda _: self._news.set())
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(SILENCE_S):
                    return await self._news.wait()
            return False
        finally:
            stop.cancel()


class Readers:
    """How many streams each principal has open."""

    def __init__(self) -> None:
        self._open: Counter[str] = Counter()

    def enter(self, name: str, most: int) -> None:
        """One more, or too many."""
        if self._open[name] >= most:
            raise TooMany(
                f"{name} has {most} streams open, and that is as many as it may have.",
                retry_after_s=1.0,
                facts={"streams": most},
            )
        self._open[name] += 1

    def leave(self, name: str) -> None:
        """One fewer."""
        self._open[name] -= 1
        if not self._open[name]:
            del self._open[name]


def event_of(entry: Entry) -> bytes:
    """An entry as an event; its cursor is the id, from which a reader goes on."""
    return b"id: %s\nevent: entry\ndata: %s\n\n" % (entry.cursor.encode(), _ENCODER.encode(entry_view(entry)))


def gap_after(cursor: str) -> bytes:
    """Some of what came after the cursor was pruned, so the reader has missed it."""
    return b"event: gap\ndata: %s\n\n" % _ENCODER.encode({"after": cursor})
