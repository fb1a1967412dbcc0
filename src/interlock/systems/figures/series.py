"""Records of figures: counts and durations by period, queue and task, from the journal. Pure.

A record of figures is removed after seven days.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple, TypeAlias

import msgspec

from interlock.lifecycles import attempt, job
from interlock.lifecycles.attempt import ATTEMPT, lease_revoked
from interlock.lifecycles.job import JOB
from interlock.machine import (
    STAY,
    Deadline,
    Event,
    Machine,
    command,
    end,
    ignore,
    on,
    refuse,
    state,
    timer,
)
from interlock.store.records import Entry, Note, Record, StepLine


class FiguresState(StrEnum):
    """The states of a record of figures."""

    COUNTING = "counting"
    FORGOTTEN = "forgotten"


COUNTING, FORGOTTEN = FiguresState.COUNTING, FiguresState.FORGOTTEN

count: Event = command("count", "More entries of the journal were counted.", by="server")
expire: Event = timer("expire", "Its period ended long ago.", by="clock")
forget: Event = command("forget", "The figures are not needed.", by="operator")

KEPT = Deadline(expire, "figures_kept_s", 7 * 86_400.0, since="the end of its period")

# fmt: off
FIGURES = Machine[FiguresState, None](
    "figures",
    "Counts and durations of jobs, for a quarter of an hour or for half a day.",
    initial=COUNTING,
    spine=(COUNTING, FORGOTTEN),
    stop=(forget,),
    states=(
        state(COUNTING, "Entries of the journal are added to it.", turn="clock", within=KEPT),
        end(FORGOTTEN, "It is too old to be shown."),
    ),
    rows=(
        on(count, COUNTING, STAY, owner="server", why="The journal has new entries."),
        on(expire, COUNTING, FORGOTTEN, owner="clock", why="Figures are shown for seven days."),
        on(forget, COUNTING, FORGOTTEN, owner="operator", why="An operator resets the figures."),
        refuse(count, FORGOTTEN, why="it is too old to be shown"),
        ignore(expire, FORGOTTEN, why="it is forgotten"),
        ignore(forget, FORGOTTEN, why="it is forgotten"),
    ),
)
# fmt: on


Pair: TypeAlias = tuple[str, str]
"""A queue and a task. An empty task stands for other tasks of the queue, an empty queue for other queues."""

OTHER: Pair = ("", "")
PAIRS = 100
"""Number of pairs of queue and task in a record; further tasks are counted by queue only."""
QUEUES = 50
"""Number of further queues, in counts and in samples of the backlog."""
LARGEST = 786_432
"""A larger body distinguishes fewer pairs; a store accepts bodies of up to 1 MiB."""

PER_OCTAVE = 2
LAST = 62
"""The last bucket of a histogram: 2**(61 / 2) ms and more, which is about eighteen days."""


class Grain(NamedTuple):
    """The length of a period, and of a record of several periods."""

    name: str
    period_s: int
    record_s: int

    def record_of(self, period: int) -> int:
        """Return the number of the record that a period is in."""
        return period * self.period_s // self.record_s

    def id_of(self, record: int) -> str:
        """Return the id of a record."""
        return f"{self.name}.{record}"


MINUTES = Grain("minutes", 60, 900)
HOURS = Grain("hours", 3_600, 43_200)
GRAINS = (MINUTES, HOURS)


class Cell(msgspec.Struct, array_like=True):
    """The counts of a period for a queue and task."""

    submitted: int = 0
    started: int = 0
    """First starts."""
    completed: int = 0
    failed: int = 0
    canceled: int = 0
    retried: int = 0
    wait: dict[int, int] = msgspec.field(default_factory=dict)
    """Waiting times until the first start of ended jobs: numbers by bucket."""
    run: dict[int, int] = msgspec.field(default_factory=dict)
    """Running times from then on."""

    def add(self, other: Cell) -> None:
        """Add the counts of another cell."""
        self.submitted += other.submitted
        self.started += other.started
        self.completed += other.completed
        self.failed += other.failed
        self.canceled += other.canceled
        self.retried += other.retried
        for own, more in ((self.wait, other.wait), (self.run, other.run)):
            for bucket, number in more.items():
                own[bucket] = own.get(bucket, 0) + number

    @property
    def events(self) -> int:
        """Number of events."""
        return self.submitted + self.completed + self.failed + self.canceled + self.retried


Backlog: TypeAlias = dict[str, tuple[int, int]]
"""Pending and running jobs by queue."""


class PeriodFigures(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The body of a record of figures."""

    pairs: list[Pair] = []
    cells: dict[int, dict[int, Cell]] = {}
    """By period (its number since 1970), then by index in `pairs`."""
    backlog: dict[int, Backlog] = {}
    """The last sample of each period."""
    gaps: list[int] = []
    """Periods after which entries of the journal were pruned before they were counted."""
    estimated: int = 0
    """Number of events whose queue and task were taken from a sample."""

    def add(self, period: int, pair: Pair, cell: Cell) -> None:
        """Add to the counts of a period."""
        place = self._place(pair)
        self.cells.setdefault(period, {}).setdefault(place, Cell()).add(cell)

    def _place(self, pair: Pair) -> int:
        for wanted, room in ((pair, PAIRS), ((pair[0], ""), PAIRS + QUEUES)):
            if wanted in self.pairs:
                return self.pairs.index(wanted)
            if len(self.pairs) < room:
                self.pairs.append(wanted)
                return len(self.pairs) - 1
        if OTHER not in self.pairs:
            self.pairs.append(OTHER)
        return self.pairs.index(OTHER)

    def folded(self, into: Callable[[Pair], Pair]) -> PeriodFigures:
        """Return the same counts with fewer pairs."""
        less = msgspec.structs.replace(self, pairs=[], cells={})
        for period, cells in self.cells.items():
            for place, cell in cells.items():
                less.add(period, into(self.pairs[place]), cell)
        return less


def read_part(body: bytes) -> PeriodFigures:
    """Decode the figures of a record."""
    return _decode_part(body)


def written(part: PeriodFigures) -> bytes:
    """Encode the body of a record; with fewer pairs if it would be too large."""
    body = msgspec.json.encode(part)
    if len(body) > LARGEST:
        body = msgspec.json.encode(part.folded(lambda pair: (pair[0], "")))
    if len(body) > LARGEST:
        body = msgspec.json.encode(part.folded(lambda _: OTHER))
    return body


_decode_part = msgspec.json.Decoder(PeriodFigures).decode


def bucket_of(seconds: float) -> int:
    """Return the bucket of a duration.

    0 is less than a millisecond; then there are two for each doubling.
    """
    ms = seconds * 1_000
    return 0 if ms < 1 else min(LAST, 1 + int(PER_OCTAVE * math.log2(ms)))


def percentile(buckets: Mapping[int, int], share: float) -> float | None:
    """Return the seconds that this share of durations does not exceed.

    They are exact within a fifth. Without any durations it is None.
    """
    total = sum(buckets.values())
    if not total:
        return None
    left = share * total
    for bucket in sorted(buckets):
        number = buckets[bucket]
        if left <= number:
            return _within(bucket, left / number)
        left -= number
    return _within(max(buckets), 1.0)


def _within(bucket: int, share: float) -> float:
    """Return a duration between the bounds of a bucket."""
    if bucket == 0:
        return 0.001 * share
    return float(round(2.0 ** ((bucket - 1 + share) / PER_OCTAVE) / 1_000, 4))


def largest(backlog: Backlog, most: int = QUEUES) -> Backlog:
    """Return the largest backlogs of queues; the rest is summed up."""
    ranked = sorted(backlog, key=lambda queue: (not queue, -sum(backlog[queue]), queue))
    kept = {queue: backlog[queue] for queue in ranked[:most]}
    if rest := [backlog[queue] for queue in ranked[most:]]:
        kept[""] = (sum(each[0] for each in rest), sum(each[1] for each in rest))
    return kept


_MOVES = {
    str(job.RUNNING): "started",
    str(job.COMPLETED): "completed",
    str(job.FAILED): "failed",
    str(job.CANCELED): "canceled",
}
ENDS = frozenset(("completed", "failed", "canceled"))
_TRIED = frozenset(map(str, (attempt.FAILED, attempt.TIMED_OUT, attempt.STALE)))


class CountedEvent(NamedTuple):
    """A counted event."""

    minute: int
    job_id: str
    what: str
    """The name of its count in a cell."""
    pending: int = 0
    """Change of the number of pending jobs."""
    running: int = 0


class CountedJob(NamedTuple):
    """Facts from a job's record that its journal lacks."""

    pair: Pair
    wait_s: float | None = None
    run_s: float | None = None


NOTHING = CountedJob(OTHER)


class _Times(msgspec.Struct, frozen=True, gc=False):
    started_at: datetime | None = None
    completed_at: datetime | None = None


class _SeriesBody(msgspec.Struct, gc=False):
    task: str
    data: _Times = _Times()


_decode_job = msgspec.json.Decoder(_SeriesBody).decode


def minute_of(at: datetime) -> int:
    """Return the number of a minute since 1970."""
    return int(at.timestamp() // 60)


def events_of(entries: Iterable[Entry]) -> Iterator[CountedEvent]:
    """Yield the counted events of these entries.

    Neighbours of one batch share note and time.
    """
    note: Note | None = None
    at: datetime | None = None
    counts: tuple[tuple[str, int, int], ...] = ()
    minute = 0
    for entry in entries:
        if entry.kind != JOB.name or entry.note.refusal:
            continue
        if entry.note is not note:
            note, counts = entry.note, _counts_of(entry.note.steps)
        if entry.at is not at:
            at, minute = entry.at, minute_of(entry.at)
        if entry.version == 1:
            yield CountedEvent(minute, entry.id, "submitted", 1)
        for what, pending, running in counts:
            yield CountedEvent(minute, entry.id, what, pending, running)


def _counts_of(steps: Sequence[StepLine]) -> tuple[tuple[str, int, int], ...]:
    """Return the counted events of the steps of a job.

    Each has its change of pending and running jobs.
    """
    moved, ended = [], False
    for step in steps:
        if step.machine == JOB.name and step.moves and (what := _MOVES.get(str(step.target))):
            ended = what != "started"
            begun = str(step.source) == job.RUNNING
            moved.append((what, 0 if begun else -1, int(what == "started") - int(begun)))
    return (*moved, *(("retried", 0, 0) for step in steps if not ended and _is_lost_try(step)))


def _is_lost_try(step: StepLine) -> bool:
    """Return whether an attempt has ended without success.

    A released one does not count.
    """
    return (
        step.machine == ATTEMPT.name
        and step.moves
        and str(step.target) in _TRIED
        and step.event != lease_revoked.name
    )


def facts_of(record: Record) -> CountedJob:
    """Return the queue and task of a job, and its durations if it has ended."""
    (facts,) = facts_of_all([record])
    return facts


def facts_of_all(records: Iterable[Record]) -> Iterator[CountedJob]:
    """Yield the facts about each job.

    Bodies of alike jobs are the same, and decoded once.
    """
    bodies: dict[bytes, _SeriesBody | None] = {}
    for record in records:
        if record.body not in bodies:
            bodies[record.body] = _decoded(record.body)
        body, queue = bodies[record.body], record.queue or ""
        if body is None:
            yield CountedJob((queue, ""))
            continue
        times, wait_s, run_s = body.data, None, None
        if times.started_at is not None and times.completed_at is not None:
            wait_s = max(0.0, (times.started_at - record.created_at).total_seconds())
            run_s = max(0.0, (times.completed_at - times.started_at).total_seconds())
        yield CountedJob((queue, body.task), wait_s, run_s)


def _decoded(body: bytes) -> _SeriesBody | None:
    """Return what counts of the body of a job.

    Return None if it is invalid, which must not stop all counting.
    """
    try:
        return _decode_job(body)
    except msgspec.MsgspecError:
        return None


def sample(ids: Sequence[str], most: int) -> list[str]:
    """Return at most this many of the ids, evenly spread."""
    if len(ids) <= most:
        return list(ids)
    return [ids[place * len(ids) // most] for place in range(most)]


def spread(ids: Sequence[str], known: Mapping[str, CountedJob]) -> dict[str, CountedJob]:
    """Return facts for each id.

    An unknown one gets those of the nearest known one before it.
    """
    latest = next((known[job_id] for job_id in ids if job_id in known), NOTHING)
    facts: dict[str, CountedJob] = {}
    for job_id in ids:
        latest = facts[job_id] = known.get(job_id, latest)
    return facts


def cells_of(events: Iterable[CountedEvent], facts: Mapping[str, CountedJob]) -> dict[tuple[int, Pair], Cell]:
    """Return the counts by minute and pair."""
    known = [(event, facts.get(event.job_id, NOTHING)) for event in events]
    cells: dict[tuple[int, Pair], Cell] = {}
    for (minute, pair, what), number in Counter(
        [(one.minute, of.pair, one.what) for one, of in known]
    ).items():
        cell = cells.setdefault((minute, pair), Cell())
        setattr(cell, what, getattr(cell, what) + number)
    for event, of in known:
        if event.what not in ENDS:
            continue
        cell = cells[event.minute, of.pair]
        for buckets, seconds in ((cell.wait, of.wait_s), (cell.run, of.run_s)):
            if seconds is not None:
                bucket = bucket_of(seconds)
                buckets[bucket] = buckets.get(bucket, 0) + 1
    return cells


def backlog_after(
    before: Backlog, events: Iterable[CountedEvent], facts: Mapping[str, CountedJob]
) -> Backlog:
    """Return the backlog by queue after these events.

    Queues without any are left out.
    """
    backlog = dict(before)
    moves = Counter(
        [
            (facts.get(event.job_id, NOTHING).pair[0], event.pending, event.running)
            for event in events
            if event.pending or event.running
        ]
    )
    for (queue, pending, running), times in moves.items():
        was = backlog.get(queue, (0, 0))
        backlog[queue] = (was[0] + pending * times, was[1] + running * times)
    return {
        queue: (max(0, pending), max(0, running))
        for queue, (pending, running) in backlog.items()
        if pending > 0 or running > 0
    }
