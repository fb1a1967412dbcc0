"""Records of users' kinds, over HTTP; the same as `systems.records.Records` offers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from urllib.parse import quote

import msgspec

from interlock.errors import UnknownKind, UnknownRecord
from interlock.remote.answers import HistoryPage
from interlock.remote.http_client import ApiClient
from interlock.store.records import Entry
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
