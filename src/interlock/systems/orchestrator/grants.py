"""Claims: from ready jobs to grants, for many jobs of one shape by one decision. Pure.

A claim under a name is idempotent: it is recorded with its grants, and a repetition gets the same answer.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from interlock.engine.unit_of_work import Decision, IdempotencyKey
from interlock.errors import ClaimOver, RequestIdReused
from interlock.lifecycles import attempt, lease
from interlock.store.records import (
    Batch,
    Change,
    Commit,
    Outcome,
    Record,
    Recorded,
    Repeated,
    Request,
    RequestReused,
    Work,
)
from interlock.systems.orchestrator.aggregate import JobAggregate, acknowledged
from interlock.systems.orchestrator.body import AttemptBody, Granting, JobBody, JobGiven, given_of
from interlock.systems.orchestrator.cancellation import commit_of, messages_of, outgrown
from interlock.systems.orchestrator.notifications import notifications_for
from interlock.systems.orchestrator.settings import OrchestratorSettings
from interlock.systems.orchestrator.tokens import (
    Token,
    fence_of,
    token_for,
    token_of_its_own,
    version_of,
)
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


ENDPOINT = "claim"
_INSTANT = timedelta(microseconds=1)


class GrantedLease(msgspec.Struct, frozen=True, array_like=True):
    """One lease that was granted under the name."""

    job_id: str
    shard: int
    index: int
    fence: int


class ClaimRecord(msgspec.Struct, frozen=True):
    """What the store keeps of a claim that was answered."""

    salt: str
    given: tuple[GrantedLease, ...]
    shared: bool = False
    """All leases have one secret; those of an earlier version have one each."""


def asked_of(request: ClaimRequest) -> IdempotencyKey:
    """The claim as a request: two runners may use the same name, and one of them only for one claim."""
    name = msgspec.json.encode((request.runner_id, request.claim_id))
    content: tuple[object, ...] = (request.queues, request.labels, request.limit, request.acknowledge)
    if request.tasks is not None:
        content = (*content, request.tasks)
    return IdempotencyKey(
        f"claim.{hashlib.sha256(name).hexdigest()[:48]}",
        ENDPOINT,
        hashlib.sha256(msgspec.json.encode(content)).hexdigest()[:32],
    )


def seed_of(request: ClaimRequest, chance: bytes) -> bytes:
    """Where the secrets of a claim come from: chance alone, or what can be known again."""
    if not request.claim_id:
        return chance
    return hmac.digest(request.claim_id.encode(), chance + request.runner_id.encode(), "sha256")


class ClaimCommit(msgspec.Struct, frozen=True):
    """What is given out together or not at all, and to whom."""

    place: int
    offers: tuple[Offer, ...]
    work: Work


def commits_for(
    claimings: Sequence[Claiming], shares: Sequence[tuple[int, Offer]], chance: bytes
) -> list[ClaimCommit]:
    """One for each name, with the record of it; and one for each offer to somebody who gave none."""
    named: dict[int, list[Offer]] = {}
    bundles: list[ClaimCommit] = []
    for place, offer in shares:
        if claimings[place].request.claim_id and offer.grants:
            named.setdefault(place, []).append(offer)
        else:
            bundles.append(ClaimCommit(place, (offer,), offer.work))
    for place, offers in named.items():
        changes = tuple(change for offer in offers for change in offer.changes)
        commit = Commit(changes=changes, request=_recorded(claimings[place], offers, chance))
        bundles.append(ClaimCommit(place, tuple(offers), commit))
    return bundles


def outcomes_by_job(
    bundles: Sequence[ClaimCommit], outcomes: Sequence[Outcome]
) -> Iterator[tuple[ClaimCommit, Offer, int, Outcome]]:
    """Return each job of the offers, by its place in its offer, with what has become of it."""
    told = iter(outcomes)
    for bundle in bundles:
        shared = next(told) if isinstance(bundle.work, Commit) else None
        for offer in bundle.offers:
            for number in range(len(offer.before)):
                yield bundle, offer, number, shared if shared is not None else next(told)


def _recorded(claiming: Claiming, offers: Sequence[Offer], salt: bytes) -> Request:
    given = tuple(
        GrantedLease(grant.job_id, grant.shard, grant.attempt, grant.fence)
        for offer in offers
        for grant in offer.grants
    )
    promise = ClaimRecord(salt.hex(), given, shared=True)
    answered = asked_of(claiming.request).answered(msgspec.json.encode(promise))
    # Once no lease can be left that nobody has renewed, there is nothing to be answered again.
    return msgspec.structs.replace(answered, ttl_s=claiming.settings.durations.lease_ttl_s)


def earlier_answers(bundles: Sequence[ClaimCommit], outcomes: Sequence[Outcome]) -> dict[int, Recorded]:
    """Whose claim was answered before, and what the store has kept of that."""
    if not outcomes:
        return {}  # nothing is known of a lost answer
    return {
        bundle.place: outcome.recorded
        for bundle, _, _, outcome in outcomes_by_job(bundles, outcomes)
        if isinstance(outcome, Repeated | RequestReused)
    }


def tokens_of(request: ClaimRequest, recorded: Recorded) -> list[tuple[Token, int]]:
    """The tokens that were given out under the name, each with its fence."""
    promise = msgspec.json.decode(recorded.answer.body, type=ClaimRecord)
    seed = seed_of(request, bytes.fromhex(promise.salt))
    token = token_for if promise.shared else token_of_its_own
    return [(token(seed, each.job_id, each.shard, each.index), each.fence) for each in promise.given]


def reissue_grant(
    request: ClaimRequest,
    token: Token,
    fence: int,
    settings: OrchestratorSettings,
    record: Record | None,
    now: datetime,
    mark: str,
) -> Decision[Grant | None]:
    """The grant once more, and its lease renewed; None when that has ended meanwhile."""
    draft, one = _opened(record, token, now, settings)
    if draft is None or one is None or one.lease is None:
        return Decision(None)
    if (until := draft.deadline_at) is not None and until <= now:
        draft.fire_due()
        until = draft.deadline_at
    if one.lease.state is lease.ACTIVE:
        ttl_s = settings.durations.lease_ttl_s
        draft.send_lease(one, lease.Heartbeat(at=now, runner_id=request.runner_id, ttl_s=ttl_s))
    elif one.lease.state not in lease.LIVE:
        return Decision(None)  # if it has just run out, whoever sweeps sees to it
    commit = commit_of(draft, mark=mark, actor=request.runner_id)
    until_then = until - _INSTANT if until else None
    assert record is not None
    grant = grant_of(draft, one, str(token), fence, given_of(record))
    return Decision(grant, msgspec.structs.replace(commit, not_after=until_then))


def take_back(
    runner_id: str,
    grant: Grant,
    token: Token,
    settings: OrchestratorSettings,
    record: Record | None,
    now: datetime,
    mark: str,
) -> Decision[None]:
    """Into the queue again, unless anything was heard of it since it was granted: then somebody has it."""
    draft, one = _opened(record, token, now, settings)
    if draft is None or one is None or not _untouched(draft, one, grant):
        return Decision(None)
    if draft.send_lease(one, lease.Release(at=now, runner_id=runner_id)) is not None:
        return Decision(None)
    return Decision(None, commit_of(draft, mark=mark, actor=runner_id, reason="nobody took it"))


def _untouched(draft: JobAggregate, one: AttemptBody, grant: Grant) -> bool:
    """Nobody has renewed it; where nothing can be renewed yet, nobody has changed the job at all."""
    if one.lease is None or draft.record is None or one.lease.data.expires_at != grant.expires_at:
        return False
    return one.lease.state is lease.ACTIVE or draft.record.version == version_of(grant.fence)


def claim_over(claim_id: str) -> ClaimOver:
    """Nothing is left of what was given out."""
    return ClaimOver(
        f"Everything that was given out under the claim {claim_id!r} has ended.",
        todo="Ask again under another name.",
        facts={"claim_id": claim_id},
    )


def claim_reused(claim_id: str) -> RequestIdReused:
    """Whoever asks again asks for the same."""
    return RequestIdReused(
        f"The claim {claim_id!r} was made before, and asked for something else.",
        todo="Give each claim a name of its own, and repeat it as it was.",
        facts={"claim_id": claim_id},
    )


def _opened(
    record: Record | None, token: Token, now: datetime, settings: OrchestratorSettings
) -> tuple[JobAggregate | None, AttemptBody | None]:
    """The job of a token and the attempt that it opens."""
    if record is None:
        return None, None
    draft = JobAggregate.of(record, now, settings)
    for one in draft.body.attempts:
        if (one.shard, one.index) == (token.shard, token.index) and one.lease is not None:
            return (draft, one) if token.opens(one.lease.digest) else (None, None)
    return None, None
