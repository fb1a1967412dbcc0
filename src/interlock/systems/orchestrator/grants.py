"""Claims: from ready jobs to grants, for many jobs of one shape by one decision. Pure.

A named claim is idempotent: it is recorded with its grants, and a repeat gets the same answer.

Why: decisions 0122 and 0439.
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
from interlock.lifecycles import attempt, job, lease
from interlock.store.records import (
    Batch,
    Change,
    Commit,
    Foresight,
    Outcome,
    Record,
    Recorded,
    Repeated,
    Request,
    RequestReused,
    Work,
)
from interlock.systems.orchestrator.aggregate import JobAggregate
from interlock.systems.orchestrator.body import (
    AttemptBody,
    JobBody,
    JobGiven,
    LeaseHolder,
    decode_body,
    given_of,
)
from interlock.systems.orchestrator.cancellation import commit_of, messages_of, outgrown
from interlock.systems.orchestrator.notifications import (
    JobChanged,
    change_for_run,
    change_of_all,
    notifications_for,
)
from interlock.systems.orchestrator.settings import OrchestratorSettings
from interlock.systems.orchestrator.shapes import (
    Shape,
    any_job,
    is_about_one,
    of_any_run,
    of_run,
    shape_of,
)
from interlock.systems.orchestrator.tokens import (
    Token,
    fence_of,
    token_for,
    token_of_its_own,
    version_of,
)
from interlock.wire.runner import ClaimRequest, Grant

MAX_CLAIMERS = 64
"""Number of different claimers whose last jobs are remembered."""
_ENOUGH_TIMES = 2
_CommonGrant: TypeAlias = tuple[Change, Grant, JobChanged | None]
"""The change and the grant of all jobs of one shape, and the message to their run."""


class ClaimInput(msgspec.Struct, frozen=True):
    """The input of the decision about a claim."""

    request: ClaimRequest
    secret: str
    """The secret of all its leases, since they belong to one runner."""
    digest: str
    epoch: int
    commit_id: str
    settings: OrchestratorSettings
    max_body_bytes: int
    """The limit of the store: a job that would exceed it must not block others."""
    foreseen: ForeseenGrant | None = None


class ForeseenGrant(msgspec.Struct, frozen=True):
    """A decision about jobs like the last one, made in advance."""

    like: Record
    now: datetime
    change: Change
    grant: Grant

    @property
    def foresight(self) -> Foresight:
        """The decision for the store."""
        return Foresight(self.like, self.change, self.now)


class Offer(msgspec.Struct, frozen=True, gc=False):
    """The grants of one decision, once committed: one job, or jobs of one shape."""

    change: Change
    """The change of one job; for several the common change, without an id."""
    before: tuple[Record, ...]
    grants: tuple[Grant, ...]
    """Grants by job; empty for a job that cannot be granted any more."""
    body: JobBody | None = None
    """The decoded body of the change, if it is about one job."""
    messages: tuple[Change, ...] = ()
    """Messages to the run that begins with it: then its jobs are granted all, or none."""

    @property
    def work(self) -> Work:
        """The work to commit."""
        if self.change.id:
            return Commit(changes=(self.change, *self.messages))
        if self.messages:
            return Commit(changes=self.changes)
        ids = tuple([record.id for record in self.before])
        seen = tuple([record.updated_at for record in self.before])
        return Batch(change=self.change, ids=ids, expected_at=seen)

    @property
    def changes(self) -> tuple[Change, ...]:
        """Return the changes, for a commit with other changes."""
        if self.change.id:
            return (self.change, *self.messages)
        each = [replace(self.change, id=one.id, expected_at=one.updated_at) for one in self.before]
        return (*each, *self.messages)


def offers_of(claiming: ClaimInput, records: Sequence[Record], now: datetime) -> list[Offer]:
    """Return the offers of one waiting attempt of each job for this runner."""
    if len(records) == 1 and claiming.foreseen is None:
        offer = offer_of(claiming, records[0], now)
        return [] if offer is None else [offer]
    offers: list[Offer] = []
    for like, groups in _jobs_by_run(claiming, records):
        may_share = len(groups) > 1 or len(groups[0]) > 1 or _is_foreseen(claiming, like, now)
        common = _common_grant(claiming, like, now) if may_share else None
        for some in groups:
            if common is not None:
                offers.append(_offer_together(claiming, common, some, now))
            else:
                alone = [offer_of(claiming, record, now) for record in some]
                offers += [offer for offer in alone if offer is not None]
    return offers


def _jobs_by_run(claiming: ClaimInput, records: Sequence[Record]) -> list[tuple[Record, list[list[Record]]]]:
    """Return the jobs of one shape by their run.

    A foreseen grant is about jobs of one run.
    """
    shapes: dict[Shape, list[Record]] = {}
    for record in records:
        shapes.setdefault(shape_of(record), []).append(record)
    alike: dict[Shape, tuple[Record, list[list[Record]]]] = {}
    for shape, some in shapes.items():
        like = of_any_run(some[0]) if claiming.foreseen is None else some[0]
        common = shape if like is some[0] else shape_of(like)
        alike.setdefault(common, (like, []))[1].append(some)
    return list(alike.values())


def offer_of(claiming: ClaimInput, record: Record, now: datetime) -> Offer | None:
    """Return the longest waiting attempt of this job, or None."""
    draft = JobAggregate.of(record, now, claiming.settings)
    if record.deadline_at is not None and has_expired(record, now):
        draft.fire_due()
        change = draft.change(commit_id=claiming.commit_id, actor="clock")
        return Offer(change, (record,), (), draft.body, messages_of(draft, claiming.commit_id))
    one = next_attempt(draft)
    if one is None:
        return None
    change = _granted(claiming, draft, one)
    if len(change.body) > claiming.max_body_bytes:
        stopped = outgrown(record, now, claiming.settings)
        change = stopped.change(commit_id=claiming.commit_id, actor="orchestrator")
        return Offer(change, (record,), (), stopped.body, messages_of(stopped, claiming.commit_id))
    grant = _grant_in(claiming, draft, one, given_of(record))
    body = draft.body
    tells = body.run is not None or body.simulation is not None
    return Offer(
        change, (record,), (grant,), body, notifications_for(draft, claiming.commit_id) if tells else ()
    )


def _offer_together(
    claiming: ClaimInput, common: _CommonGrant, records: Sequence[Record], now: datetime
) -> Offer:
    """Return the common offer for jobs of one shape and run."""
    change, grant, begun = common
    first = records[0]
    grants = tuple([_for_job(grant, record, claiming.secret) for record in records])
    messages: tuple[Change, ...] = ()
    if begun is not None:  # the run begins with any of them, so that one is enough
        messages = (change_of_all(begun, records[:1]).message(first.id, now, claiming.commit_id),)
    return Offer(of_run(change, first.parent), tuple(records), grants, messages=messages)


def _common_grant(claiming: ClaimInput, like: Record, now: datetime) -> _CommonGrant | None:
    """Return the decision for jobs of one shape, if it is the same for all."""
    if claiming.foreseen is not None and _is_foreseen(claiming, like, now):
        return claiming.foreseen.change, claiming.foreseen.grant, None
    if has_expired(like, now):
        return None
    draft = JobAggregate.of(any_job(like, now), now, claiming.settings)
    one = next_attempt(draft)
    if one is None:
        return None
    change = _granted(claiming, draft, one)
    common = replace(change, id="", expected_at=None)
    begun = change_for_run(draft)
    notified = begun is None and notifications_for(draft, claiming.commit_id)
    if len(change.body) > claiming.max_body_bytes or notified or is_about_one(common):
        return None
    return common, _grant_in(claiming, draft, one, JobGiven()), begun


def _is_foreseen(claiming: ClaimInput, like: Record, now: datetime) -> bool:
    known = claiming.foreseen
    return known is not None and known.now == now and shape_of(known.like) == shape_of(like)


def foresee(claiming: ClaimInput, like: Record, now: datetime) -> ForeseenGrant | None:
    """Return the decision about a claim of jobs like this one.

    It is None if it cannot be foreseen. It is made by the same rules, in advance, so the decision about the
    jobs themselves is the same.
    """
    if like.deadline_at is not None or like.result:
        return None
    common = _common_grant(claiming, like, now)
    if common is None or common[2] is not None:
        return None
    return ForeseenGrant(like, now, *common[:2])


class _LastClaim(msgspec.Struct, frozen=True, gc=False):
    like: Record
    times: int
    """Number of claims in a row whose jobs were like this one."""
    goes_on: bool
    """The next claim probably finds such a job: the last one was full, or found none and waits."""


class LastClaims:
    """A job of the last claims of each claimer, so that the next claim can be foreseen, if the store can use
    that.

    One full claim is enough to expect the same again; an idle claimer, whose jobs come one by one, has to
    have had two alike, because a wrong guess costs a round trip. Right after one it expects none.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], _LastClaim] = {}

    def expected_job(self, claimings: Sequence[ClaimInput]) -> Record | None:
        """Return a job like those that this claim will find, if known."""
        request = claimings[0].request
        if len(claimings) > 1 or request.claim_id:
            return None
        last = self._known.get(_terms_of(request))
        return last.like if last is not None and last.goes_on and last.times >= _ENOUGH_TIMES else None

    def learn(self, claimings: Sequence[ClaimInput], bundles: Sequence[ClaimCommit], granted: int) -> None:
        """Remember the grants, if one decision made all of them."""
        request = claimings[0].request
        terms = _terms_of(request)
        last = self._known.pop(terms, None)
        if not bundles:
            if last is not None:
                self._known[terms] = replace(last, goes_on=True)
            return
        if not len(claimings) == len(bundles) == len(bundles[0].offers) == 1:
            return
        offer = bundles[0].offers[0]
        if granted != len(offer.before):
            return
        like, is_full = offer.before[0], granted == request.limit and not offer.change.id
        before = last.times if last is not None and shape_of(last.like) == shape_of(like) else 0
        if len(self._known) >= MAX_CLAIMERS:
            self._known.clear()
        self._known[terms] = _LastClaim(like, _ENOUGH_TIMES if is_full else before + 1, is_full)

    def clear(self) -> None:
        """Forget everything."""
        self._known.clear()


def _terms_of(request: ClaimRequest) -> tuple[object, ...]:
    """Return what claims have in common that can expect the same jobs."""
    return request.queues, request.labels, request.tasks, request.acknowledge


def token_in(record: Record, claiming: ClaimInput) -> Token | None:
    """Return the token of a job granted in this claim, if its lease lives."""
    for one in decode_body(record.body).attempts:
        if one.lease is not None and one.lease.state in lease.LIVE and one.lease.digest == claiming.digest:
            return Token(record.id, one.shard, one.index, claiming.secret, claiming.digest)
    return None


def has_expired(record: Record, now: datetime) -> bool:
    """Return whether a job is past its time to start but not swept yet."""
    return record.state == job.PENDING and record.deadline_at is not None and record.deadline_at <= now


def _for_job(grant: Grant, record: Record, secret: str) -> Grant:
    given = given_of(record)
    token = f"{record.id}.{grant.shard}.{grant.attempt}.{secret}"
    own = {"input": given.input, "trace": given.trace, "metadata": given.metadata}
    return replace(grant, token=token, job_id=record.id, **own)


def _granted(claiming: ClaimInput, draft: JobAggregate, one: AttemptBody) -> Change:
    """Grant this attempt to this runner."""
    request, now = claiming.request, draft.now
    draft.granting = LeaseHolder(request.runner_id, claiming.digest)
    if one.state is attempt.CREATED:
        draft.send_attempt(one, attempt.publish)
    draft.send_attempt(one, attempt.grant)
    if request.acknowledge:
        ttl_s = claiming.settings.durations.lease_ttl_s
        draft.send_lease(one, lease.Ack(at=now, runner_id=request.runner_id, ttl_s=ttl_s))
    return draft.change(commit_id=claiming.commit_id, actor=request.runner_id)


def _grant_in(claiming: ClaimInput, draft: JobAggregate, one: AttemptBody, given: JobGiven) -> Grant:
    token = f"{draft.id}.{one.shard}.{one.index}.{claiming.secret}"
    return grant_of(draft, one, token, fence_of(claiming.epoch, draft.version + 1), given)


def next_attempt(draft: JobAggregate) -> AttemptBody | None:
    """Return the ready attempt that waits longest."""
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
    """Return the grant of an attempt."""
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
        metadata=given.metadata,
        secrets={} if body.secrets_withheld else dict.fromkeys(body.secrets, ""),
        secrets_withheld=body.secrets_withheld and bool(body.secrets),
        untrusted=body.secrets_withheld,
    )


ENDPOINT = "claim"
_INSTANT = timedelta(microseconds=1)


class GrantedLease(msgspec.Struct, frozen=True, array_like=True):
    """One lease of a named claim."""

    job_id: str
    shard: int
    index: int
    fence: int


class ClaimRecord(msgspec.Struct, frozen=True):
    """The stored answer to a named claim."""

    salt: str
    given: tuple[GrantedLease, ...]
    shared: bool = False
    """Whether all leases share one secret; older ones have one each."""


def claim_key_of(request: ClaimRequest) -> IdempotencyKey:
    """Return the idempotency key of a claim, unique for its runner."""
    name = msgspec.json.encode((request.runner_id, request.claim_id))
    content: tuple[object, ...] = (request.queues, request.labels, request.limit, request.acknowledge)
    if request.tasks is not None:
        content = (*content, request.tasks)
    return IdempotencyKey(
        f"claim.{hashlib.sha256(name).hexdigest()[:48]}",
        ENDPOINT,
        hashlib.sha256(msgspec.json.encode(content)).hexdigest()[:32],
    )


def seed_of(request: ClaimRequest, chance: bytes, place: int = 0) -> bytes:
    """Return the seed of the secrets of a claim.

    It is random, or reproducible for a named claim. Claims that are answered together have one `chance`; by
    their places each has secrets of its own.
    """
    if not request.claim_id:
        return (
            hashlib.blake2s(chance + place.to_bytes(4, "big"), person=b"place").digest() if place else chance
        )
    return hmac.digest(request.claim_id.encode(), chance + request.runner_id.encode(), "sha256")


class ClaimCommit(msgspec.Struct, frozen=True):
    """The grants that are committed together, and their claim."""

    place: int
    offers: tuple[Offer, ...]
    work: Work


def commits_for(
    claimings: Sequence[ClaimInput], shares: Sequence[tuple[int, Offer]], chance: bytes
) -> list[ClaimCommit]:
    """Return one commit for each named claim, and for each other offer."""
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


def outcomes_by_offer(
    bundles: Sequence[ClaimCommit], outcomes: Sequence[Outcome]
) -> Iterator[tuple[ClaimCommit, Offer, Sequence[Outcome]]]:
    """Yield each offer with the outcomes of its jobs."""
    start = 0
    for bundle in bundles:
        shared = outcomes[start : start + 1] if isinstance(bundle.work, Commit) else None
        start += shared is not None
        for offer in bundle.offers:
            number = len(offer.before)
            yield bundle, offer, outcomes[start : start + number] if shared is None else [*shared] * number
            start += number if shared is None else 0


def _recorded(claiming: ClaimInput, offers: Sequence[Offer], salt: bytes) -> Request:
    given = tuple(
        GrantedLease(grant.job_id, grant.shard, grant.attempt, grant.fence)
        for offer in offers
        for grant in offer.grants
    )
    promise = ClaimRecord(salt.hex(), given, shared=True)
    answered = claim_key_of(claiming.request).answered(msgspec.json.encode(promise))
    # After this time no unrenewed lease can be left, so the record is not needed.
    return msgspec.structs.replace(answered, ttl_s=claiming.settings.durations.lease_ttl_s)


def earlier_answers(bundles: Sequence[ClaimCommit], outcomes: Sequence[Outcome]) -> dict[int, Recorded]:
    """Return the stored answers of claims that were answered before."""
    if not outcomes:
        return {}  # a lost answer tells nothing
    return {
        bundle.place: outcome.recorded
        for bundle, _, results in outcomes_by_offer(bundles, outcomes)
        for outcome in results[:1]
        if isinstance(outcome, Repeated | RequestReused)
    }


def tokens_of(request: ClaimRequest, recorded: Recorded) -> list[tuple[Token, int]]:
    """Return the tokens granted under the name, each with its fence."""
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
    commit_id: str,
) -> Decision[Grant | None]:
    """Return the grant again, with its lease renewed, or None if it ended."""
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
        return Decision(None)  # if it has just expired, the sweep handles it
    commit = commit_of(draft, commit_id=commit_id, actor=request.runner_id)
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
    commit_id: str,
) -> Decision[None]:
    """Return a job to the queue, unless a message about its lease has come."""
    draft, one = _opened(record, token, now, settings)
    if draft is None or one is None or not _untouched(draft, one, grant):
        return Decision(None)
    if draft.send_lease(one, lease.Release(at=now, runner_id=runner_id)) is not None:
        return Decision(None)
    return Decision(None, commit_of(draft, commit_id=commit_id, actor=runner_id, reason="no runner took it"))


def _untouched(draft: JobAggregate, one: AttemptBody, grant: Grant) -> bool:
    """Return whether the lease was not renewed since the grant.

    Before an acknowledgement, the job has to be unchanged as well.
    """
    if one.lease is None or draft.record is None or one.lease.data.expires_at != grant.expires_at:
        return False
    return one.lease.state is lease.ACTIVE or draft.record.version == version_of(grant.fence)


def claim_over(claim_id: str) -> ClaimOver:
    """Return the error of a claim whose leases have all ended."""
    return ClaimOver(
        f"All grants of the claim {claim_id!r} has ended.",
        todo="Ask again under another name.",
        facts={"claim_id": claim_id},
    )


def claim_reused(claim_id: str) -> RequestIdReused:
    """Return the error of a repeated claim with other content."""
    return RequestIdReused(
        f"The claim {claim_id!r} was made before, and asked for something else.",
        todo="Give each claim a name of its own, and repeat it as it was.",
        facts={"claim_id": claim_id},
    )


def _opened(
    record: Record | None, token: Token, now: datetime, settings: OrchestratorSettings
) -> tuple[JobAggregate | None, AttemptBody | None]:
    """Return the job of a token and its attempt."""
    if record is None:
        return None, None
    draft = JobAggregate.of(record, now, settings)
    for one in draft.body.attempts:
        if (one.shard, one.index) == (token.shard, token.index) and one.lease is not None:
            return (draft, one) if token.opens(one.lease.digest) else (None, None)
    return None, None
