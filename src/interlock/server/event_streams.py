"""The journal as a live stream: read and encoded once for this process, and sent to every client.

The latest entries are kept for all streams together. A reader is a cursor: while it is among the kept entries
it is sent the following ones, otherwise it reads the store until it has caught up. So a reader that joins,
returns or lags delays only itself, and uses no memory. Workers that wait for orders are woken by the same
reader, each only by changes of its own record.

Why: decision 0244.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import count, islice
from typing import Protocol, TypeAlias

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from interlock.errors import StoreUnavailable, TooMany
from interlock.lifecycles.worker import WORKER
from interlock.server.history import entry_view
from interlock.server.limits import Deadlines, Within
from interlock.store.contract import Store, Wake
from interlock.store.records import Entry, Feed
from interlock.systems.orchestrator.waiters import waker

READER_PAGE = 1_000
READER_EVERY_S = 1.0
"""Polling interval of the reader, for the case that a notification is lost."""
READER_GATHER_S = 0.05
"""Delay after a notification to gather several commits."""

EntryReader: TypeAlias = Callable[[Sequence[Entry], bool], None]
"""Receives new entries, and whether some were missed before them. Must not raise or block."""


class JournalReader:
    """Reads all entries that are committed from its start on."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._readers: list[EntryReader] = []
        self._cursor = ""
        self._news = asyncio.Event()
        self._unsubscribe: Callable[[], None] | None = None

    @property
    def cursor(self) -> str:
        """The cursor up to which it has read."""
        return self._cursor

    def add(self, reader: EntryReader) -> Callable[[], None]:
        """Add a receiver; return a function that removes it."""
        self._readers.append(reader)

        def remove() -> None:
            with suppress(ValueError):
                self._readers.remove(reader)

        return remove

    async def start(self) -> None:
        """Subscribe, and start at the end of the journal."""
        self._unsubscribe = self._store.subscribe(waker(self._news))
        self._cursor = await self._store.latest()

    def stop(self) -> None:
        """Unsubscribe."""
        if self._unsubscribe is not None:
            self._unsubscribe()

    async def round(self) -> int:
        """Read new entries; return their number."""
        self._news.clear()
        feed = await self._store.feed(self._cursor, limit=READER_PAGE)
        self._cursor = feed.cursor or self._cursor
        if feed.entries or feed.gap:
            for reader in tuple(self._readers):
                reader(feed.entries, feed.gap)
        return len(feed.entries)

    async def pause(self, seconds: float) -> None:
        """Wait for a notification, at most this many seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._news.wait()
            await asyncio.sleep(READER_GATHER_S)


class WorkerWakeups:
    """Wakes waiting workers when their records change."""

    def __init__(self, following: JournalReader) -> None:
        self._waiting: defaultdict[str, list[Wake]] = defaultdict(list)
        following.add(self._read)

    @property
    def waiting(self) -> int:
        """Number of waiting workers."""
        return len(self._waiting)

    def of(self, worker_id: str) -> Callable[[Wake], Wake]:
        """Return a function that subscribes to changes of this worker."""

        def subscribe(wake: Wake) -> Wake:
            self._waiting[worker_id].append(wake)

            def stop() -> None:
                with suppress(ValueError):
                    self._waiting[worker_id].remove(wake)
                if not self._waiting[worker_id]:
                    del self._waiting[worker_id]

            return stop

        return subscribe

    def wake(self, worker_id: str) -> None:
        """Wake this worker."""
        for wake in self._waiting.get(worker_id, ()):
            wake()

    def _read(self, entries: Sequence[Entry], gap: bool) -> None:
        changed = {entry.id for entry in entries if entry.kind == WORKER.name}
        for worker_id in tuple(self._waiting) if gap else changed:
            self.wake(worker_id)


KEPT = 2_000
"""Number of entries kept for all streams."""
PIECE = 50
"""Maximum entries sent in one write: it is buffered for each reader until read."""
BLOCKS = 64
"""Number of encoded pieces to cache: many readers are at the same place."""
PAGE = 500
READING = 4
"""Maximum number of lagging readers that read the store at once."""
SILENCE_S = 15.0
"""Interval of keep-alive comments, so that no proxy closes the connection."""
LOOK_EVERY_S = 1.0
"""Polling interval of a lagging reader."""
PATIENCE_S = 60.0
"""A reader that reads nothing for this long is disconnected; it can resume at its cursor."""
LAST_S = 1.0
"""Deadline for a reader to receive the end of the stream at shutdown."""
GATHER_S = 0.0002
"""Delay per reader to gather entries: many small writes to many readers cost more than a few large ones."""
LONGEST_GATHER_S = 0.25

_ENCODER = msgspec.json.Encoder()


class EntryFilter(msgspec.Struct, frozen=True):
    """A filter of entries; empty sets match all."""

    kinds: frozenset[str] = frozenset()
    ids: frozenset[str] = frozenset()

    @property
    def everything(self) -> bool:
        """Whether all entries match."""
        return not self.kinds and not self.ids

    def has(self, entry: Entry) -> bool:
        """Return whether the entry matches."""
        return (not self.kinds or entry.kind in self.kinds) and (not self.ids or entry.id in self.ids)


class Broadcast:
    """The latest entries of the journal, for all streams of this process."""

    def __init__(self, store: Store, following: JournalReader) -> None:
        self.store = store
        self._following = following
        self._kept: deque[Entry] = deque(maxlen=KEPT)
        self._sent_as: dict[int, bytes] = {}
        self._places: dict[str, int] = {}
        """Places by cursor; also of some entries that are not kept any more."""
        self._next = 0
        """The place of the next entry: that of the last kept one and 1."""
        self._blocks: dict[tuple[int, int, EntryFilter], bytes] = {}
        self._streams = 0
        self._turns = asyncio.Semaphore(READING)
        self._news = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self.patience: Deadlines[Within] = Deadlines(PATIENCE_S)
        self._leave = following.add(self._more)

    @property
    def readers(self) -> int:
        """Number of readers."""
        return self._streams

    def close(self) -> None:
        """Stop receiving entries."""
        self._leave()
        if self._timer is not None:
            self._timer.cancel()
        self.patience.close()

    def join(self) -> None:
        """Count one more reader."""
        self._streams += 1

    def leave(self) -> None:
        """Count one fewer reader."""
        self._streams -= 1

    @property
    def cursor(self) -> str:
        """The cursor of readers that have caught up."""
        return self._following.cursor

    async def read(self, cursor: str, limit: int) -> Feed:
        """Read the store after a cursor.

        The number of concurrent reads is limited.
        """
        async with self._turns:
            return await self.store.feed(cursor, limit=limit)

    async def feed(self, cursor: str, *, limit: int) -> Feed:
        """Return the entries after a cursor, from memory or from the store.

        The store is read only if they are not kept.
        """
        place = self.place_after(cursor)
        if place is None or not self.keeps(place) or place >= self._next:
            return await self.store.feed(cursor, limit=limit)
        start = place - self._first
        entries = tuple(islice(self._kept, start, start + limit))
        return Feed(entries, entries[-1].cursor)

    def place_after(self, cursor: str) -> int | None:
        """Return the place after a cursor.

        Return None if it is not among the kept entries.
        """
        if cursor == self._following.cursor:
            return self._next
        place = self._places.get(cursor)
        return None if place is None or place < self._first else place + 1

    def keeps(self, place: int) -> bool:
        """Return whether a reader at this place can continue from memory."""
        return place >= self._first

    @property
    def _first(self) -> int:
        """The place of the oldest kept entry."""
        return self._next - len(self._kept)

    def _entry_at(self, place: int) -> Entry:
        return self._kept[place - self._first]

    def since(self, place: int, wanted: EntryFilter) -> tuple[bytes, int, str]:
        """Return the next encoded piece, its end, and the cursor there."""
        end = min(place + PIECE, self._next)
        if place >= end:
            return b"", place, ""
        return self._block(place, end, wanted), end, self._entry_at(end - 1).cursor

    def _block(self, place: int, end: int, wanted: EntryFilter) -> bytes:
        """Return an encoded piece, cached for all readers who need the same.

        They are at the same place and have the same filter.
        """
        found = self._blocks.get((place, end, wanted))
        if found is None:
            places = (each for each in range(place, end) if wanted.has(self._entry_at(each)))
            found = self._blocks[place, end, wanted] = b"".join(map(self._encoded, places))
            if len(self._blocks) > BLOCKS:
                del self._blocks[next(iter(self._blocks))]
        return found

    def remembered(self) -> list[Entry]:
        """Return the kept entries, oldest first."""
        return list(self._kept)

    async def news(self, within_s: float) -> None:
        """Wait for new entries, at most this many seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._news.wait()

    def _encoded(self, place: int) -> bytes:
        found = self._sent_as.get(place)
        if found is None:
            found = self._sent_as[place] = event_of(self._entry_at(place))
        return found

    def _more(self, entries: Sequence[Entry], gap: bool) -> None:
        if gap:  # readers before it must read the store, which reports the gap
            self._kept.clear()
            self._sent_as.clear()
            self._places.clear()
            self._next += 1
        self._kept.extend(entries)
        self._places.update(zip([entry.cursor for entry in entries], count(self._next)))
        self._next += len(entries)
        if len(self._places) > 2 * KEPT:  # seldom, because it looks at all of them
            first = self._first
            self._places = {cursor: place for cursor, place in self._places.items() if place >= first}
            self._sent_as = {place: sent for place, sent in self._sent_as.items() if place >= first}
        if self._timer is None:
            after_s = min(self._streams * GATHER_S, LONGEST_GATHER_S)
            self._timer = asyncio.get_running_loop().call_later(after_s, self._wake)

    def _wake(self) -> None:
        """Wake all waiting readers. With many readers, entries are gathered first."""
        self._timer = None
        news, self._news = self._news, asyncio.Event()
        news.set()


class EventSource(Protocol):
    """A source of event stream data for one reader."""

    def beginning(self) -> bytes:
        """Return the first event with the cursor of the reader."""
        ...

    async def next(self) -> bytes:
        """Return the next events, or a keep-alive comment after a long silence."""
        ...


class Stream:
    """The event stream of one reader, from its cursor on."""

    def __init__(
        self, broadcast: Broadcast, wanted: EntryFilter, cursor: str, *, announced: bool = False
    ) -> None:
        self._broadcast = broadcast
        self._wanted = wanted
        self._announced = announced
        self.cursor: str = cursor
        # The place among the kept entries. A reader that starts at the current end has only a place:
        # the cursor of the process need not be that of an entry.
        self._place = broadcast.place_after(cursor)

    def beginning(self) -> bytes:
        """Return the first event with the cursor.

        A reader can resume from it before any change. Browsers hide the id of an event without data from
        scripts; with `announced` there is an event `begin`.
        """
        event = b"event: begin\ndata: {}\n" if self._announced else b""
        return b"retry: 1000\nid: %s\n%s\n" % (self.cursor.encode(), event)

    async def next(self) -> bytes:
        """Return the next events, or a keep-alive comment after a long silence."""
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
        """Return a page from the store, and whether there was any entry.

        It is empty while the store is unavailable.
        """
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
                    break  # the size of a write is bounded, however much of the page matches
        return b"".join(pieces), bool(feed.entries)


class EventStream(Response):
    """An event stream as a response: until the client disconnects or stalls, or the server shuts down."""

    media_type = "text/event-stream"

    def __init__(self, stream: EventSource, broadcast: Broadcast, stopping: asyncio.Event) -> None:
        super().__init__(headers={"X-Accel-Buffering": "no", "Connection": "keep-alive"})
        del self.headers["content-length"]
        self._stream = stream
        self._broadcast = broadcast
        self._stopping = stopping

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the stream."""
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        if scope["method"] != "HEAD" and not await self._is_over(receive, send):
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_S):
                await send({"type": "http.response.body", "body": b""})

    async def _is_over(self, receive: Receive, send: Send) -> bool:
        """Send until the stream has to end.

        Return whether the client is still connected.
        """
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
        """Send piece after piece; raise if the client does not read one in time."""
        piece = self._stream.beginning()
        while True:
            with self._broadcast.patience():
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            piece = await self._stream.next()


class Readers:
    """The number of open streams of each principal."""

    def __init__(self) -> None:
        self._open: Counter[str] = Counter()

    @property
    def open(self) -> int:
        """Number of open streams in all."""
        return self._open.total()

    def enter(self, name: str, most: int) -> None:
        """Count one more stream; raise if the principal has too many."""
        if self._open[name] >= most:
            raise TooMany(
                f"{name} has {most} streams open, which is its limit.",
                retry_after_s=1.0,
                facts={"streams": most},
            )
        self._open[name] += 1

    def leave(self, name: str) -> None:
        """Count one fewer stream."""
        self._open[name] -= 1
        if not self._open[name]:
            del self._open[name]


def event_of(entry: Entry) -> bytes:
    """Return an entry as an event; its id is the cursor from which to resume."""
    return b"id: %s\nevent: entry\ndata: %s\n\n" % (entry.cursor.encode(), _ENCODER.encode(entry_view(entry)))


def gap_after(cursor: str) -> bytes:
    """Return the event that reports pruned entries after a cursor."""
    return b"event: gap\ndata: %s\n\n" % _ENCODER.encode({"after": cursor})


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
