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
        """Return a worker."""
        return await self._client.call(api.GET_WORKER, worker_id=worker_id)

    async def find(self, query: Query) -> tuple[list[WorkerView], str]:
        """Return a page of workers, newest first, and the cursor of the next one."""
        wanted = WorkerFilter(
            states=query.states,
            names=() if query.parent is None else (query.parent,),
            labels=tuple((label,) for label in query.labels),
            workspaces=() if query.queue is None else (query.queue,),
            since=query.since,
            until=query.until,
        )
        request = api.WorkersQuery(q=str(wanted), limit=min(query.limit, MAX_PAGE), cursor=query.cursor)
        page = await self._client.call(api.LIST_WORKERS, request)
        return list(page.workers), page.cursor

    async def history(self, worker_id: str) -> list[Entry]:
        """Return the journal of a worker, oldest first."""
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
        """Pause a worker, which finishes its tasks or gives them back."""
        sent = api.PauseRequest(reason=reason, request_id=request_id, give_back=give_back)
        return await self._client.call(api.PAUSE_WORKER, sent, worker_id=worker_id)

    async def resume(
        self, worker_id: str, *, reason: str = "", actor: str = "", request_id: str | None = None
    ) -> WorkerView:
        """Resume a worker."""
        sent = api.HoldRequest(reason=reason, request_id=request_id)
        return await self._client.call(api.RESUME_WORKER, sent, worker_id=worker_id)

    async def terminate(
        self, worker_id: str, *, reason: str = "", actor: str = "", request_id: str | None = None
    ) -> WorkerView:
        """Terminate a worker."""
        sent = api.HoldRequest(reason=reason, request_id=request_id)
        return await self._client.call(api.TERMINATE_WORKER, sent, worker_id=worker_id)

    async def drain(
        self, worker_id: str, *, reason: str = "", actor: str = "", request_id: str | None = None
    ) -> WorkerView:
        """Drain a worker: it finishes its tasks and exits."""
        sent = api.HoldRequest(reason=reason, request_id=request_id)
        return await self._client.call(api.DRAIN_WORKER, sent, worker_id=worker_id)


class HttpQuarantine:
    """The quarantine of runners behind a server."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client

    async def list(self) -> list[StandingView]:
        """Return the runners that are watched or quarantined."""
        return list((await self._client.call(api.LIST_QUARANTINE)).runners)

    async def lift(self, runner: str, *, actor: str = "", reason: str = "") -> StandingView:
        """Release a runner from quarantine and forget its losses.

        A repeated request is refused, without effect.
        """
        return await self._client.call(api.LIFT_QUARANTINE, api.LiftRequest(runner=runner, reason=reason))


class HttpWorkloads:
    """The workloads of fleets behind a server."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client

    async def get(self, workload_id: str) -> WorkloadView:
        """Return a workload."""
        return await self._client.call(workloads.GET_WORKLOAD, workload_id=workload_id)

    async def find(self, query: Query) -> tuple[list[WorkloadView], str]:
        """Return a page of workloads, newest first, and the next cursor."""
        request = workloads.WorkloadsQuery(
            job=query.parent or "",
            state=query.states[0] if query.states else "",
            limit=min(query.limit, MAX_PAGE),
            cursor=query.cursor,
        )
        page = await self._client.call(workloads.LIST_WORKLOADS, request)
        return list(page.workloads), page.cursor

    async def history(self, workload_id: str) -> list[Entry]:
        """Return the journal of a workload, oldest first."""
        return await history_of(self._client, workloads.GET_WORKLOAD_HISTORY, workload_id=workload_id)
