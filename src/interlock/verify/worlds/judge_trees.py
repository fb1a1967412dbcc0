"""What is claimed of the trees of a world: of children and parents, of places, and of subtrees that stop.

The quotas are counted from the jobs themselves, not from what the record of a tree has noted of them.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

import msgspec

from interlock.engine.outbox import SENT, OutboxMessage
from interlock.lifecycles import attempt, job
from interlock.store.records import Record
from interlock.systems.orchestrator.cancellation import CancelChildren
from interlock.systems.orchestrator.trees.notifications import CANCEL_CHILDREN
from interlock.verify.jobs.judge import Look
from interlock.verify.worlds.watcher import Watcher

BRANCH = "branch"
"""The task whose handler submits children, and waits for them."""
BORN = "a child is made only while its parent has not ended"
WAITED = "a job that waits for its children completes after them"
QUOTA = "of a tree no more are at work at one depth than its quota says"
STOPPED = "when the word to the children of a stopped job is done, none that it had then goes on"
FOUND = "a handler finds every child that it has submitted, and has waited for"
CLOSED = "a tree in which everything has ended is closed"
_AT_WORK = (attempt.LEASED, *attempt.EXECUTING, attempt.CANCEL_REQUESTED)


class TreeJudge:
    """Reads along with the store, and asks every claim about trees."""

    def __init__(self, watcher: Watcher, look_of: Callable[[str], Look | None], forgotten: set[str]) -> None:
        self._watcher = watcher
        self._look_of = look_of
        self._forgotten = forgotten
        self.quotas: tuple[int, ...] = ()
        self._children: dict[str, dict[str, datetime]] = {}
        """Of each parent, and since when they are there."""
        self._at_work: dict[tuple[str, int], dict[str, int]] = {}
        self.shaken: set[str] = set()
        """Roots of which a fail-over has lost something: the tree and its jobs may disagree for ever."""

    def job_written(self, record: Record, before: Look | None, look: Look) -> None:
        """A job has changed."""
        parent = record.parent if look.body.run is None else None
        if before is None and parent is not None:
            self._born(record, parent)
        if look.body.tree is not None:
            self._seated(record.id, look)
        if look.state is job.COMPLETED and (before is None or before.state not in job.ENDED):
            self._completed(record.id, look)

    def message_written(self, record: Record) -> None:
        """A message has changed; one that is sent has done what it says."""
        if record.queue != CANCEL_CHILDREN or record.state != SENT:
            return
        self._watcher.saw("a subtree is stopped")
        payload = bytes(msgspec.json.decode(record.body, type=OutboxMessage).payload)
        parent = msgspec.json.decode(payload, type=CancelChildren).job_id
        for child, born_at in sorted(self._children.get(parent, {}).items()):
            look = self._look_of(child)
            if (
                look is None
                or born_at > record.created_at
                or child in self._forgotten
                or parent in self._forgotten
            ):
                continue
            if look.state not in job.ENDED and not look.body.data.stop_reason:
                self._watcher.broke(
                    STOPPED, f"{child} is {look.state}, its parent {parent} was stopped", child
                )

    def lost(self, look: Look, job_id: str) -> None:
        """A fail-over has lost something of a job."""
        self.shaken.add(look.body.tree.root_id if look.body.tree is not None else job_id)

    def gone(self, job_id: str) -> None:
        """A job was pruned."""
        self._children.pop(job_id, None)

    def found(self, job_id: str, submitted: list[str], children: dict[str, bool]) -> None:
        """A handler has waited: what it had submitted, and whether what it found has ended."""
        self._watcher.saw("a handler has waited for its children")
        if self._forgotten & {job_id, *submitted}:
            return
        if not set(submitted) <= set(children) or not all(children.values()):
            self._watcher.broke(FOUND, f"{job_id} has submitted {submitted} and finds {children}", job_id)

    def _born(self, record: Record, parent: str) -> None:
        job_id = record.id
        self._children.setdefault(parent, {})[job_id] = record.created_at
        above = self._look_of(parent)
        if above is not None and above.state in job.ENDED and parent not in self._forgotten:
            self._watcher.broke(BORN, f"{job_id} is made, and its parent {parent} is {above.state}", job_id)

    def _seated(self, job_id: str, look: Look) -> None:
        assert look.body.tree is not None
        root, depth = look.body.tree.root_id, look.body.data.depth
        seats = self._at_work.setdefault((root, depth), {})
        working = sum(one.state in _AT_WORK for one in look.body.attempts)
        if look.state in job.ENDED or not working:
            seats.pop(job_id, None)
            if not seats:
                del self._at_work[root, depth]
            return
        seats[job_id] = working
        if sum(seats.values()) == self.quotas[depth]:
            self._watcher.saw("a depth of a tree is full")
        if sum(seats.values()) > self.quotas[depth] and root not in self.shaken:
            words = f"{sum(seats.values())} are at work at depth {depth} of {root}, not {self.quotas[depth]}"
            self._watcher.broke(QUOTA, words, job_id)

    def _completed(self, job_id: str, look: Look) -> None:
        if look.body.task != BRANCH or job_id in self._forgotten:
            return
        for child in sorted(self._children.get(job_id, ())):
            below = self._look_of(child)
            if below is not None and below.state not in job.ENDED and child not in self._forgotten:
                self._watcher.broke(WAITED, f"{job_id} has completed, and {child} is {below.state}", job_id)
