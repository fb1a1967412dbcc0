"""Workers over HTTP, and the quarantine of runners that keep losing work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec

from interlock.remote.http_client import ApiClient, HistoryPage
from interlock.store.records import Entry, Query
from interlock.systems.supervisor.workers import unknown_worker
from interlock.wire.filters import WorkerFilter
from interlock.wire.workers import Standings, StandingView, WorkerView

MAX_PAGE = 1_000


class WorkersApi(Protocol):
    """Everything that people do with workers."""

    async def get(self, worker_id: str) -> WorkerView:
        """The worker as it stands."""
        ...

    async def find(self, query: Query) -> tuple[list[WorkerView], str]:
        """A page of workers, newest first, and the cursor of the next one."""
        ...

    async def history(self, worker_id: str) -> list[Entry]:
        """Everything that has happened to it, oldest first."""
        ...

    async def pause(
        self,
        worker_id: str,
        *,
        reason: str = "",
        actor: str = "",
        request_id: str | None = None,
        give_back: bool = False,
    ) -> WorkerView:
        """Take nothing new; finish what it has, or give that back."""
        ...

    async def resume(
        self, worker_id: str, *, reason: str = "", actor: str = "", request_id: str | None = None
    ) -> WorkerView:
        """Take work again."""
        ...

    async def terminate(
        self, worker_id: str, *, reason: str = "", actor: str = "", request_id: str | None = None
    ) -> WorkerView:
        """Stop it for certain."""
        ...

    async def drain(
        self, worker_id: str, *, reason: str = "", actor: str = "", request_id: str | None = None
    ) -> WorkerView:
        """Finish what it has, and go."""
        ...


class _Page(msgspec.Struct, frozen=True, kw_only=True):
    """Some workers."""

    workers: tuple[WorkerView, ...]
    cursor: str = ""


class HttpWorkers:
    """The workers behind a server. Who did it the server knows by the token."""

    def __init__(self, asker: ApiClient, *, names: Callable[[], str]) -> None:
        self._asker = asker
        self._names = names

    async def get(self, worker_id: str) -> WorkerView:
        """The worker as it stands."""
        return await self._asker.get(_path("/api/workers", worker_id), WorkerView)

    async def find(self, query: Query) -> tuple[list[WorkerView], str]:
        """A page of workers, newest first, and the cursor of the next one."""
        wanted = WorkerFilter(
            states=query.states,
            names=() if query.parent is None else (query.parent,),
            labels=tuple((label,) for label in query.labels),
            workspaces=() if query.queue is None else (query.queue,),
            since=query.since,
            until=query.until,
        )
        limit = min(query.limit, MAX_PAGE)
        page = await self._asker.get("/api/workers", _Page, q=str(wanted), limit=limit, cursor=query.cursor)
        return list(page.workers), page.cursor

    async def history(self, worker_id: str) -> list[Entry]:
        """Everything that has happened to it, oldest first."""
        entries: list[Entry] = []
        after: int | None = 0
        path = _path("/api/workers", worker_id, "history")
        while after is not None:
            page = await self._asker.get(path, HistoryPage, after=after, limit=MAX_PAGE)
            entries += [each.entry() for each in page.entries]
            after = page.after
        return entries

    async def pause(
        self,
        worker_id: str,
        *,
        reason: str = "",
        actor: str = "",  # noqa: ARG002 - the server knows who it is
        request_id: str | None = None,
        give_back: bool = False,
    ) -> WorkerView:
        """Take nothing new; finish what it has, or give that back."""
        return await self._hold("pause", worker_id, reason, request_id, give_back=give_back)

    async def resume(
        self,
        worker_id: str,
        *,
        reason: str = "",
        actor: str = "",  # noqa: ARG002 - the server knows who it is
        request_id: str | None = None,
    ) -> WorkerView:
        """Take work again."""
        return await self._hold("resume", worker_id, reason, request_id)

    async def terminate(
        self,
        worker_id: str,
        *,
        reason: str = "",
        actor: str = "",  # noqa: ARG002 - the server knows who it is
        request_id: str | None = None,
    ) -> WorkerView:
        """Stop it for certain."""
        return await self._hold("terminate", worker_id, reason, request_id)

    async def drain(
        self,
        worker_id: str,
        *,
        reason: str = "",
        actor: str = "",  # noqa: ARG002 - the server knows who it is
        request_id: str | None = None,
    ) -> WorkerView:
        """Finish what it has, and go."""
        return await self._hold("drain", worker_id, reason, request_id)

    async def _hold(
        self, verb: str, worker_id: str, reason: str, request_id: str | None, **more: object
    ) -> WorkerView:
        body = {"reason": reason, "request_id": request_id or self._names(), **more}
        path = _path("/api/supervisor/workers", worker_id, verb)
        return await self._asker.post(path, WorkerView, msgspec.json.encode(body))


def _path(before: str, worker_id: str, what: str = "") -> str:
    """Where a worker is; a name that cannot be an id must not lead elsewhere."""
    if not worker_id.replace("_", "").isalnum():
        raise unknown_worker(worker_id[:64])
    return f"{before}/{worker_id}/{what}".rstrip("/")


class HttpQuarantine:
    """Who is given no work, and why."""

    def __init__(self, asker: ApiClient) -> None:
        self._asker = asker

    async def list(self) -> list[StandingView]:
        """Every runner that is watched or quarantined."""
        return list((await self._asker.get("/api/quarantine", Standings)).runners)

    async def lift(
        self,
        runner: str,
        *,
        actor: str = "",  # noqa: ARG002 - the server knows who it is
        reason: str = "",
    ) -> StandingView:
        """Give it work again, with a clean sheet. Done twice it is refused, and nothing comes of that."""
        body = msgspec.json.encode({"runner": runner, "reason": reason})
        return await self._asker.post("/api/quarantine/lift", StandingView, body)
