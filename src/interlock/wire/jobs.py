"""Jobs, attempts, queues and trees of jobs: what is submitted, and how each is shown."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Literal, Protocol, TypeAlias, cast

import msgspec
from msgspec import Meta

from interlock.wire.figures import Figure
from interlock.wire.runner import Progress, Secretive
from interlock.wire.views import View

IfFails: TypeAlias = Literal["ignore", "cancel_siblings", "fail_parent"]


SHELL = "interlock.shell"
"""The task that runs steps, and the only one that a change from a fork may use."""


class RetryRule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Retries of one failure class: how many, and with which backoff."""

    retries: int = 0
    first_pause_s: float = 1.0
    factor: float = 2.0
    longest_pause_s: float = 300.0
    jitter: float = 0.2
    """Maximum share by which a pause is longer, so that many retries do not start at once."""


class _PlainOrRaw(Protocol):
    """What type checkers know of an input: plain values are taken and become JSON when it is submitted."""

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
    timeout_s: float | None = None
    """Timeout of one attempt."""
    job_timeout_s: float | None = None
    """Timeout of all attempts together, from the start of the first."""
    retries: int | None = None
    """Retries of failures of the classes user and timeout; a short form of `retry`."""
    retry: dict[str, RetryRule] = {}
    """Rules for failure classes that differ from the default."""
    losses: int | None = None
    """How often the job may lose its worker before it fails."""
    secrets: tuple[str, ...] = ()
    """Names of the secrets that its runner receives; the orchestrator has the values."""
    secrets_withheld: bool = False
    """The secrets are withheld, because the author of the job may not see them."""
    trace: dict[str, str] = {}


class LeaseView(View, frozen=True, kw_only=True, omit_defaults=True):
    """A lease, without its secret."""

    state: str
    runner_id: str
    granted_at: datetime
    expires_at: datetime


class FailureView(View, frozen=True, kw_only=True, omit_defaults=True):
    """Why an attempt failed."""

    failure_class: str
    error: str
    exception: str = ""
    exit_code: int | None = None
    details: str = ""


class AttemptView(View, frozen=True, kw_only=True, omit_defaults=True):
    """One try at one shard."""

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
    forced: bool = False
    """It was cancelled without its runner's word that it has stopped."""
    confirmed_dead: bool | None = None
    """After a cancel of what was active: whether all of it is known to be gone."""
    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    """What a canceled attempt has returned after it was asked to stop; the cancel stands."""


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
    description: str = msgspec.field(default_factory=str)  # a factory: it is shown also when it is empty
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
    stop_reason: str | None = None
    cancel_reason: str | None = None
    """Why it was canceled, in the words of whoever did it."""
    losses: int = 0
    failure: FailureView | None = None
    """Why it failed."""
    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    """What it returned; a list of what each shard returned when there are several."""
    input: msgspec.Raw = msgspec.Raw(b"{}")
    attempts: tuple[AttemptView, ...] = ()
    origin_job_id: str | None = None
    """The job that this one does again."""
    schedule: str | None = None
    """The schedule that has submitted it."""
    scheduled_for: datetime | None = None
    """The fire time of the schedule that it was submitted for."""
    secrets: tuple[str, ...] = ()
    """Names only."""
    secrets_withheld: bool = False


class QueueView(View, frozen=True, kw_only=True, omit_defaults=True):
    """A queue: what is in it, and whether it is paused. Counts are capped; `capped` says when."""

    name: str
    state: str = "open"
    """`paused`: its jobs are not given out."""
    pending: int = 0
    running: int = 0
    capped: bool = False
    oldest_created_at: datetime | None = None
    """When the oldest pending job was submitted; null where that is not known without a long search."""
    reason: str = ""
    """Why it is paused."""
    paused_at: datetime | None = None
    paused_by: str = ""
    workers: int | None = None
    """Live workers that take its jobs; null where that is not known, or not shown to this token."""
    slots: int | None = None
    """How many tasks these workers execute at once, of all their queues."""
    busy: int | None = None
    lately: Figure | None = None
    """What has happened to its jobs in the last hour; null where no server counts."""


class QueueHold(View, frozen=True, kw_only=True, omit_defaults=True):
    """Whether the jobs of a queue are given out."""

    name: str
    state: str
    """`open` or `paused`."""
    reason: str = ""
    by: str = ""
    """Who has paused or resumed it."""
    at: datetime | None = None
    """When it was paused or resumed; null where it never was."""


MAX_CHILDREN = 1_000
"""How many children are submitted at once."""
MAX_CHILD_NAME = 200
MAX_NODES = 5_000
"""How many jobs of a tree are shown at most."""
NODES = 1_000


class NewChildren(Secretive, frozen=True, kw_only=True):
    """Children that the handler of an attempt submits."""

    token: str
    """Of the lease of the attempt."""
    runner_id: str
    name: Annotated[str, Meta(min_length=1, max_length=MAX_CHILD_NAME)]
    """The same again under the same name makes no others, whichever attempt at the shard says it."""
    jobs: Annotated[tuple[JobSpec, ...], Meta(min_length=1, max_length=MAX_CHILDREN)]


class Born(msgspec.Struct, frozen=True, kw_only=True):
    """The children, in the order in which they were submitted."""

    ids: tuple[str, ...]


class ChildView(View, frozen=True, kw_only=True, omit_defaults=True):
    """A child as its parent is told of it."""

    id: str
    task: str
    state: str
    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    """What it returned, once it has."""
    failure: FailureView | None = None
    stop_reason: str | None = None
    cost: float | None = None


class ChildPage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Some children of a job, oldest first; `cursor` goes on after them and is empty at the end."""

    children: tuple[ChildView, ...]
    cursor: str = ""


class TreeNode(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One job of a tree."""

    id: str
    task: str
    state: str
    queue: str
    depth: int = 0
    """From the job that the tree is shown of."""
    parent_job_id: str | None = None
    description: str = ""
    created_at: datetime
    started_at: datetime | None = None
    completed_at: datetime | None = None
    progress: Progress | None = None
    waits_for: str = ""
    """What holds it back: its `children`, or a `place` in its tree."""
    failure: FailureView | None = None
    stop_reason: str | None = None
    cost: float | None = None
    """What its own attempts have cost."""
    tree_cost: float | None = None
    """That, and what everything below it has cost."""
    children: int = 0
    """How many it has submitted, shown here or not."""


class TreeView(View, frozen=True, kw_only=True, omit_defaults=True):
    """A job and everything below it, as one reads it from top to bottom."""

    root_id: str
    nodes: tuple[TreeNode, ...]
    states: dict[str, int] = msgspec.field(default_factory=dict)
    """How many of these jobs are in which state."""
    cut: bool = False
    """There are more than are shown, or may be seen; costs and states are those of the jobs that are."""


class Waiting(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that has not ended."""

    entity: str
    state: str
    sentence: str
    turn: str = ""
    """Who has to do something next."""
    deadline_at: datetime | None = None
    """When something happens even if nobody does."""
    deadline_event: str = ""
    accepts: tuple[str, ...] = ()
    """What may happen to it now."""


class Explanation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a job waits for, or how it ended."""

    job_id: str
    state: str
    sentence: str
    lines: tuple[Waiting, ...] = ()
    next_deadline_at: datetime | None = None
    blocked: str = ""
    """Why no live worker takes it although it is ready; empty where one may."""
    todo: str = ""
