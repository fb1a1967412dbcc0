"""Why no live worker takes a job that is ready: what the registered workers lack.

The records of workers say which queues, labels and tasks each of them has. They are few, found by their
state, and read a page at a time until one is found that may take the job: the queue is never read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import NamedTuple

import msgspec

from interlock.lifecycles import worker
from interlock.lifecycles.worker import WORKER, WorkerState
from interlock.store.contract import Store
from interlock.store.records import Query, Record
from interlock.suggestions import nearest
from interlock.systems.orchestrator.body import decode_body
from interlock.wire.workers import WorkerSpec

PAGE, PAGES = 500, 4
"""How many workers are looked at; where there are more, and none of these fits, nothing is said."""
SHELL = "interlock.shell"
LIVING = tuple(map(str, worker.LIVING))


class Lack(NamedTuple):
    """Why no live worker takes a job, and what to do about it."""

    sentence: str
    todo: str
    paused: str = ""
    """The id of the only worker that could take it, which is paused."""


class Claimer(NamedTuple):
    """A worker that is alive."""

    id: str
    name: str
    takes: bool
    """Whether it may be given work at present."""
    queues: tuple[str, ...]
    labels: tuple[str, ...]
    tasks: tuple[str, ...] | None
    """None where it does not say which it has: then it may have any."""

    def has(self, task: str) -> bool:
        """Whether it may have the task."""
        return self.tasks is None or task in self.tasks


class _Wishes(msgspec.Struct, frozen=True):
    drain: bool = False


class _Body(msgspec.Struct, frozen=True):
    """What of a worker's record is of interest here."""

    spec: WorkerSpec
    wishes: _Wishes = _Wishes()


_decode = msgspec.json.Decoder(_Body).decode


async def look_for_lacks(
    store: Store, jobs: Iterable[Record], now: datetime, *, names: bool = True
) -> dict[str, Lack]:
    """Return by id why no live worker takes some of these jobs; others are taken, or are not ready.

    Without `names` no other worker, queue or task is named: who asks may not see them.
    """
    ready = [(job, decode_body(job.body).task) for job in jobs if job.ready_at and job.ready_at <= now]
    claimers: list[Claimer] = []
    query = Query(kind=WORKER.name, states=LIVING, limit=PAGE)
    for _ in range(PAGES if ready else 0):
        page = await store.find(query)
        claimers += [claimer for record in page.records if (claimer := claimer_of(record)) is not None]
        lacks = {job.id: lack(job, task, claimers, names=names) for job, task in ready}
        missing = {job_id: each for job_id, each in lacks.items() if each is not None}
        if not missing or not page.cursor:
            return missing
        query = msgspec.structs.replace(query, cursor=page.cursor)
    return {}


def claimer_of(record: Record) -> Claimer | None:
    """Return what a living worker can take; None for one that has been asked to go."""
    body = _decode(record.body)
    if body.wishes.drain:
        return None
    takes = WorkerState(record.state) in worker.TAKING
    spec = body.spec
    return Claimer(record.id, spec.name, takes, spec.queues, record.labels, spec.tasks)


def lack(job: Record, task: str, claimers: Sequence[Claimer], *, names: bool) -> Lack | None:
    """Return the first thing that none of these workers has: queue, labels, task, or leave to work. Pure."""
    queue, start = job.queue or "", _start(job, task)
    listening = [one for one in claimers if queue in one.queues]
    if not listening:
        return nobody_listens(queue, claimers, start, names=names)
    labelled = [one for one in listening if set(job.labels) <= set(one.labels)]
    if not labelled:
        missing = [label for label in job.labels if not any(label in one.labels for one in listening)]
        wanted = missing or job.labels
        noun = "the label" if len(wanted) == 1 else "all of the labels"
        return Lack(f"No live worker of the queue {queue} has {noun} {', '.join(wanted)}.", start)
    able = [one for one in labelled if one.has(task)]
    if not able:
        known = sorted({name for one in labelled for name in one.tasks or ()} - {SHELL}) if names else []
        guess = nearest(task, known)
        also = f" Did you mean {guess}?" if guess else ""
        return Lack(f"No live worker has the task {task}.{also}", start)
    return None if any(one.takes for one in able) else _paused(able, names=names)


def nobody_listens(queue: str, claimers: Sequence[Claimer], start: str = "", *, names: bool) -> Lack:
    """Return that none of these workers takes a queue. Pure."""
    others = sorted({name for one in claimers for name in one.queues}) if names else []
    also = f" Those that are alive take: {', '.join(others[:5])}." if others else ""
    return Lack(f"No live worker takes the queue {queue}.{also}", start or _start_for(queue))


def _paused(able: Sequence[Claimer], *, names: bool) -> Lack:
    if len(able) == 1:
        name = f", {able[0].name}," if names else ""
        todo = f"interlock worker resume {able[0].id}" if names else ""
        paused = able[0].id if names else ""
        return Lack(f"The only live worker that could take it{name} is paused.", todo, paused)
    return Lack(f"All {len(able)} live workers that could take it are paused.", "interlock worker list")


def _start(job: Record, task: str) -> str:
    labels = "".join(f" --label {label}" for label in job.labels)
    return _start_for(job.queue or "", "--shell" if task == SHELL else "MODULE") + labels


def _start_for(queue: str, what: str = "MODULE") -> str:
    return f"interlock worker start {what}" + ("" if queue == "default" else f" --queue {queue}")
