"""Batches over HTTP.

The server knows the actor by the token, so an `actor` that is named here is not passed on.
"""

from __future__ import annotations

from collections.abc import Sequence

from interlock.api import batches as api
from interlock.remote.http_client import ApiClient
from interlock.wire.batches import BatchAddition, BatchJobs, BatchList, BatchSpec, BatchView
from interlock.wire.jobs import JobSpec


class HttpBatches:
    """The batches behind a server."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client

    async def create(
        self,
        spec: BatchSpec,
        jobs: Sequence[JobSpec] = (),
        *,
        close: bool = False,
        actor: str = "",
        request_id: str | None = None,
    ) -> BatchAddition:
        """Create a batch with its first jobs, all or none; `close` it if complete."""
        sent = api.NewBatch(spec=spec, jobs=tuple(jobs), close=close, request_id=request_id)
        return await self._client.call(api.CREATE_BATCH, sent)

    async def add(
        self,
        batch_id: str,
        jobs: Sequence[JobSpec],
        *,
        close: bool = False,
        actor: str = "",
        request_id: str | None = None,
    ) -> BatchAddition:
        """Add jobs to an open batch, all or none; `close` it after them."""
        sent = api.MoreJobs(jobs=tuple(jobs), close=close, request_id=request_id)
        return await self._client.call(api.ADD_TO_BATCH, sent, batch_id=batch_id)

    async def cancel(
        self, batch_id: str, *, reason: str = "", actor: str = "", request_id: str | None = None
    ) -> BatchView:
        """Request the cancellation of all jobs of a batch that have not ended."""
        sent = api.BatchRequest(reason=reason, request_id=request_id)
        return await self._client.call(api.CANCEL_BATCH, sent, batch_id=batch_id)

    async def get(self, batch_id: str) -> BatchView:
        """Return a batch, with the counts of its jobs as of now."""
        return await self._client.call(api.GET_BATCH, batch_id=batch_id)

    async def page(self, *, limit: int = 50, cursor: str = "") -> BatchList:
        """Return a page of batches, newest first."""
        return await self._client.call(api.LIST_BATCHES, api.BatchesQuery(limit=limit, cursor=cursor))

    async def jobs(self, batch_id: str, *, cursor: str = "") -> BatchJobs:
        """Return a page of the jobs of a batch, with outcomes of ended ones."""
        query = api.BatchJobsQuery(cursor=cursor)
        return await self._client.call(api.LIST_BATCH_JOBS, query, batch_id=batch_id)
