"""Who of a tree may be at work at the same time. Pure.

At each depth a tree has so many places, and every worker that a job wants is one. A job takes its
places when it is let in, and lets go of them when it has ended, or while it waits for its children.
A child never competes with its ancestors, which are at other depths: so nobody can wait in a circle.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime

from interlock.errors import InvalidJob
from interlock.lifecycles import attempt
from interlock.systems.orchestrator.aggregate import JobAggregate
from interlock.systems.orchestrator.body import AttemptBody, JobBody
from interlock.systems.orchestrator.trees.body import Seat, TreeBody


def waits_for_children(one: AttemptBody) -> bool:
    """Whether an attempt is held back until the children of its job have ended."""
    return one.waits and one.state is attempt.CREATED


def waits_for_place(one: AttemptBody, body: JobBody) -> bool:
    """Whether an attempt is held back until its tree has a place for it."""
    held = one.state is attempt.CREATED and one.ready_at is None and not (one.waits or one.prompt)
    return held and body.tree is not None


def seats_of(body: JobBody) -> int:
    """How many workers it has or may be given."""
    return sum(one.state not in attempt.ENDED and not waits_for_children(one) for one in body.attempts)


class TreeSlots:
    """The places of one tree, while it is decided about."""

    def __init__(self, body: TreeBody, quotas: Sequence[int]) -> None:
        self.body = body
        self._quotas = quotas
        self._taken = Counter[int]()
        for seat in body.inside.values():
            self._taken[seat.depth] += seat.workers

    def room(self, depth: int) -> int:
        """How many more workers there is a place for."""
        return self._quotas[depth] - self._taken[depth]

    def someone_waits(self, depth: int) -> bool:
        """Whether others are in line at this depth: whoever comes now goes to its end."""
        return depth in self.body.holding.values() or depth in self.body.returning.values()

    def join(self, job_id: str, parent_id: str, depth: int, workers: int) -> bool:
        """A new child; answers whether it is let in at once, and otherwise notes that it is held back."""
        if workers <= self.room(depth) and not self.someone_waits(depth):
            self.let_in(job_id, depth, workers)
            return True
        self.body.holding.setdefault(parent_id, depth)
        return False

    def let_in(self, job_id: str, depth: int, workers: int) -> None:
        """It has its places from now on."""
        before = self.body.inside.get(job_id)
        self._taken[depth] += workers - (before.workers if before else 0)
        self.body.inside[job_id] = Seat(depth, workers)

    def leave(self, job_id: str) -> None:
        """It has ended."""
        self._let_go(job_id, 0)
        self.body.waiting.pop(job_id, None)
        self.body.returning.pop(job_id, None)

    def wait(self, job_id: str, job: JobBody) -> None:
        """It waits for its children, and needs workers only for what of it does not."""
        if any(map(waits_for_children, job.attempts)) and job_id not in self.body.returning:
            self._let_go(job_id, seats_of(job))
            self.body.waiting[job_id] = job.data.depth

    def come_back(self, job_id: str, draft: JobAggregate) -> None:
        """None of its children is left: it goes on where there is room, and is in line where there is not."""
        depth = draft.body.data.depth
        workers = sum(map(waits_for_children, draft.body.attempts))
        self.body.waiting.pop(job_id, None)
        self.body.returning.pop(job_id, None)
        if not workers:
            return  # somebody was faster, or it is being stopped
        if workers > self.room(depth):
            self.body.returning[job_id] = depth
            return
        wake(draft)
        self.let_in(job_id, depth, seats_of(draft.body))

    def _let_go(self, job_id: str, left: int) -> None:
        seat = self.body.inside.pop(job_id, None)
        if seat is None:
            return
        self._taken[seat.depth] -= seat.workers - left
        if left:
            self.body.inside[job_id] = Seat(seat.depth, left)


def check_workers(task: str, depth: int, workers: int, quotas: Sequence[int]) -> None:
    """Raise for a job that could never be let in: it would wait for ever."""
    if workers > quotas[depth]:
        raise InvalidJob(
            f"At depth {depth} a tree has {quotas[depth]} workers at a time, and the job wants {workers}.",
            todo="Ask for fewer with worker_count, or have the operator raise the quota of this depth.",
            facts={"task": task, "depth": depth, "worker_count": workers, "quota": quotas[depth]},
        )


def let_in(draft: JobAggregate) -> None:
    """A child that was held back may be given to workers, at the time that it was submitted for."""
    part = draft.body.tree
    after = (part.not_before if part is not None else None) or draft.now
    for one in draft.body.attempts:
        if waits_for_place(one, draft.body):
            _release(draft, one, max(after, draft.now))


def wake(draft: JobAggregate) -> None:
    """The children of a parent have ended, and it has its place again."""
    for one in draft.body.attempts:
        if waits_for_children(one):
            one.waits = False
            _release(draft, one, draft.now)


def _release(draft: JobAggregate, one: AttemptBody, at: datetime) -> None:
    one.ready_at = at
    if at <= draft.now:
        draft.send_attempt(one, attempt.publish)
