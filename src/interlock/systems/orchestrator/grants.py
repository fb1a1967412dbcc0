"""Giving work to whoever asks for it. Pure: from ready jobs to grants and what they make of the jobs.

Jobs with the same body and columns are given out by one decision. A job whose decision says more than
that (a message to its run, or anything with its own id in it) is decided about alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from interlock.lifecycles import attempt, lease
from interlock.store.records import Batch, Change, Commit, Record, Work
from interlock.systems.orchestrator.aggregate import JobAggregate, acknowledged
from interlock.systems.orchestrator.body import AttemptBody, Granting, JobBody, JobGiven, given_of
from interlock.systems.orchestrator.cancellation import messages_of, outgrown
from interlock.systems.orchestrator.notifications import notifications_for
from interlock.systems.orchestrator.settings import OrchestratorSettings
from interlock.systems.orchestrator.tokens import Token, fence_of
from interlock.wire.runner import ClaimRequest, Grant

Shape: TypeAlias = tuple[object, ...]
"""What a decision about a job depends on."""

ANY_JOB = "~any~job~"
"""The id of a job that stands for all of its shape. No id has this character."""
_ANY_JOB_BYTES = ANY_JOB.encode()
_encode = msgspec.json.Encoder().encode


class Claiming(msgspec.Struct, frozen=True):
    """What a claim is decided with."""

    request: ClaimRequest
    secret: str
    """Of all its leases: they belong to one runner."""
    digest: str
    epoch: int
    mark: str
    settings: OrchestratorSettings
    max_body_bytes: int
    """What the store takes: a job that would grow beyond it must not keep others from being given out."""


class Offer(msgspec.Struct, frozen=True, gc=False):
    """What one decision gives to a runner, once it has been committed: a job, or jobs of one shape."""

    change: Change
    """Of one job; of several what all of them become, without an id."""
    before: tuple[Record, ...]
    grants: tuple[Grant, ...]
    """By job; none for a job that nobody can be given any more."""
    body: JobBody | None = None
    """What the change says, not encoded, where it is about one job."""
    words: tuple[Change, ...] = ()
    """To the run that begins with it."""

    @property
    def work(self) -> Work:
        """What has to be committed."""
        if self.change.id:
            return Commit(changes=(self.change, *self.words))
        ids = tuple([record.id for record in self.before])
        seen = tuple([record.updated_at for record in self.before])
        return Batch(change=self.change, ids=ids, expected_at=seen)

    @property
    def changes(self) -> tuple[Change, ...]:
        """The same for a commit that has more in it."""
        if self.change.id:
            return (self.change, *self.words)
        return tuple(replace(self.change, id=one.id, expected_at=one.updated_at) for one in self.before)


def offers_of(claiming: Claiming, records: Sequence[Record], now: datetime) -> list[Offer]:
    """Return one attempt of each of these jobs, for this runner; a job without one that waits is left out."""
    shapes: dict[Shape, list[Record]] = {}
    for record in records:
        shapes.setdefault(shape_of(record), []).append(record)
    offers: list[Offer] = []
    for some in shapes.values():
        together = _offer_together(claiming, some, now) if len(some) > 1 else None
        alone = () if together is not None else [offer_of(claiming, record, now) for record in some]
        offers += [offer for offer in (together, *alone) if offer is not None]
    return offers


def offer_of(claiming: Claiming, record: Record, now: datetime) -> Offer | None:
    """Return the attempt of this job that waits the longest, for this runner; None when none waits."""
    draft = JobAggregate.of(record, now, claiming.settings)
    one = next_attempt(draft)
    if one is None:
        return None
    change = _granted(claiming, draft, one)
    if len(change.body) > claiming.max_body_bytes:
        stopped = outgrown(record, now, claiming.settings)
        change = stopped.change(mark=claiming.mark, actor="orchestrator")
        return Offer(change, (record,), (), stopped.body, messages_of(stopped))
    grant = _grant_in(claiming, draft, one, given_of(record))
    return Offer(change, (record,), (grant,), draft.body, notifications_for(draft))


def _offer_together(claiming: Claiming, records: Sequence[Record], now: datetime) -> Offer | None:
    """Return what becomes of jobs of one shape; None where that depends on which one it is."""
    draft = JobAggregate.of(any_job(records[0], now), now, claiming.settings)
    one = next_attempt(draft)
    if one is None:
        return None
    change = _granted(claiming, draft, one)
    common = replace(change, id="", expected_at=None)
    if len(change.body) > claiming.max_body_bytes or notifications_for(draft) or is_about_one(common):
        return None
    grant = _grant_in(claiming, draft, one, JobGiven())
    grants = tuple([_for_job(grant, record, claiming.secret) for record in records])
    return Offer(common, tuple(records), grants)


def _for_job(grant: Grant, record: Record, secret: str) -> Grant:
    given = given_of(record)
    token = f"{record.id}.{grant.shard}.{grant.attempt}.{secret}"
    return replace(grant, token=token, job_id=record.id, input=given.input, trace=given.trace)


def shape_of(record: Record) -> Shape:
    """Return what decisions about a job depend on: jobs of one shape are decided about once."""
    return (
        record.state,
        record.version,
        record.body,
        record.queue,
        record.priority,
        record.parent,
        record.labels,
        record.deadline_at,
    )


def any_job(like: Record, now: datetime) -> Record:
    """Return a job that stands for all of this shape: it has nothing in which they may differ."""
    return replace(like, id=ANY_JOB, given=b"", created_at=now, updated_at=now, ready_at=None)


def is_about_one(change: Change) -> bool:
    """Whether a change says which job it is about, although it shall hold for all of its shape."""
    return _ANY_JOB_BYTES in change.body or _ANY_JOB_BYTES in _encode(replace(change, body=b""))


def _granted(claiming: Claiming, draft: JobAggregate, one: AttemptBody) -> Change:
    """Give this attempt to this runner."""
    request, now = claiming.request, draft.now
    draft.granting = Granting(request.runner_id, claiming.digest)
    if one.state is attempt.CREATED:
        draft.send_attempt(one, attempt.publish)
    draft.send_attempt(one, attempt.grant)
    if request.acknowledge:
        draft.send_lease(one, acknowledged(now, request.runner_id, claiming.settings.durations.lease_ttl_s))
    return draft.change(mark=claiming.mark, actor=request.runner_id)


def _grant_in(claiming: Claiming, draft: JobAggregate, one: AttemptBody, given: JobGiven) -> Grant:
    token = Token(draft.id, one.shard, one.index, claiming.secret, claiming.digest)
    return grant_of(draft, one, str(token), fence_of(claiming.epoch, draft.version + 1), given)


def next_attempt(draft: JobAggregate) -> AttemptBody | None:
    """Of those whose time has come, the one that waits the longest."""
    created_at = draft.created_at
    waiting = [
        (ready_at, one.shard, one)
        for one in draft.body.attempts
        if one.state in attempt.UNLEASED
        and (ready_at := one.ready_in(created_at)) is not None
        and ready_at <= draft.now
    ]
    return min(waiting, key=lambda found: found[:2])[2] if waiting else None


def grant_of(draft: JobAggregate, one: AttemptBody, token: str, fence: int, given: JobGiven) -> Grant:
    """An attempt as it is given to its runner."""
    body, durations = draft.body, draft.settings.durations
    assert one.lease is not None
    return Grant(
        token=token,
        job_id=draft.id,
        task=body.task,
        input=given.input,
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
        trace=given.trace,
        secrets={} if body.secrets_withheld else dict.fromkeys(body.secrets, ""),
        secrets_withheld=body.secrets_withheld and bool(body.secrets),
        untrusted=body.secrets_withheld,
    )
