"""Explanations of unfinished jobs: the reason for waiting, the role that acts next, the next deadline.

A ready job may lack a suitable worker; a job of a tree may wait for its children or for a slot; a handler
may wait for a signal or for a person.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from interlock.lifecycles import attempt, job, lease, worker
from interlock.lifecycles.attempt import ATTEMPT
from interlock.lifecycles.job import JOB, JobState
from interlock.lifecycles.lease import LEASE
from interlock.lifecycles.worker import WORKER, WorkerState
from interlock.machine import Machine
from interlock.store.contract import Store
from interlock.store.records import Count, Key, Query, Record
from interlock.systems.orchestrator.body import AfterPart, AttemptBody, JobBody, decode_body
from interlock.systems.orchestrator.failures import FailureClass
from interlock.systems.orchestrator.mailboxes import wait_of
from interlock.systems.orchestrator.tree_slots import (
    LIVING_JOBS,
    waits_for_children,
    waits_for_jobs,
    waits_for_place,
)
from interlock.text import nearest
from interlock.wire.jobs import Explanation, Waiting
from interlock.wire.waits import OpenWait
from interlock.wire.workers import WorkerSpec

PAGE, PAGES = 500, 4
"""Number of workers to examine; if there are more, and none of these fits, no blocker is reported."""
NAMED = 3
"""Number of jobs that are named of those that a job waits for."""
SHELL = "interlock.shell"
LIVING_WORKERS = tuple(map(str, worker.LIVING))


class Blocker(NamedTuple):
    """The reason why no live worker takes a job, and the advice."""

    sentence: str
    todo: str
    paused: str = ""
    """The id of the only worker that could take it, which is paused."""


class Claimer(NamedTuple):
    """A live worker."""

    id: str
    name: str
    takes: bool
    """Whether it may claim jobs now."""
    queues: tuple[str, ...]
    labels: tuple[str, ...]
    tasks: tuple[str, ...] | None
    """Its tasks; None if unknown: then it may have any."""

    def has(self, task: str) -> bool:
        """Return whether it may have the task."""
        return self.tasks is None or task in self.tasks


class _Orders(msgspec.Struct, frozen=True):
    drain: bool = False


class _Body(msgspec.Struct, frozen=True):
    """The needed part of a worker's record."""

    spec: WorkerSpec
    orders: _Orders = msgspec.field(default=_Orders(), name="wishes")


_decode = msgspec.json.Decoder(_Body).decode


async def find_blockers(
    store: Store, jobs: Iterable[Record], now: datetime, *, names: bool = True
) -> dict[str, Blocker]:
    """Return by id why no live worker takes some of these jobs.

    Other jobs are taken, or are not ready. Without `names` no other worker, queue or task is named: the
    principal may not see them.
    """
    ready = [(job, decode_body(job.body).task) for job in jobs if job.ready_at and job.ready_at <= now]
    claimers: list[Claimer] = []
    query = Query(kind=WORKER.name, states=LIVING_WORKERS, limit=PAGE)
    for _ in range(PAGES if ready else 0):
        page = await store.find(query)
        claimers += [claimer for record in page.records if (claimer := claimer_of(record)) is not None]
        blockers = {job.id: blocker_of(job, task, claimers, names=names) for job, task in ready}
        missing = {job_id: each for job_id, each in blockers.items() if each is not None}
        if not missing or not page.cursor:
            return missing
        query = msgspec.structs.replace(query, cursor=page.cursor)
    return {}


def claimer_of(record: Record) -> Claimer | None:
    """Return a live worker; None for one that is draining."""
    body = _decode(record.body)
    if body.orders.drain:
        return None
    takes = WorkerState(record.state) in worker.TAKING
    spec = body.spec
    return Claimer(record.id, spec.name, takes, spec.queues, record.labels, spec.tasks)


def blocker_of(job: Record, task: str, claimers: Sequence[Claimer], *, names: bool) -> Blocker | None:
    """Return the first requirement that none of these workers meets. Pure.

    That is the queue, the labels, the task, or not being paused.
    """
    queue, start = job.queue or "", _start(job, task)
    listening = [one for one in claimers if queue in one.queues]
    if not listening:
        return no_worker_listens(queue, claimers, start, names=names)
    labelled = [one for one in listening if set(job.labels) <= set(one.labels)]
    if not labelled:
        missing = [label for label in job.labels if not any(label in one.labels for one in listening)]
        wanted = missing or job.labels
        noun = "the label" if len(wanted) == 1 else "all of the labels"
        return Blocker(f"No live worker of the queue {queue} has {noun} {', '.join(wanted)}.", start)
    able = [one for one in labelled if one.has(task)]
    if not able:
        known = sorted({name for one in labelled for name in one.tasks or ()} - {SHELL}) if names else []
        guess = nearest(task, known)
        also = f" Did you mean {guess}?" if guess else ""
        return Blocker(f"No live worker has the task {task}.{also}", start)
    return None if any(one.takes for one in able) else _paused(able, names=names)


def no_worker_listens(queue: str, claimers: Sequence[Claimer], start: str = "", *, names: bool) -> Blocker:
    """Return the blocker of a queue without workers. Pure."""
    others = sorted({name for one in claimers for name in one.queues}) if names else []
    also = f" Those that are alive take: {', '.join(others[:5])}." if others else ""
    return Blocker(f"No live worker takes the queue {queue}.{also}", start or _start_for(queue))


def _paused(able: Sequence[Claimer], *, names: bool) -> Blocker:
    if len(able) == 1:
        name = f", {able[0].name}," if names else ""
        todo = f"interlock worker resume {able[0].id}" if names else ""
        paused = able[0].id if names else ""
        return Blocker(f"The only live worker that could take it{name} is paused.", todo, paused)
    return Blocker(f"All {len(able)} live workers that could take it are paused.", "interlock worker list")


def _start(job: Record, task: str) -> str:
    labels = "".join(f" --label {label}" for label in job.labels)
    return _start_for(job.queue or "", "--shell" if task == SHELL else "MODULE") + labels


def _start_for(queue: str, what: str = "MODULE") -> str:
    return f"interlock worker start {what}" + ("" if queue == "default" else f" --queue {queue}")


class TreeFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about the tree of a job."""

    left: Count | None = None
    """Number of its unfinished children."""
    places: int | None = None
    """Maximum number of workers at its depth."""
    parent_stops: bool = False
    limit: str = ""
    """Sentence about the limit that it waits for."""
    before: tuple[tuple[str, str], ...] = ()
    """Some of the jobs that it waits for, with their states."""


ALONE = TreeFacts()
"""No facts were read."""


async def look_around(store: Store, record: Record, quotas: Sequence[int]) -> TreeFacts:
    """Return the facts about a held-back job's tree, none for others."""
    body = decode_body(record.body)
    if waits_for_jobs(body) and body.after is not None:
        some = body.after.left[:NAMED]
        found = await store.load([Key(JOB.name, each) for each in some])
        states = ["removed" if each is None else str(each.state) for each in found]
        return TreeFacts(before=tuple(zip(some, states, strict=True)))
    places = quotas[body.data.depth]
    if any(map(waits_for_children, body.attempts)):
        left = await store.count(Query(kind=JOB.name, parent=record.id, states=LIVING_JOBS))
        return TreeFacts(left=left, places=places)
    if record.parent is not None and any(waits_for_place(one, body) for one in body.attempts):
        (parent,) = await store.load([Key(JOB.name, record.parent)])
        stops = parent is not None and decode_body(parent.body).data.stop_reason is not None
        return TreeFacts(places=places, parent_stops=stops)
    return ALONE


def held_back(one: AttemptBody, record: Record, body: JobBody, around: TreeFacts) -> str | None:
    """Return why an attempt waits for jobs or an answer, or None."""
    if waits_for_jobs(body) and body.after is not None:
        return _after_others(body.after, around)
    if (wait := wait_of(one, body)) is not None:
        return f"{_awaited(wait)} It holds no lease meanwhile, and times out at {wait.until.isoformat()}."
    if waits_for_children(one):
        if around.left is not None and not around.left.number:
            return f"Its children have ended, and it waits for a place{_in_tree(record, body, around)}."
        many = "" if around.left is None else f": {_many(around.left)} of {body.children} have not ended"
        return f"It waits for its children{many}, and it holds no lease meanwhile."
    if around.limit and one.state in attempt.UNLEASED and record.ready_at is None:
        return around.limit
    if not waits_for_place(one, body):
        return None
    if around.parent_stops:
        return f"It waits to be stopped with its parent {record.parent}, and is not claimed any more."
    return f"It waits for a place{_in_tree(record, body, around)}."


def _after_others(part: AfterPart, around: TreeFacts) -> str:
    named = ", ".join(f"{name} ({state})" for name, state in around.before)
    more = len(part.left) - len(around.before)
    also = f" and {more} more" if more > 0 and named else ""
    which = "the first of these jobs" if part.rule.need == "any" else "these jobs"
    if len(part.left) == 1:
        which = "this job"
    return f"It waits for the {part.rule.on} of {which}: {named or len(part.left)}{also}."


def _awaited(wait: OpenWait) -> str:
    if wait.question is None:
        return f"It waits for the signal {wait.name}."
    return f"It waits for a person to approve or reject: {wait.question!r}."


def to_answer(record: Record, body: JobBody) -> str:
    """Return the command that ends the wait of a job, or "" without one."""
    for one in body.attempts:
        if (wait := wait_of(one, body)) is not None:
            if wait.question is None:
                return f"interlock job signal {record.id} {wait.name}"
            return f"interlock approval approve {wait.id}"
    return ""


def _in_tree(record: Record, body: JobBody, around: TreeFacts) -> str:
    root_id = body.tree.root_id if body.tree is not None else record.id
    if around.places is None:
        return f" in the tree of {root_id}"
    workers = f"{around.places} worker{'s' if around.places != 1 else ''}"
    return f" in the tree of {root_id}: at depth {body.data.depth} it has {workers} at a time"


def _many(left: Count) -> str:
    return f"{left.number}{' or more' if left.capped else ''}"


def explain(
    record: Record,
    now: datetime,
    *,
    ahead: str = "",
    around: TreeFacts = ALONE,
    blocker: Blocker | None = None,
) -> Explanation:
    """Return the explanation of a job. `ahead` describes its queue."""
    body, state = decode_body(record.body), JobState(record.state)
    if state in job.ENDED:
        return _ended(record, body)
    blocked, todo = (blocker.sentence, blocker.todo) if blocker else ("", to_answer(record, body))
    lines = tuple(_lines(record, body, now, f"{ahead}.{blocked and ' '}{blocked}", around))
    return Explanation(
        job_id=record.id,
        state=state,
        sentence=_summary(lines),
        lines=lines,
        next_deadline_at=record.deadline_at,
        blocked=blocked,
        todo=todo,
    )


def _ended(record: Record, body: JobBody) -> Explanation:
    tries = len(body.attempts)
    made = f"{tries} attempt{'s' if tries != 1 else ''}"
    match JobState(record.state):
        case job.COMPLETED:
            sentence, todo = f"It completed after {made}.", ""
        case job.FAILED:
            why = f"{body.failure.failure_class}: {body.failure.error}" if body.failure else "it was rejected"
            sentence, todo = f"It has failed after {made}: {why}", f"interlock job retry {record.id}"
            if body.failure is not None and body.failure.failure_class is FailureClass.EXPIRED:
                sentence = f"It has expired: {body.failure.error}"
        case _:
            because = f", since its parent {record.parent} was" if body.data.stop_reason == "parent" else ""
            if body.after is not None and body.data.stop_reason in ("upstream", "skipped"):
                because = f": {body.cancel_reason}"
            sentence = f"It was stopped ({body.data.stop_reason}) after {made}{because}."
            todo = f"interlock job retry {record.id}"
    return Explanation(job_id=record.id, state=record.state, sentence=sentence, todo=todo)


def _lines(record: Record, body: JobBody, now: datetime, ahead: str, around: TreeFacts) -> Iterator[Waiting]:
    state = JobState(record.state)
    reason = _entry(JOB, state).doc
    if body.data.stop_reason:
        reason = f"It is being stopped ({body.data.stop_reason}); it ends with the last of its attempts."
    yield _waiting(JOB, state, record.id, reason, body.timer_at)
    for one in body.attempts:
        if one.state in attempt.ENDED:
            continue
        name = f"{record.id}.{one.name}"
        reason = held_back(one, record, body, around) or _attempt_sentence(one, record, body, now, ahead)
        yield _waiting(ATTEMPT, one.state, name, reason, one.timer_at)
        if one.lease is not None and one.lease.state in lease.LIVE:
            held = one.lease
            reason = f"held by {held.data.runner_id}" + (
                "; it has expired, and the next sweep ends it" if held.data.expires_at <= now else ""
            )
            yield _waiting(LEASE, held.state, name, reason, held.data.expires_at)


def _attempt_sentence(one: AttemptBody, record: Record, body: JobBody, now: datetime, ahead: str) -> str:
    runner = one.lease.data.runner_id if one.lease else "nobody"
    match one.state:
        case attempt.CREATED | attempt.QUEUED if one.ready_at is not None and one.ready_at > now:
            return f"It waits until {one.ready_at.isoformat()}{_cause_of_wait(one, body)}."
        case attempt.CREATED if one.ready_at is None and not one.prompt and body.run is not None:
            return f"It waits for its needs in the run {body.run.run_id}."
        case attempt.CREATED | attempt.QUEUED:
            needs = f" that has {', '.join(record.labels)}" if record.labels else ""
            return f"It waits for a worker of the queue {record.queue}{needs}{ahead}"
        case attempt.LEASED:
            return f"It was leased to {runner}, which has not acknowledged it yet."
        case attempt.CANCEL_REQUESTED:
            return f"Runner {runner} was asked to stop; at its deadline it counts as stopped."
        case _:
            progress = f" ({one.progress.message})" if one.progress and one.progress.message else ""
            return f"Runner {runner} executes it{progress}."


def _cause_of_wait(one: AttemptBody, body: JobBody) -> str:
    before = [a for a in body.attempts if a.shard == one.shard and a.index == one.index - 1]
    if before and before[0].snoozed_until is not None:
        return f", because attempt {before[0].index} snoozed"
    if not before or before[0].failure is None:
        return ", as it was submitted to"
    failure = before[0].failure
    return f", because attempt {before[0].index} failed ({failure.failure_class}: {failure.error})"


def _summary(lines: tuple[Waiting, ...]) -> str:
    """Return the reason of its first attempt, or of the job if there is none."""
    waiting = [line for line in lines if line.entity.startswith(ATTEMPT.name)]
    return (waiting or lines)[0].sentence


def _waiting(
    machine: Machine[Any, Any], state: Any, entity: str, reason: str, at: datetime | None
) -> Waiting:
    entry = _entry(machine, state)
    return Waiting(
        entity=f"{machine.name} {entity}",
        state=str(state),
        sentence=reason[:1].upper() + reason[1:],
        turn=str(entry.turn or ""),
        deadline_at=at,
        deadline_event=entry.within.event.name if entry.within and at else "",
        accepts=machine.accepts(state),
    )


def _entry(machine: Machine[Any, Any], state: Any) -> Any:
    return machine.table.entry(state)
