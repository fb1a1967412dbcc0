"""Records of declared kinds and the journal, over HTTP.

The stream of live events is opened when the first waiter subscribes, and shared by all of them. When it
breaks, or a waiter needs a further kind, it is opened again where it was. A token that may not follow
events is never woken, so waiters also poll now and then.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing

import msgspec

from interlock.api import jobs, journal, records
from interlock.api import kinds as api
from interlock.api.messages import MAX_PAGE, HistoryQuery
from interlock.errors import InterlockError, NotAllowed, StoreUnavailable, UnknownKind
from interlock.lifecycles.job import JOB
from interlock.lifecycles.run import RUN
from interlock.remote.history import entry_of, history_of
from interlock.remote.http_client import ApiClient, Lines
from interlock.store.records import Entry, Feed, Key
from interlock.wire.records import KindView, RecordExplanation, StoredRecord

AGAIN_S = 0.5
FOLLOWED = frozenset((JOB.name, RUN.name))
"""Kinds that every stream has."""


class LiveEvents:
    """The stream of live events, shared by all waiters of a process."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client
        self._wakes: dict[Callable[[], None], str] = {}
        """The kind that each waiter needs."""
        self._kinds = FOLLOWED
        """The kinds of the present stream."""
        self._following: asyncio.Task[None] | None = None
        self._alone = asyncio.Lock()
        self._cursor = ""

    def subscribe(self, kind: str, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` at news of a kind; return a function that stops this."""
        self._wakes[wake] = kind
        following = self._following
        if following is None or following.done() or following.cancelling() or kind not in self._kinds:
            if following is not None and not following.cancelling():
                following.cancel()
            self._kinds = FOLLOWED.union(self._wakes.values())
            self._following = asyncio.create_task(self._follow_alone(), name="live events")

        def leave() -> None:
            self._wakes.pop(wake, None)
            if not self._wakes and self._following is not None:
                self._following.cancel()

        return leave

    async def close(self) -> None:
        """Stop following."""
        self._wakes.clear()
        if self._following is not None:
            self._following.cancel()
            await asyncio.wait([self._following])

    async def _follow_alone(self) -> None:
        async with self._alone:  # the stream before is closed: a server limits how many there are
            await self._follow()

    async def _follow(self) -> None:
        while True:
            try:
                await self._follow_once()
            except StoreUnavailable:
                self._wake()  # the waiters read the store and get the same error
            except (NotAllowed, UnknownKind):
                if self._kinds == FOLLOWED:
                    return
                self._kinds = FOLLOWED  # the waiters for other kinds poll
            except InterlockError:
                return
            await asyncio.sleep(AGAIN_S)

    async def _follow_once(self) -> None:
        headers = {"Last-Event-ID": self._cursor} if self._cursor else {}
        wanted = journal.EventsQuery(kind=",".join(sorted(self._kinds)))
        stream = self._client.stream(journal.FOLLOW_EVENTS, headers, wanted)
        async with stream as lines, aclosing(_ids(lines)) as ids:
            async for cursor in ids:
                self._cursor = cursor
                self._wake()

    def _wake(self) -> None:
        for wake in tuple(self._wakes):
            wake()


class HttpRecords:
    """The records behind a server."""

    def __init__(self, client: ApiClient, events: LiveEvents) -> None:
        self._client = client
        self._events = events

    async def kinds(self) -> list[KindView]:
        """Return the kinds, by name."""
        return list((await self._client.call(records.LIST_KINDS)).kinds)

    async def create(
        self, kind: str, data: object, *, record_id: str = "", actor: str = "", request_id: str | None = None
    ) -> StoredRecord:
        """Create a record in the initial state."""
        sent = api.NewRecord(data=data, id=record_id, request_id=request_id)
        return await self._client.call(api.CREATE, sent, kind=kind)

    async def send(
        self,
        kind: str,
        record_id: str,
        event: str,
        data: object = None,
        *,
        expected: int | None = None,
        reason: str = "",
        actor: str = "",
        request_id: str | None = None,
    ) -> StoredRecord:
        """Send an event to a record."""
        sent = api.SentEvent(data=data or {}, expected=expected, reason=reason, request_id=request_id)
        return await self._client.call(api.SEND, sent, kind=kind, record_id=record_id, event=event[:64])

    async def get(self, kind: str, record_id: str) -> StoredRecord:
        """Return a record."""
        return await self._client.call(api.GET, kind=kind, record_id=record_id)

    async def find(
        self,
        kind: str,
        *,
        states: Sequence[str] = (),
        where: Mapping[str, object] | None = None,
        queue: str = "",
        parent: str = "",
        limit: int = 100,
        cursor: str = "",
    ) -> tuple[list[StoredRecord], str]:
        """Return a page of records, newest first, and the cursor of the next one."""
        query = api.KindQuery(
            state=",".join(states),
            where=msgspec.json.encode(where).decode() if where else "",
            queue=queue,
            parent=parent,
            limit=min(limit, MAX_PAGE),
            cursor=cursor,
        )
        page = await self._client.call(api.LIST, query, kind=kind)
        return list(page.records), page.cursor

    async def history(self, kind: str, record_id: str) -> list[Entry]:
        """Return the journal of a record, oldest first."""
        return await history_of(self._client, api.GET_HISTORY, kind=kind, record_id=record_id)

    async def explain(self, kind: str, record_id: str) -> RecordExplanation:
        """Return why a record waits, the next step's owner, and the timer."""
        return await self._client.call(api.EXPLAIN, kind=kind, record_id=record_id)

    def subscribe(self, kind: str, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` at news of a kind; return a function that stops this."""
        return self._events.subscribe(kind, wake)


class HttpJournal:
    """The journal behind a server."""

    def __init__(self, client: ApiClient, events: LiveEvents) -> None:
        self._client = client
        self._events = events

    async def latest(self) -> str:
        """Return the end of the journal, where a stream would start.

        It is a cursor. It is empty for a token that may not follow all events.
        """
        try:
            async with self._client.stream(journal.FOLLOW_EVENTS, {}) as lines, aclosing(_ids(lines)) as ids:
                async for cursor in ids:
                    return cursor
        except NotAllowed:
            return ""
        raise StoreUnavailable(
            f"The server at {self._client.server} closed a stream before it began.", todo="Ask again."
        )

    async def feed(self, after: str = "", *, limit: int = 1_000) -> Feed:
        """Return the journal after a cursor."""
        query = journal.JournalQuery(after=after, limit=min(limit, MAX_PAGE))
        page = await self._client.call(journal.READ_JOURNAL, query)
        return Feed(tuple(map(entry_of, page.entries)), page.cursor, gap=page.gap)

    async def history(self, key: Key, *, after_version: int = 0, limit: int = 1_000) -> Feed:
        """Return the journal of one job, oldest first."""
        query = HistoryQuery(after=after_version, limit=min(limit, MAX_PAGE))
        page = await self._client.call(jobs.GET_JOB_HISTORY, query, job_id=key.id)
        entries = tuple(map(entry_of, page.entries))
        return Feed(entries, entries[-1].cursor if entries else "")

    def subscribe(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` when there is news; return a function that stops this."""
        return self._events.subscribe(JOB.name, wake)

    async def close(self) -> None:
        """Stop following."""
        await self._events.close()


async def _ids(lines: Lines) -> AsyncGenerator[str, None]:
    """Yield the cursors of a stream."""
    async for line in lines:
        if line.startswith("id:"):
            yield line.removeprefix("id:").strip()
