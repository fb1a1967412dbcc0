"""How anything here is timed.

The contenders take turns (A B C, A B C, …) in one process, so that a machine that is busy for a
while is busy for all of them. The figure is the median of the rounds, with the least and the most
beside it; two contenders are compared round by round, so that only turns of the same moment meet.
The garbage collector is off while the clock runs, and runs before each turn.
"""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable, Mapping
from statistics import median
from time import perf_counter, process_time
from typing import TypeAlias

import msgspec

Work: TypeAlias = Callable[[], object]
"""What is done while the clock runs; everything it needs was made before."""

Prepare: TypeAlias = Callable[[int], Work]
"""Makes the work of so many repetitions; not timed."""

Clock: TypeAlias = Callable[[], float]
"""Seconds, of which only differences mean something."""


class Pace(msgspec.Struct, frozen=True):
    """How long a run may take: the number of rounds, and how long one turn lasts at least."""

    rounds: int
    turn_s: float
    instances: int
    store_rounds: int
    """What involves a disk takes longer, and is given fewer rounds of a fixed length."""
    store_batches: int
    store_crowds: int
    crowd: int
    history: int
    commits: int
    jobs: int
    """How many are queued and drained; a slow peer is given fewer."""
    job_rounds: int
    job_probes: int
    """How many single jobs are timed on an idle system."""
    job_submissions: int
    job_crowd: int | None = None
    """The long queue, where there is time for it."""
    job_at_once: int | None = None
    """No worker has more jobs than this at once; as many as suits each contender when left out."""
    stores: tuple[str, ...] = ()
    peers: tuple[str, ...] = ()
    """What the job queues are compared on and with; nothing means everything."""


FULL = Pace(
    rounds=21,
    turn_s=0.03,
    instances=2_000,
    store_rounds=9,
    store_batches=40,
    store_crowds=8,
    crowd=100_000,
    history=200_000,
    commits=50_000,
    jobs=100_000,
    job_rounds=3,
    job_probes=100,
    job_submissions=500,
)
QUICK = Pace(
    rounds=5,
    turn_s=0.01,
    instances=1_000,
    store_rounds=3,
    store_batches=10,
    store_crowds=2,
    crowd=20_000,
    history=20_000,
    commits=5_000,
    jobs=5_000,
    job_rounds=1,
    job_probes=30,
    job_submissions=100,
)
LONG = msgspec.structs.replace(
    FULL, crowd=1_000_000, history=5_000_000, commits=1_000_000, job_crowd=1_000_000
)
"""Only the stores and the queue have something to gain from it."""


class Figure(msgspec.Struct, frozen=True):
    """What one contender needed for one operation in each round; microseconds, or bytes."""

    rounds: tuple[float, ...]

    @property
    def median(self) -> float:
        """The figure that is reported."""
        return median(self.rounds)

    def ratio(self, base: Figure) -> float:
        """How many times as much as `base`: the median of what the rounds say.

        A short round may take less than the processors' clock can tell; it says nothing.
        """
        pairs = zip(self.rounds, base.rounds, strict=True)
        ratios = [ours / theirs for ours, theirs in pairs if theirs]
        return median(ratios) if ratios else float("nan")


class Raced(msgspec.Struct, frozen=True):
    """What each contender needed by the clock on the wall, and on the processors."""

    taken: dict[str, Figure]
    used: dict[str, Figure]


def race(contenders: Mapping[str, Prepare], pace: Pace, *, operations: int = 1) -> dict[str, Figure]:
    """Time the contenders in turns; each repetition of the work counts as so many operations."""
    repetitions = {name: _repetitions(prepare, pace.turn_s) for name, prepare in contenders.items()}
    turns: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(pace.rounds):
        for name, prepare in contenders.items():
            seconds = _clock(prepare(repetitions[name]))
            turns[name].append(seconds * 1e6 / repetitions[name] / operations)
    return {name: Figure(tuple(taken)) for name, taken in turns.items()}


def race_evenly(
    contenders: Mapping[str, Prepare],
    rounds: int,
    repetitions: int,
    *,
    operations: int,
    used_s: Clock = process_time,
) -> Raced:
    """The same where what was done stays behind: all do it as often, and once before it counts.

    `used_s` is the time that everybody involved has spent on a processor.
    """
    for prepare in contenders.values():
        prepare(repetitions)()
    taken: dict[str, list[float]] = {name: [] for name in contenders}
    used: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, prepare in contenders.items():
            work = prepare(repetitions)
            gc.collect()  # before the processors are looked at: it is nobody's work
            before_s = used_s()
            taken[name].append(_undisturbed(work) * 1e6 / repetitions / operations)
            used[name].append((used_s() - before_s) * 1e6 / repetitions / operations)
    return Raced(
        {name: Figure(tuple(figures)) for name, figures in taken.items()},
        {name: Figure(tuple(figures)) for name, figures in used.items()},
    )


def weigh(contenders: Mapping[str, Prepare], pace: Pace) -> dict[str, Figure]:
    """The bytes that stay allocated for one instance; the work has to return what it made."""
    return {name: Figure((_weight(prepare, pace.instances),)) for name, prepare in contenders.items()}


def _repetitions(prepare: Prepare, turn_s: float) -> int:
    """Enough of them that the clock's own grain is no part of the figure; also warms the caches."""
    repetitions = 1
    while (seconds := _clock(prepare(repetitions))) < turn_s / 2:
        repetitions *= 2
    return max(1, round(repetitions * turn_s / seconds))


def _clock(work: Work) -> float:
    gc.collect()
    return _undisturbed(work)


def _undisturbed(work: Work) -> float:
    gc.disable()
    try:
        start = perf_counter()
        work()
        return perf_counter() - start
    finally:
        gc.enable()


def _weight(prepare: Prepare, instances: int) -> float:
    prepare(1)()  # what is made once and shared by all is no part of an instance
    work = prepare(instances)
    gc.collect()
    tracemalloc.start()
    try:
        kept = work()
        gc.collect()
        size, _peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    del kept
    return size / instances
