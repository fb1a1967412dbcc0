"""Claims under a name: whoever hears one again, it is answered as the first time. Pure.

Authority. The claim is a request like any other: what was given out under its name is recorded in the
commit that gives it out. So it is given out once, whichever server is asked, and however often.

Secrets. The store keeps no secret, and still has to answer with the same ones. They follow from the
name of the claim, which only its runner knows, and from a salt that only the store knows: the record
of the claim keeps the salt, a digest of the name, and which leases were granted. Who can read the store
lacks the name; who guesses the name lacks the salt.

Trust. What is answered again is renewed in the same step, so that its runner has the whole of a lease
before it, and a server that believes it to be gone, and would give the work back, finds that it is not.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

import msgspec

from interlock.engine.unit_of_work import Decision, IdempotencyKey
from interlock.errors import InterlockError, RequestIdReused
from interlock.lifecycles import lease
from interlock.store.records import (
    Commit,
    Outcome,
    Record,
    Recorded,
    Repeated,
    Request,
    RequestReused,
    Work,
)
from interlock.systems.orchestrator.aggregate import JobAggregate
from interlock.systems.orchestrator.body import AttemptBody, given_of
from interlock.systems.orchestrator.cancellation import commit_of
from interlock.systems.orchestrator.grants import Claiming, Offer, grant_of
from interlock.systems.orchestrator.settings import OrchestratorSettings
from interlock.systems.orchestrator.tokens import Token, token_for, token_of_its_own, version_of
from interlock.wire.runner import ClaimRequest, Grant

ENDPOINT = "claim"
_INSTANT = timedelta(microseconds=1)


class ClaimOver(InterlockError):
    """Everything that was given out under the name of a claim has ended; a server answers with nothing."""

    code = "claim_over"
    status = 409


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
