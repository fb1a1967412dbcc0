"""Delivery of reports: the decisions about a report (pure), and one lane for each reporter.

A reporter that is down, slow or rate-limited delays no other. A lane takes ready reports with a deadline,
sends them concurrently, and records each result. A report may be sent again if the process died before
recording it: receivers recognise it by its id. If a receiver asks for a pause, the whole lane pauses.

Why: decision 0194.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from typing import Protocol

import msgspec

from interlock.engine.aggregate import Columns, Entity, RecordKind, rewritten
from interlock.engine.unit_of_work import Decision, Engine
from interlock.errors import InterlockError, StoreUnavailable
from interlock.machine.cascade import EventRules
from interlock.store.records import Change, Claim, Commit, Committed, Key, Record, record_after
from interlock.systems.runs.reports.report import (
    ENDED,
    LONG_ENOUGH,
    REPORT,
    SENDING,
    STATUSES,
    WAITING,
    DeliveryFailed,
    ReportBody,
    Reporter,
    RunReport,
    RunStatus,
    drop,
    failed,
    missed,
    news,
    refused,
    report_id,
    take,
    told,
    told_outcome,
)
from interlock.systems.runs.settings import ReportingSettings
from interlock.wire.runs import RunView

MAX_ERROR = 500


def _given_up_at(report: Entity[ReportBody]) -> datetime:
    """Return until when its status is tried.

    A status that is too old already is given up at once.
    """
    return max(report.body.since + timedelta(seconds=report.seconds(LONG_ENOUGH.setting)), report.now)


_REPORTS = RecordKind(
    REPORT,
    ReportBody,
    claimed_in=(WAITING,),
    due={LONG_ENOUGH.event: _given_up_at},
    events=EventRules(sent=(drop,)),
)


def _reports(settings: ReportingSettings) -> RecordKind[ReportBody]:
    return _REPORTS.lasting(telling_s=settings.telling_s, report_for_s=settings.report_for_s)


def body_of(record: Record) -> ReportBody:
    """Return the body of a record."""
    return _REPORTS.body_of(record)


def has_ended(record: Record | None) -> bool:
    """Return whether the report has ended; a pruned one has."""
    return record is None or record.state in ENDED


def with_status(
    before: Record | None,
    run_id: str,
    reporter: str,
    status: RunStatus,
    now: datetime,
    settings: ReportingSettings,
    beside: Sequence[str] = (),
) -> Change | None:
    """Return the change for a new status.

    Return None if this or a later one is known already.
    """
    fresh = ReportBody(status=status, since=now, beside=tuple(beside))
    if before is None:
        columns = Columns(parent=run_id, queue=reporter, ready_at=now)
        report = _reports(settings).new(report_id(run_id, reporter), fresh, now, columns)
        return report.change(actor="orchestrator", reason=status)
    known = body_of(before)
    if before.state in ENDED or status.rank <= known.status.rank:
        return None
    body = msgspec.structs.replace(fresh, told=known.told, memory=known.memory)
    return _reports(settings).step(before, news, now, body, actor="reporter", reason=status, ready_at=now)


def redeliver(before: Record, number: int, now: datetime, settings: ReportingSettings) -> Change:
    """Return a new report that retries one that was given up."""
    known = body_of(before)
    fresh = ReportBody(
        status=known.status, since=now, told=known.told, memory=known.memory, beside=known.beside
    )
    name = f"{report_id(before.parent or '', before.queue or '')}.{number}"
    columns = Columns(parent=before.parent, queue=before.queue, ready_at=now)
    reason = f"retried after it was given up: {known.last_error}"[:MAX_ERROR]
    return _reports(settings).new(name, fresh, now, columns).change(actor="operator", reason=reason)


def begin_delivery(record: Record, now: datetime, settings: ReportingSettings) -> Change:
    """Return the change that starts the delivery."""
    return _reports(settings).step(record, take, now, actor="reporter")


def delivered(
    record: Record, status: RunStatus, memory: str, now: datetime, settings: ReportingSettings
) -> Change:
    """Return the change after a delivery; a later status is sent next."""
    known = body_of(record)
    body = msgspec.structs.replace(known, told=status, memory=memory, tries=0, last_error="")
    event, reason = (told_outcome if status.final else told), str(status)
    if not status.final and known.status.rank > status.rank:
        event, reason = failed, "there is a later status"
    return _reports(settings).step(record, event, now, body, actor="reporter", reason=reason, ready_at=now)


def delivery_failed(
    record: Record, status: RunStatus, error: DeliveryFailed, now: datetime, settings: ReportingSettings
) -> Change:
    """Return the change after a failed delivery.

    It retries, skips a status that is not final, or gives up.
    """
    known = body_of(record)
    overtaken = known.status.rank > status.rank
    tries = 0 if overtaken else known.tries + 1
    body = msgspec.structs.replace(known, tries=tries, last_error=error.sentence[:MAX_ERROR])
    pause = timedelta(0)
    if overtaken:
        event = failed
    elif not status.final:
        event = missed
    elif error.never:
        event = refused
    else:
        event = failed
        pause = max(settings.pause_after(tries, record.id), timedelta(seconds=error.after_s or 0.0))
    return _reports(settings).step(
        record, event, now, body, actor="reporter", reason=body.last_error, ready_at=now + pause
    )


def overdue(record: Record, now: datetime, settings: ReportingSettings) -> Change:
    """Return the change after an expired deadline of the report."""
    report = _reports(settings).fired(record, now)
    report.place(ready_at=now)
    reason = "" if report.state is WAITING else report.body.last_error or "its sender was lost"
    return report.change(actor="reporter", reason=reason)


def superseded(
    record: Record, status: RunStatus, why: str, now: datetime, settings: ReportingSettings
) -> Change:
    """Return the change for a report whose place shows a newer run.

    Its outcome is not sent.
    """
    if body_of(record).status.rank > status.rank:
        return delivery_failed(record, status, DeliveryFailed(why), now, settings)
    body = msgspec.structs.replace(body_of(record), last_error=why)
    return _reports(settings).step(record, drop, now, body, actor="reporter", reason=why)


def dropped(record: Record, now: datetime, settings: ReportingSettings) -> Change:
    """Return the change that drops a report of a removed reporter."""
    reason = "the reporter is not configured any more"
    return _reports(settings).step(record, drop, now, actor="reporter", reason=reason)


log: logging.Logger = logging.getLogger("interlock.reports")


class ReportRuns(Protocol):
    """The interface of runs for reports."""

    @property
    def view(self) -> Callable[[str], Awaitable[RunView]]:
        """Return the run with its jobs.

        Raise an `InterlockError` if there is none.
        """
        ...

    @property
    def outline(self) -> Callable[[str], Awaitable[RunView]]:
        """Return the run without its jobs."""
        ...

    async def endings(self, run_ids: Sequence[str]) -> Sequence[Sequence[Record]]:
        """Return the same for each of these runs."""
        ...

    async def ending(self, run_id: str) -> Sequence[Record]:
        """Return the run and the records that are settled with it.

        Return nothing if it was pruned.
        """
        ...

    async def newer(self, run: RunView) -> Sequence[RunView]:
        """Return runs of the same commit that superseded a run, or came after it."""
        ...

    def reported(self, records: Sequence[Record | None], now: datetime) -> tuple[Change, ...]:
        """Return the changes that mark the run as reported.

        It is empty if it was before. Pure.
        """
        ...


class ReporterQueue:
    """Delivers the reports of one reporter."""

    def __init__(
        self,
        engine: Engine,
        runs: ReportRuns,
        reporter: Reporter,
        settings: ReportingSettings,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name: str = reporter.name
        self._engine = engine
        self._runs = runs
        self._reporter = reporter
        self._settings = settings
        self._monotonic = monotonic
        self._rests_until = float("-inf")

    async def round(self) -> int:
        """Deliver ready reports, up to the concurrency limit; return their number."""
        if self._monotonic() < self._rests_until:
            return 0
        mine = await self._take()
        async with asyncio.TaskGroup() as group:
            for record in mine:
                group.create_task(self._handle(record), name=f"report {record.id}")
        return len(mine)

    async def _take(self) -> list[Record]:
        found: list[Record] = []

        def decide(records: Sequence[Record], now: datetime) -> list[Commit]:
            changes = [begin_delivery(record, now, self._settings) for record in records]
            found[:] = [record_after(c, r, now) for c, r in zip(changes, records, strict=True)]
            return [Commit(changes=(change,)) for change in changes]

        claim = Claim(kind=REPORT.name, queues=(self.name,), limit=self._settings.at_once)
        outcomes = await self._engine.claim(claim, decide)
        return [r for r, outcome in zip(found, outcomes, strict=True) if isinstance(outcome, Committed)]

    async def _handle(self, record: Record) -> None:
        """Deliver one report.

        Errors do not affect others of the lane, and unrecorded reports are retried.
        """
        try:
            status = body_of(record).status
            settle = await self._deliver_status(record, status)
            await settled(self._engine, self._runs, record, settle)
        except (InterlockError, OSError) as error:
            log.warning("report %s could not be noted: %s", record.id, error)

    async def _deliver_status(self, record: Record, status: RunStatus) -> DecideDelivery:
        body, settings = body_of(record), self._settings
        try:
            run = await self._runs.view(record.parent or "")
            if by := await self._replaced_by(run):
                return _decide_superseded(status, by, settings)
            report = RunReport(
                run=run, status=status, at=_known_since(run, body.since), url=url_of(settings, run.id)
            )
            memory = await self._delivered(report, body.memory)
        except StoreUnavailable:
            raise
        except InterlockError as error:
            return _decide_failure(status, DeliveryFailed(error.sentence, never=True), settings)
        except DeliveryFailed as error:
            self._rest(error)
            log.info("%s was not reported by %s: %s", record.id, self.name, error.sentence)
            return _decide_failure(status, error, settings)
        return lambda current, now: delivered(current, status, memory, now, settings)

    async def _delivered(self, report: RunReport, memory: str) -> str:
        if report.run.outcome is not None and not report.status.final:
            raise DeliveryFailed("there is an outcome by now")
        try:
            async with asyncio.timeout(self._settings.request_s):
                return await self._reporter.deliver(report, memory)
        except DeliveryFailed:
            raise
        except TimeoutError:
            raise DeliveryFailed(f"no answer within {self._settings.request_s:g} s") from None
        except Exception as error:
            log.exception("reporter %s has a fault", self.name)
            raise DeliveryFailed(f"the reporter has a fault: {type(error).__name__}") from error

    async def _replaced_by(self, run: RunView) -> str:
        """Return the newer run that the receiver shows in this one's place.

        The newer run has to be reported. A run without a plan does not count: it may turn out to be empty.
        """
        for newer in await self._runs.newer(run):
            status = STATUSES.get(newer.outcome or newer.state)
            if status and self._reporter.replaces(newer, run) and self._reporter.wants(newer, status):
                return newer.id
        return ""

    def _rest(self, error: DeliveryFailed) -> None:
        if error.for_all and error.after_s is not None:
            self._rests_until = max(self._rests_until, self._monotonic() + error.after_s)


class DecideDelivery(Protocol):
    """Decides about a report that is being delivered. Pure."""

    def __call__(self, record: Record, now: datetime) -> Change:
        """Return the change."""
        ...


async def settled(engine: Engine, runs: ReportRuns, mine: Record, settle: DecideDelivery) -> None:
    """Record the result of a report.

    After the last one, the run is marked as reported. Two reports of a run that end at the same time would
    each see the other one unfinished. So each also touches the run: one of them conflicts, decides again, and
    finds that it is the last.
    """
    run_id = mine.parent or ""
    beside = [name for name in body_of(mine).beside if name != mine.queue]
    others = [Key(REPORT.name, report_id(run_id, name)) for name in beside]

    def decide(records: Sequence[Record | None], now: datetime) -> Decision[None]:
        own, rest, ending = records[0], records[1 : 1 + len(others)], records[1 + len(others) :]
        if own is None or not _is_still_mine(own, mine):
            return Decision(None)
        change = settle(own, now)
        further: tuple[Change, ...] = ()
        if change.state in ENDED and all(has_ended(other) for other in rest):
            further = runs.reported(ending, now)
        elif change.state in ENDED and ending and ending[0] is not None:
            further = (rewritten(ending[0]),)
        return Decision(None, Commit(changes=(change, *further)))

    ending = [record.key for record in await runs.ending(run_id)]
    await engine.apply([mine.key, *others, *ending], decide)


def give_up(settings: ReportingSettings) -> DecideDelivery:
    """Return the decision about an overdue report."""
    return lambda record, now: overdue(record, now, settings)


def url_of(settings: ReportingSettings, run_id: str) -> str:
    """Return the URL of a run for people."""
    return f"{settings.public_url.rstrip('/')}/runs/{run_id}" if settings.public_url else ""


def _is_still_mine(own: Record, mine: Record) -> bool:
    """Return whether no other process has taken the report since.

    Its status may be newer.
    """
    same = own.state == mine.state and own.deadline_at == mine.deadline_at
    return same if own.state == SENDING else same and own.version == mine.version


def _decide_failure(status: RunStatus, error: DeliveryFailed, settings: ReportingSettings) -> DecideDelivery:
    return lambda record, now: delivery_failed(record, status, error, now, settings)


def _decide_superseded(status: RunStatus, by: str, settings: ReportingSettings) -> DecideDelivery:
    why = f"the receiver shows the newer run {by} of the same commit"
    if not status.final:
        return _decide_failure(status, DeliveryFailed(why), settings)
    return lambda record, now: superseded(record, status, why, now, settings)


def _known_since(run: RunView, known_at: datetime) -> datetime:
    return (run.completed_at if run.outcome is not None else None) or known_at
