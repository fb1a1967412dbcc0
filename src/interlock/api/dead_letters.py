"""Dead letters: list and show failed jobs with no retries left; retry them, also edited, or discard them."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from interlock.api.jobs import FilterText, JobsQuery, Submitted
from interlock.api.messages import (
    ActionAnswer,
    Input,
    Limit,
    Output,
    Reason,
    ReasonedRequest,
    RequestId,
)
from interlock.api.operation import Link, Operation, QueueConfinement, id_of
from interlock.errors import (
    BadFilter,
    InvalidJob,
    RequestIdReused,
    TooLarge,
    TransitionNotAllowed,
    UnknownJob,
)
from interlock.wire.access import Role
from interlock.wire.jobs import DeadLetterView

JOB = id_of("job", UnknownJob)


class DeadLetterPage(Output, frozen=True, kw_only=True):
    """Open dead letters, newest first. `cursor` is for the next page, and is empty at the end.

    A page can have fewer dead letters than its limit, or none, and still a cursor: the server stopped after
    it had examined many failed jobs. Continue with the cursor.
    """

    letters: tuple[DeadLetterView, ...]
    cursor: str


class RetryLetter(Input, frozen=True, kw_only=True):
    """Retry a dead letter, optionally with a new input."""

    input: Annotated[
        msgspec.Raw | msgspec.UnsetType, Meta(description="New input (default: the input of the job).")
    ] = msgspec.UNSET
    reason: Reason = ""
    request_id: RequestId | None = None


class DiscardLetter(ReasonedRequest, frozen=True, kw_only=True):
    """Discard a dead letter."""


class LettersRequest(Input, frozen=True, kw_only=True):
    """An action on every dead letter that matches a filter."""

    filter: FilterText
    action: Literal["retry", "discard"]
    dry_run: Annotated[bool, Meta(description="Only list the dead letters that would change.")] = False
    limit: Limit = 100
    reason: Reason = ""
    request_id: RequestId | None = None


LIST_DEAD_LETTERS = Operation(
    name="listDeadLetters",
    request="GET /api/dead-letters",
    summary="List failed jobs that were neither retried nor discarded, newest first, by a filter.",
    role=Role.VIEWER,
    confined=QueueConfinement.HIDES,
    input=JobsQuery,
    output=DeadLetterPage,
    errors=(BadFilter,),
    links=(Link("listDeadLetters", "cursor", "$response.body#/cursor"),),
)

GET_DEAD_LETTER = Operation(
    name="getDeadLetter",
    request="GET /api/dead-letters/{job_id}",
    summary="Show a dead letter, and whether it was retried or discarded.",
    role=Role.VIEWER,
    confined=QueueConfinement.HIDES,
    parameters=JOB,
    output=DeadLetterView,
    errors=(UnknownJob, TransitionNotAllowed),
)

RETRY_DEAD_LETTER = Operation(
    name="retryDeadLetter",
    request="POST /api/dead-letters/{job_id}/retry",
    summary="Retry a dead letter as a new job, optionally with a new input.",
    role=Role.SUBMITTER,
    confined=QueueConfinement.HIDES,
    parameters=JOB,
    input=RetryLetter,
    output=Submitted,
    status=201,
    errors=(UnknownJob, TransitionNotAllowed, InvalidJob, TooLarge, RequestIdReused),
    fires=("dead_letter", "retry"),
    example={"input": {"order": 17}, "reason": "the address was wrong", "request_id": "again-17"},
    answer_example={"id": "j_0123456789ac", "ids": ["j_0123456789ac"]},
    links=(Link("getJob", "job_id"),),
)

DISCARD_DEAD_LETTER = Operation(
    name="discardDeadLetter",
    request="POST /api/dead-letters/{job_id}/discard",
    summary="Discard a dead letter; its job stays FAILED.",
    role=Role.OPERATOR,
    confined=QueueConfinement.HIDES,
    parameters=JOB,
    input=DiscardLetter,
    output=DeadLetterView,
    errors=(UnknownJob, TransitionNotAllowed, RequestIdReused),
    fires=("dead_letter", "discard"),
    example={"reason": "the customer has left", "request_id": "discard-17"},
)

ACT_ON_DEAD_LETTERS = Operation(
    name="actOnDeadLetters",
    request="POST /api/dead-letters/actions",
    summary="Retry or discard all dead letters that match a filter; dry_run only lists them.",
    role=Role.OPERATOR,
    confined=QueueConfinement.HIDES,
    input=LettersRequest,
    output=ActionAnswer,
    errors=(BadFilter, RequestIdReused, UnknownJob),
    example={"filter": "queue:mail since:1h", "action": "retry", "dry_run": True},
)
