"""The overview: current problems, found with a bounded number of small reads of the store.

No table is counted: the backlog and its trends come from the figures of the last hour, workers are few, of
jobs only some of the oldest and newest are read, missed deadlines are found by deadline. No query names a
queue, because no index does. An answer is cached for some seconds, so many dashboards cost as much as one.

Why: decision 0427.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import msgspec

from interlock.engine.unit_of_work import Engine
from interlock.lifecycles import job
from interlock.lifecycles.job import JOB, JobState
from interlock.lifecycles.worker import WORKER
from interlock.store.records import Commit, Query, Record
from interlock.systems.figures.figures import Figures
from interlock.systems.figures.series import Backlog, Cell, Pair, PeriodFigures, facts_of, minute_of
from interlock.systems.orchestrator.explanation import (
    LIVING_WORKERS,
    Blocker,
    Claimer,
    blocker_of,
    claimer_of,
    no_worker_listens,
)
from interlock.systems.orchestrator.queues import Queues
from interlock.systems.quarantine import Quarantine
from interlock.systems.supervisor.aggregate import view_of
from interlock.text import counted
from interlock.wire.figures import Finding, LiveNumbers, LoopHealth, OverviewView, Remedy
from interlock.wire.jobs import QueueHold
from interlock.wire.workers import StandingView, WorkerView

GROWTH_MIN, STILL_MIN = 10, 3
"""A backlog grows if more jobs were submitted than ended, in both of these periods in minutes."""
LEAST_GROWTH = 50
LATELY_MIN = 5
LEAST_FAILURES = 5
LEAST_SHARE, TIMES = 0.2, 3.0
"""Failures jumped if this share of jobs failed lately, and this many times the share of before."""


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

    def __init__(
        self, parts: Sequence[PeriodFigures], now: datetime, queues: frozenset[str] = frozenset()
    ) -> None:
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
        """Yield the queues whose backlog has grown by half and still grows.

        It has grown in the last ten minutes.
        """
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
        """Yield the tasks that fail much more often than in the hour before."""
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
        """Return the figures of a queue in the last minutes."""
        flow = Cell()
        for minute, pair, cell in self._cells:
            if pair[0] == queue and minute > self._minute - minutes:
                flow.add(cell)
        return flow


def _ended(cell: Cell) -> int:
    return cell.completed + cell.failed + cell.canceled


def _share(cell: Cell) -> float:
    return cell.failed / _ended(cell) if _ended(cell) else 0.0


FRESH_S = 3.0
"""Time for which an answer is cached, in seconds."""
ANSWERS = 64
CAP = 10_000
"""Counting of jobs stops there."""
WORKERS = 500
"""Maximum number of workers to examine; with more, missing workers are not reported."""
JOBS = 40
"""Number of oldest and of newest pending jobs to examine."""
OVERDUE = 10
"""Number of missed deadlines to examine, the oldest first: records may be large."""
FIRST, LIGHT = 5, 65_536
"""Byte limit of the first jobs below which the others are read too: inputs may be large."""
FINDINGS = 50
LATE = timedelta(seconds=30)
"""Time after which a passed deadline counts as missed: sweeps run every few seconds."""
MISSED_BEATS = 3
MAX_FAILURES = 3
"""Consecutive failures after which a loop is reported."""

ERROR, WARNING = "error", "warning"


class OverviewInput(msgspec.Struct, frozen=True, kw_only=True):
    """The input of the findings."""

    now: datetime
    numbers: LiveNumbers
    backlog: Backlog = {}
    waiting: tuple[Record, ...] = ()
    """Oldest and newest pending jobs."""
    overdue: tuple[Record, ...] = ()
    """Records with the oldest missed deadlines."""
    workers: tuple[Record, ...] = ()
    all_workers: bool = True
    standings: tuple[StandingView, ...] = ()
    parts: tuple[PeriodFigures, ...] = ()
    loops: tuple[LoopHealth, ...] = ()
    beat_every_s: float = 10.0
    confined: frozenset[str] = frozenset()
    paused: tuple[QueueHold, ...] = ()


class Overview:
    """Makes the overview of a store, with a short cache."""

    def __init__(
        self,
        engine: Engine,
        *,
        figures: Figures,
        quarantine: Quarantine,
        queues: Queues,
        beat_every_s: float,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._engine = engine
        self._store = engine.store
        self._figures = figures
        self._quarantine = quarantine
        self._queues = queues
        self._beat_every_s = beat_every_s
        self._monotonic = monotonic
        self._answers: dict[frozenset[str], tuple[float, OverviewView]] = {}
        self._alone = asyncio.Lock()

    async def take(
        self, queues: frozenset[str] = frozenset(), loops: Sequence[LoopHealth] = ()
    ) -> OverviewView:
        """Return numbers and findings.

        They are all of them, or those of the queues that a token is confined to. `loops` are those of the
        server; elsewhere there are none.
        """
        async with self._alone:
            known = self._answers.get(queues)
            if known is not None and self._monotonic() < known[0] + FRESH_S:
                return known[1]
            seen = await self._look(queues, loops)
            found = sorted(findings(seen), key=_rank)
            view = OverviewView(
                at=seen.now,
                numbers=seen.numbers,
                findings=tuple(found[:FINDINGS]),
                more=max(0, len(found) - FINDINGS),
            )
            self._answers.pop(queues, None)
            while len(self._answers) >= ANSWERS:
                del self._answers[next(iter(self._answers))]
            self._answers[queues] = (self._monotonic(), view)
            return view

    async def _look(self, queues: frozenset[str], loops: Sequence[LoopHealth]) -> OverviewInput:
        page = await self._store.find(Query(kind=WORKER.name, states=LIVING_WORKERS, limit=WORKERS))
        oldest, newest = await self._some(job.PENDING), await self._some(job.PENDING, newest_first=True)
        now = await self._engine.clock.now()
        backlog = await self._figures.backlog()
        if queues:
            backlog = {name: numbers for name, numbers in backlog.items() if name in queues}
        waiting = {record.id: record for record in (*oldest, *newest)}.values()
        return OverviewInput(
            now=now,
            numbers=_confined(backlog) if queues else await self._numbers(map(view_of, page.records)),
            backlog=backlog,
            waiting=tuple(record for record in waiting if not queues or record.queue in queues),
            overdue=() if queues else await self._overdue(),
            workers=page.records,
            all_workers=not page.cursor,
            standings=() if queues else tuple(await self._quarantine.list()),
            parts=tuple(await self._figures.recent(now)),
            loops=() if queues else tuple(loops),
            beat_every_s=self._beat_every_s,
            confined=queues,
            paused=tuple(each for each in await self._queues.paused() if not queues or each.name in queues),
        )

    async def _overdue(self) -> tuple[Record, ...]:
        """Return the records that a sweep would take first, without changing them."""
        found: tuple[Record, ...] = ()

        def look(records: Sequence[Record], _: datetime) -> list[Commit]:
            nonlocal found
            found = tuple(records)
            return []

        await self._store.due((JOB.name, WORKER.name), OVERDUE, look)
        return found

    async def _some(self, state: JobState, *, newest_first: bool = False) -> tuple[Record, ...]:
        query = Query(kind=JOB.name, states=(state,), newest_first=newest_first, limit=min(FIRST, JOBS))
        first = await self._store.find(query)
        more = JOBS - len(first.records)
        if not first.cursor or more <= 0 or sum(record.size for record in first.records) > LIGHT:
            return first.records
        query = msgspec.structs.replace(query, cursor=first.cursor, limit=more)
        return (*first.records, *(await self._store.find(query)).records)

    async def _numbers(self, workers: Iterable[WorkerView]) -> LiveNumbers:
        pending, running = [
            await self._store.count(Query(kind=JOB.name, states=(state,)), cap=CAP)
            for state in (job.PENDING, job.RUNNING)
        ]
        views = list(workers)
        return LiveNumbers(
            pending=pending.number,
            running=running.number,
            capped=pending.capped or running.capped,
            workers=len(views),
            slots=sum(each.capacity for each in views),
            busy=sum(min(each.active, each.capacity) for each in views),
        )


def _confined(backlog: Backlog) -> LiveNumbers:
    """Return the numbers of some queues; workers belong to no queue."""
    return LiveNumbers(
        pending=sum(pending for pending, _ in backlog.values()),
        running=sum(running for _, running in backlog.values()),
    )


def findings(seen: OverviewInput) -> Iterator[Finding]:
    """Yield all findings. Pure."""
    paused = list(_paused(seen))
    yield from paused
    held = {hold.name for hold in seen.paused}  # more workers would not help there
    lacking = [each for each in _without_workers(seen) if each.queue not in held]
    yield from lacking
    yield from _trends(seen, held | {each.queue for each in lacking})
    if not seen.confined:
        yield from _silent(seen)
        yield from _quarantined(seen)
        yield from _overdue(seen)
        yield from _failing_loops(seen)


def _rank(finding: Finding) -> tuple[bool, float, str, str]:
    since = finding.since.timestamp() if finding.since else float("inf")
    return finding.level != ERROR, since, finding.code, finding.id


def _paused(seen: OverviewInput) -> Iterator[Finding]:
    """Yield paused queues with pending jobs."""
    for hold in seen.paused:
        pending = seen.backlog.get(hold.name, (0, 0))[0]
        by, why = (f" by {hold.by}" if hold.by else ""), (f": {hold.reason}" if hold.reason else "")
        if pending:
            yield Finding(
                code="queue_paused",
                level=WARNING,
                sentence=f"The queue {hold.name} was paused{by}{why}. Waiting: {counted(pending, 'job')}.",
                kind="queue",
                id=hold.name,
                queue=hold.name,
                since=hold.at,
                remedy=Remedy(
                    verb="resume",
                    kind="queue",
                    id=hold.name,
                    role="operator",
                    command=f"interlock queue resume {hold.name}",
                ),
            )


def _without_workers(seen: OverviewInput) -> Iterator[Finding]:
    """Yield queues with jobs that no live worker takes.

    There is one finding for each reason.
    """
    claimers = [one for record in seen.workers if (one := claimer_of(record)) is not None]
    reported: set[tuple[str, str]] = set()
    for queue, blocker, since in _blockers(seen, claimers) if seen.all_workers else ():
        if (queue, blocker.sentence) not in reported:
            reported.add((queue, blocker.sentence))
            yield Finding(
                code="no_worker",
                level=ERROR,
                sentence=f"Jobs wait in the queue {queue}. {blocker.sentence}",
                kind="queue",
                id=queue,
                queue=queue,
                since=since,
                remedy=_remedy(blocker),
            )


def _blockers(
    seen: OverviewInput, claimers: Sequence[Claimer]
) -> Iterator[tuple[str, Blocker, datetime | None]]:
    """Yield why jobs wait.

    These are examined jobs, and queues without an examined job.
    """
    names = not seen.confined
    for record in sorted(seen.waiting, key=lambda each: each.created_at):
        queue, task = facts_of(record).pair
        if task and record.ready_at and record.ready_at <= seen.now:
            blocker = blocker_of(record, task, claimers, names=names)
            if blocker is not None:
                yield queue, blocker, record.ready_at
    taken = {queue for one in claimers for queue in one.queues}
    looked_at = {record.queue for record in seen.waiting}
    for queue, (pending, _) in seen.backlog.items():
        if pending and queue and queue not in taken and queue not in looked_at:
            yield queue, no_worker_listens(queue, claimers, names=names), None


def _remedy(blocker: Blocker) -> Remedy | None:
    """Return the remedy that provides a suitable worker.

    Return None if the principal may not know it.
    """
    if blocker.paused:
        return Remedy(verb="resume", kind="worker", id=blocker.paused, role="operator", command=blocker.todo)
    return Remedy(verb="start", kind="worker", command=blocker.todo) if blocker.todo else None


def _trends(seen: OverviewInput, explained: set[str]) -> Iterator[Finding]:
    """Yield backlogs that grow, and failures that jumped.

    A backlog is left out if the reason is known.
    """
    trends = Trends(seen.parts, seen.now, seen.confined)
    for growth in trends.growing():
        if growth.queue not in explained:
            queue = "" if growth.queue == "default" else f" --queue {growth.queue}"
            yield Finding(
                code="backlog_grows",
                level=WARNING,
                sentence=growth.sentence,
                kind="queue",
                id=growth.queue,
                queue=growth.queue,
                remedy=Remedy(verb="start", kind="worker", command=f"interlock worker start MODULE{queue}"),
            )
    for jump in trends.jumped():
        task = f" task:{jump.task}" if jump.task else ""
        query = f"state:failed queue:{jump.queue}{task} since:1h"
        yield Finding(
            code="failures_jumped",
            level=WARNING,
            sentence=jump.sentence,
            kind="queue",
            id=jump.queue,
            queue=jump.queue,
            since=jump.since,
            remedy=Remedy(verb="open", kind="jobs", id=query, command=f"interlock job list {query}"),
        )


def _silent(seen: OverviewInput) -> Iterator[Finding]:
    """Yield workers whose heartbeat is late, before they are declared lost."""
    late = timedelta(seconds=MISSED_BEATS * seen.beat_every_s)
    for view in map(view_of, seen.workers):
        last_beat = view.last_heartbeat_at or view.created_at
        if seen.now - last_beat <= late or _is_late(seen, view.deadline_at):
            continue
        ago = counted(int((seen.now - last_beat).total_seconds()), "second")
        until = f" It counts as dead at {view.deadline_at:%H:%M:%S} UTC." if view.deadline_at else ""
        has = f" while it has {counted(view.active, 'task')}" if view.active else ""
        yield Finding(
            code="worker_silent",
            level=WARNING,
            sentence=f"The last heartbeat of the worker {view.name} was {ago} ago{has}.{until}",
            kind="worker",
            id=view.id,
            since=last_beat,
            remedy=Remedy(
                verb="terminate",
                kind="worker",
                id=view.id,
                role="operator",
                command=f"interlock worker terminate {view.id}",
            ),
        )


def _quarantined(seen: OverviewInput) -> Iterator[Finding]:
    for each in seen.standings:
        if each.until is not None:
            yield Finding(
                code="runner_quarantined",
                level=WARNING,
                sentence=each.explanation,
                kind="runner",
                id=each.runner,
                remedy=Remedy(
                    verb="lift",
                    kind="runner",
                    id=each.runner,
                    role="operator",
                    command=f"interlock worker lift {each.runner}",
                ),
            )


def _overdue(seen: OverviewInput) -> Iterator[Finding]:
    """Yield records with a missed deadline that no sweep has handled."""
    for record in seen.overdue:
        if _is_late(seen, record.deadline_at):
            assert record.deadline_at is not None
            ago = counted(int((seen.now - record.deadline_at).total_seconds()), "second")
            subject = f"{record.kind} {record.id}"
            yield Finding(
                code="deadline_missed",
                level=ERROR,
                sentence=f"The deadline of {subject} passed {ago} ago, and no server acted on it.",
                kind=record.kind,
                id=record.id,
                queue=record.queue or "",
                since=record.deadline_at,
                remedy=Remedy(
                    verb="open",
                    kind=record.kind,
                    id=record.id,
                    command=f"interlock {record.kind} show {record.id}",
                ),
            )


def _failing_loops(seen: OverviewInput) -> Iterator[Finding]:
    for loop in seen.loops:
        if loop.failures_in_a_row >= MAX_FAILURES:
            times = counted(loop.failures_in_a_row, "time")
            yield Finding(
                code="loop_fails",
                level=ERROR,
                sentence=f"The server's loop {loop.name} failed {times} in a row: {loop.last_error}",
                kind="loop",
                id=loop.name,
                since=loop.last_success_at,
                remedy=Remedy(verb="open", kind="server"),
            )


def _is_late(seen: OverviewInput, deadline_at: datetime | None) -> bool:
    return deadline_at is not None and seen.now - deadline_at > LATE
