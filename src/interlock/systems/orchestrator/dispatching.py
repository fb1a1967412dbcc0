"""Giving work to whoever asks for it. Pure: from ready jobs to grants and what they make of the jobs."""

from __future__ import annotations

from datetime import datetime

import msgspec

from interlock.lifecycles import attempt, lease
from interlock.store.records import Change, Record
from interlock.systems.orchestrator.aggregate import JobAggregate, acknowledged
from interlock.systems.orchestrator.body import AttemptBody, Granting, JobBody
from interlock.systems.orchestrator.settings import OrchestratorSettings
from interlock.systems.orchestrator.stencils import Pattern
from interlock.systems.orchestrator.stopping import messages_of, outgrown
from interlock.systems.orchestrator.tokens import Token, fence_of, token_for
from interlock.systems.orchestrator.words import words_of
from interlock.wire.runner import ClaimRequest, Grant


class Claiming(msgspec.Struct, frozen=True):
    """What a claim is decided with."""

    request: ClaimRequest
    seed: bytes
    """Where the secrets of all its leases come from."""
    epoch: int
    mark: str
    settings: OrchestratorSettings
    max_body_bytes: int
    """What the store takes: a job that would grow beyond it must not keep others from being given out."""


class Offer(msgspec.Struct, frozen=True, gc=False):
    """A grant, once its change has been committed; None for a job that nobody can be given any more."""

    grant: Grant | None
    change: Change
    before: Record
    body: JobBody | None
    """What the change says, not encoded; None where nobody has decoded it."""
    token: Token | None = None
    words: tuple[Change, ...] = ()
    """To the run that begins with it."""
    pattern: Pattern | None = None
    """How its body was put together, where others were made alike."""


def offer_of(claiming: Claiming, record: Record, now: datetime) -> Offer | None:
    """The attempt of this job that waits the longest, for this runner; None when none waits."""
    draft = JobAggregate.of(record, now, claiming.settings)
    one = next_attempt(draft)
    if one is None:
        return None
    token = token_for(claiming.seed, draft.id, one.shard, one.index)
    return granted(claiming, draft, one, token, record)


def granted(claiming: Claiming, draft: JobAggregate, one: AttemptBody, token: Token, record: Record) -> Offer:
    """This attempt for this runner, under this token."""
    request, now = claiming.request, draft.now
    draft.granting = Granting(request.runner_id, token.digest)
    if one.state is attempt.CREATED:
        draft.send_attempt(one, attempt.publish)
    draft.send_attempt(one, attempt.grant)
    if request.acknowledge:
        draft.send_lease(one, acknowledged(now, request.runner_id, claiming.settings.durations.lease_ttl_s))
    change = draft.change(mark=claiming.mark, actor=request.runner_id)
    if len(change.body) > claiming.max_body_bytes:
        stopped = outgrown(record, now, claiming.settings)
        change = stopped.change(mark=claiming.mark, actor="orchestrator")
        return Offer(None, change, record, stopped.body, None, messages_of(stopped))
    fence = fence_of(claiming.epoch, record.version + 1)
    grant = grant_of(draft, one, str(token), fence)
    return Offer(grant, change, record, draft.body, token, words_of(draft))


def next_attempt(draft: JobAggregate) -> AttemptBody | None:
    """Of those whose time has come, the one that waits the longest."""
    waiting = [
        one
        for one in draft.body.attempts
        if one.state in attempt.UNLEASED and one.ready_at is not None and one.ready_at <= draft.now
    ]
    return min(waiting, key=lambda one: (one.ready_at, one.shard)) if waiting else None


def grant_of(draft: JobAggregate, one: AttemptBody, token: str, fence: int) -> Grant:
    """An attempt as it is given to its runner."""
    body, durations = draft.body, draft.settings.durations
    assert one.lease is not None
    return Grant(
        token=token,
        job_id=draft.id,
        task=body.task,
        input=body.input,
        shard=one.shard,
        shards=body.data.worker_count,
        attempt=one.index,
        fence=fence,
        checkpoint=body.checkpoints.get(str(one.shard), msgspec.UNSET),
        queue=draft.place.queue or "",
        parent_job_id=draft.place.parent if body.run is None else None,
        depth=body.data.depth,
        acknowledged=one.lease.state is lease.ACTIVE,
        granted_at=one.lease.granted_at,
        expires_at=one.lease.data.expires_at,
        ttl_s=durations.lease_ttl_s,
        heartbeat_every_s=durations.heartbeat_every_s,
        timeout_s=body.timeout_s if body.timeout_s is not None else durations.attempt_timeout_s,
        trace=body.trace,
        secrets={} if body.secrets_withheld else dict.fromkeys(body.secrets, ""),
        secrets_withheld=body.secrets_withheld and bool(body.secrets),
        untrusted=body.secrets_withheld,
    )
