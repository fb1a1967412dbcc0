"""Turn records of figures into the points of a chart. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from interlock.store.records import Key
from interlock.systems.figures.lifecycle import FIGURES
from interlock.systems.figures.series import HOURS, MINUTES, Backlog, Cell, Grain, Pair, Part, percentile
from interlock.wire.figures import Figure, FigurePoint, FiguresView, TaskFigure

POINTS = 120
STEPS_MIN = (1, 2, 5, 15, 60, 120)
LONGEST_MIN = 10_080
TASKS = 50
"""How many pairs of queue and task are shown."""


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """Which figures are wanted."""

    minutes: int = 60
    queue: str = ""
    task: str = ""
    queues: frozenset[str] = frozenset()
    """The queues that may be seen; all of them where none is named."""

    @property
    def step_min(self) -> int:
        """How many minutes a point is about."""
        return next(step for step in STEPS_MIN if self.minutes <= step * POINTS)

    @property
    def grain(self) -> Grain:
        """Which records it is answered from."""
        return HOURS if self.step_min >= HOURS.period_s // 60 else MINUTES

    def shows(self, queue: str) -> bool:
        """Whether jobs of a queue are meant."""
        return (not self.queues or queue in self.queues) and self.queue in ("", queue)

    def means(self, pair: Pair) -> bool:
        """Whether jobs of a queue and task are meant."""
        return self.shows(pair[0]) and self.task in ("", pair[1])


class _Span:
    """The steps that a question is about."""

    def __init__(self, question: Question, now: datetime) -> None:
        self.step_s = question.step_min * 60
        self.number = -(-question.minutes // question.step_min)
        self.first = int(now.timestamp()) // self.step_s - self.number + 1

    def step_of(self, grain: Grain, period: int) -> int | None:
        """Return the place of the step that a period is in."""
        place = period * grain.period_s // self.step_s - self.first
        return place if 0 <= place < self.number else None

    def at(self, place: int) -> datetime:
        """Return when a step begins."""
        return datetime.fromtimestamp((self.first + place) * self.step_s, UTC)


def keys_for(question: Question, now: datetime) -> list[Key]:
    """Return the records from which a question is answered, the oldest first."""
    span, grain = _Span(question, now), question.grain
    first = span.first * span.step_s // grain.record_s
    last = int(now.timestamp()) // grain.record_s
    return [Key(FIGURES.name, grain.id_of(number)) for number in range(first, last + 1)]


def answered(
    question: Question, now: datetime, parts: Sequence[Part], counted_until: datetime | None
) -> FiguresView:
    """Return what is asked for, from the records of `keys_for`."""
    span, grain = _Span(question, now), question.grain
    cells = [Cell() for _ in range(span.number)]
    tasks: dict[Pair, Cell] = {}
    totals = Cell()
    for period, pair, cell in _cells(parts):
        place = span.step_of(grain, period)
        if place is not None and question.means(pair):
            cells[place].add(cell)
            tasks.setdefault(pair, Cell()).add(cell)
            totals.add(cell)
    backlogs: dict[int, Backlog] = {}
    gaps: set[int | None] = set()
    for part in parts:
        gaps |= {span.step_of(grain, period) for period in part.gaps}
        for period in sorted(part.backlog):
            if (place := span.step_of(grain, period)) is not None:
                backlogs[place] = part.backlog[period]
    return FiguresView(
        since=span.at(0),
        until=now,
        step_s=span.step_s,
        counted_until=counted_until,
        points=tuple(
            FigurePoint(
                at=span.at(place),
                gap=place in gaps,
                **_waiting(question, backlogs.get(place)),
                **_figure(cell),
            )
            for place, cell in enumerate(cells)
        ),
        totals=Figure(**_figure(totals)),
        tasks=tuple(
            TaskFigure(queue=pair[0], task=pair[1], **_figure(cell))
            for pair, cell in sorted(tasks.items(), key=lambda item: (-item[1].events, item[0]))[:TASKS]
        ),
        estimated=0 if question.queues else sum(part.estimated for part in parts),
    )


def by_queue(parts: Sequence[Part], now: datetime, minutes: int) -> dict[str, Figure]:
    """Return what has happened in each queue, from the records of `keys_for`."""
    question = Question(minutes=minutes)
    span, queues = _Span(question, now), dict[str, Cell]()
    for period, pair, cell in _cells(parts):
        if span.step_of(question.grain, period) is not None:
            queues.setdefault(pair[0], Cell()).add(cell)
    return {queue: Figure(**_figure(cell)) for queue, cell in queues.items() if queue}


def _cells(parts: Iterable[Part]) -> Iterator[tuple[int, Pair, Cell]]:
    for part in parts:
        for period, cells in part.cells.items():
            for place, cell in cells.items():
                yield period, part.pairs[place], cell


def _waiting(question: Question, backlog: Backlog | None) -> dict[str, int]:
    """Return the backlog of the queues that are meant; samples do not tell tasks apart."""
    if backlog is None or question.task:
        return {}
    meant = [numbers for queue, numbers in backlog.items() if question.shows(queue)]
    return {"pending": sum(each[0] for each in meant), "running": sum(each[1] for each in meant)}


def _figure(cell: Cell) -> dict[str, Any]:
    return {
        "submitted": cell.submitted,
        "started": cell.started,
        "completed": cell.completed,
        "failed": cell.failed,
        "canceled": cell.canceled,
        "retried": cell.retried,
        "wait_p50_s": percentile(cell.wait, 0.5),
        "wait_p95_s": percentile(cell.wait, 0.95),
        "run_p50_s": percentile(cell.run, 0.5),
        "run_p95_s": percentile(cell.run, 0.95),
    }
