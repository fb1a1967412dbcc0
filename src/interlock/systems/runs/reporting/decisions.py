"""Pure: what becomes of a report when there is news, when it is taken, and when it was told or not."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from interlock.engine.aggregate import Columns, Entity, RecordKind
from interlock.machine import Event
from interlock.store.records import Change, Record
from interlock.systems.runs.reporting.lifecycle import (
    ENDED,
    REPORT,
    TOLD,
    WAITING,
    ReportBody,
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
from interlock.systems.runs.reporting.port import NotTold, Word
from interlock.systems.runs.reporting.settings import ReportingSettings

MAX_ERROR = 500
_REPORTS = RecordKind(REPORT, ReportBody, sends=(drop,))


def body_of(record: Record) -> ReportBody:
    """What a report knows."""
    return _REPORTS.body_of(record)


def has_ended(record: Record | None) -> bool:
    """Whether nothing more is told; what was pruned has ended long ago."""
    return record is None or record.state in ENDED


def with_news(
    before: Record | None,
    run_id: str,
    reporter: str,
    word: Word,
    now: datetime,
    settings: ReportingSettings,
    beside: Sequence[str] = (),
) -> Change | None:
    """There is a word to tell; None when this or a later one is known already."""
    fresh = ReportBody(word=word, since=now, beside=tuple(beside))
    if before is None:
        report = _created(report_id(run_id, reporter), fresh, run_id, reporter)
        return _written(report, settings, ready_at=now, actor="orchestrator", reason=word)
    known = body_of(before)
    if before.state in ENDED or word.rank <= known.word.rank:
        return None
    body = msgspec.structs.replace(fresh, told=known.told, memory=known.memory)
    return _moved(before, news, body, now, settings, ready_at=now, reason=word)


def told_again(before: Record, number: int, now: datetime, settings: ReportingSettings) -> Change:
    """What was given up on, from the beginning: a new report, because that one is over."""
    known = body_of(before)
    fresh = ReportBody(word=known.word, since=now, told=known.told, memory=known.memory, beside=known.beside)
    name = f"{report_id(before.parent or '', before.queue or '')}.{number}"
    report = _created(name, fresh, before.parent, before.queue)
    reason = f"told again after it was given up: {known.last_error}"[:MAX_ERROR]
    return _written(report, settings, ready_at=now, actor="operator", reason=reason)


def taken(record: Record, now: datetime, settings: ReportingSettings) -> Change:
    """Somebody tells it now."""
    return _moved(record, take, body_of(record), now, settings)


def was_told(record: Record, word: Word, memory: str, now: datetime, settings: ReportingSettings) -> Change:
    """The receiver has the word; a later one that has come up meanwhile is told next."""
    known = body_of(record)
    body = msgspec.structs.replace(known, told=word, memory=memory, tries=0, last_error="")
    if word.final:
        return _moved(record, told_outcome, body, now, settings, reason=word)
    if known.word.rank > word.rank:
        return _moved(record, failed, body, now, settings, ready_at=now, reason="there is a later word")
    return _moved(record, told, body, now, settings, reason=word)


def was_not_told(
    record: Record, word: Word, error: NotTold, now: datetime, settings: ReportingSettings
) -> Change:
    """The receiver does not have it: try again, let it be, or give up."""
    known = body_of(record)
    overtaken = known.word.rank > word.rank
    tries = 0 if overtaken else known.tries + 1
    body = msgspec.structs.replace(known, tries=tries, last_error=error.sentence[:MAX_ERROR])
    if overtaken:
        return _moved(record, failed, body, now, settings, ready_at=now, reason=body.last_error)
    if not word.final:
        return _moved(record, missed, body, now, settings, reason=body.last_error)
    if error.never:
        return _moved(record, refused, body, now, settings, reason=body.last_error)
    pause = settings.pause_after(tries, record.id)
    ready_at = now + max(pause, timedelta(seconds=error.after_s or 0.0))
    return _moved(record, failed, body, now, settings, ready_at=ready_at, reason=body.last_error)


def overdue(record: Record, now: datetime, settings: ReportingSettings) -> Change:
    """A deadline of the report has passed."""
    report = _REPORTS.fired(record, now)
    reason = "" if report.state is WAITING else report.body.last_error or "nobody was there to tell it"
    return _written(report, settings, ready_at=now, reason=reason)


def was_overtaken(record: Record, word: Word, why: str, now: datetime, settings: ReportingSettings) -> Change:
    """The receiver shows a newer run in this place: the outcome is not told."""
    if body_of(record).word.rank > word.rank:
        return was_not_told(record, word, NotTold(why), now, settings)
    body = msgspec.structs.replace(body_of(record), last_error=why)
    return _moved(record, drop, body, now, settings, reason=why)


def dropped(record: Record, now: datetime, settings: ReportingSettings) -> Change:
    """Nobody wants to be told any more."""
    reason = "the reporter is not configured any more"
    return _moved(record, drop, body_of(record), now, settings, reason=reason)


def is_final(record: Record) -> bool:
    """Whether it is an outcome that a report ends with, told or not."""
    return body_of(record).word.final


def waits_for_run(record: Record) -> bool:
    """Whether it has nothing to tell at the moment."""
    return record.state == TOLD


def _created(name: str, body: ReportBody, run_id: str | None, reporter: str | None) -> Entity[ReportBody]:
    return _REPORTS.new(name, body, body.since, Columns(parent=run_id, queue=reporter))


def _moved(
    record: Record,
    event: Event,
    body: ReportBody,
    now: datetime,
    settings: ReportingSettings,
    *,
    ready_at: datetime | None = None,
    reason: str = "",
) -> Change:
    """What the table makes of the event, as a change of the record."""
    report = _REPORTS.lasting(telling_s=settings.telling_s).of(record, now, body)
    report.must(event)
    return _written(report, settings, ready_at=ready_at, reason=reason)


def _written(
    report: Entity[ReportBody],
    settings: ReportingSettings,
    *,
    ready_at: datetime | None,
    actor: str = "reporter",
    reason: str,
) -> Change:
    """Return the change; while it waits it can be claimed, and it is given up so long after its word."""
    waits = report.state is WAITING
    report.place(ready_at=ready_at if waits else None)
    if waits:
        given_up_at = report.body.since + timedelta(seconds=settings.report_for_s)
        report.root.timer_at = max(given_up_at, report.now)
    return report.change(actor=actor, reason=reason)
