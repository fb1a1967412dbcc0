"""Batches of jobs: create them, add jobs, show their progress, and cancel them."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from interlock.api.jobs import MAX_BULK
from interlock.api.messages import Cursor, Input, Limit, ReasonedRequest, RequestId
from interlock.api.operation import Link, Operation, id_of
from interlock.errors import (
    InvalidJob,
    InvalidLimit,
    RequestIdReused,
    TerminalState,
    TooLarge,
    TransitionNotAllowed,
    UnknownBatch,
    UnknownLimit,
)
from interlock.wire.access import Role
from interlock.wire.batches import BatchAddition, BatchJobs, BatchList, BatchSpec, BatchView
from interlock.wire.jobs import JobSpec

BATCH = id_of("batch", UnknownBatch)
_JOBS = Annotated[tuple[JobSpec, ...], Meta(max_length=MAX_BULK)]
_REFUSED = (InvalidJob, TooLarge, InvalidLimit, UnknownLimit, RequestIdReused)


class NewBatch(Input, frozen=True, kw_only=True):
    """A batch to create, with its first jobs."""

    spec: BatchSpec = BatchSpec()
    jobs: _JOBS = ()
    close: Annotated[bool, Meta(description="These are all of its jobs.")] = False
    request_id: RequestId | None = None


class MoreJobs(Input, frozen=True, kw_only=True):
    """Jobs to add to a batch."""

    jobs: _JOBS = ()
    close: Annotated[bool, Meta(description="These are the last ones.")] = False
    request_id: RequestId | None = None


class BatchRequest(ReasonedRequest, frozen=True, kw_only=True):
    """Cancel a batch."""


class BatchesQuery(Input, frozen=True, kw_only=True):
    """Page of batches."""

    limit: Limit = 50
    cursor: Cursor = ""


class BatchJobsQuery(Input, frozen=True, kw_only=True):
    """Page of the jobs of a batch."""

    cursor: Cursor = ""


CREATE_BATCH = Operation(
    name="createBatch",
    request="POST /api/batches",
    summary="Create a batch of jobs, with a callback that is submitted when all have ended.",
    role=Role.OPERATOR,
    input=NewBatch,
    output=BatchAddition,
    status=201,
    errors=_REFUSED,
    example={
        "spec": {"description": "monthly invoices", "callback": {"task": "shop.report"}},
        "jobs": [{"task": "shop.invoice", "input": {"customer": 17}}],
        "close": True,
        "request_id": "invoices-2026-11",
    },
    answer_example={"batch_id": "b_0123456789ab", "ids": ["j_0123456789ab"]},
)

ADD_TO_BATCH = Operation(
    name="addToBatch",
    request="POST /api/batches/{batch_id}/jobs",
    summary="Add jobs to an open batch, all or none; close it with the last ones.",
    role=Role.OPERATOR,
    parameters=BATCH,
    input=MoreJobs,
    output=BatchAddition,
    errors=(*_REFUSED, UnknownBatch, TerminalState, TransitionNotAllowed),
    example={
        "jobs": [{"task": "shop.invoice", "input": {"customer": 18}}],
        "close": True,
        "request_id": "invoices-2026-11-2",
    },
    answer_example={"batch_id": "b_0123456789ab", "ids": ["j_0123456789ab"]},
)

LIST_BATCHES = Operation(
    name="listBatches",
    request="GET /api/batches",
    summary="List batches with their progress, newest first.",
    role=Role.VIEWER,
    input=BatchesQuery,
    output=BatchList,
    links=(Link("listBatches", "cursor", "$response.body#/cursor"),),
)

GET_BATCH = Operation(
    name="getBatch",
    request="GET /api/batches/{batch_id}",
    summary="Show a batch: its state, and how many of its jobs have ended by outcome.",
    role=Role.VIEWER,
    parameters=BATCH,
    output=BatchView,
    errors=(UnknownBatch,),
)

LIST_BATCH_JOBS = Operation(
    name="listBatchJobs",
    request="GET /api/batches/{batch_id}/jobs",
    summary="List the jobs of a batch in the order of their submission, with their outcomes.",
    role=Role.VIEWER,
    parameters=BATCH,
    input=BatchJobsQuery,
    output=BatchJobs,
    errors=(UnknownBatch,),
)

CANCEL_BATCH = Operation(
    name="cancelBatch",
    request="POST /api/batches/{batch_id}/cancel",
    summary="Cancel all jobs of a batch that have not ended; its callback is not submitted.",
    role=Role.OPERATOR,
    parameters=BATCH,
    input=BatchRequest,
    output=BatchView,
    errors=(UnknownBatch, TerminalState, TransitionNotAllowed, RequestIdReused),
    example={"reason": "the prices were wrong", "request_id": "cancel-17"},
)
