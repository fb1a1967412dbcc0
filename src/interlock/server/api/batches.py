"""Batches of jobs: create them, add jobs, show their progress, and cancel them."""

from __future__ import annotations

from interlock.api import batches as api
from interlock.server.routes import Call, handles
from interlock.wire.batches import BatchAddition, BatchJobs, BatchList, BatchView


@handles(api.CREATE_BATCH)
async def create_batch(call: Call) -> BatchAddition:
    """Create a batch with its first jobs."""
    body: api.NewBatch = call.body
    return await call.parts.runtime.batches.create(
        body.spec, body.jobs, close=body.close, actor=call.actor, request_id=call.request_id
    )


@handles(api.ADD_TO_BATCH)
async def add_to_batch(call: Call) -> BatchAddition:
    """Add jobs to an open batch."""
    body: api.MoreJobs = call.body
    return await call.parts.runtime.batches.add(
        call.path["batch_id"], body.jobs, close=body.close, actor=call.actor, request_id=call.request_id
    )


@handles(api.LIST_BATCHES)
async def list_batches(call: Call) -> BatchList:
    """Return a page of batches, newest first."""
    query: api.BatchesQuery = call.query
    return await call.parts.runtime.batches.page(limit=query.limit, cursor=query.cursor)


@handles(api.GET_BATCH)
async def get_batch(call: Call) -> BatchView:
    """Return a batch with its progress."""
    return await call.parts.runtime.batches.get(call.path["batch_id"])


@handles(api.LIST_BATCH_JOBS)
async def list_jobs(call: Call) -> BatchJobs:
    """Return a page of the jobs of a batch."""
    query: api.BatchJobsQuery = call.query
    return await call.parts.runtime.batches.jobs(call.path["batch_id"], cursor=query.cursor)


@handles(api.CANCEL_BATCH)
async def cancel_batch(call: Call) -> BatchView:
    """Cancel the jobs of a batch."""
    body: api.BatchRequest = call.body
    return await call.parts.runtime.batches.cancel(
        call.path["batch_id"], reason=body.reason, actor=call.actor, request_id=call.request_id
    )
