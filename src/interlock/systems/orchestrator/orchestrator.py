"""The orchestrator: clients submit jobs to it, runners claim jobs and report to it.

It joins the pure deciders of this package with the engine, and adds no rules. Any number of orchestrators may
work on one store: each commit names the version it was decided on, so of two that decide about the same job
one conflicts and decides again.
"""

from __future__ import annotations

import logging
import secrets
from collections import OrderedDict
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TypeAlias

import msgspec

from interlock.engine.bulk import Item, apply_all
from interlock.engine.unit_of_work import Applied, Decision, Engine
from interlock.errors import InterlockError, StoreUnavailable
from interlock.lifecycles import job, lease
from interlock.lifecycles.job import JOB
from interlock.store.records import (
    Change,
    Claim,
    Commit,
    Committed,
    Guard,
    Key,
    Outcome,
    Record,
    Recorded,
    Repeated,
    Work,
    record_after,
)
from interlock.systems.orchestrator import cancellation
from interlock.systems.orchestrator.admissions import LimitsNotified
from interlock.systems.orchestrator.body import decode_body
from interlock.systems.orchestrator.dependencies import ENDS, DependenciesNotified
from interlock.systems.orchestrator.gates import LIMITS
from interlock.systems.orchestrator.grants import (
    ClaimCommit,
    ClaimInput,
    ForeseenGrant,
    LastClaims,
    Offer,
    claim_key_of,
    claim_over,
    claim_reused,
    commits_for,
    earlier_answers,
    foresee,
    offers_of,
    outcomes_by_offer,
    reissue_grant,
    seed_of,
    take_back,
    token_in,
    tokens_of,
)
from interlock.systems.orchestrator.joint_reports import (
    HeldJob,
    JointReports,
    RunProgress,
    SuccessReport,
)
from interlock.systems.orchestrator.limits import Limits
from interlock.systems.orchestrator.notifications import (
    RUN_JOBS,
    JobsSwept,
    RunsNotified,
    TreesNotified,
)
from interlock.systems.orchestrator.queues import Queues
from interlock.systems.orchestrator.runner_messages import (
    Report,
    decide_message,
    result_in,
)
from interlock.systems.orchestrator.settings import DEFAULT_SETTINGS, OrchestratorSettings
from interlock.systems.orchestrator.tokens import Token, digest_of, fence_of, job_of, read_token, secret_of
from interlock.systems.orchestrator.tree_slots import TREE_TOPICS
from interlock.systems.orchestrator.vault import NO_ORIGIN, Vault, redacted, with_secrets
from interlock.wire.runner import Answer, ClaimRequest, Complete, Grant, Message, NotHeard, Stale, StaleCode

log: logging.Logger = logging.getLogger("interlock.orchestrator")

MAX_HELD = 4_000
RECENT, RECENT_PAGES = 1_000, 4
"""Number of entries of the journal in which the grants of a lost answer are searched, and of pages."""
EPOCH_FOR = timedelta(seconds=1)
"""Time for which an epoch is cached: no failover is faster, and an idle process has not noticed it."""

_ANNOUNCED: dict[str | None, type] = {
    RUN_JOBS: RunsNotified,
    LIMITS: LimitsNotified,
    ENDS: DependenciesNotified,
    **dict.fromkeys(TREE_TOPICS, TreesNotified),
}
"""The event to publish about messages of a topic."""

Claimed: TypeAlias = "list[Grant] | InterlockError"
"""The grants of a claim, or its error."""
Seeds = Callable[[], bytes]
"""Returns the seed of lease secrets."""


random_seed: Seeds = partial(secrets.token_bytes, 32)
"""Returns 32 random bytes."""


class Orchestrator:
    """Grants jobs and processes messages of runners."""

    def __init__(
        self,
        engine: Engine,
        *,
        settings: OrchestratorSettings = DEFAULT_SETTINGS,
        seeds: Seeds = random_seed,
        vault: Vault | None = None,
        queues: Queues | None = None,
        limits: Limits | None = None,
        run_progress: RunProgress | None = None,
    ) -> None:
        self.engine = engine
        self._limits = limits
        self._queues = queues
        self.settings = settings
        self._seeds = seeds
        self._vault = vault or Vault(policy=settings.secrets)
        self._epoch: int | None = None
        self._highest_epoch = 0
        self._epoch_at = datetime.min.replace(tzinfo=UTC)
        # The latest records written by this process: most messages about a job go to the process that granted
        # it, so nothing has to be loaded. A wrong guess costs one conflict.
        self._held: OrderedDict[str, HeldJob] = OrderedDict()
        self._last_claims = LastClaims() if engine.store.capabilities.foresight else None
        # Runs that this process has reported as begun: once is enough.
        self._begun: OrderedDict[str, None] = OrderedDict()
        self._news: dict[type, None] = {}
        """The events to publish about messages to other records that were committed."""
        self.joint_reports: JointReports = JointReports(engine, settings, self._news, run_progress)

    # Claims

    async def claim(self, request: ClaimRequest, *, guard: Guard | None = None) -> list[Grant]:
        """Claim jobs for one runner alone, while the guard holds."""
        (claimed,) = await self.claim_all([request], guard=guard)
        if isinstance(claimed, InterlockError):
            raise claimed
        return claimed

    async def claim_all(
        self, requests: Sequence[ClaimRequest], *, guard: Guard | None = None
    ) -> list[Claimed]:
        """Claim jobs for runners with the same queues, labels and tasks.

        Return the grants in the order of the runners.
        """
        first, epoch = requests[0], await self._known_epoch()
        chance, commit_id, most = (
            self._seeds(),
            self.engine.commit_id(),
            self.engine.store.capabilities.max_body_bytes,
        )
        own = [secret_of(seed_of(each, chance, place)) for place, each in enumerate(requests)]
        claimings = [
            ClaimInput(each, secret, digest_of(secret), epoch, commit_id, self.settings, most)
            for each, secret in zip(requests, own, strict=True)
        ]
        limit = sum(request.limit for request in requests)
        limits = self._limits if self._limits is not None and self._limits.scopes else None
        last = self._last_claims if limits is None else None
        foreseen = None if last is None else await self._foreseen(claimings, last)
        if foreseen is not None:
            claimings[0] = msgspec.structs.replace(claimings[0], foreseen=foreseen)
        paused = None if self._queues is None or self._queues.all_open else self._queues
        claim = Claim(
            kind=JOB.name,
            queues=first.queues if paused is None else await paused.open_among(first.queues),
            labels=first.labels,
            handlers=first.tasks,
            limit=limit,
            guard=guard,
            foresight=None if foreseen is None else foreseen.foresight,
        )
        bundles: list[ClaimCommit] = []
        ranks: dict[str, int] = {}

        def decide(records: Sequence[Record], now: datetime) -> list[Work]:
            ranks.update({record.id: rank for rank, record in enumerate(records)})
            lining_up: Sequence[Work] = ()
            if limits is not None:
                records, lining_up = limits.adopt(records, now, commit_id)
                self._news |= {LimitsNotified: None} if lining_up else {}
            shares = self._shares(claimings, records, now)
            bundles[:] = commits_for(claimings, shares, chance)
            return [*[bundle.work for bundle in bundles], *lining_up]

        outcomes: Sequence[Outcome] = ()
        try:
            outcomes = await self.engine.claim(claim, decide) if claim.queues else ()
        except StoreUnavailable:
            given = await self._find_out(claimings, bundles, foreseen=foreseen is not None)
        else:
            given = self._given(claimings, bundles, outcomes)
        grants: list[list[Grant]] = [[] for _ in requests]
        for place, grant in given:
            grants[place].append(grant)
        for mine in grants:
            mine.sort(key=lambda grant: ranks.get(grant.job_id, 0))  # the longest waiting job starts first
        has_secrets = any(grant.secrets for mine in grants for grant in mine)
        if not has_secrets and not any(request.claim_id for request in requests):
            return list(grants)
        earlier = earlier_answers(bundles, outcomes)
        return [
            await self._with_secrets(request, await self._or_as_before(request, mine, earlier.get(place)))
            for place, (request, mine) in enumerate(zip(requests, grants, strict=True))
        ]

    async def _foreseen(self, claimings: Sequence[ClaimInput], last: LastClaims) -> ForeseenGrant | None:
        """Return the foreseen decision of a claim like the last ones, or None."""
        like = last.expected_job(claimings)
        return None if like is None else foresee(claimings[0], like, await self.engine.clock.now())

    async def _with_secrets(self, request: ClaimRequest, claimed: Claimed) -> Claimed:
        """Add secrets to committed grants, so that no commit contains one."""
        if isinstance(claimed, InterlockError) or not any(grant.secrets for grant in claimed):
            return claimed
        keys = [Key(JOB.name, grant.job_id) for grant in claimed if grant.secrets]
        found = [record for record in await self.engine.store.load(keys) if record is not None]
        origins = {record.id: decode_body(record.body).origin or NO_ORIGIN for record in found}
        ready = with_secrets(claimed, request.runner_id, self._vault, origins)
        for failure in ready.messages:
            for message in failure:
                await self.report([message])
        return ready.grants

    def _shares(
        self, claimings: Sequence[ClaimInput], records: Sequence[Record], now: datetime
    ) -> list[tuple[int, Offer]]:
        """Share jobs among runners: the first gets all it wants, then the next."""
        shares: list[tuple[int, Offer]] = []
        start = 0
        for place, claiming in enumerate(claimings):
            mine = records[start : start + claiming.request.limit]
            start += len(mine)
            offers = offers_of(claiming, mine, now)
            shares += [(place, self._without_repeats(each) if each.messages else each) for each in offers]
        return shares

    def _given(
        self, claimings: Sequence[ClaimInput], bundles: Sequence[ClaimCommit], outcomes: Sequence[Outcome]
    ) -> list[tuple[int, Grant]]:
        given = []
        if self._news:
            self._announce()
        held = self._held
        for bundle, offer, results in outcomes_by_offer(bundles, outcomes):
            if offer.messages and isinstance(results[0], Committed):
                self._note_begun(offer)
            for before, grant, result in zip(offer.before, offer.grants, results, strict=False):
                if type(result) is Committed:
                    held[before.id] = HeldJob(before, grant.token, offer, result.at)
                    held.move_to_end(before.id)
                    given.append((bundle.place, grant))
        while len(held) > MAX_HELD:
            held.popitem(last=False)
        if self._last_claims is not None:
            self._last_claims.learn(claimings, bundles, len(given))
        return given

    async def _or_as_before(
        self, request: ClaimRequest, grants: list[Grant], recorded: Recorded | None
    ) -> Claimed:
        """Return the grants, or the earlier answer of a named claim.

        The earlier answer counts if there are no grants.
        """
        if grants or not request.claim_id:
            return grants
        idempotency_key = claim_key_of(request)
        recorded = recorded or await self.engine.store.recall(idempotency_key.id)
        if recorded is None:
            return grants
        if recorded.fingerprint != idempotency_key.fingerprint:
            return claim_reused(request.claim_id)
        items = [
            Item(Key(JOB.name, token.job_id), partial(reissue_grant, request, token, fence, self.settings))
            for token, fence in tokens_of(request, recorded)
        ]
        given = [_grant_of(result) for result in await apply_all(self.engine, items)]
        return [grant for grant in given if grant is not None] or claim_over(request.claim_id)

    async def take_back(self, runner_id: str, grants: Sequence[Grant]) -> None:
        """Return jobs to the queue, unless a message about them has arrived."""
        items = [
            Item(Key(JOB.name, token.job_id), partial(take_back, runner_id, grant, token, self.settings))
            for grant in grants
            if (token := read_token(grant.token)) is not None
        ]
        for result in await apply_all(self.engine, items):
            if isinstance(result, InterlockError):
                raise result

    async def _find_out(
        self, claimings: Sequence[ClaimInput], bundles: Sequence[ClaimCommit], *, foreseen: bool
    ) -> list[tuple[int, Grant]]:
        """Return the grants of a claim whose answer was lost, by their secret."""
        if foreseen and not bundles and self._last_claims is not None:
            self._last_claims.clear()
            return [(0, grant) for grant in await self._find_foreseen(claimings[0])]
        promised = [
            (each.place, grant) for each in bundles for offer in each.offers for grant in offer.grants
        ]
        if not promised:
            raise StoreUnavailable(
                "The store did not respond to a claim.", todo="Claim again; nothing was granted."
            )
        found = await self.engine.store.load([Key(JOB.name, grant.job_id) for _, grant in promised])
        ours = []
        for (place, grant), record in zip(promised, found, strict=True):
            if record and _was_granted(grant, record):
                self._hold(record)
                ours.append((place, grant))
        return ours

    async def _find_foreseen(self, claiming: ClaimInput) -> list[Grant]:
        """Return the grants of a lost foreseen claim, by the journal."""
        store, request = self.engine.store, claiming.request
        versions: dict[str, int] = {}
        cursor = await store.latest(back=RECENT)
        for _ in range(RECENT_PAGES):
            feed = await store.feed(cursor)
            cursor = feed.cursor
            for entry in feed.entries:
                if entry.kind == JOB.name and entry.note.actor == request.runner_id:
                    versions[entry.id] = entry.version
        found = await store.load([Key(JOB.name, job_id) for job_id in versions])
        items = [
            Item(
                Key(JOB.name, token.job_id),
                partial(reissue_grant, request, token, fence_of(claiming.epoch, version), self.settings),
            )
            for record, version in zip(found, versions.values(), strict=True)
            if record is not None and (token := token_in(record, claiming)) is not None
        ]
        given = [_grant_of(result) for result in await apply_all(self.engine, items)]
        return [grant for grant in given if grant is not None]

    def _without_repeats(self, offer: Offer) -> Offer:
        """Return the offer without a repeated message that a run has begun."""
        known = offer.grants and offer.before[0].parent in self._begun
        return msgspec.structs.replace(offer, messages=()) if known else offer

    def _note_begun(self, offer: Offer) -> None:
        run_id = offer.before[0].parent
        if run_id is not None and run_id not in self._begun:
            self._begun[run_id] = None
            if len(self._begun) > MAX_HELD:
                self._begun.popitem(last=False)
            self.engine.bus.publish(RunsNotified())

    async def _known_epoch(self) -> int:
        """Return the epoch; clear the caches if it is a new one."""
        now = await self.engine.clock.now()
        if self._epoch is None or now >= self._epoch_at + EPOCH_FOR:
            epoch = await self.engine.store.epoch()
            if epoch < self._highest_epoch:
                # It was restored from a backup under this process: fences must not repeat.
                log.warning("the store has gone back to epoch %d after %d", epoch, self._highest_epoch)
                epoch = await self.engine.store.raise_epoch(self._highest_epoch)
            self._highest_epoch = epoch
            if epoch != self._epoch:
                self._held.clear()
            self._epoch, self._epoch_at = epoch, now
        return self._epoch

    def forget(self) -> None:
        """Clear caches after a lost connection.

        After a fail-over the epoch may differ, and records may be older.
        """
        self._epoch = None
        self._held.clear()

    # Messages

    async def report(self, messages: Sequence[Message]) -> list[Answer]:
        """Process messages; return the answers in their order."""
        await self._known_epoch()
        answers: list[Answer | None] = [None] * len(messages)
        if len(messages) > 1:
            await self._report_together(messages, answers)
        items: list[Item[Answer]] = []
        places: list[int] = []
        written: dict[str, tuple[Change, Record]] = {}
        for place, message in enumerate(messages):
            if answers[place] is not None:
                continue
            token = read_token(message.token)
            if token is None:
                answers[place] = _unreadable()
                continue
            held = self._held.get(token.job_id)
            decide = partial(self._decide_message, token, message, written)
            known = None if held is None else held.record
            items.append(Item(Key(JOB.name, token.job_id), decide, known))
            places.append(place)
        results = await apply_all(self.engine, items)
        for place, item, result in zip(places, items, results, strict=True):
            answers[place] = _answer_of(result)
            if isinstance(result, Applied) and (last := written.pop(item.key.id, None)) is not None:
                self._hold(record_after(*last, result.at))
        if self._news:
            self._announce()
        return [answer for answer in answers if answer is not None]

    def _announce(self) -> None:
        """Announce the messages that were committed to other records."""
        while self._news:  # a claim may add to it in the thread of a store
            event, _ = self._news.popitem()
            self.engine.bus.publish(event())

    async def _report_together(self, messages: Sequence[Message], answers: list[Answer | None]) -> None:
        """Process equal reports about jobs that were granted together.

        They are decided once. Those that cannot be committed this way are processed separately.
        """
        if not (grouped := self._grouped(messages)):
            return
        await self.joint_reports.commit(grouped, answers)

    def _grouped(self, messages: Sequence[Message]) -> dict[Report, list[SuccessReport]]:
        """Return the messages that can be processed together, by common report."""
        grouped: dict[Report, list[SuccessReport]] = {}
        for place, message in enumerate(messages):
            held = self._held.get(job_of(message.token)) if type(message) is Complete else None
            if held is None or held.offer is None or held.offer.change.id:
                continue
            assert type(message) is Complete
            result = result_in(message, held.token, self.settings)
            if result is not None:
                del self._held[held.before.id]  # this version is outdated in any case
                report = Report(id(held.offer), message.runner_id, message.cost)
                grouped.setdefault(report, []).append(SuccessReport(place, held, result))
        return grouped

    def _decide_message(
        self,
        token: Token,
        message: Message,
        written: dict[str, tuple[Change, Record]],
        record: Record | None,
        now: datetime,
        commit_id: str,
    ) -> Decision[Answer]:
        """Decide about a message, and record the write for the next message."""
        held = self._held.pop(token.job_id, None)  # this version is outdated in any case
        written.pop(token.job_id, None)
        if record is not None and b'"secrets":' in record.body:
            message = redacted(message, record, self._vault)
        body = None if held is None else held.body_of(record)
        decision = decide_message(record, token, message, now, commit_id, self.settings, body)
        if record is None or decision.commit is None or not decision.commit.changes:
            return decision
        change, *others = decision.commit.changes
        for each in others:
            if (event := _ANNOUNCED.get(each.queue)) is not None:
                self._news[event] = None
        if change.kind == JOB.name and change.state not in job.ENDED:
            written[token.job_id] = change, record
        return decision

    # Deadlines

    async def sweep(self, *, limit: int = 500) -> int:
        """Handle passed deadlines of jobs; return their number."""
        commit_id = self.engine.commit_id()
        commits: list[Commit] = []

        def decide(records: Sequence[Record], now: datetime) -> list[Commit]:
            most = self.engine.store.capabilities.max_body_bytes
            commits[:] = cancellation.swept(records, now, commit_id, self.settings, most)
            return list(commits)

        outcomes = await self.engine.due([JOB.name], limit, decide)
        self.engine.bus.publish(JobsSwept(commits, outcomes))
        return sum(isinstance(outcome, Committed) for outcome in outcomes)

    def _hold(self, record: Record) -> None:
        self._held[record.id] = HeldJob(record)
        self._held.move_to_end(record.id)
        if len(self._held) > MAX_HELD:
            self._held.popitem(last=False)


def _grant_of(result: Applied[Grant | None] | Repeated | InterlockError) -> Grant | None:
    if isinstance(result, InterlockError):
        raise result
    return result.answer if isinstance(result, Applied) else None


def _was_granted(grant: Grant, record: Record) -> bool:
    """Return whether the grant was committed and its lease is still live."""
    token = read_token(grant.token)
    if token is None:
        return False
    name, attempts = f"{token.shard}.{token.index}", decode_body(record.body).attempts
    held = [one.lease for one in attempts if one.name == name]
    return any(each and each.state in lease.LIVE and token.opens(each.digest) for each in held)


def _unreadable() -> Stale:
    return Stale(code=StaleCode.UNKNOWN_LEASE, error="This is not the token of a lease.")


def _answer_of(result: Applied[Answer] | Repeated | InterlockError) -> Answer:
    match result:
        case Applied(answer=answer):
            return answer
        case StoreUnavailable():
            raise result
        case InterlockError():
            return NotHeard(code=result.code, error=result.sentence, todo=result.todo, facts=result.facts)
        case Repeated():
            return NotHeard(code="error", error="A message of a runner carries no request id.")
