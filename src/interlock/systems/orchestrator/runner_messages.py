"""Decide about messages of runners: from a job and a message to an answer and a commit. Pure.

Equal reports about jobs that were granted together are decided once for all of them.

Why: decisions 0030 and 0136.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import NamedTuple, assert_never

import msgspec
from msgspec.structs import replace

from interlock.engine.outbox import message_in
from interlock.engine.unit_of_work import Decision, journalled_once
from interlock.lifecycles import attempt, job, lease
from interlock.lifecycles.job import JOB
from interlock.lifecycles.lease import LeaseState
from interlock.machine import Event, Refused
from interlock.store import records
from interlock.store.records import Change, Commit, Note, Record
from interlock.systems.orchestrator.aggregate import JobAggregate
from interlock.systems.orchestrator.attachments import (
    ArtifactBody,
    ArtifactHeartbeat,
    CacheHeartbeat,
    HeartbeatWithChildren,
    WaitHeartbeat,
    artifact_change,
    chunk_changes,
    placed,
    result_change,
)
from interlock.systems.orchestrator.body import AttemptBody, JobBody, LeaseBody, awaited_until
from interlock.systems.orchestrator.cancellation import commit_of, messages_of
from interlock.systems.orchestrator.failures import Failure, FailureClass, classify
from interlock.systems.orchestrator.notifications import RUN_JOBS, JobChanged, change_of_all
from interlock.systems.orchestrator.settings import OrchestratorSettings
from interlock.systems.orchestrator.shapes import ANY_JOB, any_job, is_about_one, of_run
from interlock.systems.orchestrator.submission import MAX_DELAY_S
from interlock.systems.orchestrator.texts import (
    MAX_DETAILS,
    MAX_ERROR,
    MAX_EXPLANATION,
    MAX_PROGRESS,
    fitting,
    opening,
)
from interlock.systems.orchestrator.tokens import Token, is_the_same
from interlock.wire.json_values import json_fault
from interlock.wire.runner import (
    Ack,
    Answer,
    CancelAck,
    Complete,
    Failed,
    Heard,
    Heartbeat,
    Message,
    NotHeard,
    Release,
    Stale,
    StaleCode,
    Succeeded,
)

_STALE_CODES = {lease.EXPIRED: StaleCode.LEASE_EXPIRED, lease.REVOKED: StaleCode.LEASE_REVOKED}
_ENCODER = msgspec.json.Encoder()
_MESSAGE_NAMES = {
    kind: str(kind.__struct_config__.tag)
    for kind in (
        Ack,
        Heartbeat,
        Complete,
        CancelAck,
        Release,
        ArtifactHeartbeat,
        CacheHeartbeat,
        HeartbeatWithChildren,
        WaitHeartbeat,
    )
}
_INSTANT = timedelta(microseconds=1)
INLINE_RESULT = 16_384
"""Larger results are stored in separate records."""
MOST_MISSING = 32
"""Maximum number of overtaken heartbeats to remember."""
MOST_ARTIFACTS = 100
"""Maximum number of artifacts of an attempt."""


def decide_message(
    record: Record | None,
    token: Token,
    message: Message,
    now: datetime,
    commit_id: str,
    settings: OrchestratorSettings,
    body: JobBody | None = None,
) -> Decision[Answer]:
    """Decide about a message to the job of its token; this consumes `body`."""
    if record is None:
        return Decision(_unknown_lease(token))
    draft = JobAggregate.of(record, now, settings, body)
    one = _attempt_of(draft, token)
    if one is None or one.lease is None or not token.opens(one.lease.digest):
        return Decision(_unknown_lease(token))
    if type(message) is not Complete or type(message.outcome) is not Succeeded:
        message = _cleaned(message)
    if (unfit := _unfit(draft, one, message)) is not None:
        return Decision(unfit)
    until = record.deadline_at
    if until is not None and until <= now:
        draft.fire_due()
        until = draft.deadline_at
    if (answer := _repeated(draft, one, message)) is not None:
        return Decision(answer)
    note_report(draft, one, message)
    refused = draft.send_lease(one, _event(message, now, settings))
    if refused is not None:
        return _refuse(JobAggregate.of(record, now, settings), token, message, refused, commit_id)
    note_extras(draft, one, message)
    if isinstance(message, Heartbeat) and message.uploading:
        draft.send_attempt(one, attempt.upload)  # ignored if known, or irrelevant
    # No timer of the job may expire before the commit: that would change the decision.
    return Decision(_accepted(draft, one), _commit(draft, one, message, commit_id, until))


def note_report(draft: JobAggregate, one: AttemptBody, message: Message) -> None:
    """Record the outcome in the attempt, before the couplings that need it."""
    match message:
        case Complete(outcome=Succeeded(result=result), cost=cost):
            one.result_apart = len(result) > INLINE_RESULT
            one.result = msgspec.UNSET if one.result_apart else result
            one.cost, one.failure = cost, None
        case Complete(outcome=Failed() as failed, cost=cost):
            one.failure, one.cost = _failure(failed, draft.settings, draft.now), cost
        case Release(await_children=waits, cost=cost):
            one.cost, one.waits = cost, waits and draft.body.children > 0  # no children: no wait
            one.snoozed_until = _snoozed_until(message, draft.now)
            one.awaits = _awaited(draft.body, message.await_signal)
        case _:
            pass  # no other field has the outcome


def note_extras(draft: JobAggregate, one: AttemptBody, message: Message) -> None:
    """Record the progress, checkpoint and sequence numbers of a message."""
    assert one.lease is not None
    match message:
        case Complete():
            # The record of a job of one shard has its result, from which the digest follows: see `_reported`.
            if draft.root.state is not job.COMPLETED or draft.body.data.worker_count > 1 or one.result_apart:
                one.reported = digest_of_report(message)
            if draft.body.checkpoints and one.state is attempt.SUCCEEDED:
                draft.body.checkpoints.pop(str(one.shard), None)  # no later attempt needs it
        case Heartbeat():
            _note_heartbeat(draft, one, one.lease, message)
            one.artifacts += isinstance(message, ArtifactHeartbeat)
            draft.body.children += message.children if isinstance(message, HeartbeatWithChildren) else 0
            if isinstance(message, WaitHeartbeat):
                draft.body.mail = {**draft.body.mail, message.address: message.mail}
        case Release(checkpoint=checkpoint):
            one.reported = digest_of_report(message)
            _save(draft, one, checkpoint)
        case CancelAck():
            one.reported = digest_of_report(message)
            one.forced = not message.confirmed_dead
            one.confirmed_dead = message.confirmed_dead
        case Ack():
            pass


def _note_heartbeat(draft: JobAggregate, one: AttemptBody, held: LeaseBody, message: Heartbeat) -> None:
    """Record a heartbeat; an overtaken one may have the newest checkpoint."""
    number = message.sequence
    if isinstance(message.checkpoint, msgspec.Raw) and number >= held.saved:
        held.saved = number
        _save(draft, one, message.checkpoint)
    if message.progress is not None and number >= held.progressed:
        held.progressed = number
        one.progress = message.progress
    if number in held.missing:
        held.missing = tuple(each for each in held.missing if each != number)
        return
    if number > held.sequence:
        skipped = range(max(held.sequence + 1, number - MOST_MISSING), number)
        held.missing = (*held.missing, *skipped)[-MOST_MISSING:]
        held.sequence = number


def _save(draft: JobAggregate, one: AttemptBody, checkpoint: msgspec.Raw | msgspec.UnsetType) -> None:
    if isinstance(checkpoint, msgspec.Raw):
        draft.body.checkpoints = {**draft.body.checkpoints, str(one.shard): checkpoint}


def _event(message: Message, now: datetime, settings: OrchestratorSettings) -> Event:
    """Return the event of the lease's table for a message."""
    runner_id, ttl_s = message.runner_id, settings.durations.lease_ttl_s
    match message:
        case Complete():
            return lease.Complete(at=now, runner_id=runner_id)
        case Heartbeat():
            return lease.Heartbeat(at=now, runner_id=runner_id, ttl_s=ttl_s)
        case Ack():
            return lease.Ack(at=now, runner_id=runner_id, ttl_s=ttl_s)
        case CancelAck():
            return lease.CancelAck(at=now, runner_id=runner_id)
        case Release():
            return lease.Release(at=now, runner_id=runner_id)
        case _ as never:
            assert_never(never)


def _repeated(draft: JobAggregate, one: AttemptBody, message: Message) -> Answer | None:
    """Return the answer to a repeated message; None for a new one."""
    held = one.lease
    if held is None or held.data.runner_id != message.runner_id:
        return None
    if held.state is lease.ACTIVE:
        kind = type(message)
        again = kind is Ack or (kind is Heartbeat and _was_received(held, message.sequence))
    else:
        again = held.state in lease.DEAD and _reported(draft, one) == digest_of_report(message)
    return _accepted(draft, one) if again else None


def _reported(draft: JobAggregate, one: AttemptBody) -> str:
    """Return the digest of the accepted report, or of its separate result."""
    record = draft.record
    if one.reported or record is None or not record.result or one.state is not attempt.SUCCEEDED:
        return one.reported
    outcome = Succeeded(msgspec.Raw(record.result))
    return digest_of_report(Complete(token="", runner_id="", outcome=outcome, cost=one.cost))


def _was_received(held: LeaseBody, number: int) -> bool:
    return 0 < number <= held.sequence and number not in held.missing


def _commit(
    draft: JobAggregate, one: AttemptBody, message: Message, commit_id: str, until: datetime | None
) -> Commit:
    assert one.lease is not None
    stretches = placed(one.lease, message, draft.settings.max_log_bytes) if message.log else []
    reason = message.reason if type(message) is Release else ""
    if one.snoozed_until is not None and type(message) is Release:
        reason = f"snoozed until {one.snoozed_until.isoformat()}"
    if type(message) is Complete and one.state is attempt.CANCELED:
        reason = f"it {message.outcome.__struct_config__.tag} after the cancel, which stands"
    change = draft.change(commit_id=commit_id, actor=message.runner_id, reason=reason)
    changes = [change, *messages_of(draft, commit_id)]
    if stretches or one.failure is not None:
        name = _name(draft, message)
        changes += chunk_changes(draft.id, one, message, name, stretches, draft.now, commit_id)
    if one.result_apart and isinstance(message, Complete) and isinstance(message.outcome, Succeeded):
        result, actor = message.outcome.result, message.runner_id
        changes.append(result_change(draft.id, one.name, result, commit_id=commit_id, actor=actor))
    if isinstance(message, ArtifactHeartbeat):
        changes.append(_artifact_change(draft.id, one, message, commit_id))
    if isinstance(message, CacheHeartbeat):
        changes.append(message.kept)
    # At the expiry of a timer it counts as expired: the commit has to be earlier.
    return Commit(changes=tuple(changes), not_after=until - _INSTANT if until else None)


def _artifact_change(job_id: str, one: AttemptBody, message: ArtifactHeartbeat, commit_id: str) -> Change:
    name, digest, size = message.name, message.sha256, message.size
    brought = ArtifactBody(shard=one.shard, attempt=one.index, name=name, sha256=digest, size=size)
    return artifact_change(job_id, brought, commit_id=commit_id, actor=message.runner_id)


def _name(draft: JobAggregate, message: Message) -> str:
    """Return a name that is unique among the messages about the attempt."""
    assert draft.record is not None
    numbered = f"{message_name(message)}-{message.sequence}"
    return numbered if message.sequence else f"v{draft.record.version}"


def _refuse(
    draft: JobAggregate, token: Token, message: Message, refused: Refused[LeaseState], commit_id: str
) -> Decision[Answer]:
    """Refuse and journal a stale or conflicting message; fire due timers."""
    draft.fire_due()
    one = _attempt_of(draft, token)
    assert one is not None
    answer = _stale_answer(one, message, refused)
    sentence = f"{message_name(message)}: {answer.error}"
    note = Note(refusal=sentence, actor=message.runner_id, request_id=commit_id)
    refusal = records.JournalledRefusal(kind=JOB.name, id=draft.id, note=note)
    if not draft.taken:
        kind = f"{one.name} {message_name(message)} {answer.code}"
        return Decision(answer, journalled_once(refusal, kind))
    expired = commit_of(draft, commit_id=commit_id, actor="clock")
    return Decision(answer, msgspec.structs.replace(expired, refusals=(refusal,)))


def _stale_answer(one: AttemptBody, message: Message, refused: Refused[LeaseState]) -> Stale | NotHeard:
    held = one.lease
    assert held is not None
    name = message_name(message)
    if held.data.runner_id != message.runner_id:
        return NotHeard(
            code="wrong_runner",
            error=f"The lease belongs to another runner than {message.runner_id}, so {name} is refused.",
            todo="Only the runner that holds the lease may report under it.",
        )
    if held.state in _STALE_CODES:
        code = _STALE_CODES[held.state]
        return Stale(code=code, error=f"The lease is {held.state}, so {name} is refused and changes nothing.")
    if held.state is lease.COMPLETED and isinstance(message, Complete):
        return NotHeard(
            code="conflicting_completion",
            error="Another completion was accepted before, with other content; that one counts.",
            todo="Nothing; the attempt has ended.",
            facts={"state": str(one.state)},
        )
    if held.state in lease.DEAD:
        return Stale(code=StaleCode.UNKNOWN_LEASE, error=f"The lease is {held.state}; {name} comes too late.")
    error = refused.error()
    return NotHeard(code=error.code, error=error.sentence, todo=error.todo, facts=error.facts)


def _accepted(draft: JobAggregate, one: AttemptBody) -> Heard:
    held = one.lease
    if held is None or held.state not in lease.LIVE:
        return Heard(state=one.state)
    return Heard(
        state=one.state,
        expires_at=held.data.expires_at,
        ttl_s=draft.settings.durations.lease_ttl_s,
        cancel_requested=held.data.cancel_requested,
        cancel_deadline_at=one.timer_at if one.state is attempt.CANCEL_REQUESTED else None,
    )


def message_name(message: Message) -> str:
    """Return the name of a message on the wire."""
    return _MESSAGE_NAMES[type(message)]


def _attempt_of(draft: JobAggregate, token: Token) -> AttemptBody | None:
    for one in draft.body.attempts:
        if one.shard == token.shard and one.index == token.index:
            return one
    return None


def _failure(failed: Failed, settings: OrchestratorSettings, now: datetime) -> Failure:
    known = failed.failure_class in FailureClass.__members__.values() or not failed.failure_class
    reported = failed if known else msgspec.structs.replace(failed, failure_class="")
    return Failure(
        failure_class=classify(reported, settings.failure_rules),
        error=failed.error,
        exception=failed.exception.split(" ", 1)[0],
        exit_code=failed.exit_code,
        details=fitting(failed.details, MAX_DETAILS),
        retry_after_s=_pause_wanted(failed.retry_after_s),
        retry_at=_moment_wanted(failed.retry_at, now),
    )


def _pause_wanted(wanted: float | msgspec.UnsetType) -> float | None:
    """Return the delay that the runner requests, within the limit."""
    return None if isinstance(wanted, msgspec.UnsetType) or not wanted >= 0 else min(wanted, MAX_DELAY_S)


def _moment_wanted(wanted: datetime | msgspec.UnsetType, now: datetime) -> datetime | None:
    """Return the time, or None for one without a time zone."""
    if isinstance(wanted, msgspec.UnsetType) or wanted.tzinfo is None:
        return None
    return min(wanted.astimezone(UTC), now + timedelta(seconds=MAX_DELAY_S))


def _snoozed_until(release: Release, now: datetime) -> datetime | None:
    """Return when to make a released attempt again, or None for at once."""
    if (at := _moment_wanted(release.snooze_until, now)) is not None:
        return max(at, now)
    pause_s = _pause_wanted(release.snooze_s)
    return None if pause_s is None else now + timedelta(seconds=pause_s)


def _awaited(body: JobBody, wait_id: str | msgspec.UnsetType) -> str:
    """Return the wait of a released attempt, or "" if it has its answer."""
    if not isinstance(wait_id, str) or not wait_id:
        return ""
    return wait_id if awaited_until(body, wait_id) is not None else ""


def digest_of_report(message: Message) -> str:
    """Return a digest of a report without its runner and sequence number."""
    match message:
        case Complete(outcome=outcome, cost=cost):
            content: object = (outcome, cost)
        case Release():
            content = _content_of_release(message)
        case CancelAck(confirmed_dead=confirmed):
            content = confirmed
        case _:
            content = None
    return _short(_ENCODER.encode((_MESSAGE_NAMES[type(message)], content)))


def _content_of_release(release: Release) -> tuple[object, ...]:
    """Return a release's content for its digest, as old versions made it."""
    saved = release.checkpoint if isinstance(release.checkpoint, msgspec.Raw) else None
    parts: tuple[object, ...] = (release.reason, saved)
    if release.await_children or release.cost is not None:
        parts = (*parts, release.cost, release.await_children)
    if isinstance(release.await_signal, str):
        parts = (*parts, "signal", release.await_signal)
    again = [each for each in (release.snooze_s, release.snooze_until) if each is not msgspec.UNSET]
    return (*parts, "snooze", *again) if again else parts


@lru_cache(maxsize=1_024)
def _short(encoded: bytes) -> str:
    """Return a short digest; cached, since most reports are equal."""
    return hashlib.blake2s(encoded, digest_size=8).hexdigest()


def _unfit(draft: JobAggregate, one: AttemptBody, message: Message) -> NotHeard | None:
    """Return why the payload of a message cannot be stored; None if it can."""
    settings = draft.settings
    match message:
        case Complete(outcome=Succeeded(result=result)):
            return _unfit_value("result", result, settings.max_result_bytes)
        case ArtifactHeartbeat() if one.artifacts >= MOST_ARTIFACTS:
            return NotHeard(
                code="too_many_artifacts",
                error=f"An attempt has at most {MOST_ARTIFACTS} artifacts.",
                todo="Name folders rather than files; each becomes one artifact.",
                facts={"limit": MOST_ARTIFACTS},
            )
        case CacheHeartbeat() if draft.body.secrets_withheld and not _has_own_caches(draft):
            return NotHeard(
                code="cache_refused", error="A job without access to secrets cannot save caches for others."
            )
        case Heartbeat(checkpoint=checkpoint) | Release(checkpoint=checkpoint):
            if not isinstance(checkpoint, msgspec.Raw):
                return None
            others = sum(len(raw) for shard, raw in draft.body.checkpoints.items() if shard != str(one.shard))
            most = min(settings.max_checkpoint_bytes, settings.max_checkpoints_bytes - others)
            return _unfit_value("checkpoint", checkpoint, most)
        case _:
            return None


def _has_own_caches(draft: JobAggregate) -> bool:
    """Return whether its caches are only for its own pull request."""
    return draft.body.origin is not None and draft.body.origin.from_fork


def _unfit_value(noun: str, raw: msgspec.Raw, most: int) -> NotHeard | None:
    if len(raw) > most:
        return _too_large(noun, len(raw), most)
    if fault := json_fault(raw):
        return NotHeard(
            code="not_json",
            error=f"The {noun} {fault}.",
            todo="Encode it as JSON that others can read, and report again.",
        )
    return None


def _too_large(noun: str, size: int, most: int) -> NotHeard:
    return NotHeard(
        code="too_large",
        error=f"The {noun} has {size} bytes; at most {most} are stored.",
        todo="Keep large data elsewhere, and report a reference to it.",
        facts={"bytes": size, "limit": most},
    )


def _unknown_lease(token: Token) -> Stale:
    return Stale(
        code=StaleCode.UNKNOWN_LEASE, error=f"There is no such lease on an attempt of {token.job_id}."
    )


_ANY_RESULT = msgspec.Raw(b'"~any~result~"')


class Report(NamedTuple):
    """The identity of equal reports."""

    given_by: int
    """The decision by which the jobs were granted together; their tokens differ only by the job."""
    runner_id: str
    cost: float | None


class SharedDecision(msgspec.Struct, frozen=True):
    """The decision about such a report: the answer to each, and the change of each without its result."""

    answer: Answer
    change: Change
    not_after: datetime | None
    to_run: JobChanged | None = None
    """The message to the run of all of them, about one of them."""

    def work(
        self, before: Sequence[Record], seen: Sequence[datetime], results: Sequence[bytes], now: datetime
    ) -> records.Work:
        """Return the work for these jobs, with their results.

        `seen` is when each was last written. Jobs of a run send it one message, so all or none are committed.
        """
        if self.to_run is None:
            return records.Batch(
                change=of_run(self.change, before[0].parent),
                ids=tuple([record.id for record in before]),
                expected_at=tuple(seen),
                result=tuple(results),
                not_after=self.not_after,
            )
        changes = self.changes(before, seen, results)
        commit_id = "" if self.change.note is None else self.change.note.request_id
        changes.append(change_of_all(self.to_run, before).message(before[0].id, now, commit_id))
        return Commit(changes=tuple(changes), not_after=self.not_after)

    def changes(
        self, before: Sequence[Record], seen: Sequence[datetime], results: Sequence[bytes]
    ) -> list[Change]:
        """Return the change of each of these jobs of a run."""
        change = of_run(self.change, before[0].parent)
        return [
            replace(change, id=record.id, expected_at=seen_at, result=result)
            for record, seen_at, result in zip(before, seen, results, strict=True)
        ]


def result_in(message: Complete, token: str, settings: OrchestratorSettings) -> bytes | None:
    """Return the result in a plain report of success, or None for others."""
    outcome = message.outcome
    if message.log or message.log_offset is not None or type(outcome) is not Succeeded:
        return None
    result = bytes(outcome.result)
    if len(result) > min(INLINE_RESULT, settings.max_result_bytes):
        return None
    return result if is_the_same(message.token, token) and not json_fault(result) else None


def decide_completions(
    report: Report, token: Token, like: Record, now: datetime, commit_id: str, settings: OrchestratorSettings
) -> SharedDecision | None:
    """Return the decision for all jobs that were granted like this one.

    It is None if it depends on the job. If that is one of any run, it holds for those of all runs.
    """
    stands_for_all = any_job(like, now)
    token = replace(token, job_id=ANY_JOB)
    completion = Complete(
        token=str(token), runner_id=report.runner_id, outcome=Succeeded(_ANY_RESULT), cost=report.cost
    )
    decision = decide_message(stands_for_all, token, completion, now, commit_id, settings)
    commit = decision.commit
    if commit is None or not commit.changes or commit.refusals:
        return None
    change, *messages = commit.changes
    if any(message.queue != RUN_JOBS for message in messages):
        return None
    common = replace(change, id="", expected_at=None, result=None)
    # The next attempt may depend on the id of the job, like its pause.
    if (
        not isinstance(decision.answer, Heard)
        or change.state != job.COMPLETED
        or change.result != bytes(_ANY_RESULT)
        or is_about_one(common)
    ):
        return None
    to_run = message_in(messages[0].body, JobChanged) if messages else None
    return SharedDecision(decision.answer, common, commit.not_after, to_run)


def _cleaned(message: Message) -> Message:
    """Return the message with storable texts; log lines are handled apart."""
    match message:
        case Complete(outcome=Failed() as failed):
            cleaned = msgspec.structs.replace(
                failed,
                error=opening(failed.error, MAX_ERROR),
                exception=opening(failed.exception, MAX_ERROR),
                details=fitting(failed.details, MAX_EXPLANATION),
            )
            return msgspec.structs.replace(message, outcome=cleaned)
        case Heartbeat(progress=progress) if progress is not None and progress.message:
            told_progress = msgspec.structs.replace(progress, message=opening(progress.message, MAX_PROGRESS))
            return msgspec.structs.replace(message, progress=told_progress)
        case Release(reason=reason):
            return msgspec.structs.replace(message, reason=opening(reason, MAX_ERROR))
        case _:
            return message
