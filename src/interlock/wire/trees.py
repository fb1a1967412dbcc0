"""Trees of jobs: what a handler submits as children, what it is told of them, and how a tree is shown."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import Meta

from interlock.wire.jobs import FailureView, JobSpec
from interlock.wire.runner import Progress, Secretive
from interlock.wire.views import View

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
