"""Stopping many jobs, and doing many again: each decided by itself, all of them in a few trips to the store.

One that refuses does not disturb the others. Under request ids each is done once: who repeats all of it
after a crash finds those that were done as they were answered, and goes on with the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial

import msgspec

from interlock.engine.bulk import Item, Result, apply_all
from interlock.engine.unit_of_work import Applied, Decision, Engine, IdempotencyKey, failed
from interlock.errors import InterlockError, RequestIdReused, StoreUnavailable, TransitionNotAllowed
from interlock.lifecycles import job
from interlock.lifecycles.job import JOB, JobState
from interlock.store.records import Commit, Key, Record, Recorded, Repeated, RequestReused
from interlock.systems.orchestrator.cancellation import cancelled, commit_of
from interlock.systems.orchestrator.settings import OrchestratorSettings
from interlock.systems.orchestrator.submission import new_job
from interlock.systems.orchestrator.views import origin_again, spec_of

Present = Callable[[str, Record | None], Record]
"""The record, or an error that says that there is none."""


async def cancel_all(
    engine: Engine,
    job_ids: Sequence[str],
    request_ids: Sequence[str | None],
    *,
    settings: OrchestratorSettings,
    present: Present,
    actor: str,
    reason: str,
) -> list[str | InterlockError]:
    """The state that each is in by then, or why it was not stopped."""

    def decide(
        job_id: str, asked: IdempotencyKey | None, record: Record | None, now: datetime, mark: str
    ) -> Decision[str]:
        draft = cancelled(present(job_id, record), now, settings, "cancel", reason)
        state = str(draft.root.state)
        commit = commit_of(draft, mark=mark, actor=actor, reason=reason)
        request = asked.answered(msgspec.json.encode(state)) if asked else None
        return Decision(state, msgspec.structs.replace(commit, request=request))

    asked = [
        engine.asked(request_id, f"cancel {job_id}", reason)
        for job_id, request_id in zip(job_ids, request_ids, strict=True)
    ]
    items = [
        Item(Key(JOB.name, job_id), partial(decide, job_id, each))
        for job_id, each in zip(job_ids, asked, strict=True)
    ]
    return await _once(engine, items, asked)


async def retry_all(
    engine: Engine,
    job_ids: Sequence[str],
    request_ids: Sequence[str | None],
    *,
    settings: OrchestratorSettings,
    present: Present,
    draw: Callable[[datetime], str],
    actor: str,
) -> list[str | InterlockError]:
    """The id of the job that does each of them again, or why there is none."""

    def decide(
        job_id: str, asked: IdempotencyKey | None, record: Record | None, now: datetime, mark: str
    ) -> Decision[str]:
        ended = _ended(present(job_id, record))
        spec, new_id = spec_of(ended), draw(now)
        draft = new_job(spec, new_id, now, settings, origin_job_id=job_id, origin=origin_again(ended))
        change = draft.change(mark=mark, actor=actor, reason=f"again, after {job_id}")
        request = asked.answered(msgspec.json.encode(new_id)) if asked else None
        return Decision(new_id, Commit(changes=(change,), request=request))

    asked = [
        engine.asked(request_id, f"retry {job_id}", None)
        for job_id, request_id in zip(job_ids, request_ids, strict=True)
    ]
    items = [
        Item(Key(JOB.name, job_id), partial(decide, job_id, each))
        for job_id, each in zip(job_ids, asked, strict=True)
    ]
    return await _once(engine, items, asked)


def _ended(record: Record) -> Record:
    if JobState(record.state) in job.ENDED:
        return record
    raise TransitionNotAllowed(
        f"The job {record.id} is {record.state}; only a job that has ended is done again.",
        allowed=["cancel"],
        todo="Wait for its end, or cancel it first.",
        facts={"job_id": record.id, "machine": JOB.name, "state": record.state},
    )


async def _once(
    engine: Engine, items: Sequence[Item[str]], asked: Sequence[IdempotencyKey | None]
) -> list[str | InterlockError]:
    results = await apply_all(engine, items)
    return [await _answer(engine, each, result) for each, result in zip(asked, results, strict=True)]


async def _answer(engine: Engine, asked: IdempotencyKey | None, result: Result[str]) -> str | InterlockError:
    """What was decided; or what was answered before, also where it would now be refused."""
    match result:
        case Applied(answer=answer):
            return answer
        case Repeated(recorded=recorded):
            return _told(recorded)
        case StoreUnavailable():
            raise result
        case RequestIdReused():
            return result
    before = None if asked is None else await engine.recall(asked)
    if before is None:
        return result
    return failed(before) if isinstance(before, RequestReused) else _told(before.recorded)


def _told(recorded: Recorded) -> str:
    return msgspec.json.decode(recorded.answer.body, type=str)
