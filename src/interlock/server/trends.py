"""What the figures of the last hour say: backlogs that grow, and failures that jumped. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from interlock.systems.figures.series import Cell, Pair, Part
from interlock.systems.figures.tally import minute_of

GROWTH_MIN, STILL_MIN = 10, 3
"""A backlog grows when more was submitted than has ended, in both of these stretches of minutes."""
LEAST_GROWTH = 50
LATELY_MIN = 5
LEAST_FAILURES = 5
LEAST_SHARE, TIMES = 0.2, 3.0
"""Failures jumped when this share of jobs failed lately, and so many times the share of before."""


class Growth(NamedTuple):
    """A backlog that grows."""

    queue: str
    sentence: str


class Jump(NamedTuple):
    """A task that fails more often than before."""

    queue: str
    task: str
    since: datetime
    sentence: str


class Trends:
    """The figures of the last hour, for some queues or for all."""

    def __init__(self, parts: Sequence[Part], now: datetime, queues: frozenset[str] = frozenset()) -> None:
        self._minute = minute_of(now)
        self._cells: list[tuple[int, Pair, Cell]] = [
            (minute, part.pairs[place], cell)
            for part in parts
            for minute, cells in part.cells.items()
            for place, cell in cells.items()
            if part.pairs[place][0] and (not queues or part.pairs[place][0] in queues)
        ]
        samples = {minute: backlog for part in parts for minute, backlog in part.backlog.items()}
        self._backlog = samples[max(samples)] if samples else {}

    def growing(self) -> Iterator[Growth]:
        """Return the queues whose backlog has grown by half in ten minutes, and still grows."""
        for queue in sorted({pair[0] for _, pair, _ in self._cells}):
            lately, still = self._flow(queue, GROWTH_MIN), self._flow(queue, STILL_MIN)
            grown = lately.submitted - _ended(lately)
            pending = max(grown, self._backlog.get(queue, (0, 0))[0])
            if grown >= LEAST_GROWTH and 3 * grown >= pending and still.submitted > _ended(still):
                flow = f"{lately.submitted:,} jobs were submitted and {_ended(lately):,} ended"
                yield Growth(
                    queue, f"The backlog of the queue {queue} grows: in {GROWTH_MIN} minutes {flow}."
                )

    def jumped(self) -> Iterator[Jump]:
        """Return the tasks of which many more fail than in the hour before."""
        first = self._minute - LATELY_MIN + 1
        for pair in sorted({pair for _, pair, cell in self._cells if cell.failed}):
            lately, before = Cell(), Cell()
            since = self._minute
            for minute, each, cell in self._cells:
                if each == pair:
                    (lately if minute >= first else before).add(cell)
                    since = min(since, minute) if cell.failed and minute >= first else since
            share, usual = _share(lately), _share(before)
            if lately.failed >= LEAST_FAILURES and share >= LEAST_SHARE and share >= TIMES * usual:
                usually = f"in the hour before {usual:.0%}" if _ended(before) else "none had ended before"
                queue, task = pair
                jobs = (
                    f"{_ended(lately):,} jobs{f' with the task {task}' if task else ''} in the queue {queue}"
                )
                yield Jump(
                    queue,
                    task,
                    datetime.fromtimestamp(since * 60, UTC),
                    f"{lately.failed:,} of {jobs} failed in the last {LATELY_MIN} minutes ({share:.0%}); "
                    f"{usually}.",
                )

    def _flow(self, queue: str, minutes: int) -> Cell:
        """Return what has happened in a queue in the last minutes."""
        flow = Cell()
        for minute, pair, cell in self._cells:
            if pair[0] == queue and minute > self._minute - minutes:
                flow.add(cell)
        return flow


def _ended(cell: Cell) -> int:
    return cell.completed + cell.failed + cell.canceled


def _share(cell: Cell) -> float:
    return cell.failed / _ended(cell) if _ended(cell) else 0.0
