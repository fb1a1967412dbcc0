"""Jobs, attempts, queues and trees of jobs: specifications and views."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Literal, Protocol, TypeAlias, cast

import msgspec
from msgspec import Meta

from interlock.wire.figures import Figure
from interlock.wire.runner import Progress, Secretive
from interlock.wire.views import View
from interlock.wire.waits import OpenWait

IfFails: TypeAlias = Literal["ignore", "cancel_siblings", "fail_parent"]


SHELL = "interlock.shell"
"""The task that runs shell steps, and the only one that a change from a fork may use."""


class RetryRule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Retries of one failure class: how many, and with which backoff."""

    retries: int = 0
    first_pause_s: float = 1.0
    factor: float = 2.0
    longest_pause_s: float = 300.0
    jitter: float = 0.2
    """Maximum share by which a pause is longer, so that many retries do not start at once."""


UniquePolicy: TypeAlias = Literal["reject", "existing", "replace", "debounce"]
UniqueScope: TypeAlias = Literal["task", "queue"]
Submission: TypeAlias = Literal["created", "existing", "replaced", "debounced"]
"""Effect of a submission: it created a job, or found or changed the one that has its unique key."""


class SubmittedJob(msgspec.Struct, frozen=True, gc=False):
    """The job that a submission has led to."""

    id: str
    how: Submission = "created"


class Unique(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """At most one job with the same key: its key, the jobs that count, and the action on a duplicate."""

    key: str = ""
    """The key; without one it is made of the arguments."""
    by: tuple[str, ...] = ()
    """Names of the arguments that make the key; without any all of them do."""
    scope: UniqueScope = "task"
    """Scope of the key: jobs of the task, or all jobs of the queue."""
    states: tuple[str, ...] = ()
    """States in which an existing job counts. Without any: those of a job that has not ended; with the
    policies `replace` and `debounce` only PENDING, since a job that runs cannot be changed."""
    within: str = ""
    """Duration for which a job counts after its end, such as `1h`: a completed one, or as `states` says."""
    policy: UniquePolicy = "reject"
    """If there is such a job: raise `DuplicateJob`, return it, replace its input, or also delay it anew."""


AfterNeed: TypeAlias = Literal["all", "any"]
AfterEnd: TypeAlias = Literal["success", "end"]
AfterPolicy: TypeAlias = Literal["cancel", "skip"]
MAX_AFTER = 1_000
"""Maximum number of jobs that one job comes after, and of jobs that come after one."""


class After(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The jobs that a job comes after, and which of their ends it waits for."""

    jobs: tuple[str, ...]
    """Ids. `#0` is the first job of the same request, `#1` the second one, and so on; only earlier ones."""
    need: AfterNeed = "all"
    """Whether it waits for all of them, or for the first one."""
    on: AfterEnd = "success"
    """End that counts: `success`, or any `end`. A skipped job counts as a success."""
    otherwise: AfterPolicy = "cancel"
    """If its condition can no longer be met: `cancel` it and the jobs after it, or `skip` it, so that jobs
    after it continue."""
    into: str = ""
    """Argument that gets the result of the one job that it comes after, or the list of the results of
    several. A job that has not completed has the result null."""
    listed: bool = False
    """`into` gets a list also of one result."""


class _PlainOrRaw(Protocol):
    """The type of an input for type checkers: plain values are accepted and become JSON on submission."""

    def __get__(self, spec: object, owner: object) -> msgspec.Raw: ...
    def __set__(self, spec: object, value: object) -> None: ...


class JobSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A job to submit."""

    task: str
    if TYPE_CHECKING:
        input: _PlainOrRaw = cast("_PlainOrRaw", None)
    else:
        input: msgspec.Raw = msgspec.Raw(b"{}")
    """JSON: an object with arguments by name, or any value that the task expects."""
    queue: str = "default"
    priority: int = 0
    labels: tuple[str, ...] = ()
    """Labels that a worker must have to get the job."""
    worker_count: int = 1
    parent_job_id: str | None = None
    if_fails: IfFails = "ignore"
    """Effect on parent and siblings if it does not succeed: none; cancel the siblings; or also fail the
    parent."""
    description: str = ""
    delay_s: float = 0.0
    at: datetime | None = None
    """Start no earlier than at this time, which has a time zone; instead of `delay_s`."""
    not_after: datetime | None = None
    """If no worker has started it before this time, the job fails as expired."""
    start_within_s: float | None = None
    """The same as a duration, counted from when it may start; instead of `not_after`."""
    unique: Unique | None = None
    """At most one job with the same key."""
    timeout_s: float | None = None
    """Timeout of one attempt."""
    job_timeout_s: float | None = None
    """Timeout of all attempts together, from the start of the first."""
    retries: int | None = None
    """Retries of failures of the classes user and timeout; a short form of `retry`."""
    retry: dict[str, RetryRule] = {}
    """Rules for failure classes that differ from the default."""
    losses: int | None = None
    """Maximum number of retries after the loss of a worker; they do not count against `retries`."""
    secrets: tuple[str, ...] = ()
    """Names of the secrets that its runner receives; the orchestrator has the values."""
    secrets_withheld: bool = False
    """The secrets are withheld, because the author of the job may not see them."""
    trace: dict[str, str] = {}
    limits: tuple[str, ...] = ()
    """Limits that the job counts against, such as `vendor-x`; each must be declared."""
    weight: int = 1
    """Number of slots of each limit that it takes."""
    metadata: dict[str, str] = {}
    """Texts by name for middleware and handlers, such as a tenant; children inherit them."""
    after: After | None = None
    """Jobs that have to end before it may start."""

    def with_metadata(self, **metadata: str) -> JobSpec:
        """Return the spec with more metadata.

        A name that it has already gets the new text.
        """
        return msgspec.structs.replace(self, metadata={**self.metadata, **metadata})


def belong_together(specs: Iterable[JobSpec]) -> bool:
    """Return whether some jobs follow others of the same request (`#0`)."""
    return any(name.startswith("#") for spec in specs if spec.after for name in spec.after.jobs)


class LeaseView(View, frozen=True, kw_only=True, omit_defaults=True):
    """A lease, without its secret."""

    state: str
    runner_id: str
    granted_at: datetime
    expires_at: datetime


class FailureView(View, frozen=True, kw_only=True, omit_defaults=True):
    """Cause of a failed attempt."""

    failure_class: str
    error: str
    exception: str = ""
    exit_code: int | None = None
    details: str = ""


class AttemptView(View, frozen=True, kw_only=True, omit_defaults=True):
    """An attempt at a shard."""

    id: str
    shard: int
    index: int
    state: str
    created_at: datetime
    ready_at: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    deadline_at: datetime | None = None
    lease: LeaseView | None = None
    failure: FailureView | None = None
    progress: Progress | None = None
    cost: float | None = None
    snoozed_until: datetime | None = None
    """The handler gave it back, to run again at this time."""
    forced: bool = False
    """The attempt was canceled without confirmation that it stopped."""
    confirmed_dead: bool | None = None
    """After a cancel of an active attempt: whether all its processes are known to be dead."""
    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    """Value that a canceled attempt returned after the request to stop; it stays canceled."""


class JobView(View, frozen=True, kw_only=True, omit_defaults=True):
    """A job as it is shown everywhere."""

    id: str
    state: str
    version: int
    task: str
    queue: str
    created_at: datetime
    updated_at: datetime
    priority: int = 0
    labels: tuple[str, ...] = ()
    description: str = msgspec.field(default_factory=str)  # a factory, so that an empty text is shown too
    parent_job_id: str | None = None
    run_id: str | None = None
    """The run that it belongs to; a job of a run has no parent."""
    depth: int = msgspec.field(default_factory=int)
    worker_count: int = 1
    children: int = 0
    started_at: datetime | None = None
    completed_at: datetime | None = None
    ready_at: datetime | None = None
    deadline_at: datetime | None = None
    not_after: datetime | None = None
    """If no worker has started it before this time, it fails as expired."""
    unique_key: str | None = None
    """Unique key in readable form."""
    unique: Unique | None = None
    """The rule of its unique key: window, scope and policy."""
    stop_reason: str | None = None
    cancel_reason: str | None = None
    """Reason of the cancel, as given in the request."""
    losses: int = 0
    failure: FailureView | None = None
    """Cause of the failure."""
    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    """Return value; with several shards the list of their values."""
    input: msgspec.Raw = msgspec.Raw(b"{}")
    attempts: tuple[AttemptView, ...] = ()
    origin_job_id: str | None = None
    """The job that this job retries."""
    schedule: str | None = None
    """The schedule that submitted it."""
    scheduled_for: datetime | None = None
    """The fire time of the schedule that it was submitted for."""
    secrets: tuple[str, ...] = ()
    """Names only."""
    secrets_withheld: bool = False
    metadata: dict[str, str] = msgspec.field(default_factory=dict)
    """Texts by name that the job was submitted with."""
    limits: tuple[str, ...] = ()
    """Limits that it counts against."""
    weight: int = 1
    """Number of slots of each limit that it takes."""
    admitted_at: datetime | None = None
    """Since when it holds slots of its limits; null while it waits for them, or has none."""
    after: After | None = None
    """Jobs that it comes after."""
    waits_for: tuple[str, ...] = ()
    """Jobs of `after` that it still waits for."""
    followers: int = 0
    """Number of jobs that come after it."""
    waits: tuple[OpenWait, ...] = ()
    """Signals and approvals that its handler waits for."""
    batch_id: str | None = None
    """The batch that it belongs to."""


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Input of an alert task: a job that has failed and has no try left."""

    job_id: str
    task: str
    queue: str
    failed_at: datetime
    failure_class: str = ""
    error: str = ""
    attempts: int = 0
    metadata: dict[str, str] = {}


class DeadLetterView(View, frozen=True, kw_only=True, omit_defaults=True):
    """A job that has failed with no retries left, and whether it was retried or discarded."""

    id: str
    """The id of the job."""
    state: str
    """`open`, `retried` or `discarded`."""
    job: JobView
    retried_as: str | None = None
    """The job that does it again."""
    edited: bool = False
    """Whether it was retried with another input."""
    reason: str = ""
    by: str = ""
    at: datetime | None = None
    """Time of the retry or the discard."""


class QueueView(View, frozen=True, kw_only=True, omit_defaults=True):
    """A queue: its jobs, and whether it is paused. Counts are capped; `capped` says when."""

    name: str
    state: str = "open"
    """`paused`: the orchestrator grants none of its jobs."""
    pending: int = 0
    running: int = 0
    capped: bool = False
    oldest_created_at: datetime | None = None
    """Submission time of the oldest pending job; null where finding it would take a long search."""
    oldest_ready_at: datetime | None = None
    """Time since which a job could have been started; null in a paused queue, without such a job, or where
    finding it would take a long search."""
    reason: str = ""
    """Reason of the pause."""
    paused_at: datetime | None = None
    paused_by: str = ""
    workers: int | None = None
    """Live workers that take its jobs; null where unknown, or not shown to this token."""
    slots: int | None = None
    """Number of slots of these workers, for all their queues."""
    busy: int | None = None
    lately: Figure | None = None
    """Figures of its jobs in the last hour; null where no server counts."""


class QueueHold(View, frozen=True, kw_only=True, omit_defaults=True):
    """Hold of a queue: whether its jobs are granted."""

    name: str
    state: str
    """`open` or `paused`."""
    reason: str = ""
    by: str = ""
    """Principal that paused or resumed it."""
    at: datetime | None = None
    """Time of the last pause or resume; null where there was none."""


MAX_CHILDREN = 1_000
"""Maximum number of children in one request."""
MAX_CHILD_NAME = 200
MAX_NODES = 5_000
"""Maximum number of jobs in a view of a tree."""
NODES = 1_000


class NewChildren(Secretive, frozen=True, kw_only=True):
    """Children that the handler of an attempt submits."""

    token: str
    """Token of the lease of the attempt."""
    runner_id: str
    name: Annotated[str, Meta(min_length=1, max_length=MAX_CHILD_NAME)]
    """Name of the request: repeating it under the same name creates nothing, in any attempt at the shard."""
    jobs: Annotated[tuple[JobSpec, ...], Meta(min_length=1, max_length=MAX_CHILDREN)]


class Born(msgspec.Struct, frozen=True, kw_only=True):
    """The children, in the order in which they were submitted."""

    ids: tuple[str, ...]


class ChildView(View, frozen=True, kw_only=True, omit_defaults=True):
    """A child as its parent sees it."""

    id: str
    task: str
    state: str
    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    """Return value, once the child has completed."""
    failure: FailureView | None = None
    stop_reason: str | None = None
    cost: float | None = None


class ChildPage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A page of children of a job, oldest first; `cursor` is for the next page, and is empty at the end."""

    children: tuple[ChildView, ...]
    cursor: str = ""


class PredecessorPage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A page of the jobs that a job comes after, in their order; `cursor` is for the next page."""

    jobs: tuple[ChildView, ...]
    cursor: str = ""


class TreeNode(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job of a tree."""

    id: str
    task: str
    state: str
    queue: str
    depth: int = 0
    """Depth below the root of this view."""
    parent_job_id: str | None = None
    description: str = ""
    created_at: datetime
    started_at: datetime | None = None
    completed_at: datetime | None = None
    progress: Progress | None = None
    waits_for: str = ""
    """Reason why it waits: for its `children`, a `place` in its tree, a `signal`, or an `approval`."""
    failure: FailureView | None = None
    stop_reason: str | None = None
    cost: float | None = None
    """Cost of its own attempts."""
    tree_cost: float | None = None
    """Cost of its attempts and of all its descendants."""
    children: int = 0
    """Number of its children, shown here or not."""


class TreeView(View, frozen=True, kw_only=True, omit_defaults=True):
    """A job and its descendants, in depth-first order."""

    root_id: str
    nodes: tuple[TreeNode, ...]
    states: dict[str, int] = msgspec.field(default_factory=dict)
    """Number of these jobs by state."""
    cut: bool = False
    """Jobs are left out or hidden from this token; costs and states cover only the jobs shown."""


class Waiting(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An entity that has not ended."""

    entity: str
    state: str
    sentence: str
    turn: str = ""
    """Owner of the next step."""
    deadline_at: datetime | None = None
    """Time of the next timer, which fires without any request."""
    deadline_event: str = ""
    accepts: tuple[str, ...] = ()
    """Events that are allowed now."""


class Explanation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Reason why a job waits, or how it ended."""

    job_id: str
    state: str
    sentence: str
    lines: tuple[Waiting, ...] = ()
    next_deadline_at: datetime | None = None
    blocked: str = ""
    """Reason why no live worker takes the job although it is ready; empty where one may."""
    todo: str = ""
