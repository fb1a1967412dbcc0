"""The judge of trees: it knows the children of each job, and the jobs at work at each depth."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from interlock.engine.outbox import SENT, message_in
from interlock.lifecycles import attempt, job
from interlock.store.records import Record
from interlock.systems.orchestrator.cancellation import CancelChildren
from interlock.systems.orchestrator.tree_slots import CANCEL_CHILDREN
from interlock_verification.claims import DecodedJob
from interlock_verification.worlds.claims.trees import (
    CompletedParent,
    CreatedChild,
    FoundChildren,
    StoppedSubtree,
    TreeDepth,
)
from interlock_verification.worlds.network import ClaimWatcher
from interlock_verification.worlds.worlds import BRANCH

_AT_WORK = (attempt.LEASED, *attempt.EXECUTING, attempt.CANCEL_REQUESTED)


class TreeJudge:
    """Observes the store, and reports facts about trees."""

    def __init__(
        self, watcher: ClaimWatcher, look_of: Callable[[str], DecodedJob | None], forgotten: set[str]
    ) -> None:
        self._watcher = watcher
        self._look_of = look_of
        self._forgotten = forgotten
        self.quotas: tuple[int, ...] = ()
        self._children: dict[str, dict[str, datetime]] = {}
        """The children of each parent, with their creation times."""
        self._at_work: dict[tuple[str, int], dict[str, int]] = {}
        self.with_lost_writes: set[str] = set()
        """Roots with data lost in a fail-over: the tree and its jobs may disagree forever."""

    def job_written(self, record: Record, before: DecodedJob | None, look: DecodedJob) -> None:
        """Handle a changed job."""
        parent = record.parent if look.body.run is None else None
        if before is None and parent is not None:
            self._born(record, parent)
        if look.body.tree is not None:
            self._count_at_work(record.id, look)
        if look.state is job.COMPLETED and (before is None or before.state not in job.ENDED):
            self._completed(record.id, look)

    def message_written(self, record: Record) -> None:
        """Handle a changed message; a sent one has had its effect."""
        if record.queue != CANCEL_CHILDREN or record.state != SENT:
            return
        self._watcher.saw("a subtree is stopped")
        parent = message_in(record.body, CancelChildren).job_id
        if parent in self._forgotten:
            return
        earlier = [child for child, at in self._children.get(parent, {}).items() if at <= record.created_at]
        running: dict[str, str] = {}
        for child in sorted(earlier):
            look = self._look_of(child)
            if look is None or child in self._forgotten:
                continue
            if look.state not in job.ENDED and not look.body.data.stop_reason:
                running[child] = look.state
        self._watcher.check(StoppedSubtree(parent, running), next(iter(running), parent))

    def lost(self, look: DecodedJob, job_id: str) -> None:
        """Handle a job with data lost in a fail-over."""
        self.with_lost_writes.add(look.body.tree.root_id if look.body.tree is not None else job_id)

    def gone(self, job_id: str) -> None:
        """Handle a pruned job."""
        self._children.pop(job_id, None)

    def found(self, job_id: str, submitted: list[str], children: dict[str, bool]) -> None:
        """Check that a handler that waited found all submitted children ended."""
        self._watcher.saw("a handler has waited for its children")
        if self._forgotten & {job_id, *submitted}:
            return
        self._watcher.check(FoundChildren(job_id, submitted, children), job_id)

    def _born(self, record: Record, parent: str) -> None:
        job_id = record.id
        self._children.setdefault(parent, {})[job_id] = record.created_at
        above = self._look_of(parent)
        if parent not in self._forgotten:
            self._watcher.check(CreatedChild(job_id, parent, "" if above is None else above.state), job_id)

    def _count_at_work(self, job_id: str, look: DecodedJob) -> None:
        assert look.body.tree is not None
        root, depth = look.body.tree.root_id, look.body.data.depth
        at_work = self._at_work.setdefault((root, depth), {})
        working = sum(one.state in _AT_WORK for one in look.body.attempts)
        if look.state in job.ENDED or not working:
            at_work.pop(job_id, None)
            if not at_work:
                del self._at_work[root, depth]
            return
        at_work[job_id] = working
        at_depth = TreeDepth(root, depth, sum(at_work.values()), self.quotas[depth])
        if at_depth.working == at_depth.quota:
            self._watcher.saw("a depth of a tree is full")
        if root not in self.with_lost_writes:
            self._watcher.check(at_depth, job_id)

    def _completed(self, job_id: str, look: DecodedJob) -> None:
        if look.body.task != BRANCH or job_id in self._forgotten:
            return
        known = [child for child in sorted(self._children.get(job_id, ())) if child not in self._forgotten]
        states = {child: str(below.state) for child in known if (below := self._look_of(child)) is not None}
        self._watcher.check(CompletedParent(job_id, states), job_id)
