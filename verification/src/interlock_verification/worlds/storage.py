"""The store of a world: the memory store, seen by each process through its own connection.

A request is done as a whole when it arrives, even if the process has died meanwhile; but operations that call
the process in between (a claim, a sweep) need it alive. A fail-over starts another epoch, and may lose the
latest writes like an asynchronous replica.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Protocol, TypeVar

from interlock.errors import InterlockError, StoreUnavailable
from interlock.store.catalogue import Catalogue
from interlock.store.contract import Capabilities, Decide, StoreStatus, Wake
from interlock.store.memory import MemoryStore, ReadClock
from interlock.store.records import (
    Change,
    Claim,
    Commit,
    Count,
    Feed,
    Key,
    Note,
    Outcome,
    Page,
    Pruned,
    Query,
    Record,
    Recorded,
    Work,
)
from interlock_verification.worlds.network import STORE, ActorProcess, NetworkCall, ReceiveAnswer

T = TypeVar("T")

TIMEOUT_S = 10.0
_REMEMBERED = timedelta(seconds=30)


class WriteObserver(Protocol):
    """An observer of writes."""

    def written(self, before: Record | None, after: Record, note: Note | None, now: datetime) -> None:
        """Handle a changed record."""
        ...

    def refused(self, key: Key, note: Note) -> None:
        """Handle a journalled refusal."""
        ...

    def lost(self, key: Key, back_to: Record | None) -> None:
        """Handle a record with writes lost in a fail-over."""
        ...


class SharedStore(MemoryStore):
    """The memory store, with an observer and with fail-overs."""

    def __init__(self, catalogue: Catalogue, clock: ReadClock, reader: WriteObserver) -> None:
        super().__init__(catalogue, clock=clock)
        self._reader = reader
        self.fail_overs = 0
        self._recent: deque[tuple[datetime, Key, Record | None]] = deque()

    def seed(self, changes: Sequence[Change]) -> None:
        """Write records that are there before the world begins."""
        for change in changes:
            self._commit_one(Commit(changes=(change,)))

    def has_ready(self, kind: str) -> bool:
        """Return whether a record of a kind can be claimed now."""
        now = self._clock()
        return any(
            record.kind == kind and record.ready_at is not None and record.ready_at <= now
            for record in self._ready.values()
        )

    async def epoch(self) -> int:
        """Return the epoch, which grows with every fail-over."""
        return self._epoch + self.fail_overs

    def fail_over(self, lost_s: float) -> int:
        """Fail over to a replica without the latest writes; return how many."""
        self.fail_overs += 1
        since, count = self._now() - timedelta(seconds=lost_s), 0
        while lost_s and self._recent and self._recent[-1][0] > since:
            _, key, before = self._recent.pop()
            count += 1
            self._put(key, before)
            self._reader.lost(key, before)
        while lost_s and self._journal and self._journal[-1].at > since:
            self._journal.pop()  # its numbers are not reused: cursors of stores contain the epoch
        if lost_s:
            kept = {name: each for name, each in self._requests.items() if each.created_at <= since}
            self._requests = kept
        return count

    def _write(self, change: Change, now: datetime) -> None:
        before = self._records.get(change.key)
        super()._write(change, now)
        self._recent.append((now, change.key, before))
        while self._recent[0][0] < now - _REMEMBERED:
            self._recent.popleft()
        self._reader.written(before, self._records[change.key], change.note, now)

    def _note(self, kind: str, name: str, version: int, note: Note, now: datetime) -> None:
        super()._note(kind, name, version, note, now)
        if note.refusal:
            self._reader.refused(Key(kind, name), note)


class StoreLink:
    """The store contract over a connection of one process to the shared store."""

    def __init__(self, process: ActorProcess, store: SharedStore) -> None:
        self._process = process
        self._network = process.network
        self._store = store
        self._stop: dict[object, Callable[[], None]] = {}
        self._looked: dict[tuple[str, tuple[str, ...]], datetime] = {}
        process.at_end.append(self._unsubscribe_all)

    @property
    def capabilities(self) -> Capabilities:
        """The capabilities of the shared store."""
        return self._store.capabilities

    async def open(self) -> None:
        """Check that the store answers."""
        await self.now()

    async def learn(self, kinds: Catalogue) -> None:
        """Register kinds with the shared store."""
        await self._call(lambda: self._store.learn(kinds))

    async def close(self) -> None:
        """Unsubscribe; other connections continue."""
        self._unsubscribe_all()

    async def now(self) -> datetime:
        """Return the store's time."""
        return await self._call(self._store.now)

    async def epoch(self) -> int:
        """Return the epoch."""
        return await self._call(self._store.epoch)

    async def raise_epoch(self, above: int = 0) -> int:
        """Start another epoch."""
        return await self._call(lambda: self._store.raise_epoch(above))

    async def load(self, keys: Sequence[Key]) -> list[Record | None]:
        """Load records."""
        return await self._call(lambda: self._store.load(keys))

    async def find(self, query: Query) -> Page:
        """Return a page of records."""
        asked_at = self._network.clock()
        page = await self._call(lambda: self._store.find(query))
        self._looked[query.kind, tuple(query.states)] = asked_at
        return page

    def looked_at(self, kind: str, *states: str) -> datetime | None:
        """Return a lower bound of the time of the last read of records.

        They are records of a kind in these states.
        """
        return self._looked.get((kind, states))

    async def count(self, query: Query, *, cap: int = 10_000, within: int | None = None) -> Count:
        """Count records."""
        return await self._call(lambda: self._store.count(query, cap=cap, within=within))

    async def commit(self, commits: Sequence[Work]) -> list[Outcome]:
        """Commit when the request arrives, even if the process has died."""
        return await self._call(lambda: self._store.commit(commits), outlives=True)

    async def claim(self, claim: Claim, decide: Decide) -> list[Outcome]:
        """Claim records; the process has to be alive to decide."""
        return await self._call(lambda: self._store.claim(claim, decide))

    async def due(self, kinds: Sequence[str], limit: int, decide: Decide) -> list[Outcome]:
        """Handle due records; the process has to be alive to decide."""
        return await self._call(lambda: self._store.due(kinds, limit, decide))

    async def recall(self, request_id: str) -> Recorded | None:
        """Return a recorded answer."""
        return await self._call(lambda: self._store.recall(request_id))

    async def feed(self, after: str = "", *, limit: int = 1_000) -> Feed:
        """Return entries of the journal."""
        return await self._call(lambda: self._store.feed(after, limit=limit))

    async def latest(self, *, back: int = 0) -> str:
        """Return the end of the journal, or an earlier place."""
        return await self._call(lambda: self._store.latest(back=back))

    async def history(self, key: Key, *, after_version: int = 0, limit: int = 1_000) -> Feed:
        """Return the journal of one record."""
        return await self._call(lambda: self._store.history(key, after_version=after_version, limit=limit))

    async def prune(
        self, *, kind: str, states: Sequence[str], older_than: timedelta, limit: int = 1_000
    ) -> Pruned:
        """Remove old records."""
        return await self._call(
            lambda: self._store.prune(kind=kind, states=states, older_than=older_than, limit=limit)
        )

    async def prune_by_queue(
        self,
        *,
        kind: str,
        state: str,
        older_than: timedelta | None,
        queues: Mapping[str, timedelta],
        cursor: str = "",
        limit: int = 1_000,
        within: int = 5_000,
    ) -> Pruned:
        """Remove old records at the age of their queue."""
        return await self._call(
            lambda: self._store.prune_by_queue(
                kind=kind,
                state=state,
                older_than=older_than,
                queues=queues,
                cursor=cursor,
                limit=limit,
                within=within,
            )
        )

    async def compact(self) -> int | None:
        """Compact the store."""
        return await self._call(self._store.compact)

    async def status(self) -> StoreStatus:
        """Return the status of the store."""
        return await self._call(self._store.status)

    def subscribe(self, wake: Wake) -> Callable[[], None]:
        """Subscribe to commits, with a latency.

        Notifications are lost while the store is unreachable.
        """
        process, schedule, pending = self._process, self._network.schedule, False

        def woken() -> None:
            nonlocal pending
            if not pending:
                pending = True
                schedule.call_in(self._network.trip_s(), ring)

        def ring() -> None:
            nonlocal pending
            pending = False
            if process.alive and self._network.reachable(process.name, STORE):
                process.loop.call_soon(wake)

        token, stop = object(), self._store.subscribe(woken)
        self._stop[token] = stop

        def unsubscribe() -> None:
            self._stop.pop(token, None)
            stop()

        return unsubscribe

    def _unsubscribe_all(self) -> None:
        for stop in self._stop.values():
            stop()
        self._stop.clear()

    async def _call(self, request: Callable[[], Coroutine[Any, Any, T]], *, outlives: bool = False) -> T:
        epoch = self._store.fail_overs

        def arrive(done: ReceiveAnswer) -> None:
            gone = epoch != self._store.fail_overs  # it was sent to a database that failed over
            if gone or (not outlives and (self._process.frozen or not self._process.alive)):
                done(None, StoreUnavailable("The connection broke.", todo="Ask again."))
                return
            try:
                done(driven(request()), None)
            except InterlockError as error:
                done(None, error)

        answer: T = await NetworkCall(self._process, STORE, arrive, TIMEOUT_S, certain=True).answer()
        return answer


def driven(coroutine: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that never waits."""
    try:
        coroutine.send(None)
    except StopIteration as returned:
        answer: T = returned.value
        return answer
    raise RuntimeError("The memory store waits for nothing.")
