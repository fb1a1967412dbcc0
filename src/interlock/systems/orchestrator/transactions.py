"""Submit and complete jobs in a transaction of the user, together with the user's own writes.

Nothing here waits or knows a driver: each function yields the steps to be carried out on the connection
(`store.transactions`) and is sent the answers. A job that is submitted is decided about as any other. A
completion is judged under the lease of the attempt, by the reads of the transaction itself, and compared when
it is written: another writer of the job waits for the end of the transaction, or makes this one look again.

Why: decision 0413.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from interlock.engine.unit_of_work import Engine, contended, failed
from interlock.errors import InvalidArguments, LeaseExpired, UnknownLease
from interlock.lifecycles.job import JOB
from interlock.store.records import (
    Change,
    Commit,
    Committed,
    Conflict,
    Illegal,
    Key,
    Outcome,
    Record,
    Repeated,
    RequestReused,
    TooLate,
)
from interlock.store.transactions import LoadRecords, Now, Steps, Write
from interlock.systems.orchestrator.body import decode_body
from interlock.systems.orchestrator.gates import limit_messages_of
from interlock.systems.orchestrator.ids import JobIds
from interlock.systems.orchestrator.runner_messages import decide_message
from interlock.systems.orchestrator.settings import OrchestratorSettings
from interlock.systems.orchestrator.submission import group_equal_specs, new_job, without_context
from interlock.systems.orchestrator.tokens import Token, raise_for_answer, read_token
from interlock.wire.jobs import JobSpec
from interlock.wire.runner import Complete, Succeeded

TRIES = 10
MOST = 1_000
"""Maximum number of jobs of one submission."""


def submitting(
    engine: Engine,
    specs: Sequence[JobSpec],
    *,
    settings: OrchestratorSettings,
    ids: JobIds,
    actor: str,
    request_id: str | None,
) -> Steps[list[str]]:
    """Submit jobs and return their ids, or those of an earlier request."""
    _check(specs, settings)
    idempotency_key = engine.key_for(request_id, "submit", [without_context(spec) for spec in specs])
    conflict: Conflict | None = None
    for _ in range(TRIES):
        now, commit_id = (yield Now()), engine.commit_id()
        names = ids.draw_many(now, len(specs))
        changes: list[Change] = []
        for spec, name in zip(specs, names, strict=True):
            draft = new_job(spec, name, now, settings)
            changes += (draft.change(commit_id=commit_id, actor=actor), *limit_messages_of(draft))
        request = idempotency_key.answered(msgspec.json.encode(names)) if idempotency_key else None
        commit = engine.stamped(Commit(changes=tuple(changes), request=request), ())
        outcome: Outcome = (yield Write((commit,)))[0]
        match outcome:
            case Committed():
                return names
            case Repeated(recorded=recorded):
                return msgspec.json.decode(recorded.answer.body, type=list[str])
            case RequestReused() | Illegal():
                raise failed(outcome)
            case Conflict():
                conflict = outcome  # another job has drawn the same id
    raise contended([Key(JOB.name, names[0])], conflict, TRIES)


def _check(specs: Sequence[JobSpec], settings: OrchestratorSettings) -> None:
    group_equal_specs(specs, settings)
    if any(spec.parent_job_id is not None for spec in specs):
        raise InvalidArguments(
            "A job with a parent cannot be submitted in your transaction: its tree is stored elsewhere.",
            todo="Submit it without a parent, or with ctx.submit.",
        )
    if any(spec.unique is not None for spec in specs):
        raise InvalidArguments(
            "A job with a unique key cannot be submitted in your transaction: other jobs share the key.",
            todo="Submit it with task.options(unique=None), or outside of the transaction.",
        )
    if any(spec.after is not None for spec in specs):
        raise InvalidArguments(
            "A job that comes after others cannot be submitted in a transaction of yours: it changes them.",
            todo="Submit it without after, or outside of the transaction.",
        )
    if not 0 < len(specs) <= MOST:
        raise InvalidArguments(
            f"1 to {MOST} jobs are submitted at once in a transaction, not {len(specs)}.",
            todo="Submit them in several calls.",
            facts={"jobs": len(specs), "most": MOST},
        )


def completing(
    engine: Engine, lease: str, result: msgspec.Raw, *, settings: OrchestratorSettings, cost: float | None
) -> Steps[None]:
    """Complete the attempt of this lease; raise if that is not live."""
    token = read_token(lease)
    if token is None:
        raise UnknownLease(
            "This handler has no lease here, so it cannot complete its job in a transaction.",
            todo="Do it in a handler that runs in the worker itself, not in a process of its own.",
        )
    key = Key(JOB.name, token.job_id)
    conflict: Conflict | None = None
    for _ in range(TRIES):
        now, commit_id = (yield Now()), engine.commit_id()
        record: Record | None = (yield LoadRecords((key,)))[0]
        completion = Complete(
            token=lease, runner_id=_runner_of(record, token), outcome=Succeeded(result), cost=cost
        )
        decision = decide_message(record, token, completion, now, commit_id, settings)
        raise_for_answer(decision.answer)
        if decision.commit is None:
            return  # it was completed before, with the same result
        commit = engine.stamped(decision.commit, [record])
        outcome: Outcome = (yield Write((commit,)))[0]
        match outcome:
            case Committed() | Repeated():
                return
            case Conflict():
                conflict = outcome  # a heartbeat was faster; the record is ours from now on
            case TooLate():
                raise LeaseExpired(
                    f"The lease on {token.job_id} has expired, so its completion is refused.",
                    todo="Roll back; another attempt executes the job.",
                    facts={"job_id": token.job_id},
                )
            case RequestReused() | Illegal():
                raise failed(outcome)
    raise contended([key], conflict, TRIES)


def _runner_of(record: Record | None, token: Token) -> str:
    """Return the runner that the lease was granted to.

    Its token speaks for it.
    """
    if record is None:
        return ""
    attempts = decode_body(record.body).attempts
    held = [one.lease for one in attempts if (one.shard, one.index) == (token.shard, token.index)]
    return held[0].data.runner_id if held and held[0] is not None else ""
