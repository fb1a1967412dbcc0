"""Slots of a tree of jobs: the concurrency limit at each depth, and admission when a slot is free.

Every worker that a job wants takes one slot of its depth. A job takes its slots when it is admitted, and
releases them when it has ended or while it waits for its children. A child never competes with its ancestors,
which are at other depths, so there is no deadlock. A job notifies its tree in the commit of the change.

Why: decision 0205.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime

import msgspec

from interlock.engine.outbox import outgoing
from interlock.errors import InvalidJob
from interlock.lifecycles import attempt, job
from interlock.lifecycles.couplings import Recipient
from interlock.lifecycles.job import JOB
from interlock.store.contract import Store
from interlock.store.records import Change, Commit, Key, Query, Record
from interlock.systems.orchestrator.aggregate import JobAggregate
from interlock.systems.orchestrator.body import (
    OPEN,
    AttemptBody,
    JobBody,
    Seat,
    TreeBody,
    decode_body,
    decode_tree,
    tree_change,
    tree_key,
)
from interlock.systems.orchestrator.gates import limit_messages_of
from interlock.systems.orchestrator.settings import OrchestratorSettings


def waits_for_children(one: AttemptBody) -> bool:
    """Return whether an attempt waits for the children of its job."""
    return one.waits and one.state is attempt.CREATED


def waits_for_jobs(body: JobBody) -> bool:
    """Return whether a job waits for the end of jobs that it comes after."""
    return body.after is not None and bool(body.after.left) and body.data.completed_at is None


def waits_for_place(one: AttemptBody, body: JobBody) -> bool:
    """Return whether an attempt waits for a slot of its tree."""
    held = one.state is attempt.CREATED and one.ready_at is None
    held = held and not (one.waits or one.prompt or one.awaits)
    return held and body.tree is not None and not waits_for_jobs(body)


def seats_of(body: JobBody) -> int:
    """Return how many workers it has or may get."""
    return sum(one.state not in attempt.ENDED and not waits_for_children(one) for one in body.attempts)


class TreeSlots:
    """The slots of one tree, during a decision."""

    def __init__(self, body: TreeBody, quotas: Sequence[int]) -> None:
        self.body = body
        self._quotas = quotas
        self._taken = Counter[int]()
        for seat in body.inside.values():
            self._taken[seat.depth] += seat.workers

    def room(self, depth: int) -> int:
        """Return the number of free slots."""
        return self._quotas[depth] - self._taken[depth]

    def has_waiters(self, depth: int) -> bool:
        """Return whether others wait at this depth.

        A new job goes to the end of the line then.
        """
        return depth in self.body.holding.values() or depth in self.body.returning.values()

    def join(self, job_id: str, parent_id: str, depth: int, workers: int) -> bool:
        """Add a child, or hold it back; return whether it is admitted at once."""
        if workers <= self.room(depth) and not self.has_waiters(depth):
            self.admit(job_id, depth, workers)
            return True
        self.body.holding.setdefault(parent_id, depth)
        return False

    def admit(self, job_id: str, depth: int, workers: int) -> None:
        """Take slots for a job."""
        before = self.body.inside.get(job_id)
        self._taken[depth] += workers - (before.workers if before else 0)
        self.body.inside[job_id] = Seat(depth, workers)

    def leave(self, job_id: str) -> None:
        """Release the slots of an ended job."""
        self._let_go(job_id, 0)
        self.body.waiting.pop(job_id, None)
        self.body.returning.pop(job_id, None)
        self._not_later(job_id)

    def join_later(self, job_id: str) -> None:
        """Add a child without a slot, which waits for the end of other jobs."""
        self.body.later = (*self.body.later, job_id)

    def line_up(self, job_id: str, job: JobBody, parent_id: str) -> None:
        """Put a child in line after the jobs that it waits for have ended."""
        if job_id in self.body.later:
            self._not_later(job_id)
            self.body.holding.setdefault(parent_id, job.data.depth)

    def _not_later(self, job_id: str) -> None:
        if job_id in self.body.later:
            self.body.later = tuple(each for each in self.body.later if each != job_id)

    def wait(self, job_id: str, job: JobBody) -> None:
        """Release the slots of attempts that wait for children."""
        if any(map(waits_for_children, job.attempts)) and job_id not in self.body.returning:
            self._let_go(job_id, seats_of(job))
            self.body.waiting[job_id] = job.data.depth

    def resume_parent(self, job_id: str, draft: JobAggregate) -> None:
        """Resume a parent whose children have ended.

        If there is no room, it waits in line.
        """
        depth = draft.body.data.depth
        workers = sum(map(waits_for_children, draft.body.attempts))
        self.body.waiting.pop(job_id, None)
        self.body.returning.pop(job_id, None)
        if not workers:
            return  # another process was faster, or it is being stopped
        if workers > self.room(depth):
            self.body.returning[job_id] = depth
            return
        wake(draft)
        self.admit(job_id, depth, seats_of(draft.body))

    def _let_go(self, job_id: str, left: int) -> None:
        seat = self.body.inside.pop(job_id, None)
        if seat is None:
            return
        self._taken[seat.depth] -= seat.workers - left
        if left:
            self.body.inside[job_id] = Seat(seat.depth, left)


def check_workers(task: str, depth: int, workers: int, quotas: Sequence[int]) -> None:
    """Raise if a job could never be admitted."""
    if workers > quotas[depth]:
        raise InvalidJob(
            f"At depth {depth} a tree has {quotas[depth]} workers at a time, and the job wants {workers}.",
            todo="Use a smaller worker_count, or have the operator raise the quota of this depth.",
            facts={"task": task, "depth": depth, "worker_count": workers, "quota": quotas[depth]},
        )


def release_held_back(draft: JobAggregate) -> None:
    """Release a held-back child, from its original ready time on."""
    part = draft.body.tree
    after = (part.not_before if part is not None else None) or draft.now
    for one in draft.body.attempts:
        if waits_for_place(one, draft.body):
            _release(draft, one, max(after, draft.now))


def wake(draft: JobAggregate) -> None:
    """Wake a parent that has its slots again."""
    for one in draft.body.attempts:
        if waits_for_children(one):
            one.waits = False
            _release(draft, one, draft.now)


def _release(draft: JobAggregate, one: AttemptBody, at: datetime) -> None:
    one.ready_at = at
    if at <= draft.now:
        draft.send_attempt(one, attempt.publish)


TREES = "job.tree"
"""The topic of messages to trees about their jobs."""
CANCEL_CHILDREN = "job.cancel_children"
"""The topic of messages to stop the children of a job."""
TREE_TOPICS = (TREES, CANCEL_CHILDREN)

ENDED, WAITS, JOINS = "ended", "waits", "joins"
_ENCODER = msgspec.json.Encoder()


class TreeMessage(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A job of a tree has taken a step that concerns the tree."""

    root_id: str
    job_id: str
    what: str
    parent_id: str | None = None
    fails_parent: bool = False
    stops_siblings: bool = False


def tree_messages_of(draft: JobAggregate) -> tuple[Change, ...]:
    """Return the message about this step, if there is one."""
    part = draft.body.tree
    if part is None and not draft.body.children:
        return ()
    if (what := _tree_event_of(draft)) is None:
        return ()
    recipients = {coupling.to for coupling, _ in draft.outward}
    message = TreeMessage(
        root_id=part.root_id if part is not None else draft.id,
        job_id=draft.id,
        what=what,
        parent_id=draft.place.parent if draft.body.run is None else None,
        fails_parent=Recipient.ITS_PARENT in recipients,
        stops_siblings=Recipient.ITS_SIBLINGS in recipients,
    )
    return (outgoing(f"{draft.id}.tree.{draft.version}", TREES, _ENCODER.encode(message), draft.now),)


def joins(draft: JobAggregate, at: datetime) -> tuple[Change, ...]:
    """Return the message by which a held-back child joins its tree's line.

    The child becomes ready at `at` or later.
    """
    part = draft.body.tree
    assert part is not None
    draft.body.tree = msgspec.structs.replace(part, not_before=at)
    message = TreeMessage(root_id=part.root_id, job_id=draft.id, what=JOINS, parent_id=draft.place.parent)
    return (outgoing(f"{draft.id}.tree.{draft.version}", TREES, _ENCODER.encode(message), draft.now),)


def _tree_event_of(draft: JobAggregate) -> str | None:
    if draft.ended:
        return ENDED
    begun = (one for one in draft.body.attempts if one.created_at == draft.now)
    return WAITS if any(map(waits_for_children, begun)) else None


LIVING_JOBS = tuple(str(state) for state in JOB.states if state not in JOB.terminal)
PAGE = 200


class Look(msgspec.Struct, kw_only=True):
    """A tree and its currently relevant jobs."""

    root_id: str
    tree: Record
    seating: TreeSlots
    """The slots after the messages; the record is as before."""
    root: Record | None
    candidates: list[Record]
    """Parents that may resume, since all of their children have ended; in the order of the line."""
    held: list[Record]
    """Held-back children, in the order of the line."""
    searched: set[str]
    """Parents whose held-back children are all included."""

    @property
    def records(self) -> list[Record]:
        """All records that a commit may change."""
        return [self.tree, *self.candidates, *self.held]


async def look_at(
    store: Store, root_id: str, messages: Sequence[TreeMessage], quotas: Sequence[int]
) -> Look | None:
    """Return the tree after these messages; None if it is gone."""
    tree, root = await store.load([tree_key(root_id), Key(JOB.name, root_id)])
    if tree is None or tree.state != OPEN:
        return None
    seating = TreeSlots(decode_tree(tree), quotas)
    await _apply_messages(store, seating, messages)
    look = Look(
        root_id=root_id, tree=tree, seating=seating, root=root, candidates=[], held=[], searched=set()
    )
    look.candidates = await _free_parents(store, seating.body, messages)
    await _find_held(store, look)
    return look


async def _apply_messages(store: Store, seating: TreeSlots, messages: Sequence[TreeMessage]) -> None:
    for message in messages:
        if message.what == ENDED:
            seating.leave(message.job_id)
    others = [message for message in messages if message.what != ENDED]
    found = await store.load([Key(JOB.name, message.job_id) for message in others]) if others else []
    for message, record in zip(others, found, strict=True):
        if record is None or record.state in job.ENDED:
            continue
        if message.what == JOINS:
            seating.line_up(record.id, decode_body(record.body), record.parent or "")
        else:
            seating.wait(record.id, decode_body(record.body))


async def _free_parents(store: Store, body: TreeBody, messages: Sequence[TreeMessage]) -> list[Record]:
    """Return parents without unfinished children, and those in line."""
    concerned = {message.parent_id if message.what == ENDED else message.job_id for message in messages}
    free = [*body.returning]
    for parent_id in [each for each in body.waiting if each in concerned]:
        living = await store.find(Query(kind=JOB.name, parent=parent_id, states=LIVING_JOBS, limit=1))
        if not living.records:
            free.append(parent_id)
    found = await store.load([Key(JOB.name, each) for each in free]) if free else []
    return [record for record in found if record is not None]


async def _find_held(store: Store, look: Look) -> None:
    """Add held-back children, as many as may fit; none of a stopped parent."""
    seating = look.seating
    room = {depth: seating.room(depth) for depth in seating.body.holding.values()}
    wanted = [each for each, depth in seating.body.holding.items() if room[depth] > 0]
    parents = await store.load([Key(JOB.name, each) for each in wanted]) if wanted else []
    for parent_id, parent in zip(wanted, parents, strict=True):
        depth = seating.body.holding[parent_id]
        held, whole = await _held_below(store, parent_id, room[depth])
        if held and parent is not None and _is_stopped(parent):
            continue  # they are stopped with it
        look.held += held
        room[depth] -= len(held)
        if whole:
            look.searched.add(parent_id)


async def _held_below(store: Store, parent_id: str, most: int) -> tuple[list[Record], bool]:
    """Return a job's oldest held-back children, and whether these are all."""
    query = Query(kind=JOB.name, parent=parent_id, states=(job.PENDING,), newest_first=False, limit=PAGE)
    held: list[Record] = []
    while most > 0:
        page = await store.find(query)
        found = [each for each in page.records if each.ready_at is None and not _waits_for_jobs(each)]
        held += found[: most - len(held)]
        if len(held) < len(found) or (len(held) >= most and page.cursor):
            return held, False
        if not page.cursor:
            return held, True
        query = msgspec.structs.replace(query, cursor=page.cursor)
    return held, False


def _waits_for_jobs(record: Record) -> bool:
    return b'"left":' in record.body and waits_for_jobs(decode_body(record.body))


def _is_stopped(parent: Record) -> bool:
    return decode_body(parent.body).data.stop_reason is not None


def slots_filled(look: Look, now: datetime, commit_id: str, settings: OrchestratorSettings) -> Commit:
    """Return the commit that resumes parents, and then admits children.

    Parents resume when their children have ended; children that are held back are admitted oldest first.
    """
    changes = [*_woken(look, now, commit_id, settings), *_let_in(look, now, commit_id, settings)]
    over = look.seating.body.empty and (look.root is None or look.root.state in job.ENDED)
    tree = tree_change(look.root_id, look.tree, look.seating.body, commit_id=commit_id, over=over)
    return Commit(changes=(tree, *changes))


def _woken(look: Look, now: datetime, commit_id: str, settings: OrchestratorSettings) -> list[Change]:
    changes = []
    for record in look.candidates:
        draft = JobAggregate.of(record, now, settings)
        look.seating.resume_parent(record.id, draft)
        if draft.taken:
            changes.append(
                draft.change(commit_id=commit_id, actor="orchestrator", reason="its children have ended")
            )
            changes += limit_messages_of(draft)
    return changes


def _let_in(look: Look, now: datetime, commit_id: str, settings: OrchestratorSettings) -> list[Change]:
    changes: list[Change] = []
    full: set[int] = set()
    left = dict.fromkeys(look.searched)
    for record in look.held:
        draft = JobAggregate.of(record, now, settings)
        depth, workers = draft.body.data.depth, draft.body.data.worker_count
        if depth in full or workers > look.seating.room(depth):
            full.add(depth)  # a job that needs more slots must not be overtaken forever
            left.pop(record.parent or "", None)
            continue
        release_held_back(draft)
        look.seating.admit(record.id, depth, workers)
        changes.append(
            draft.change(commit_id=commit_id, actor="orchestrator", reason="its tree has a place for it")
        )
        changes += limit_messages_of(draft)
    for parent_id in left:
        look.seating.body.holding.pop(parent_id, None)
    return changes
