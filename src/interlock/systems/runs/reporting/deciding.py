"""Pure: what becomes of a report when there is news, when it is taken, and when it was told or not."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from interlock.machine import Event, Moved
from interlock.store.records import Change, Note, Record, StepLine
from interlock.systems.runs.reporting.lifecycle import (
    ENDED,
    REPORT,
    SENDING,
    TOLD,
    WAITING,
    ReportBody,
    ReportState,
    drop,
    failed,
    give_up,
    missed,
    news,
    refused,
    report_id,
    sender_lost,
    take,
    told,
    told_outcome,
)
from interlock.systems.runs.reporting.port import NotTold, Word
from interlock.systems.runs.reporting.settings import ReportingSettings

MAX_ERROR = 500
_BODY = msgspec.json.Decoder(ReportBody)


def body_of(record: Record) -> ReportBody:
    """What a report knows."""
    return _BODY.decode(record.body)


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
        return Change(
            kind=REPORT.name,
            id=report_id(run_id, reporter),
            expected=0,
            state=WAITING,
            body=msgspec.json.encode(fresh),
            parent=run_id,
            queue=reporter,
            ready_at=now,
            deadline_at=_given_up_at(fresh, settings),
            note=Note(actor="orchestrator", reason=word),
        )
    known = body_of(before)
    if before.state in ENDED or word.rank <= known.word.rank:
        return None
    body = msgspec.structs.replace(fresh, told=known.told, memory=known.memory)
    if before.state == SENDING:
        return _moved(before, news, body, deadline_at=before.deadline_at, reason=word)
    return _moved(before, news, body, ready_at=now, deadline_at=_given_up_at(body, settings), reason=word)


def told_again(before: Record, number: int, now: datetime, settings: ReportingSettings) -> Change:
    """What was given up on, from the beginning: a new report, because that one is over."""
    known = body_of(before)
    fresh = ReportBody(word=known.word, since=now, told=known.told, memory=known.memory, beside=known.beside)
    return Change(
        kind=REPORT.name,
        id=f"{report_id(before.parent or '', before.queue or '')}.{number}",
        expected=0,
        state=WAITING,
        body=msgspec.json.encode(fresh),
        parent=before.parent,
        queue=before.queue,
        ready_at=now,
        deadline_at=_given_up_at(fresh, settings),
        note=Note(
            actor="operator", reason=f"told again after it was given up: {known.last_error}"[:MAX_ERROR]
        ),
    )


def taken(record: Record, now: datetime, settings: ReportingSettings) -> Change:
    """Somebody tells it now."""
    until = now + timedelta(seconds=settings.telling_s)
    return _moved(record, take, body_of(record), deadline_at=until)


def was_told(record: Record, word: Word, memory: str, now: datetime, settings: ReportingSettings) -> Change:
    """The receiver has the word; a later one that has come up meanwhile is told next."""
    known = body_of(record)
    body = msgspec.structs.replace(known, told=word, memory=memory, tries=0, last_error="")
    if word.final:
        return _moved(record, told_outcome, body, reason=word)
    if known.word.rank > word.rank:
        at = _given_up_at(body, settings)
        return _moved(record, failed, body, ready_at=now, deadline_at=at, reason="there is a later word")
    return _moved(record, told, body, reason=word)


def was_not_told(
    record: Record, word: Word, error: NotTold, now: datetime, settings: ReportingSettings
) -> Change:
    """The receiver does not have it: try again, let it be, or give up."""
    known = body_of(record)
    overtaken = known.word.rank > word.rank
    tries = 0 if overtaken else known.tries + 1
    body = msgspec.structs.replace(known, tries=tries, last_error=error.sentence[:MAX_ERROR])
    if overtaken:
        at = _given_up_at(body, settings)
        return _moved(record, failed, body, ready_at=now, deadline_at=at, reason=body.last_error)
    if not word.final:
        return _moved(record, missed, body, reason=body.last_error)
    if error.never:
        return _moved(record, refused, body, reason=body.last_error)
    pause = settings.pause_after(tries, record.id)
    ready_at = now + max(pause, timedelta(seconds=error.after_s or 0.0))
    return _moved(
        record,
        failed,
        body,
        ready_at=ready_at,
        deadline_at=max(_given_up_at(body, settings), now),
        reason=body.last_error,
    )


def overdue(record: Record, now: datetime, settings: ReportingSettings) -> Change:
    """A deadline of the report has passed."""
    body = body_of(record)
    if record.state == SENDING:
        at = _given_up_at(body, settings)
        return _moved(record, sender_lost, body, ready_at=now, deadline_at=max(at, now), reason="")
    return _moved(record, give_up, body, reason=body.last_error or "nobody was there to tell it")


def was_overtaken(record: Record, word: Word, why: str, now: datetime, settings: ReportingSettings) -> Change:
    """The receiver shows a newer run in this place: the outcome is not told."""
    if body_of(record).word.rank > word.rank:
        return was_not_told(record, word, NotTold(why), now, settings)
    return _moved(record, drop, msgspec.structs.replace(body_of(record), last_error=why), reason=why)


def dropped(record: Record) -> Change:
    """Nobody wants to be told any more."""
    return _moved(record, drop, body_of(record), reason="the reporter is not configured any more")


def is_final(record: Record) -> bool:
    """Whether it is an outcome that a report ends with, told or not."""
    return body_of(record).word.final


def waits_for_run(record: Record) -> bool:
    """Whether it has nothing to tell at the moment."""
    return record.state == TOLD


def _given_up_at(body: ReportBody, settings: ReportingSettings) -> datetime:
    return body.since + timedelta(seconds=settings.report_for_s)


def _moved(
    record: Record,
    event: Event,
    body: ReportBody,
    *,
    ready_at: datetime | None = None,
    deadline_at: datetime | None = None,
    reason: str = "",
) -> Change:
    """What the table makes of the event, as a change of the record."""
    decision = REPORT.decide(ReportState(record.state), None, event)
    if not isinstance(decision, Moved):
        raise decision.error()
    steps = tuple(
        StepLine(REPORT.name, "", step.event, step.source, step.target, step.owner, step.moves)
        for step in decision.steps
    )
    return Change(
        kind=REPORT.name,
        id=record.id,
        expected=record.version,
        state=decision.state,
        body=msgspec.json.encode(body),
        parent=record.parent,
        queue=record.queue,
        ready_at=ready_at,
        deadline_at=deadline_at,
        note=Note(steps=steps, actor="reporter", reason=reason),
    )
