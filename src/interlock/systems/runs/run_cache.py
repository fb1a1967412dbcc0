"""Runs and their held jobs as this process has last written them, so that they are not loaded again.

They are guesses: each decision about them names the version that it was made on, so a commit about one that
another process has changed meanwhile conflicts. Then it is forgotten here, and loaded.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import NamedTuple

import msgspec

from interlock.lifecycles.run import RUN
from interlock.store.contract import Store
from interlock.store.records import Key, Record
from interlock.systems.orchestrator.shapes import Shape, of_any_run, shape_of

KEPT_RUNS = 512
"""Number of runs that are remembered."""
KEPT_BYTES = 4_000_000
"""Size of their bodies together: a run has a character for each job."""
MOST_SHAPES = 255


class SharedShape(NamedTuple):
    """A shape of jobs of any run."""

    like: Record
    """A job of it."""
    terms: Shape
    """All that decisions about it depend on."""


def shared_shape(record: Record) -> SharedShape:
    """Return the shape of a job; that of any run, if it belongs to one."""
    like = of_any_run(record)
    return SharedShape(like, shape_of(like))


class HeldShape(NamedTuple):
    """A shape of held jobs of a run, which were created together."""

    shared: SharedShape
    at: datetime
    """The time at which they were written."""


class HeldJobs(msgspec.Struct):
    """The held jobs of a run as they were created, by shape."""

    shapes: list[HeldShape]
    numbers: bytearray
    """For each place the number of its shape, from one on; zero if it is not known."""

    def add(self, like: Record, places: Iterable[int]) -> None:
        """Add created jobs that are alike."""
        if len(self.shapes) == MOST_SHAPES:
            return
        self.shapes.append(HeldShape(shared_shape(like), like.updated_at))
        number, numbers = len(self.shapes), self.numbers
        for place in places:
            numbers[place] = number

    def by_shape(self, places: Sequence[int]) -> list[tuple[HeldShape, list[int]]]:
        """Return these places, as far as they are known, by shape."""
        found: dict[int, list[int]] = {}
        for place in places:
            if number := self.numbers[place]:
                found.setdefault(number, []).append(place)
        return [(self.shapes[number - 1], some) for number, some in found.items()]


class KnownRuns:
    """The runs that this process has written last."""

    def __init__(self, store: Callable[[], Store]) -> None:
        self._store = store
        self._runs: OrderedDict[str, Record] = OrderedDict()
        self._held: dict[str, HeldJobs] = {}
        self._size = 0

    async def load(self, run_ids: Sequence[str]) -> list[Record | None]:
        """Return the runs as they are known here, or else in the store."""
        found = {run_id: self._runs.get(run_id) for run_id in run_ids}
        missing = [run_id for run_id, record in found.items() if record is None]
        if missing:
            loaded = await self._store().load([Key(RUN.name, run_id) for run_id in missing])
            found |= dict(zip(missing, loaded, strict=True))
        return [found[run_id] for run_id in run_ids]

    def remember(self, record: Record) -> None:
        """Remember a run as it was committed."""
        before = self._runs.pop(record.id, None)
        self._size += len(record.body) - (0 if before is None else len(before.body))
        self._runs[record.id] = record
        while len(self._runs) > KEPT_RUNS or (self._size > KEPT_BYTES and len(self._runs) > 1):
            self.forget(next(iter(self._runs)))

    def forget(self, run_id: str) -> None:
        """Forget a run and its held jobs."""
        known = self._runs.pop(run_id, None)
        if known is not None:
            self._size -= len(known.body)
        self._held.pop(run_id, None)

    def clear(self) -> None:
        """Forget everything."""
        self._runs.clear()
        self._held.clear()
        self._size = 0

    def hold(self, run_id: str, number: int, like: Record, places: Iterable[int]) -> None:
        """Remember held jobs of a known run of `number` jobs; they are alike."""
        if run_id in self._runs:
            held = self._held.get(run_id)
            if held is None:
                held = self._held[run_id] = HeldJobs([], bytearray(number))
            held.add(like, places)

    def held(self, run_id: str) -> HeldJobs | None:
        """Return the held jobs of a run, as far as they are known."""
        return self._held.get(run_id)
