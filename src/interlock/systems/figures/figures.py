"""`Figures`: compute figures from the journal, and return the points of a chart.

They are exact, with any number of servers that count.

Why: decision 0355.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

import msgspec

from interlock.engine.aggregate import RecordKind
from interlock.engine.unit_of_work import Engine
from interlock.lifecycles import job
from interlock.lifecycles.job import JOB
from interlock.store.records import Change, Commit, Committed, Entry, Feed, Key, Query, Record
from interlock.systems.figures.series import (
    COUNTING,
    ENDS,
    FIGURES,
    GRAINS,
    HOURS,
    KEPT,
    MINUTES,
    NOTHING,
    Backlog,
    Cell,
    CountedEvent,
    CountedJob,
    Grain,
    Pair,
    PeriodFigures,
    backlog_after,
    cells_of,
    count,
    events_of,
    facts_of_all,
    largest,
    minute_of,
    percentile,
    read_part,
    sample,
    spread,
    written,
)
from interlock.wire.figures import Figure, FigurePoint, FiguresView, TaskFigure

POINTS = 120
STEPS_MIN = (1, 2, 5, 15, 60, 120)
TASKS = 50
"""Maximum number of pairs of queue and task shown."""


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """A query of figures."""

    minutes: int = 60
    queue: str = ""
    task: str = ""
    queues: frozenset[str] = frozenset()
    """The visible queues; empty for all."""

    @property
    def step_min(self) -> int:
        """Minutes of one point."""
        return next(step for step in STEPS_MIN if self.minutes <= step * POINTS)

    @property
    def grain(self) -> Grain:
        """The grain of the records to read."""
        return HOURS if self.step_min >= HOURS.period_s // 60 else MINUTES

    def shows(self, queue: str) -> bool:
        """Return whether the query includes a queue."""
        return (not self.queues or queue in self.queues) and self.queue in ("", queue)

    def means(self, pair: Pair) -> bool:
        """Return whether the query includes a queue and task."""
        return self.shows(pair[0]) and self.task in ("", pair[1])


class _Span:
    """The steps of a query."""

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
    question: Question, now: datetime, parts: Sequence[PeriodFigures], counted_until: datetime | None
) -> FiguresView:
    """Return the figures, from the records of `keys_for`."""
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


def by_queue(parts: Sequence[PeriodFigures], now: datetime, minutes: int) -> dict[str, Figure]:
    """Return the figures of each queue, from the records of `keys_for`."""
    question = Question(minutes=minutes)
    span, queues = _Span(question, now), dict[str, Cell]()
    for period, pair, cell in _cells(parts):
        if span.step_of(question.grain, period) is not None:
            queues.setdefault(pair[0], Cell()).add(cell)
    return {queue: Figure(**_figure(cell)) for queue, cell in queues.items() if queue}


def _cells(parts: Iterable[PeriodFigures]) -> Iterator[tuple[int, Pair, Cell]]:
    for part in parts:
        for period, cells in part.cells.items():
            for place, cell in cells.items():
                yield period, part.pairs[place], cell


def _waiting(question: Question, backlog: Backlog | None) -> dict[str, int]:
    """Return the backlog of the included queues.

    Samples do not distinguish tasks.
    """
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


EVERY_S = 5.0
LATE_S = 3 * EVERY_S
"""Age of an uncounted entry that shows that counting has not caught up."""
SPACING_S = 4.0
"""A server leaves a round out when another one has counted less than this long ago."""
ENTRIES = 2_000
"""Maximum entries counted in one round."""
RECORDS = 8
"""Maximum quarters of an hour in one round; after days of downtime several rounds are needed."""
LOADS, CHUNK = 1_000, 100
"""Maximum jobs loaded in one round for their queue, task and durations; above it, an even sample."""
BYTES = 8 * 1_048_576
"""Maximum bytes loaded: inputs may be large."""
KNOWN = 500
"""Number of queues distinguished in the backlog."""
REMEMBERED = 50_000
"""Number of jobs whose queue and task are cached, so that they are loaded once."""
RECOUNTED = 500
"""A backlog of at most this many jobs in each state is recounted periodically, when idle."""
COUNTED_FIRST = 20_000
"""Number of jobs in each state that the first count of a store takes."""
FRESH_S = 2.0
"""Time for which an answer is cached."""
ANSWERS = 64
HEAD = Key(FIGURES.name, "head")
_FIGURES = RecordKind(FIGURES, msgspec.Raw, journalled=False)


class Reads(Protocol):
    """Reads the journal like a store."""

    async def __call__(self, after: str, /, *, limit: int) -> Feed:
        """Return the entries after a cursor."""
        ...


class Head(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The body of the head record."""

    cursor: str
    at: datetime
    """The time up to which the journal was counted."""
    behind: bool = False
    """Whether there were more entries than a round counts."""
    backlog: Backlog = {}
    """Pending and running jobs by queue, derived from the journal."""
    sampled: int = 0
    """The minute of the last sample of the backlog."""
    partial: bool = False
    """Whether there were more jobs than the first count takes: the backlog is a lower bound."""
    recounted: int = 0
    """The hour of the last recount; 0 if it may be inexact, because queues were estimated."""


class Figures:
    """The figures in a store."""

    def __init__(
        self,
        engine: Engine,
        *,
        spacing_s: float = SPACING_S,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._engine = engine
        self._spacing = timedelta(seconds=spacing_s)
        self._monotonic = monotonic
        self._pairs: dict[str, Pair] = {}
        self._answers: dict[Question, tuple[float, FiguresView]] = {}

    # Counting

    async def round(self, read: Reads | None = None) -> int:
        """Count new entries of the journal; return `ENTRIES` if there are more.

        A server that has already read the journal passes `read`.
        """
        now = await self._engine.clock.now()
        (record,) = await self._engine.store.load([HEAD])
        if record is None:
            return await self._begin(now)
        head = _head(record)
        if now - record.updated_at < self._spacing and not head.behind:
            return 0
        feed = await (read or self._engine.store.feed)(head.cursor, limit=ENTRIES)
        entries = _first(feed.entries)
        events = list(events_of(entries))
        known = await self._facts(events)
        facts = spread(list(dict.fromkeys(event.job_id for event in events)), known)
        estimated = sum(event.job_id not in known for event in events)
        minute = minute_of(now)
        after = msgspec.structs.replace(
            head,
            cursor=entries[-1].cursor if entries else feed.cursor or head.cursor,
            at=entries[-1].at if entries else now,
            behind=len(entries) < len(feed.entries) or len(feed.entries) >= ENTRIES,
            backlog=largest(backlog_after(head.backlog, events, facts), KNOWN),
            recounted=0 if estimated or feed.gap else head.recounted,
        )
        if not entries and not feed.gap and minute > head.sampled and head.recounted != minute // 60:
            await self._recount(after, minute)
        additions = _Additions(cells_of(events, facts), estimated)
        additions.gap = minute_of(head.at) if feed.gap else None
        if minute > head.sampled and not after.behind:
            after.sampled = additions.sampled = minute
            additions.backlog = largest(after.backlog)
        if entries or feed.gap or additions.backlog is not None:
            await self._commit(record, after, additions, now)
        return ENTRIES if after.behind else len(events)

    async def sweep(self, *, limit: int = 100) -> int:
        """Remove records that are too old to be shown."""

        def decide(records: Sequence[Record], now: datetime) -> list[Commit]:
            return [Commit(changes=(_forgotten(record, now),)) for record in records]

        outcomes = await self._engine.due([FIGURES.name], limit, decide)
        return sum(isinstance(outcome, Committed) for outcome in outcomes)

    async def backlog(self) -> Backlog:
        """Return the pending and running jobs by queue, as of the last count."""
        (record,) = await self._engine.store.load([HEAD])
        return {} if record is None else _head(record).backlog

    async def is_complete(self, now: datetime) -> bool:
        """Return whether all jobs are counted, but for those of the last seconds."""
        (record,) = await self._engine.store.load([HEAD])
        if record is None or (head := _head(record)).behind or head.partial:
            return False
        feed = await self._engine.store.feed(head.cursor, limit=1)
        return all((now - entry.at).total_seconds() < LATE_S for entry in feed.entries)

    async def counted_until(self) -> datetime | None:
        """Return the time up to which the journal was counted.

        Return None if no server has.
        """
        (record,) = await self._engine.store.load([HEAD])
        return None if record is None else _head(record).at

    async def _begin(self, now: datetime) -> int:
        """Start counting now."""
        head = Head(cursor=await self._engine.store.latest(), at=now)
        await self._recount(head, minute_of(now))
        change = _change(HEAD.id, None, msgspec.json.encode(head), math.inf, now)
        await self._engine.committer.commit(Commit(changes=(change,)))
        return 0

    async def _recount(self, head: Head, minute: int) -> None:
        """Recount the backlog from the jobs themselves.

        With many jobs, or if something has changed meanwhile, the number derived from the journal is kept.
        The first count has no number to keep: it takes more jobs, and the number found.
        """
        first, complete = not head.sampled, True
        backlog: Backlog = {}
        for state, one in ((job.PENDING, (1, 0)), (job.RUNNING, (0, 1))):
            records, all_read = await self._unfinished(state, COUNTED_FIRST if first else RECOUNTED)
            complete = complete and all_read
            if not all_read and not first:
                return  # the number derived from the journal is better
            for queue in records:
                before = backlog.get(queue, (0, 0))
                backlog[queue] = (before[0] + one[0], before[1] + one[1])
        unchanged = not (await self._engine.store.feed(head.cursor, limit=1)).entries
        if unchanged or first:
            head.backlog, head.partial = backlog, not complete
            head.recounted = minute // 60 if unchanged and complete else 0

    async def _unfinished(self, state: job.JobState, most: int) -> tuple[list[str], bool]:
        """Return the queues of up to `most` jobs in a state, and if these are all."""
        queues: list[str] = []
        query, size = Query(kind=JOB.name, states=(state,), limit=RECOUNTED), 0
        while True:
            page = await self._engine.store.find(query)
            queues += [record.queue or "" for record in page.records]
            size += sum(record.size for record in page.records)
            if not page.cursor or len(queues) >= most or size > BYTES:
                return queues, not page.cursor
            query = msgspec.structs.replace(query, cursor=page.cursor)

    async def _facts(self, events: Sequence[CountedEvent]) -> dict[str, CountedJob]:
        """Return the facts about jobs: ended ones are loaded, others once."""
        ended = {event.job_id for event in events if event.what in ENDS}
        facts = {
            event.job_id: CountedJob(self._pairs[event.job_id])
            for event in events
            if event.job_id in self._pairs and event.job_id not in ended
        }
        ids = list(dict.fromkeys(event.job_id for event in events if event.job_id not in facts))
        wanted, size = sample(ids, LOADS), 0
        for start in range(0, len(wanted), CHUNK):
            if size > BYTES:
                break
            chunk = wanted[start : start + CHUNK]
            found = await self._engine.store.load([Key(JOB.name, job_id) for job_id in chunk])
            size += sum(record.size for record in found if record is not None)
            there = [record for record in found if record is not None]
            facts |= dict.fromkeys(chunk, NOTHING)
            facts |= zip([record.id for record in there], facts_of_all(there), strict=True)
        self._remember(facts, ended)
        return facts

    def _remember(self, facts: Mapping[str, CountedJob], ended: Collection[str]) -> None:
        self._pairs |= {job_id: each.pair for job_id, each in facts.items() if job_id not in ended}
        for job_id in ended:
            self._pairs.pop(job_id, None)
        while len(self._pairs) > REMEMBERED:
            del self._pairs[next(iter(self._pairs))]

    async def _commit(self, record: Record, head: Head, additions: _Additions, now: datetime) -> None:
        """Commit head and counts together; no effect if another server was faster."""
        wanted = [(grain, number) for grain in GRAINS for number in additions.records(grain)]
        keys = [Key(FIGURES.name, grain.id_of(number)) for grain, number in wanted]
        found = await self._engine.store.load(keys) if keys else []
        changes = [_change(HEAD.id, record, msgspec.json.encode(head), math.inf, now)]
        for (grain, number), before in zip(wanted, found, strict=True):
            if before is None or before.state == COUNTING:
                part = PeriodFigures() if before is None else read_part(before.body)
                additions.into(part, grain, number)
                changes.append(_part_change(grain, number, before, part, now))
        await self._engine.committer.commit(Commit(changes=tuple(changes)))

    # Reading

    async def read(self, question: Question) -> FiguresView:
        """Return the figures of a query, at most `FRESH_S` old."""
        known = self._answers.get(question)
        if known is not None and self._monotonic() < known[0] + FRESH_S:
            return known[1]
        now = await self._engine.clock.now()
        keys = [HEAD, *keys_for(question, now)]
        head, *records = await self._engine.store.load(keys)
        parts = [read_part(record.body) for record in records if record and record.state == COUNTING]
        view = answered(question, now, parts, None if head is None else _head(head).at)
        while len(self._answers) >= ANSWERS:
            del self._answers[next(iter(self._answers))]
        self._answers[question] = (self._monotonic(), view)
        return view

    async def recent(self, now: datetime) -> list[PeriodFigures]:
        """Return the minutes of the last hour, from the records."""
        records = await self._engine.store.load(keys_for(Question(minutes=60), now))
        return [read_part(record.body) for record in records if record and record.state == COUNTING]


class _Additions:
    """The additions of a round to the figures."""

    def __init__(self, cells: dict[tuple[int, Pair], Cell], estimated: int) -> None:
        self.cells = cells
        self.estimated = estimated
        self.backlog: Backlog | None = None
        self.sampled = 0
        self.gap: int | None = None

    def records(self, grain: Grain) -> list[int]:
        """Return the numbers of the records that change."""
        minutes = {minute for minute, _ in self.cells}
        minutes |= {self.sampled} if self.backlog is not None else set()
        minutes |= {self.gap} if self.gap is not None else set()
        return sorted({_record(grain, minute) for minute in minutes})

    def into(self, part: PeriodFigures, grain: Grain, number: int) -> None:
        """Add the counts of a record."""
        mine = {key: cell for key, cell in self.cells.items() if _record(grain, key[0]) == number}
        for (minute, pair), cell in mine.items():
            part.add(_period(grain, minute), pair, cell)
        if self.cells and number == _record(grain, next(iter(self.cells))[0]):
            part.estimated += self.estimated
        if self.backlog is not None and _record(grain, self.sampled) == number:
            part.backlog = {**part.backlog, _period(grain, self.sampled): self.backlog}
        if self.gap is not None and _record(grain, self.gap) == number:
            part.gaps = sorted({*part.gaps, _period(grain, self.gap)})


def _period(grain: Grain, minute: int) -> int:
    return minute * 60 // grain.period_s


def _record(grain: Grain, minute: int) -> int:
    return grain.record_of(_period(grain, minute))


def _first(entries: Sequence[Entry]) -> Sequence[Entry]:
    """Return the first entries that concern few enough records."""
    seen: set[int] = set()
    for place, entry in enumerate(entries):
        seen.add(_record(MINUTES, minute_of(entry.at)))
        if len(seen) > RECORDS:
            return entries[:place]
    return entries


def _head(record: Record) -> Head:
    return msgspec.json.decode(record.body, type=Head)


def _part_change(
    grain: Grain, number: int, before: Record | None, part: PeriodFigures, now: datetime
) -> Change:
    end = datetime.fromtimestamp((number + 1) * grain.record_s, UTC)
    kept_s = (end - now).total_seconds() + KEPT.seconds
    return _change(grain.id_of(number), before, written(part), kept_s, now)


def _change(name: str, before: Record | None, body: bytes, kept_s: float, now: datetime) -> Change:
    """Return the change of a record; a new one is kept for `kept_s`."""
    figures = _FIGURES.lasting(figures_kept_s=kept_s).upsert(before, name, msgspec.Raw(body), now)
    if before is not None:
        figures.must(count)
    return figures.change()


def _forgotten(record: Record, now: datetime) -> Change:
    """Return the change that ends a record; its body is dropped at once."""
    figures = _FIGURES.fired(record, now)
    figures.body = msgspec.Raw(b"{}")
    return figures.change()
