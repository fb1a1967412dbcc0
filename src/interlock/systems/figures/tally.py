"""Count what entries of the journal say about jobs. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

import msgspec

from interlock.lifecycles import attempt, job
from interlock.lifecycles.attempt import ATTEMPT, lease_revoked
from interlock.lifecycles.job import JOB
from interlock.store.records import Entry, Record, StepLine
from interlock.systems.figures.series import OTHER, Backlog, Cell, Pair, bucket_of

_MOVES = {
    str(job.RUNNING): "started",
    str(job.COMPLETED): "completed",
    str(job.FAILED): "failed",
    str(job.CANCELED): "canceled",
}
ENDS = frozenset(("completed", "failed", "canceled"))
_TRIED = frozenset(map(str, (attempt.FAILED, attempt.TIMED_OUT, attempt.STALE)))


class Event(NamedTuple):
    """Something that is counted."""

    minute: int
    job_id: str
    what: str
    """The name of a count of a cell."""
    pending: int = 0
    """By how much it changes the number of jobs that are pending."""
    running: int = 0


class Facts(NamedTuple):
    """What a job's record says that its journal does not."""

    pair: Pair
    wait_s: float | None = None
    run_s: float | None = None


NOTHING = Facts(OTHER)


class _Times(msgspec.Struct, frozen=True, gc=False):
    started_at: datetime | None = None
    completed_at: datetime | None = None


class _Body(msgspec.Struct, gc=False):
    task: str
    data: _Times = _Times()


_decode = msgspec.json.Decoder(_Body).decode


def minute_of(at: datetime) -> int:
    """Return the number of a minute since 1970."""
    return int(at.timestamp() // 60)


def events_of(entries: Iterable[Entry]) -> Iterator[Event]:
    """Return what is counted of these entries."""
    for entry in entries:
        if entry.kind != JOB.name or entry.note.refusal:
            continue
        minute, ended = minute_of(entry.at), False
        if entry.version == 1:
            yield Event(minute, entry.id, "submitted", pending=1)
        for step in entry.note.steps:
            if step.machine == JOB.name and step.moves and (what := _MOVES.get(str(step.target))):
                ended = what != "started"
                yield _moved(minute, entry.id, what, step)
        if not ended:
            for step in entry.note.steps:
                if _is_lost_try(step):
                    yield Event(minute, entry.id, "retried")


def _moved(minute: int, job_id: str, what: str, step: StepLine) -> Event:
    begun = str(step.source) == job.RUNNING
    running = int(what == "started") - int(begun)
    return Event(minute, job_id, what, pending=0 if begun else -1, running=running)


def _is_lost_try(step: StepLine) -> bool:
    """Whether an attempt has ended without success; one that was given back has only moved."""
    return (
        step.machine == ATTEMPT.name
        and step.moves
        and str(step.target) in _TRIED
        and step.event != lease_revoked.name
    )


def facts_of(record: Record) -> Facts:
    """Return the queue and task of a job, and how long it has taken if it has ended."""
    try:
        body = _decode(record.body)
    except msgspec.MsgspecError:  # one job that a stranger has written must not end all counting
        return Facts((record.queue or "", ""))
    times, wait_s, run_s = body.data, None, None
    if times.started_at is not None and times.completed_at is not None:
        wait_s = max(0.0, (times.started_at - record.created_at).total_seconds())
        run_s = max(0.0, (times.completed_at - times.started_at).total_seconds())
    return Facts((record.queue or "", body.task), wait_s, run_s)


def sample(ids: Sequence[str], most: int) -> list[str]:
    """Return up to so many of these ids, evenly spread."""
    if len(ids) <= most:
        return list(ids)
    return [ids[place * len(ids) // most] for place in range(most)]


def spread(ids: Sequence[str], known: Mapping[str, Facts]) -> dict[str, Facts]:
    """Return facts for each id: those of an unknown one are those of the nearest known one before it."""
    latest = next((known[job_id] for job_id in ids if job_id in known), NOTHING)
    facts: dict[str, Facts] = {}
    for job_id in ids:
        latest = facts[job_id] = known.get(job_id, latest)
    return facts


def cells_of(events: Iterable[Event], facts: Mapping[str, Facts]) -> dict[tuple[int, Pair], Cell]:
    """Return the counts by minute and pair."""
    cells: dict[tuple[int, Pair], Cell] = {}
    for event in events:
        known = facts.get(event.job_id, NOTHING)
        cell = cells.setdefault((event.minute, known.pair), Cell())
        setattr(cell, event.what, getattr(cell, event.what) + 1)
        if event.what not in ENDS:
            continue
        for buckets, seconds in ((cell.wait, known.wait_s), (cell.run, known.run_s)):
            if seconds is not None:
                bucket = bucket_of(seconds)
                buckets[bucket] = buckets.get(bucket, 0) + 1
    return cells


def backlog_after(before: Backlog, events: Iterable[Event], facts: Mapping[str, Facts]) -> Backlog:
    """Return the backlog by queue after these events; queues without any are left out."""
    backlog = dict(before)
    for event in events:
        queue = facts.get(event.job_id, NOTHING).pair[0]
        pending, running = backlog.get(queue, (0, 0))
        backlog[queue] = (pending + event.pending, running + event.running)
    return {
        queue: (max(0, pending), max(0, running))
        for queue, (pending, running) in backlog.items()
        if pending > 0 or running > 0
    }
