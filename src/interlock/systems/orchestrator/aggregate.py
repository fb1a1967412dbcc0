"""The job aggregate: a job, its attempts and their leases, which change together under one version. Pure.

`JobFacts` are computed from the record when a coupling needs them; `WIRING` maps the events of couplings to
their targets.

Why: decisions 0118 and 0140.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import Any, ClassVar, TypeAlias

import msgspec

from interlock.engine.aggregate import Aggregate, Columns
from interlock.lifecycles import attempt, job, lease
from interlock.lifecycles.attempt import ATTEMPT
from interlock.lifecycles.couplings import COUPLINGS, Deliverer, Recipient
from interlock.lifecycles.durations import Durations
from interlock.lifecycles.job import JOB, JobState
from interlock.lifecycles.lease import LEASE, Lease
from interlock.machine import Deadline, Event, Step
from interlock.machine.cascade import (
    EventRules,
    Refusal,
    Root,
    Wiring,
    create,
    each,
    elsewhere,
    outward,
    to,
)
from interlock.machine.couplings import AnyMachine
from interlock.store.records import Record
from interlock.systems.orchestrator.body import (
    AttemptBody,
    JobBody,
    LeaseBody,
    LeaseHolder,
    LimitPart,
    Place,
    attempt_name,
    awaited_until,
    decode_body,
    encode_body,
    fold,
)
from interlock.systems.orchestrator.failures import (
    Failure,
    FailureClass,
    expired,
    lost,
    pause_before,
    rule_for,
    timed_out,
)
from interlock.systems.orchestrator.settings import OrchestratorSettings
from interlock.wire.jobs import RetryRule

SKIPPED = "skipped"
"""Stop reason of a job that was left out, because its condition cannot come true any more."""
STOPPED_WITH_OTHERS = ("parent", "sibling")
"""Stop reasons of a child that do not reflect on the child itself."""


class JobFacts:
    """Facts about a job for couplings, from the perspective of one of its attempts."""

    __slots__ = ("_body", "_job", "_settings", "one")

    def __init__(
        self, root: Root, body: JobBody, settings: OrchestratorSettings, one: AttemptBody | None
    ) -> None:
        self._job = root
        self._body = body
        self._settings = settings
        self.one: AttemptBody | None = one

    @property
    def tries_left(self) -> bool:
        """Whether its failure may be retried."""
        return self.retries_used < self.rule.retries

    @property
    def losses_left(self) -> bool:
        """Whether it may be lost once more; the current loss is counted already."""
        allowed = self._body.losses_allowed
        return self._body.losses <= (self._settings.losses if allowed is None else allowed)

    @property
    def stopping(self) -> bool:
        """Whether a stop was requested, or it has ended."""
        return self._job.data.stop_reason is not None or self._job.state in job.ENDED

    @property
    def every_shard_succeeded(self) -> bool:
        """Whether each shard has an attempt that succeeded."""
        body = self._body
        if body.data.worker_count == 1:
            return self.one is not None and self.one.state is attempt.SUCCEEDED
        done = {one.shard for one in body.attempts if one.state is attempt.SUCCEEDED}
        return len(done) == body.data.worker_count

    @property
    def anything_active(self) -> bool:
        """Whether an attempt has not ended."""
        return self._body.active > 0

    @property
    def required(self) -> bool:
        """Whether its run needs it; False outside of a run."""
        return self._body.run is not None and self._body.run.required

    @property
    def fails_parent(self) -> bool:
        """Whether its failure fails the parent, as submitted, unless it was stopped with others."""
        return self._policy == "fail_parent"

    @property
    def stops_siblings(self) -> bool:
        """Whether its failure stops its siblings, as submitted; a failing parent stops all children."""
        return self._policy in ("fail_parent", "cancel_siblings")

    @property
    def _policy(self) -> str:
        part = self._body.tree
        if part is None or self._job.data.stop_reason in STOPPED_WITH_OTHERS:
            return ""
        return part.if_fails

    @property
    def followed(self) -> bool:
        """Whether jobs come after it; those after a skipped one continue."""
        return bool(self._body.then) and self._job.data.stop_reason != SKIPPED

    @property
    def every_required_job_succeeded(self) -> bool:
        """False: only a run knows."""
        return False

    @property
    def fail_fast(self) -> bool:
        """False: only a run decides."""
        return False

    @property
    def rule(self) -> RetryRule:
        """The retry rule for the failure of this attempt."""
        body = self._body
        failure = None if self.one is None else self.one.failure
        return rule_for(
            self._class,
            retries=body.retries,
            own=body.retry,
            defaults=self._settings.retries,
            requested=failure is not None and failure.asks_for_retry,
        )

    @property
    def retries_used(self) -> int:
        """Number of earlier retries of the same failure class at the same shard."""
        one = self.one
        if one is None:
            return 0
        folded = self._body.folded
        long_ago = folded.failures.get(f"{one.shard}.{self._class}", 0) if folded else 0
        return long_ago + sum(
            earlier.shard == one.shard
            and earlier.index < one.index
            and earlier.failure is not None
            and earlier.failure.failure_class is self._class
            for earlier in self._body.attempts
        )

    @property
    def _class(self) -> FailureClass:
        one = self.one
        return one.failure.failure_class if one is not None and one.failure is not None else FailureClass.USER


One: TypeAlias = AttemptBody | None
"""The attempt that a step is about; None for steps of the job itself."""


class JobAggregate(Aggregate):
    """The working copy of one job."""

    __slots__ = (
        "_known_facts",
        "body",
        "created_at",
        "given",
        "granting",
        "left_limits",
        "lines_up_at",
        "lost",
        "place",
        "remarks",
        "settings",
        "stop_reason",
    )
    kind: ClassVar[str] = JOB.name

    def __init__(
        self,
        job_id: str,
        state: JobState,
        body: JobBody,
        place: Place | Record,
        now: datetime,
        settings: OrchestratorSettings,
        record: Record | None = None,
        given: bytes | None = None,
    ) -> None:
        super().__init__(job_id, Root(state, body.data, body.timer_at), now, record)
        self.given: bytes | None = given
        """Its input at creation; None for an existing job."""
        self.created_at: datetime = now if record is None else record.created_at
        self.body: JobBody = body
        self.place: Place | Record = place
        self.settings: OrchestratorSettings = settings
        self.granting: LeaseHolder | None = None
        self.lost: tuple[AttemptBody, ...] = ()
        self.remarks: tuple[tuple[AttemptBody, str], ...] = ()
        """Log lines for attempts that cannot write them: timed out, or lost."""
        self.stop_reason: str = "cancel"
        self.left_limits: tuple[str, ...] = ()
        """The limits whose slots it has given back by the decision here."""
        self.lines_up_at: datetime | None = None
        """The time at which it needs its slots again, if this decision made it line up."""
        self._known_facts: JobFacts | None = None

    @classmethod
    def of(
        cls, record: Record, now: datetime, settings: OrchestratorSettings, body: JobBody | None = None
    ) -> JobAggregate:
        """Return the working copy of a record, with its `body` if decoded."""
        if body is None:
            body = decode_body(record.body)
        return cls(record.id, _STATES[record.state], body, record, now, settings, record)

    def send_attempt(self, one: AttemptBody, event: Event) -> Refusal:
        """Send an event to an attempt; return why it is refused, if it is."""
        return self.send_to(ATTEMPT, one, event, one)

    def send_lease(self, one: AttemptBody, event: Event) -> Refusal:
        """Send an event to the lease on an attempt; return any refusal."""
        assert one.lease is not None
        return self.send_to(LEASE, one.lease, event, one)

    # Record

    def parts(self) -> Iterator[tuple[AnyMachine, Any, One]]:
        """Return the job, its attempts and their leases."""
        yield JOB, self.root, None
        for one in self.body.attempts:
            yield ATTEMPT, one, one
            if one.lease is not None:
                yield LEASE, one.lease, one

    def columns(self) -> Columns:
        """Return the columns by which the job is found and claimed."""
        place = self.place
        return Columns(
            parent=place.parent,
            queue=place.queue,
            labels=place.labels,
            priority=place.priority,
            ready_at=self.ready_at if self.body.limits is None else self._ready_under(self.body.limits),
            handler=self.body.task,
        )

    def encoded(self) -> bytes:
        """Return the body, encoded for the record."""
        self.body.data, self.body.timer_at = self.root.data, self.root.timer_at
        if self.body.limits is not None:
            self.body.limits = self._limits_after(self.body.limits)
        return encode_body(self.body)

    def result(self) -> bytes | None:
        """Return the result of a job of one shard, which is moved out of the body.

        The digest of a success follows from the result and the cost, so it is not stored, either.
        """
        if self.root.state is not job.COMPLETED or self.body.data.worker_count > 1:
            return None
        for one in self.body.attempts:
            if one.state is attempt.SUCCEEDED and isinstance(one.result, msgspec.Raw):
                result, one.result, one.reported = bytes(one.result), msgspec.UNSET, ""
                return result
        return None

    @property
    def deadline_at(self) -> datetime | None:
        """The time at which the next of its timers expires."""
        first: datetime | None = self.root.timer_at
        for one in self.body.attempts:
            for at in (one.timer_at, None if one.lease is None else one.lease.timer_at):
                if at is not None and (first is None or at < first):
                    first = at
        return first

    @property
    def ready_at(self) -> datetime | None:
        """The time from which it may be claimed."""
        first: datetime | None = None
        for one in self.body.attempts:
            at = one.ready_in(self.created_at) if one.state in attempt.UNLEASED else None
            if at is not None and (first is None or at < first):
                first = at
        return first

    def _ready_under(self, limits: LimitPart) -> datetime | None:
        """Return from when a job under limits may be claimed: once admitted."""
        at = self.ready_at
        return None if at is None or limits.since is None else max(at, limits.since)

    def _limits_after(self, limits: LimitPart) -> LimitPart:
        """Return where the job stands with its limits after the decision here.

        It holds its slots from its admission until no attempt of it is leased or may be leased now. A
        retry that waits for its time and a parent that waits for its children hold none. Under a rate an
        admission is good for one start.
        """
        at, inside = self.ready_at, limits.since is not None
        leased = any(one.lease is not None and one.lease.state in lease.LIVE for one in self.body.attempts)
        over = self.root.state in job.ENDED
        if inside and leased and limits.metered and not limits.used_up:
            limits = msgspec.structs.replace(limits, started_at=self.now)
        may_start = at is not None and at <= self.now and not limits.used_up
        if inside and (over or not (leased or may_start)):
            self.left_limits = limits.keys
            limits = msgspec.structs.replace(limits, since=None)
            inside = False
        if over:
            return msgspec.structs.replace(limits, waits=False)
        if not inside and not leased and not limits.waits and at is not None:
            self.lines_up_at = max(at, self.now)
            limits = msgspec.structs.replace(limits, waits=True)
        return limits

    @property
    def ended(self) -> bool:
        """Whether the job has ended in this decision."""
        return self.root.state in job.ENDED and (self.record is None or self.record.state not in job.ENDED)

    # Facts for the tables

    def name_of(self, owner: AttemptBody) -> str:
        """Return the name of an attempt and its lease in the journal."""
        return attempt_name(owner.shard, owner.index)

    def facts(self, owner: One) -> JobFacts:
        """Return a live view of the facts, not a copy."""
        facts = self._known_facts
        if facts is None or facts.one is not owner:
            facts = self._known_facts = JobFacts(self.root, self.body, self.settings, owner)
        return facts

    def seconds(self, setting: str) -> float:
        """Return the duration of a timer: from the job, or from the settings."""
        if setting == job.START_WITHIN:
            until = self.body.not_after
            return math.inf if until is None else (until - self.now).total_seconds()
        own = None
        if setting == "attempt_timeout_s":
            own = self.body.timeout_s
        elif setting == "job_timeout_s":
            own = self.body.job_timeout_s
        return own if own is not None else float(getattr(self.settings.durations, setting))

    def timer_event(self, within: Deadline, owner: One) -> Event:
        """Return the event of a timer; log a timeout of the whole job."""
        if within.event is job.Timeout:
            self.stop_reason = "timeout"
            error = f"The job took longer than {self.seconds(within.setting):g} s and is being stopped."
            self.remarks += tuple((one, error) for one in self.body.attempts if one.state in attempt.HELD)
        return super().timer_event(within, owner)

    def entered(self, step: Step[Any], owner: One) -> None:
        """Record the data that belong to the new state."""
        if owner is None:
            if step.event == job.Expire.name and self.body.not_after is not None:
                self.body.failure = expired(self.body.not_after)
            return
        if step.machine == JOB.name:
            self.body.failure = self.body.failure or owner.failure
        elif step.target is attempt.STARTING:
            owner.started_at = self.now
        else:
            self._note_end(owner, step)

    def _note_end(self, one: AttemptBody, step: Step[Any]) -> None:
        one.ended_at = self.now
        if step.target is not attempt.STALE:  # the next attempt keeps its place in the queue
            one.ready_at, one.prompt = None, False
        if step.target is attempt.TIMED_OUT:
            one.failure = timed_out(self.seconds("attempt_timeout_s"))
            self.remarks += ((one, one.failure.error),)
        elif step.target is attempt.STALE and step.event == attempt.lease_expired.name:
            one.failure = lost(one.lease.data.runner_id if one.lease else "nobody")
            self.lost += (one,)
            self.remarks += ((one, one.failure.error),)
        elif step.target is attempt.CANCELED and step.event in _TELLS_OF_DEATH:
            one.forced = step.event == attempt.force_cancel.name
            one.confirmed_dead = _TELLS_OF_DEATH[step.event]

    # Records created by couplings

    def grant_lease(self, owner: AttemptBody) -> None:
        """Create the lease that is being granted."""
        assert self.granting is not None
        expires_at = self.now + timedelta(seconds=self.settings.durations.ack_window_s)
        data = Lease(runner_id=self.granting.runner_id, expires_at=expires_at)
        owner.lease = LeaseBody(data=data, digest=self.granting.digest, granted_at=self.now)

    def create_first_attempts(self, _: One) -> None:
        """Create an attempt for each shard."""
        for shard in range(1, self.body.data.worker_count + 1):
            self.body.attempts.append(AttemptBody(shard=shard))

    def create_next_attempt(self, owner: AttemptBody) -> None:
        """Create the attempt after one that failed, was lost or was released."""
        following = AttemptBody(
            shard=owner.shard,
            index=owner.index + 1,
            created_at=self.now,
            waits=owner.waits,
            awaits=owner.awaits,
        )
        if owner.waits:
            pass  # until the children have ended: the tree wakes it
        elif owner.awaits:
            self._extend(awaited_until(self.body, owner.awaits) or self.now)  # the answer wakes it
        elif owner.snoozed_until is not None:
            following.ready_at = owner.snoozed_until
            self._extend(following.ready_at)
        elif owner.failure is not None and owner.state is not attempt.STALE:
            following.ready_at = self.now + self._pause_after(owner, owner.failure)
            if owner.failure.asks_for_retry:
                self._extend(following.ready_at)
        else:  # lost or released, through no fault of its own: it keeps its place in the queue
            following.prompt = owner.prompt
            following.ready_at = None if owner.prompt else owner.ready_at or self.now
            owner.ready_at, owner.prompt = None, False
        self.body.attempts.append(following)
        fold(self.body)
        ready_at = following.ready_in(self.created_at)
        if ready_at is not None and ready_at <= self.now:
            self.take(ATTEMPT, following, attempt.publish, following)

    def _extend(self, until: datetime) -> None:
        """Leave a wait out of the timeout of the job.

        The handler has asked to wait for that time.
        """
        self.extend_timer(max(until - self.now, timedelta(0)))

    def _pause_after(self, one: AttemptBody, failure: Failure) -> timedelta:
        if failure.retry_at is not None:
            return max(failure.retry_at - self.now, timedelta(0))
        if failure.retry_after_s is not None:
            return timedelta(seconds=failure.retry_after_s)
        facts = self.facts(one)
        return pause_before(facts.rule, facts.retries_used + 1, f"{self.id}.{one.shard}")


_TELLS_OF_DEATH = {
    attempt.force_cancel.name: False,
    attempt.lease_expired.name: False,
    attempt.Completed.name: True,
}
"""Whether an end during cancellation confirms that all processes have ended."""

_STATES = {str(state): state for state in JobState}


# Targets of couplings


def _unfinished_attempts(record: JobAggregate, _: One) -> Iterable[tuple[AttemptBody, One]]:
    return [(one, one) for one in record.body.attempts if one.state not in attempt.ENDED]


def _stop(record: JobAggregate, _: One) -> job.Cancel:
    return job.Cancel(at=record.now, still_active=record.body.active, reason=record.stop_reason)


_COMPLETED = {succeeded: attempt.Completed(succeeded=succeeded) for succeeded in (True, False)}

WIRING = Wiring(
    (JOB, ATTEMPT, LEASE),
    COUPLINGS,
    {
        Recipient.ITS_JOB: to(JOB, lambda record, _: record.root),
        Recipient.ITS_ATTEMPT: to(ATTEMPT, lambda _, one: one),
        Recipient.ITSELF: to(ATTEMPT, lambda _, one: one),
        Recipient.ITS_ATTEMPTS: each(ATTEMPT, _unfinished_attempts),
        Recipient.ITS_LEASE: to(LEASE, lambda _, one: one.lease, create=JobAggregate.grant_lease),
        Recipient.FIRST_ATTEMPTS: create(JobAggregate.create_first_attempts),
        Recipient.NEXT_ATTEMPT: create(JobAggregate.create_next_attempt),
        Recipient.ITS_CHILDREN: outward(),
        Recipient.ITS_SIBLINGS: outward(),
        Recipient.FOLLOWERS: outward(),
        Recipient.ITS_PARENT: outward(),
        Recipient.ITS_SIMULATION: outward(),
        Recipient.ITS_RUN: outward(judged_there=True),
        Recipient.DEPENDENTS: elsewhere(Deliverer.RUN),
        Recipient.ITS_AGENTS: elsewhere(Deliverer.DRIVER),
        Recipient.ITS_TASK: elsewhere(Deliverer.WORKER),
    },
    events=EventRules(
        made={
            job.AllocateResources: lambda record, _: job.AllocateResources(at=record.now),
            job.Success: lambda record, _: job.Success(at=record.now),
            job.Error: lambda record, _: job.Error(at=record.now),
            job.Cancel: _stop,
            job.Timeout: lambda record, _: job.Timeout(at=record.now, still_active=record.body.active),
            job.Expire: lambda record, _: job.Expire(at=record.now),
            attempt.Completed: lambda _, one: _COMPLETED[one.failure is None],
            lease.Expire: lambda record, _: lease.Expire(at=record.now),
        },
        quiet=(lease.Heartbeat, attempt.heartbeat),
    ),
    own_timers=(LEASE,),
    notes={JOB: (job.FAILED,), ATTEMPT: (attempt.STARTING, *attempt.ENDED)},
    durations=(*Durations.__struct_fields__, job.START_WITHIN),
)
JobAggregate.wiring = WIRING
