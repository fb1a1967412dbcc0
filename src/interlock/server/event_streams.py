"""The journal as it grows: read once for this process, encoded once, and sent to every stream.

What was read last is kept for all streams together. A reader is a cursor: while that is among what is kept
it is sent what follows, otherwise it reads the store until it is. So a reader that joins, returns or lags
costs itself time, never the others, and no memory. Workers that wait for orders are woken by the same
reader, each only by news of itself.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Protocol, TypeAlias

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from interlock.errors import StoreUnavailable, TooMany
from interlock.lifecycles.worker import WORKER
from interlock.server.history import entry_view
from interlock.server.limits import Deadlines
from interlock.store.contract import Store
from interlock.store.records import Entry, Feed
from interlock.systems.orchestrator.waiters import waker

READER_PAGE = 1_000
READER_EVERY_S = 1.0
"""How often to look although nobody has woken us: a wake-up may be lost, and then this is the price."""
READER_GATHER_S = 0.05
"""How long to gather after a wake-up, so that a busy store is not asked for each commit."""

EntryReader: TypeAlias = Callable[[Sequence[Entry], bool], None]
"""Is told what is new, and whether something was missed before it. Must not raise or wait."""


class JournalReader:
    """Reads what is committed, by anybody, from when it was started."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._readers: list[EntryReader] = []
        self._cursor = ""
        self._news = asyncio.Event()
        self._unsubscribe: Callable[[], None] | None = None

    @property
    def cursor(self) -> str:
        """Up to where it has read."""
        return self._cursor

    def add(self, reader: EntryReader) -> Callable[[], None]:
        """Tell somebody as well; returns how to stop that."""
        self._readers.append(reader)

        def remove() -> None:
            with suppress(ValueError):
                self._readers.remove(reader)

        return remove

    async def start(self) -> None:
        """Begin with what is committed from now on."""
        self._unsubscribe = self._store.subscribe(waker(self._news))
        self._cursor = await self._store.latest()

    def stop(self) -> None:
        """Be woken no more."""
        if self._unsubscribe is not None:
            self._unsubscribe()

    async def round(self) -> int:
        """Read what is new; answers how much that was."""
        self._news.clear()
        feed = await self._store.feed(self._cursor, limit=READER_PAGE)
        self._cursor = feed.cursor or self._cursor
        if feed.entries or feed.gap:
            for reader in tuple(self._readers):
                reader(feed.entries, feed.gap)
        return len(feed.entries)

    async def pause(self, seconds: float) -> None:
        """Until there may be news, or for so long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._news.wait()
            await asyncio.sleep(READER_GATHER_S)


Wake = Callable[[], None]


class WorkerWakeups:
    """One bell for each worker that waits."""

    def __init__(self, following: JournalReader) -> None:
        self._waiting: defaultdict[str, list[Wake]] = defaultdict(list)
        following.add(self._read)

    @property
    def waiting(self) -> int:
        """How many workers wait."""
        return len(self._waiting)

    def of(self, worker_id: str) -> Callable[[Wake], Wake]:
        """How to be woken by news of this one."""

        def subscribe(wake: Wake) -> Wake:
            self._waiting[worker_id].append(wake)

            def stop() -> None:
                with suppress(ValueError):
                    self._waiting[worker_id].remove(wake)
                if not self._waiting[worker_id]:
                    del self._waiting[worker_id]

            return stop

        return subscribe

    def ring(self, worker_id: str) -> None:
        """There is news of this one."""
        for wake in self._waiting.get(worker_id, ()):
            wake()

    def _read(self, entries: Sequence[Entry], gap: bool) -> None:
        told = {entry.id for entry in entries if entry.kind == WORKER.name}
        for worker_id in tuple(self._waiting) if gap else told:
            self.ring(worker_id)


KEPT = 2_000
"""How many entries are kept for everybody."""
PIECE = 50
"""How many of them are sent at once: what is handed over is kept for each reader until it has read it."""
BLOCKS = 64
"""How many of these are remembered: of many readers most are at the same place."""
PAGE = 500
READING = 4
"""How many who are behind read the store at once."""
SILENCE_S = 15.0
"""After so long without news a comment is sent, so that nobody in between takes it for dead."""
LOOK_EVERY_S = 1.0
"""How often somebody who is not among the others looks although there is no news."""
PATIENCE_S = 60.0
"""A reader that takes nothing for so long is let go; it can come back, and goes on where it was."""
LAST_S = 1.0
"""How long a reader has to take the end when the server goes."""
GATHER_S = 0.0002
"""How long to gather for each reader that there is: many small writes to many cost more than a few."""
LONGEST_GATHER_S = 0.25

_ENCODER = msgspec.json.Encoder()


class Wanted(msgspec.Struct, frozen=True):
    """Which entries somebody wants; nothing named means all."""

    kinds: frozenset[str] = frozenset()
    ids: frozenset[str] = frozenset()

    @property
    def everything(self) -> bool:
        """Whether nothing is left out."""
        return not self.kinds and not self.ids

    def has(self, entry: Entry) -> bool:
        """Whether this entry is among them."""
        return (not self.kinds or entry.kind in self.kinds) and (not self.ids or entry.id in self.ids)


class Broadcast:
    """What the process has read last, for every stream."""

    def __init__(self, store: Store, following: JournalReader) -> None:
        self.store = store
        self._following = following
        self._kept: dict[int, Entry] = {}
        self._sent_as: dict[int, bytes] = {}
        self._places: dict[str, int] = {}
        self._next = 0
        self._blocks: dict[tuple[int, int, Wanted], bytes] = {}
        self._streams = 0
        self._turns = asyncio.Semaphore(READING)
        self._news = asyncio.Event()
        self._bell: asyncio.TimerHandle | None = None
        self.patience = Deadlines(PATIENCE_S)
        self._leave = following.add(self._more)

    @property
    def readers(self) -> int:
        """How many there are."""
        return self._streams

    def close(self) -> None:
        """Hear of nothing more."""
        self._leave()
        if self._bell is not None:
            self._bell.cancel()
        self.patience.close()

    def join(self) -> None:
        """One more reader."""
        self._streams += 1

    def leave(self) -> None:
        """One fewer."""
        self._streams -= 1

    @property
    def cursor(self) -> str:
        """Where everybody is who is not behind."""
        return self._following.cursor

    async def read(self, cursor: str, limit: int) -> Feed:
        """What the store has after a cursor; however many are behind, only some of them read at once."""
        async with self._turns:
            return await self.store.feed(cursor, limit=limit)

    async def feed(self, cursor: str, *, limit: int) -> Feed:
        """Return what follows a cursor, from memory where it is kept; otherwise what the store has."""
        place = self.place_after(cursor)
        if place is None or not self.keeps(place) or place >= self._next:
            return await self.store.feed(cursor, limit=limit)
        entries = tuple(self._kept[each] for each in range(place, min(place + limit, self._next)))
        return Feed(entries, entries[-1].cursor)

    def place_after(self, cursor: str) -> int | None:
        """Where to go on after a cursor; None when that is not among what is kept."""
        if cursor == self._following.cursor:
            return self._next
        place = self._places.get(cursor)
        return None if place is None else place + 1

    def keeps(self, place: int) -> bool:
        """Whether whoever is at this place can go on there."""
        return place >= self._next - len(self._kept)

    def since(self, place: int, wanted: Wanted) -> tuple[bytes, int, str]:
        """Some of what is kept from this place on, as it is sent, its end, and the cursor of that."""
        end = min(place + PIECE, self._next)
        if place >= end:
            return b"", place, ""
        return self._block(place, end, wanted), end, self._kept[end - 1].cursor

    def _block(self, place: int, end: int, wanted: Wanted) -> bytes:
        """Put together once for all who are at the same place and want the same."""
        found = self._blocks.get((place, end, wanted))
        if found is None:
            places = (each for each in range(place, end) if wanted.has(self._kept[each]))
            found = self._blocks[place, end, wanted] = b"".join(map(self._encoded, places))
            if len(self._blocks) > BLOCKS:
                del self._blocks[next(iter(self._blocks))]
        return found

    def remembered(self) -> list[Entry]:
        """Return what is kept, oldest first."""
        return list(self._kept.values())

    async def news(self, within_s: float) -> None:
        """Until there may be something, or for so long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._news.wait()

    def _encoded(self, place: int) -> bytes:
        found = self._sent_as.get(place)
        if found is None:
            found = self._sent_as[place] = event_of(self._kept[place])
        return found

    def _more(self, entries: Sequence[Entry], gap: bool) -> None:
        if gap:  # whoever was before it must read the store, which tells of the gap
            self._kept.clear()
            self._sent_as.clear()
            self._places.clear()
            self._next += 1
        for entry in entries:
            self._kept[self._next] = entry
            self._places[entry.cursor] = self._next
            self._next += 1
        for oldest in range(self._next - len(self._kept), self._next - KEPT):
            del self._places[self._kept.pop(oldest).cursor]
            self._sent_as.pop(oldest, None)
        if self._bell is None:
            after_s = min(self._streams * GATHER_S, LONGEST_GATHER_S)
            self._bell = asyncio.get_running_loop().call_later(after_s, self._ring)

    def _ring(self) -> None:
        """Wake all who wait. Where they are many, news is gathered first, once and not by each of them."""
        self._bell = None
        news, self._news = self._news, asyncio.Event()
        news.set()


class Told(Protocol):
    """What one reader is sent, piece by piece."""

    def beginning(self) -> bytes:
        """Where the reader is."""
        ...

    async def next(self) -> bytes:
        """What has happened; after a long silence a sign of life."""
        ...


class Stream:
    """What one reader is sent, from its cursor on."""

    def __init__(self, broadcast: Broadcast, wanted: Wanted, cursor: str, *, announced: bool = False) -> None:
        self._broadcast = broadcast
        self._wanted = wanted
        self._announced = announced
        self.cursor = cursor
        # Where it is among what is kept. Whoever begins where all others are is there by its place alone:
        # where the process has read to last need not be the cursor of any entry.
        self._place = broadcast.place_after(cursor)

    def beginning(self) -> bytes:
        """Where the reader is, so that it can come back there although nothing has happened yet.

        Browsers tell scripts no id of an event without data, so these ask for an event of its own.
        """
        event = b"event: begin\ndata: {}\n" if self._announced else b""
        return b"retry: 1000\nid: %s\n%s\n" % (self.cursor.encode(), event)

    async def next(self) -> bytes:
        """What has happened; after a long silence a sign of life."""
        loop = asyncio.get_running_loop()
        until = loop.time() + SILENCE_S
        while True:
            if self._place is None or not self._broadcast.keeps(self._place):
                self._place = self._broadcast.place_after(self.cursor)
            if self._place is None:
                piece, more = await self._from_store()
                wait_s = 0.0 if more else LOOK_EVERY_S
            else:
                piece, self._place, cursor = self._broadcast.since(self._place, self._wanted)
                self.cursor = cursor or self.cursor
                wait_s = 0.0 if cursor else SILENCE_S
            left_s = until - loop.time()
            if piece:
                return piece
            if left_s <= 0:
                return b": still here\nid: %s\n\n" % self.cursor.encode()
            if wait_s:
                await self._broadcast.news(min(wait_s, left_s))

    async def _from_store(self) -> tuple[bytes, bool]:
        """A page of the store, and whether there was anything; nothing while it is away."""
        limit = PIECE if self._wanted.everything else PAGE
        try:
            feed = await self._broadcast.read(self.cursor, limit)
        except StoreUnavailable:
            return b"", False
        pieces = [gap_after(self.cursor)] if feed.gap else []
        if not feed.entries:
            self.cursor = feed.cursor or self.cursor
        for entry in feed.entries:
            self.cursor = entry.cursor
            if self._wanted.has(entry):
                pieces.append(event_of(entry))
                if len(pieces) >= PIECE:
                    break  # what it is sent at once is bounded, however much of the page it wants
        return b"".join(pieces), bool(feed.entries)


class EventStream(Response):
    """A stream as a response: until the reader goes, takes nothing any more, or the server goes."""

    media_type = "text/event-stream"

    def __init__(self, stream: Told, broadcast: Broadcast, stopping: asyncio.Event) -> None:
        super().__init__(headers={"X-Accel-Buffering": "no", "Connection": "keep-alive"})
        del self.headers["content-length"]
        self._stream = stream
        self._broadcast = broadcast
        self._stopping = stopping

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send what happens."""
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        if scope["method"] != "HEAD" and not await self._is_over(receive, send):
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_S):
                await send({"type": "http.response.body", "body": b""})

    async def _is_over(self, receive: Receive, send: Send) -> bool:
        """Send until there is a reason to end; whether there is somebody to say so to."""
        sending = asyncio.ensure_future(self._send(send))
        gone = asyncio.ensure_future(_gone(receive))
        stop = asyncio.ensure_future(self._stopping.wait())
        watched = (sending, gone, stop)
        self._broadcast.join()
        try:
            await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
            return not gone.done()
        finally:
            self._broadcast.leave()
            for each in watched:
                each.cancel()
            await asyncio.wait(watched)
            if sending.done() and not sending.cancelled():
                sending.exception()

    async def _send(self, send: Send) -> None:
        """Piece after piece; ends with an error when the reader does not take one in time."""
        piece = self._stream.beginning()
        while True:
            with self._broadcast.patience():
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            piece = await self._stream.next()


class Readers:
    """How many streams each principal has open."""

    def __init__(self) -> None:
        self._open: Counter[str] = Counter()

    @property
    def open(self) -> int:
        """How many are open in all."""
        return self._open.total()

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


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
