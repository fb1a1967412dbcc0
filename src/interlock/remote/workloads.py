"""The workloads of fleets, over HTTP; and what a store and a server both offer about them."""

from __future__ import annotations

from typing import Protocol

import msgspec

from interlock.remote.http_client import ApiClient, HistoryPage
from interlock.store.records import Entry, Query
from interlock.systems.fleet.workloads import unknown_workload
from interlock.wire.workloads import WorkloadView

MAX_PAGE = 1_000


class WorkloadsApi(Protocol):
    """Everything that people look at of workloads."""

    async def get(self, workload_id: str) -> WorkloadView:
        """The workload as it stands."""
        ...

    async def find(self, query: Query) -> tuple[list[WorkloadView], str]:
        """A page of workloads, newest first, and the cursor of the next one."""
        ...

    async def history(self, workload_id: str) -> list[Entry]:
        """Everything that has happened to it, oldest first."""
        ...


class _Page(msgspec.Struct, frozen=True, kw_only=True):
    """Some workloads."""

    workloads: tuple[WorkloadView, ...]
    cursor: str = ""


class HttpWorkloads:
    """The workloads behind a server."""

    def __init__(self, asker: ApiClient) -> None:
        self._asker = asker

    async def get(self, workload_id: str) -> WorkloadView:
        """The workload as it stands."""
        return await self._asker.get(_path(workload_id), WorkloadView)

    async def find(self, query: Query) -> tuple[list[WorkloadView], str]:
        """A page of workloads, newest first, and the cursor of the next one."""
        asked = {
            "job": query.parent or "",
            "state": query.states[0] if query.states else "",
            "limit": min(query.limit, MAX_PAGE),
            "cursor": query.cursor,
        }
        page = await self._asker.get("/api/workloads", _Page, **asked)
        return list(page.workloads), page.cursor

    async def history(self, workload_id: str) -> list[Entry]:
        """Everything that has happened to it, oldest first."""
        entries: list[Entry] = []
        after: int | None = 0
        while after is not None:
            path = f"{_path(workload_id)}/history"
            page = await self._asker.get(path, HistoryPage, after=after, limit=MAX_PAGE)
            entries += [each.entry() for each in page.entries]
            after = page.after
        return entries


def _path(workload_id: str) -> str:
    """Where a workload is; a name that cannot be an id must not lead elsewhere."""
    if not workload_id.replace("_", "").isalnum():
        raise unknown_workload(workload_id[:64])
    return f"/api/workloads/{workload_id}"
