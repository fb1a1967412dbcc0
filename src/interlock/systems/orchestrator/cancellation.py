"""Cancel jobs, and handle their passed deadlines. Pure.

Why: decisions 0025 and 0026.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

import msgspec

from interlock.engine.outbox import outgoing
from interlock.lifecycles import job
from interlock.lifecycles.couplings import Recipient
from interlock.store.records import Change, Commit, Record
from interlock.systems.orchestrator.aggregate import JobAggregate
from interlock.systems.orchestrator.attachments import Chunk, chunk_change
from interlock.systems.orchestrator.body import AttemptBody
from interlock.systems.orchestrator.dependencies import end_messages_of
from interlock.systems.orchestrator.failures import FailureClass
from interlock.systems.orchestrator.gates import limit_messages_of
from interlock.systems.orchestrator.mailboxes import mailbox_messages_of
from interlock.systems.orchestrator.notifications import alert_for, notifications_for
from interlock.systems.orchestrator.settings import OrchestratorSettings
from interlock.systems.orchestrator.tree_slots import CANCEL_CHILDREN, tree_messages_of
from interlock.systems.quarantine import RUNNER_LOST, LostWork, name_of
from interlock.wire.runner import LogLine

MAX_COMMENT = 1_000
"""Maximum length of the cancel reason in a job; the journal has all of it."""


class CancelChildren(msgspec.Struct, frozen=True):
    """A message to stop the children of a job."""

    job_id: str
    reason: str


def cancelled(
    record: Record, now: datetime, settings: OrchestratorSettings, reason: str, comment: str = ""
) -> JobAggregate:
    """Return the job after a cancel; raise if its table refuses.

    `reason` is the code, and `comment` is the reason of a person; those of the first cancel are kept.
    """
    draft = JobAggregate.of(record, now, settings)
    draft.fire_due()
    draft.stop_reason = reason
    first = draft.root.data.stop_reason is None
    refused = draft.send(job.Cancel(at=now, still_active=draft.body.active, reason=reason))
    if refused is not None:
        raise refused.error()
    if first:
        draft.body.cancel_reason = comment[:MAX_COMMENT]
    return draft


def outgrown(record: Record, now: datetime, settings: OrchestratorSettings) -> JobAggregate:
    """Return a stopped job without its large parts.

    It would exceed the size limit of the store. That cannot happen with the default limits; but a job that
    can neither be claimed nor written would stay at the head of its queue forever.
    """
    draft = JobAggregate.of(record, now, settings)
    draft.body.checkpoints = {}
    for one in draft.body.attempts:
        if one.failure is not None:
            one.failure = msgspec.structs.replace(one.failure, details="", error=one.failure.error[:200])
    if isinstance(draft.body.input, msgspec.Raw) and 2 * len(draft.body.input) > len(record.body):
        draft.body.input = msgspec.Raw(b"null")
    draft.stop_reason = "too_large"
    draft.send(job.Cancel(at=now, still_active=draft.body.active, reason="too_large"))
    return draft


def swept(
    records: Sequence[Record],
    now: datetime,
    commit_id: str,
    settings: OrchestratorSettings,
    max_body_bytes: int,
) -> list[Commit]:
    """Return the commits of jobs with a passed deadline.

    A stale timer moves nothing, and then only the deadline is corrected.
    """
    commits = []
    for record in records:
        draft = JobAggregate.of(record, now, settings)
        draft.fire_due()
        commit = commit_of(draft, commit_id=commit_id, actor="clock")
        if len(commit.changes[0].body) > max_body_bytes:
            commit = commit_of(outgrown(record, now, settings), commit_id=commit_id, actor="orchestrator")
        commits.append(commit)
    return commits


def commit_of(draft: JobAggregate, *, commit_id: str, actor: str, reason: str = "") -> Commit:
    """Return the commit of a job, with messages to other records."""
    change = draft.change(commit_id=commit_id, actor=actor, reason=reason)
    return Commit(changes=(change, *messages_of(draft, commit_id)))


def messages_of(draft: JobAggregate, commit_id: str) -> tuple[Change, ...]:
    """Return messages to other records.

    They are committed with their cause, so that a crash does not lose them.
    """
    body = draft.body
    alert = alert_for(draft) if draft.root.state is job.FAILED else ()
    alone = body.run is None and body.simulation is None and body.tree is None and body.limits is None
    alert += end_messages_of(draft) if body.then else ()
    if alone and not body.children and not draft.remarks and not body.mail:
        return alert
    messages = (
        *notifications_for(draft, commit_id),
        *_to_children(draft),
        *tree_messages_of(draft),
        *_about_runners(draft),
    )
    remarks = [_logged(draft, one, text) for one, text in draft.remarks]
    return (*alert, *messages, *limit_messages_of(draft), *mailbox_messages_of(draft), *remarks)


def _logged(draft: JobAggregate, one: AttemptBody, text: str) -> Change:
    """Return a line to end the log of an attempt that cannot write it."""
    end = one.lease.logged if one.lease is not None else 0
    line = LogLine(draft.now, "error", text)
    chunk = Chunk(shard=one.shard, attempt=one.index, sequence=0, lines=(line,), offset=end)
    return chunk_change(
        draft.id, f"{end:014d}-{draft.version}.end", chunk, commit_id="", actor="orchestrator"
    )


def _about_runners(draft: JobAggregate) -> Iterator[Change]:
    """Yield messages about runners that have ever lost an attempt of the job."""
    for one in draft.lost:
        assert one.lease is not None
        before = {
            name_of(each.lease.data.runner_id)
            for each in draft.body.attempts
            if each is not one and each.lease is not None and _was_lost(each)
        }
        runner = name_of(one.lease.data.runner_id)
        loss = LostWork(
            runner=runner, job_id=draft.id, attempt=one.name, others=tuple(sorted(before - {runner}))
        )
        yield outgoing(f"{draft.id}.{one.name}.lost", RUNNER_LOST, msgspec.json.encode(loss), draft.now)


def _was_lost(one: AttemptBody) -> bool:
    return one.failure is not None and one.failure.failure_class is FailureClass.LOST


def _to_children(draft: JobAggregate) -> tuple[Change, ...]:
    if not draft.body.children or not any(each.to is Recipient.ITS_CHILDREN for each, _ in draft.outward):
        return ()
    payload = CancelChildren(draft.id, draft.root.data.stop_reason or "cancel")
    name = f"{draft.id}.children.{draft.version}"
    return (outgoing(name, CANCEL_CHILDREN, msgspec.json.encode(payload), draft.now),)
