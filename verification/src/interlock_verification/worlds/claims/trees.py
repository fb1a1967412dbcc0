"""Claims about trees of jobs: parents, children, and the quota of each depth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from interlock.lifecycles import job
from interlock_verification.claims import FactClaim


class CreatedChild(NamedTuple):
    """A created job with a parent."""

    job_id: str
    parent: str
    parent_state: str
    """The state of its parent; empty if unknown."""

    def __str__(self) -> str:
        return f"{self.job_id} is made, and its parent {self.parent} is {self.parent_state}"


class CompletedParent(NamedTuple):
    """A completed job whose handler waits for its children."""

    job_id: str
    children: Mapping[str, str]
    """The states of its children."""

    def __str__(self) -> str:
        return f"{self.job_id} has completed, and its children are {dict(self.children)}"


class TreeDepth(NamedTuple):
    """The jobs at work at one depth of a tree."""

    root_id: str
    depth: int
    working: int
    quota: int

    def __str__(self) -> str:
        return f"{self.working} are at work at depth {self.depth} of {self.root_id}, not {self.quota}"


class StoppedSubtree(NamedTuple):
    """A job whose children were stopped."""

    parent: str
    running: Mapping[str, str]
    """The states of its children that neither have ended nor are being stopped."""

    def __str__(self) -> str:
        return f"the parent {self.parent} was stopped, and its children are {dict(self.running)}"


class FoundChildren(NamedTuple):
    """The children that a handler found after waiting for them."""

    job_id: str
    submitted: Sequence[str]
    found: Mapping[str, bool]
    """Whether each found child has ended."""

    def __str__(self) -> str:
        return f"{self.job_id} has submitted {list(self.submitted)} and finds {dict(self.found)}"


class OpenTree(NamedTuple):
    """A tree at the end of an episode, when every job has ended."""

    root_id: str
    closed: bool

    def __str__(self) -> str:
        return f"the tree of {self.root_id} is {'closed' if self.closed else 'open'}"


TREE_CLAIMS: Sequence[FactClaim[Any]] = (
    FactClaim(
        "tree.child_of_unended",
        "a child is created only while its parent has not ended",
        CreatedChild,
        lambda child: child.parent_state not in job.ENDED,
    ),
    FactClaim(
        "tree.parent_waits",
        "a job that waits for its children completes after them",
        CompletedParent,
        lambda parent: all(state in job.ENDED for state in parent.children.values()),
    ),
    FactClaim(
        "tree.quota",
        "a tree has at most its quota of running jobs at each depth",
        TreeDepth,
        lambda depth: depth.working <= depth.quota,
    ),
    FactClaim(
        "tree.stopped_together",
        "after a job was stopped none of its children continues",
        StoppedSubtree,
        lambda stopped: not stopped.running,
    ),
    FactClaim(
        "tree.children_are_found",
        "a handler finds every child that it has submitted, and has waited for",
        FoundChildren,
        lambda found: set(found.submitted) <= set(found.found) and all(found.found.values()),
    ),
    FactClaim(
        "tree.closed", "a tree in which everything has ended is closed", OpenTree, lambda tree: tree.closed
    ),
)
