"""Signals and approvals: send a signal to a job; list, approve and reject requests of jobs."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from interlock.api.messages import Cursor, Input, Limit, Output, RequestId
from interlock.api.operation import Link, Operation, QueueConfinement, id_of
from interlock.errors import (
    InvalidSignal,
    LeaseExpired,
    LeaseRevoked,
    MailboxFull,
    NotAllowed,
    RequestIdReused,
    TerminalState,
    TooLarge,
    TransitionNotAllowed,
    UnknownApproval,
    UnknownJob,
    UnknownLease,
    WrongRunner,
)
from interlock.wire.access import Role
from interlock.wire.waits import (
    MAX_COMMENT,
    ApprovalView,
    SignalName,
    SignalView,
    WaitAnswer,
    WaitRequest,
)

JOB = id_of("job", UnknownJob)
APPROVAL = id_of(
    "approval", UnknownApproval, meaning="The id of an approval, or of a job with one open approval."
)


class NewSignal(Input, frozen=True, kw_only=True):
    """A signal to a job."""

    name: SignalName
    data: Annotated[msgspec.Raw, Meta(description="Data for the handler, as JSON.")] = msgspec.Raw(b"null")
    request_id: RequestId | None = None


class ApprovalsQuery(Input, frozen=True, kw_only=True):
    """Filter and page of a list of approvals."""

    ended: Annotated[bool, Meta(description="Include approvals that were answered or have expired.")] = False
    job_id: Annotated[str, Meta(max_length=64, description="Only approvals of this job.")] = ""
    limit: Limit = 50
    cursor: Cursor = ""


class ApprovalPage(Output, frozen=True, kw_only=True):
    """Approvals, newest first. `cursor` is for the next page, and is empty at the end.

    A page can have fewer approvals than its limit, or none, and still a cursor. Continue with the cursor.
    """

    approvals: tuple[ApprovalView, ...]
    cursor: str


class ReplyRequest(Input, frozen=True, kw_only=True):
    """An answer to an approval."""

    comment: Annotated[
        str, Meta(max_length=MAX_COMMENT, description="Comment for the handler and the journal.")
    ] = ""
    request_id: RequestId | None = None


SIGNAL_JOB = Operation(
    name="signalJob",
    request="POST /api/jobs/{job_id}/signals",
    summary="Send a signal to a job; it is kept until the handler waits for it.",
    role=Role.SUBMITTER,
    confined=QueueConfinement.HIDES,
    parameters=JOB,
    input=NewSignal,
    output=SignalView,
    errors=(UnknownJob, InvalidSignal, TooLarge, MailboxFull, TerminalState, RequestIdReused),
    example={"name": "paid", "data": {"sum": 3}, "request_id": "paid-17"},
)

LIST_APPROVALS = Operation(
    name="listApprovals",
    request="GET /api/approvals",
    summary="List approvals that jobs wait for, newest first.",
    role=Role.VIEWER,
    confined=QueueConfinement.HIDES,
    input=ApprovalsQuery,
    output=ApprovalPage,
    links=(Link("listApprovals", "cursor", "$response.body#/cursor"),),
)

GET_APPROVAL = Operation(
    name="getApproval",
    request="GET /api/approvals/{approval_id}",
    summary="Show an approval: the question, its approvers, and the answer.",
    role=Role.VIEWER,
    confined=QueueConfinement.HIDES,
    parameters=APPROVAL,
    output=ApprovalView,
    errors=(UnknownApproval,),
)


def _reply(verb: str, summary: str) -> Operation[ReplyRequest, ApprovalView]:
    return Operation(
        name=f"{verb}Approval",
        request=f"POST /api/approvals/{{approval_id}}/{verb}",
        summary=summary,
        role=Role.OPERATOR,
        confined=QueueConfinement.HIDES,
        parameters=APPROVAL,
        input=ReplyRequest,
        output=ApprovalView,
        errors=(UnknownApproval, NotAllowed, TransitionNotAllowed, TerminalState, RequestIdReused),
        fires=("job_wait", verb),
        example={"comment": "looks good", "request_id": f"{verb}-17"},
    )


APPROVE_APPROVAL = _reply("approve", "Approve a request of a job; the job continues.")

REJECT_APPROVAL = _reply("reject", "Reject a request of a job; its handler gets the answer.")

AWAIT_SIGNAL = Operation(
    name="awaitSignal",
    request="POST /api/runner/waits",
    summary="Wait for a signal or an approval, under the lease of an attempt; idempotent per number.",
    role=Role.RUNNER,
    confined=QueueConfinement.LEASED,
    input=WaitRequest,
    output=WaitAnswer,
    errors=(LeaseExpired, LeaseRevoked, UnknownLease, WrongRunner, InvalidSignal),
    by_claim=True,
    example={
        "token": "j_0123456789ab.1.1.5f1c0d0a9b8e4c7d6a5b4c3d2e1f0a9b",
        "runner_id": "runner-7",
        "name": "paid",
        "number": 1,
        "timeout_s": 7_200.0,
    },
    answer_example={"id": "j_0123456789ab.signal.paid.1", "state": "WAITING"},
)
