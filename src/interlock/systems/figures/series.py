"""What a record of figures keeps: counts and durations by period, queue and task. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias

import msgspec

Pair: TypeAlias = tuple[str, str]
"""A queue and a task. An empty task stands for other tasks of the queue, an empty queue for other queues."""

OTHER: Pair = ("", "")
PAIRS = 100
"""How many pairs of queue and task a record tells apart; further tasks are counted by their queue alone."""
QUEUES = 50
"""How many further queues it tells apart, in counts and in samples of the backlog."""
LARGEST = 786_432
"""A body with more bytes tells fewer pairs apart; a store takes bodies of up to 1 MiB."""

PER_OCTAVE = 2
LAST = 62
"""The last bucket of a histogram: 2**(61 / 2) ms and more, which is about eighteen days."""


class Grain(NamedTuple):
    """How long the periods are that are counted, and how many of them share a record."""

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
    """What has happened in a period to jobs of a queue and task."""

    submitted: int = 0
    started: int = 0
    """For the first time."""
    completed: int = 0
    failed: int = 0
    canceled: int = 0
    retried: int = 0
    wait: dict[int, int] = msgspec.field(default_factory=dict)
    """How long jobs that have ended had waited for their first start: numbers by bucket."""
    run: dict[int, int] = msgspec.field(default_factory=dict)
    """How long they took from then on."""

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
        """How much has happened in all."""
        return self.submitted + self.completed + self.failed + self.canceled + self.retried


Backlog: TypeAlias = dict[str, tuple[int, int]]
"""By queue: how many jobs were pending and running."""


class Part(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The body of a record of figures."""

    pairs: list[Pair] = []
    cells: dict[int, dict[int, Cell]] = {}
    """By period (its number since 1970), then by place in `pairs`."""
    backlog: dict[int, Backlog] = {}
    """By period: the last sample in it."""
    gaps: list[int] = []
    """Periods after which entries of the journal were removed before they were counted."""
    estimated: int = 0
    """How many events are of jobs whose queue and task were taken from a sample."""

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

    def folded(self, into: Callable[[Pair], Pair]) -> Part:
        """Return the same counts with fewer pairs told apart."""
        less = msgspec.structs.replace(self, pairs=[], cells={})
        for period, cells in self.cells.items():
            for place, cell in cells.items():
                less.add(period, into(self.pairs[place]), cell)
        return less


def read_part(body: bytes) -> Part:
    """Return the figures in a record."""
    return _decode(body)


def written(part: Part) -> bytes:
    """Return the body of a record; one that would be too large tells fewer pairs apart."""
    body = msgspec.json.encode(part)
    if len(body) > LARGEST:
        body = msgspec.json.encode(part.folded(lambda pair: (pair[0], "")))
    if len(body) > LARGEST:
        body = msgspec.json.encode(part.folded(lambda _: OTHER))
    return body


_decode = msgspec.json.Decoder(Part).decode


def bucket_of(seconds: float) -> int:
    """Return the bucket of a duration: 0 is less than a millisecond, then two for each doubling."""
    ms = seconds * 1_000
    return 0 if ms < 1 else min(LAST, 1 + int(PER_OCTAVE * math.log2(ms)))


def percentile(buckets: Mapping[int, int], share: float) -> float | None:
    """Return the seconds that this share of durations does not exceed, within a fifth; None without any."""
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
    """Return the backlog of the queues that have most of it; of more than so many the rest is one."""
    ranked = sorted(backlog, key=lambda queue: (not queue, -sum(backlog[queue]), queue))
    kept = {queue: backlog[queue] for queue in ranked[:most]}
    if rest := [backlog[queue] for queue in ranked[most:]]:
        kept[""] = (sum(each[0] for each in rest), sum(each[1] for each in rest))
    return kept
