"""Records of declared kinds and the journal, over HTTP.

The stream of live events is opened when the first waiter subscribes, and shared by all of them. When it
breaks it is opened again where it was. A token that may not follow events is never woken, so waiters also
poll now and then.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from urllib.parse import quote

import msgspec

from interlock.errors import InterlockError, StoreUnavailable, UnknownKind, UnknownRecord
from interlock.lifecycles.job import JOB
from interlock.lifecycles.run import RUN
from interlock.remote.http_client import ApiClient, HistoryPage, JournalPage, Lines
from interlock.store.records import Entry, Feed, Key
from interlock.systems.access.principals import NotAllowed
from interlock.wire.records import KindView, RecordExplanation, StoredPage, StoredRecord

MAX_PAGE = 1_000


class Kinds(msgspec.Struct, frozen=True, kw_only=True):
    """The kinds of a server."""

    kinds: tuple[KindView, ...]


class HttpRecords:
    """The records behind a server. Who sends an event the server knows by the token."""

    def __init__(self, asker: ApiClient, *, names: Callable[[], str]) -> None:
        self._asker = asker
        self._names = names

    async def kinds(self) -> list[KindView]:
        """Return the kinds, by name."""
        return list((await self._asker.get("/api/kinds", Kinds)).kinds)

    async def create(
        self,
        kind: str,
        data: object,
        *,
        record_id: str = "",
        actor: str = "",  # noqa: ARG002 - the server knows who it is
        request_id: str | None = None,
    ) -> StoredRecord:
        """Create a record in the initial state."""
        body = {"data": data, "id": record_id, "request_id": self._named(request_id)}
        return await self._asker.post(_path(kind), StoredRecord, msgspec.json.encode(body))

    async def send(
        self,
        kind: str,
        record_id: str,
        event: str,
        data: object = None,
        *,
        expected: int | None = None,
        reason: str = "",
        actor: str = "",  # noqa: ARG002 - the server knows who it is
        request_id: str | None = None,
    ) -> StoredRecord:
        """Send an event to a record."""
        body = {"data": data or {}, "expected": expected, "reason": reason}
        body["request_id"] = self._named(request_id)
        path = f"{_path(kind, record_id)}/send/{quote(event[:64], safe='')}"
        return await self._asker.post(path, StoredRecord, msgspec.json.encode(body))

    async def get(self, kind: str, record_id: str) -> StoredRecord:
        """Return the record as it stands."""
        return await self._asker.get(_path(kind, record_id), StoredRecord)

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
        page = await self._asker.get(
            _path(kind),
            StoredPage,
            state=",".join(states),
            where=msgspec.json.encode(where).decode() if where else "",
            queue=queue,
            parent=parent,
            limit=min(limit, MAX_PAGE),
            cursor=cursor,
        )
        return list(page.records), page.cursor

    async def history(self, kind: str, record_id: str) -> list[Entry]:
        """Return everything that has happened to a record, oldest first."""
        page = await self._asker.get(f"{_path(kind, record_id)}/history", HistoryPage)
        return [each.entry() for each in page.entries]

    async def explain(self, kind: str, record_id: str) -> RecordExplanation:
        """Return what a record waits for, whose turn it is and when its timer fires."""
        return await self._asker.get(f"{_path(kind, record_id)}/explain", RecordExplanation)

    def _named(self, request_id: str | None) -> str:
        return request_id if request_id is not None else self._names()


def _path(kind: str, record_id: str | None = None) -> str:
    """Return where a record is; a name that cannot be one must not lead elsewhere."""
    if not _is_name(kind):
        raise UnknownKind(kind[:64], ())
    if record_id is None:
        return f"/api/kinds/{kind}"
    if not _is_name(record_id):
        raise UnknownRecord(
            f"There is no {kind} {record_id[:64]}.",
            todo=f"Look for it with `interlock record list {kind}`.",
            facts={"kind": kind, "id": record_id[:64]},
        )
    return f"/api/kinds/{kind}/{record_id}"


def _is_name(text: str) -> bool:
    return bool(text) and all(character.isalnum() or character in "_-" for character in text)


AGAIN_S = 0.5


class HttpJournal:
    """What has happened, in order."""

    def __init__(self, asker: ApiClient) -> None:
        self._asker = asker
        self._wakes: set[Callable[[], None]] = set()
        self._following: asyncio.Task[None] | None = None
        self._cursor = ""

    async def latest(self) -> str:
        """A cursor after which only what is committed from now on is found: where a stream begins.

        None at all, which is empty, for somebody who may not follow everything.
        """
        try:
            async with self._asker.stream("/api/events", {}) as lines, aclosing(_ids(lines)) as ids:
                async for cursor in ids:
                    return cursor
        except NotAllowed:
            return ""
        raise StoreUnavailable(
            f"The server at {self._asker.server} has ended a stream before it began.", todo="Ask again."
        )

    async def feed(self, after: str = "", *, limit: int = 1_000) -> Feed:
        """The journal after a cursor."""
        page = await self._asker.get("/api/journal", JournalPage, after=after, limit=min(limit, MAX_PAGE))
        return Feed(tuple(each.entry() for each in page.entries), page.cursor, gap=page.gap)

    async def history(self, key: Key, *, after_version: int = 0, limit: int = 1_000) -> Feed:
        """The journal of one job, oldest first."""
        page = await self._asker.get(
            f"/api/jobs/{key.id}/history", HistoryPage, after=after_version, limit=min(limit, MAX_PAGE)
        )
        entries = tuple(each.entry() for each in page.entries)
        return Feed(entries, entries[-1].cursor if entries else "")

    def subscribe(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Be woken when there is news; returns how to stop that."""
        self._wakes.add(wake)
        if self._following is None or self._following.done():
            self._following = asyncio.create_task(self._follow(), name="live events")

        def leave() -> None:
            self._wakes.discard(wake)
            if not self._wakes and self._following is not None:
                self._following.cancel()

        return leave

    async def close(self) -> None:
        """Follow no more."""
        self._wakes.clear()
        if self._following is not None:
            self._following.cancel()
            await asyncio.wait([self._following])

    async def _follow(self) -> None:
        while True:
            try:
                await self._follow_once()
            except StoreUnavailable:
                self._wake()  # whoever waits looks, and meets the same
            except InterlockError:
                return
            await asyncio.sleep(AGAIN_S)

    async def _follow_once(self) -> None:
        headers = {"Last-Event-ID": self._cursor} if self._cursor else {}
        stream = self._asker.stream("/api/events", headers, kind=f"{JOB.name},{RUN.name}")
        async with stream as lines, aclosing(_ids(lines)) as ids:
            async for cursor in ids:
                self._cursor = cursor
                self._wake()

    def _wake(self) -> None:
        for wake in tuple(self._wakes):
            wake()


async def _ids(lines: Lines) -> AsyncGenerator[str, None]:
    """The cursors that a stream passes."""
    async for line in lines:
        if line.startswith("id:"):
            yield line.removeprefix("id:").strip()
