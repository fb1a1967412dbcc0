"""Jobs, their queues, trees and attempts: submit, list, show, cancel and retry, singly or by filter."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from msgspec import Meta

from interlock.api.messages import (
    ActionAnswer,
    CountView,
    Cursor,
    HistoryPage,
    HistoryQuery,
    Input,
    Limit,
    Output,
    PageQuery,
    Reason,
    ReasonedRequest,
    RequestId,
)
from interlock.api.operation import Link, Operation, Parameter, QueueConfinement, id_of
from interlock.errors import (
    BadFilter,
    BadRequest,
    DuplicateJob,
    InvalidJob,
    LeaseExpired,
    LeaseRevoked,
    MessageRefused,
    NotAllowed,
    RequestIdReused,
    TerminalState,
    TooLarge,
    TransitionNotAllowed,
    UnknownAttempt,
    UnknownJob,
    UnknownLease,
    WrongRunner,
)
from interlock.wire.access import (
    Role,
)
from interlock.wire.artifacts import LEASE, RUNNER
from interlock.wire.jobs import (
    MAX_NODES,
    NODES,
    AttemptView,
    Born,
    ChildPage,
    Explanation,
    JobSpec,
    JobView,
    NewChildren,
    PredecessorPage,
    QueueHold,
    QueueView,
    Submission,
    TreeView,
)

_LEASED = (UnknownLease, LeaseExpired, LeaseRevoked, WrongRunner, MessageRefused, BadRequest)

JOB = id_of("job", UnknownJob)


MAX_BULK = 1_000

FilterText = Annotated[
    str, Meta(max_length=2_000, description="Filter, such as `state:failed queue:ci since:1h`.")
]


class OneJob(JobSpec, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One job to submit, optionally with a request id."""

    request_id: RequestId | None = None

    def spec(self) -> JobSpec:
        """Return the job without the request id, which is not part of it."""
        return JobSpec(**{name: getattr(self, name) for name in JobSpec.__struct_fields__})


class ManyJobs(Input, frozen=True, kw_only=True):
    """Several jobs to submit together."""

    jobs: Annotated[tuple[JobSpec, ...], Meta(min_length=1, max_length=MAX_BULK)]
    request_id: RequestId | None = None


class CancelRequest(ReasonedRequest, frozen=True, kw_only=True):
    """Stop a job."""


class RetryRequest(Input, frozen=True, kw_only=True):
    """Retry an ended job."""

    request_id: RequestId | None = None


class ActionRequest(Input, frozen=True, kw_only=True):
    """An action on every job that matches a filter."""

    filter: FilterText
    action: Literal["cancel", "retry"]
    dry_run: Annotated[bool, Meta(description="Only list the jobs that would change.")] = False
    limit: Limit = 100
    reason: Reason = ""
    request_id: RequestId | None = None


class JobsQuery(Input, frozen=True, kw_only=True):
    """Filter and page of jobs."""

    q: FilterText = ""
    limit: Limit = 50
    cursor: Cursor = ""


class AttemptsQuery(Input, frozen=True, kw_only=True):
    """The job of the attempts."""

    job: Annotated[str, Meta(min_length=1, max_length=64, description="The id of a job.")]


class Submitted(Output, frozen=True, kw_only=True):
    """Ids of new jobs, in their order; `id` when it is one."""

    ids: tuple[str, ...]
    id: str | None = None
    how: tuple[Submission, ...] = ()
    """Effect of each submission: a job was created, or the one with its unique key was found or changed.
    Empty if all were created.
    """


class JobPage(Output, frozen=True, kw_only=True):
    """Jobs, newest first. `cursor` is for the next page, and is empty at the end.

    A page can have fewer jobs than its limit, or none, and still a cursor: the server stopped after it had
    examined many jobs. Continue with the cursor.
    """

    jobs: tuple[JobView, ...]
    cursor: str
    count: CountView | None = None
    """Number of matches; on the first page only."""


class AttemptList(Output, frozen=True, kw_only=True):
    """The attempts of one job, in their order."""

    job_id: str
    attempts: tuple[AttemptView, ...]


class QueueList(Output, frozen=True, kw_only=True):
    """Queues, by name."""

    queues: tuple[QueueView, ...]


class LogLineView(Output, frozen=True, kw_only=True):
    """A line that an attempt has written. The time is its runner's; the level `gap` marks missing lines."""

    at: datetime
    level: str
    text: str
    shard: int
    attempt: int
    offset: int = 0
    """Position in the log of the attempt, in bytes."""


class LogPage(Output, frozen=True, kw_only=True):
    """Lines in the order in which they arrived. `cursor` is for the next page, and is empty at the end."""

    lines: tuple[LogLineView, ...]
    cursor: str


class Alike(Output, frozen=True, kw_only=True):
    """Jobs of the same task that failed with the same error, ignoring numbers and ids in it."""

    number: int
    """Number of the examined jobs, including the job itself; 0 when it has not failed."""
    looked_at: int
    """Number of failed jobs examined, newest first."""
    more: bool = False
    """Older failed jobs were not examined."""
    since: datetime | None = None
    """Time of the first failure."""
    ids: tuple[str, ...] = ()
    """Ids of the newest, and of the oldest last."""


class QueueRequest(Input, frozen=True, kw_only=True):
    """The queue to pause or resume, and why."""

    queue: Annotated[str, Meta(min_length=1, max_length=64)]
    reason: Reason = ""
    request_id: RequestId | None = None


class TreeQuery(Input, frozen=True, kw_only=True):
    """Size of the view of a tree."""

    limit: Annotated[int, Meta(ge=1, le=MAX_NODES, description="Maximum number of jobs.")] = NODES


class ChildrenQuery(Input, frozen=True, kw_only=True):
    """Page of a list of children."""

    cursor: Cursor = ""


SUBMIT_JOBS = Operation[OneJob | ManyJobs, Submitted](
    name="submitJobs",
    request="POST /api/jobs",
    summary="Submit one job, or up to 1,000 together.",
    role=Role.SUBMITTER,
    confined=QueueConfinement.NAMES,
    input=(OneJob, ManyJobs),
    output=Submitted,
    status=201,
    errors=(InvalidJob, TooLarge, RequestIdReused, DuplicateJob, UnknownJob, TerminalState, NotAllowed),
    example={"task": "shop.send", "input": {"order": 17}, "queue": "mail", "request_id": "order-17"},
    answer_example={"id": "j_0123456789ab", "ids": ["j_0123456789ab"]},
    links=(
        Link("getJob", "job_id"),
        Link("getJobHistory", "job_id"),
        Link("explainJob", "job_id"),
        Link("getJobLogs", "job_id"),
        Link("cancelJob", "job_id"),
        Link("retryJob", "job_id"),
        Link("listAttempts", "job"),
    ),
)

LIST_JOBS = Operation(
    name="listJobs",
    request="GET /api/jobs",
    summary="List jobs, newest first, by a filter.",
    role=Role.VIEWER,
    confined=QueueConfinement.HIDES,
    input=JobsQuery,
    output=JobPage,
    errors=(BadFilter,),
    links=(Link("listJobs", "cursor", "$response.body#/cursor"),),
)

GET_JOB = Operation(
    name="getJob",
    request="GET /api/jobs/{job_id}",
    summary="Show a job with its attempts.",
    role=Role.VIEWER,
    confined=QueueConfinement.HIDES,
    parameters=JOB,
    output=JobView,
    errors=(UnknownJob,),
)

GET_JOB_HISTORY = Operation(
    name="getJobHistory",
    request="GET /api/jobs/{job_id}/history",
    summary="Show the history of a job.",
    role=Role.VIEWER,
    confined=QueueConfinement.HIDES,
    parameters=JOB,
    input=HistoryQuery,
    output=HistoryPage,
    errors=(UnknownJob,),
)

EXPLAIN_JOB = Operation(
    name="explainJob",
    request="GET /api/jobs/{job_id}/explain",
    summary="Explain why a job waits, which role acts next, and when the next deadline is.",
    role=Role.VIEWER,
    confined=QueueConfinement.HIDES,
    parameters=JOB,
    output=Explanation,
    errors=(UnknownJob,),
)

GET_JOB_LOGS = Operation(
    name="getJobLogs",
    request="GET /api/jobs/{job_id}/logs",
    summary="Show the log of a job.",
    role=Role.VIEWER,
    confined=QueueConfinement.HIDES,
    parameters=JOB,
    input=PageQuery,
    output=LogPage,
    errors=(UnknownJob,),
)

CANCEL_JOB = Operation(
    name="cancelJob",
    request="POST /api/jobs/{job_id}/cancel",
    summary="Cancel a job.",
    role=Role.OPERATOR,
    confined=QueueConfinement.HIDES,
    parameters=JOB,
    input=CancelRequest,
    output=JobView,
    errors=(UnknownJob, TransitionNotAllowed, RequestIdReused),
    fires=("job", "cancel"),
    example={"reason": "not needed any more", "request_id": "stop-17"},
)

RETRY_JOB = Operation(
    name="retryJob",
    request="POST /api/jobs/{job_id}/retry",
    summary="Retry a finished job as a new job.",
    role=Role.SUBMITTER,
    confined=QueueConfinement.HIDES,
    parameters=JOB,
    input=RetryRequest,
    output=Submitted,
    status=201,
    errors=(UnknownJob, TransitionNotAllowed, RequestIdReused, DuplicateJob),
    example={"request_id": "again-17"},
    answer_example={"id": "j_0123456789ac", "ids": ["j_0123456789ac"]},
    links=(Link("getJob", "job_id"),),
)

LIST_QUEUES = Operation(
    name="listQueues",
    request="GET /api/queues",
    summary="List queues: jobs that wait and run, workers, the last hour, and whether each is paused.",
    role=Role.VIEWER,
    confined=QueueConfinement.HIDES,
    output=QueueList,
)


def _switch(verb: str, summary: str) -> Operation[QueueRequest, QueueHold]:
    return Operation(
        name=f"{verb}Queue",
        request=f"POST /api/queues/{verb}",
        summary=summary,
        role=Role.OPERATOR,
        confined=QueueConfinement.NAMES,
        input=QueueRequest,
        output=QueueHold,
        errors=(InvalidJob, RequestIdReused),
        example={"queue": "mail", "reason": "the mail server is away", "request_id": f"{verb}-17"},
    )


PAUSE_QUEUE = _switch(
    "pause", "Pause a queue: start none of its jobs until it is resumed; running jobs continue."
)

RESUME_QUEUE = _switch("resume", "Resume a queue.")

GET_JOB_TREE = Operation(
    name="getJobTree",
    request="GET /api/jobs/{job_id}/tree",
    summary="Show a job tree: states, progress and cost.",
    role=Role.VIEWER,
    confined=QueueConfinement.HIDES,
    parameters=JOB,
    input=TreeQuery,
    output=TreeView,
    errors=(UnknownJob,),
)

SUBMIT_CHILDREN = Operation(
    name="submitChildren",
    request="POST /api/runner/children",
    summary="Submit children of a job under the lease of its attempt; idempotent by name.",
    role=Role.RUNNER,
    confined=QueueConfinement.NAMES,
    input=NewChildren,
    output=Born,
    status=201,
    errors=(*_LEASED, InvalidJob, TooLarge, TerminalState, RequestIdReused, DuplicateJob, NotAllowed),
    by_claim=True,
    example={
        "token": "j_0123456789ab.1.1.5f1c0d0a9b8e4c7d6a5b4c3d2e1f0a9b",
        "runner_id": "runner-7",
        "name": "pages",
        "jobs": [{"task": "shop.fetch", "input": {"page": 1}}],
    },
    answer_example={"ids": ["j_0123456789ac"]},
)

LIST_CHILDREN = Operation(
    name="listChildren",
    request="GET /api/runner/children",
    summary="List the children of a job with their results, under the lease of its attempt.",
    role=Role.RUNNER,
    confined=QueueConfinement.LEASED,
    input=ChildrenQuery,
    output=ChildPage,
    errors=_LEASED,
    by_claim=True,
    headers={LEASE: "The token of the lease.", RUNNER: "The runner that holds the lease."},
)

LIST_PREDECESSORS = Operation(
    name="listPredecessors",
    request="GET /api/runner/predecessors",
    summary="List the jobs that a job comes after with their results, under the lease of an attempt at it.",
    role=Role.RUNNER,
    confined=QueueConfinement.LEASED,
    input=ChildrenQuery,
    output=PredecessorPage,
    errors=_LEASED,
    by_claim=True,
    headers={LEASE: "The token of the lease.", RUNNER: "The runner that holds it."},
)

LIST_ALIKE = Operation(
    name="listAlike",
    request="GET /api/jobs/{job_id}/alike",
    summary="Group the newest 1,000 failed jobs by their failure, with counts and times.",
    role=Role.VIEWER,
    confined=QueueConfinement.HIDES,
    parameters=JOB,
    output=Alike,
    errors=(UnknownJob,),
)

ACT_ON_JOBS = Operation(
    name="actOnJobs",
    request="POST /api/jobs/actions",
    summary="Cancel or retry all jobs that match a filter; dry_run only lists them.",
    role=Role.OPERATOR,
    confined=QueueConfinement.HIDES,
    input=ActionRequest,
    output=ActionAnswer,
    errors=(BadFilter, RequestIdReused, UnknownJob),
    example={"filter": "state:failed queue:mail since:1h", "action": "retry", "dry_run": True},
)

LIST_ATTEMPTS = Operation(
    name="listAttempts",
    request="GET /api/attempts",
    summary="List the attempts of a job.",
    role=Role.VIEWER,
    confined=QueueConfinement.HIDES,
    input=AttemptsQuery,
    output=AttemptList,
    errors=(UnknownJob,),
    links=(Link("getAttempt", "attempt_id", "$response.body#/attempts/0/id"),),
)

GET_ATTEMPT = Operation(
    name="getAttempt",
    request="GET /api/attempts/{attempt_id}",
    summary="Show one attempt.",
    role=Role.VIEWER,
    confined=QueueConfinement.HIDES,
    parameters={"attempt_id": Parameter("The id of an attempt: job.shard.index")},
    output=AttemptView,
    errors=(UnknownAttempt,),
)
