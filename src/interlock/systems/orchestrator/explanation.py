"""Why a job is not done yet: what it waits for, whose turn it is, and when the next deadline is.

Everything is read from the record and from the tables, the same that decide: there is no second
opinion about what a state means.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import msgspec

from interlock.lifecycles import attempt, job, lease
from interlock.lifecycles.attempt import ATTEMPT
from interlock.lifecycles.job import JOB, JobState
from interlock.lifecycles.lease import LEASE
from interlock.machine import Machine
from interlock.store.records import Record
from interlock.systems.orchestrator.body import AttemptBody, JobBody, decode_body
from interlock.systems.orchestrator.claimers import Lack
from interlock.systems.orchestrator.trees.explanation import ALONE, Around, held_back


class Waiting(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that has not ended."""

    entity: str
    state: str
    sentence: str
    turn: str = ""
    """Who has to do something next."""
    deadline_at: datetime | None = None
    """When something happens even if nobody does."""
    deadline_event: str = ""
    accepts: tuple[str, ...] = ()
    """What may happen to it now."""


class Explanation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a job waits for, or how it ended."""

    job_id: str
    state: str
    sentence: str
    lines: tuple[Waiting, ...] = ()
    next_deadline_at: datetime | None = None
    blocked: str = ""
    """Why no live worker takes it although it is ready; empty where one may."""
    todo: str = ""


def explain(
    record: Record,
    now: datetime,
    *,
    ahead: str = "",
    around: Around = ALONE,
    lack: Lack | None = None,
) -> Explanation:
    """What is known about a job at this moment. `ahead` says how long its queue is."""
    body, state = decode_body(record.body), JobState(record.state)
    if state in job.ENDED:
        return _ended(record, body)
    blocked, todo = (lack.sentence, lack.todo) if lack else ("", "")
    lines = tuple(_lines(record, body, now, f"{ahead}.{blocked and ' '}{blocked}", around))
    return Explanation(
        job_id=record.id,
        state=state,
        sentence=_summary(lines),
        lines=lines,
        next_deadline_at=record.deadline_at,
        blocked=blocked,
        todo=todo,
    )


def _ended(record: Record, body: JobBody) -> Explanation:
    tries = len(body.attempts)
    made = f"{tries} attempt{'s' if tries != 1 else ''}"
    match JobState(record.state):
        case job.COMPLETED:
            sentence, todo = f"It is done, after {made}.", ""
        case job.FAILED:
            why = f"{body.failure.failure_class}: {body.failure.error}" if body.failure else "it was rejected"
            sentence, todo = f"It has failed after {made}: {why}", f"interlock job retry {record.id}"
        case _:
            because = f", since its parent {record.parent} was" if body.data.stop_reason == "parent" else ""
            sentence = f"It was stopped ({body.data.stop_reason}) after {made}{because}."
            todo = f"interlock job retry {record.id}"
    return Explanation(job_id=record.id, state=record.state, sentence=sentence, todo=todo)


def _lines(record: Record, body: JobBody, now: datetime, ahead: str, around: Around) -> Iterator[Waiting]:
    state = JobState(record.state)
    told = _entry(JOB, state).doc
    if body.data.stop_reason:
        told = f"It is being stopped ({body.data.stop_reason}); it ends with the last of its attempts."
    yield _waiting(JOB, state, record.id, told, body.timer_at)
    for one in body.attempts:
        if one.state in attempt.ENDED:
            continue
        name = f"{record.id}.{one.name}"
        told = held_back(one, record, body, around) or _about(one, record, body, now, ahead)
        yield _waiting(ATTEMPT, one.state, name, told, one.timer_at)
        if one.lease is not None and one.lease.state in lease.LIVE:
            held = one.lease
            told = f"held by {held.data.runner_id}" + (
                "; it has expired, and the next sweep says so" if held.data.expires_at <= now else ""
            )
            yield _waiting(LEASE, held.state, name, told, held.data.expires_at)


def _about(one: AttemptBody, record: Record, body: JobBody, now: datetime, ahead: str) -> str:
    runner = one.lease.data.runner_id if one.lease else "nobody"
    match one.state:
        case attempt.CREATED | attempt.QUEUED if one.ready_at is not None and one.ready_at > now:
            return f"It waits until {one.ready_at.isoformat()}{_after(one, body)}."
        case attempt.CREATED if one.ready_at is None and not one.prompt and body.run is not None:
            return f"It waits for what it needs in the run {body.run.run_id}."
        case attempt.CREATED | attempt.QUEUED:
            needs = f" that has {', '.join(record.labels)}" if record.labels else ""
            return f"It waits for a worker of the queue {record.queue}{needs}{ahead}"
        case attempt.LEASED:
            return f"It was given to {runner}, which has not said yes yet."
        case attempt.CANCEL_REQUESTED:
            return f"{runner} was asked to stop, and will be taken for stopped at its deadline."
        case _:
            told = f" ({one.progress.message})" if one.progress and one.progress.message else ""
            return f"{runner} is at it{told}."


def _after(one: AttemptBody, body: JobBody) -> str:
    before = [a for a in body.attempts if a.shard == one.shard and a.index == one.index - 1 and a.failure]
    if not before or before[0].failure is None:
        return ", as it was submitted to"
    failure = before[0].failure
    return f", because attempt {before[0].index} failed ({failure.failure_class}: {failure.error})"


def _summary(lines: tuple[Waiting, ...]) -> str:
    """What its first attempt waits for; a job without one speaks for itself."""
    waiting = [line for line in lines if line.entity.startswith(ATTEMPT.name)]
    return (waiting or lines)[0].sentence


def _waiting(machine: Machine[Any, Any], state: Any, entity: str, told: str, at: datetime | None) -> Waiting:
    entry = _entry(machine, state)
    return Waiting(
        entity=f"{machine.name} {entity}",
        state=str(state),
        sentence=told[:1].upper() + told[1:],
        turn=str(entry.turn or ""),
        deadline_at=at,
        deadline_event=entry.within.event.name if entry.within and at else "",
        accepts=machine.accepts(state),
    )


def _entry(machine: Machine[Any, Any], state: Any) -> Any:
    return machine.table.entry(state)
