"""Workers and workloads over HTTP, and the quarantine of runners that keep losing work.

The server knows the actor by the token, so an `actor` that is named here is not passed on.
"""

from __future__ import annotations

from interlock.api import workers as api
from interlock.api import workloads
from interlock.api.messages import MAX_PAGE
from interlock.remote.history import history_of
from interlock.remote.http_client import ApiClient
from interlock.store.records import Entry, Query
from interlock.wire.filters import WorkerFilter
from interlock.wire.workers import StandingView, WorkerView
from interlock.wire.workloads import WorkloadView


class HttpWorkers:
    """The workers behind a server."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client

    async def get(self, worker_id: str) -> WorkerView:
        """The worker as it stands."""
        return await self._client.call(api.GET_WORKER, worker_id=worker_id)

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
        asked = api.WorkersQuery(q=str(wanted), limit=min(query.limit, MAX_PAGE), cursor=query.cursor)
        page = await self._client.call(api.LIST_WORKERS, asked)
        return list(page.workers), page.cursor

    async def history(self, worker_id: str) -> list[Entry]:
        """Everything that has happened to it, oldest first."""
        return await history_of(self._client, api.GET_WORKER_HISTORY, worker_id=worker_id)

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
        sent = api.PauseRequest(reason=reason, request_id=request_id, give_back=give_back)
        return await self._client.call(api.PAUSE_WORKER, sent, worker_id=worker_id)

    async def resume(
        self, worker_id: str, *, reason: str = "", actor: str = "", request_id: str | None = None
    ) -> WorkerView:
        """Take work again."""
        sent = api.HoldRequest(reason=reason, request_id=request_id)
        return await self._client.call(api.RESUME_WORKER, sent, worker_id=worker_id)

    async def terminate(
        self, worker_id: str, *, reason: str = "", actor: str = "", request_id: str | None = None
    ) -> WorkerView:
        """Stop it for certain."""
        sent = api.HoldRequest(reason=reason, request_id=request_id)
        return await self._client.call(api.TERMINATE_WORKER, sent, worker_id=worker_id)

    async def drain(
        self, worker_id: str, *, reason: str = "", actor: str = "", request_id: str | None = None
    ) -> WorkerView:
        """Finish what it has, and go."""
        sent = api.HoldRequest(reason=reason, request_id=request_id)
        return await self._client.call(api.DRAIN_WORKER, sent, worker_id=worker_id)


class HttpQuarantine:
    """Who is given no work, and why."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client

    async def list(self) -> list[StandingView]:
        """Every runner that is watched or quarantined."""
        return list((await self._client.call(api.LIST_QUARANTINE)).runners)

    async def lift(self, runner: str, *, actor: str = "", reason: str = "") -> StandingView:
        """Give it work again, with a clean sheet. Done twice it is refused, and nothing comes of that."""
        return await self._client.call(api.LIFT_QUARANTINE, api.LiftRequest(runner=runner, reason=reason))


class HttpWorkloads:
    """The workloads of fleets behind a server."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client

    async def get(self, workload_id: str) -> WorkloadView:
        """The workload as it stands."""
        return await self._client.call(workloads.GET_WORKLOAD, workload_id=workload_id)

    async def find(self, query: Query) -> tuple[list[WorkloadView], str]:
        """A page of workloads, newest first, and the cursor of the next one."""
        asked = workloads.WorkloadsQuery(
            job=query.parent or "",
            state=query.states[0] if query.states else "",
            limit=min(query.limit, MAX_PAGE),
            cursor=query.cursor,
        )
        page = await self._client.call(workloads.LIST_WORKLOADS, asked)
        return list(page.workloads), page.cursor

    async def history(self, workload_id: str) -> list[Entry]:
        """Everything that has happened to it, oldest first."""
        return await history_of(self._client, workloads.GET_WORKLOAD_HISTORY, workload_id=workload_id)
