"""A job that is being decided about: what it was, what is done to it, and what that makes of it.

A decider tells one machine of the job something; the tables say what becomes of it and the couplings
whom else that concerns. `settle` carries it from machine to machine until nothing more follows.
What concerns other records (children, a run) is gathered in `outward`. Nothing here reads a clock or
a store, and nothing here knows a rule: those are in the tables.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import Any, ClassVar, TypeAlias

from interlock.lifecycles import attempt, job, lease
from interlock.lifecycles.attempt import ATTEMPT
from interlock.lifecycles.couplings import Facts
from interlock.lifecycles.job import JOB, JobState
from interlock.lifecycles.lease import LEASE, Lease
from interlock.machine import Coupling, Event, Machine, Moved, Refused, Step
from interlock.machine.events import type_of
from interlock.store.records import Change, Note, Record, StepLine
from interlock.systems.orchestrator.body import (
    AttemptBody,
    Granting,
    JobBody,
    JobHolder,
    LeaseBody,
    Place,
    decode_body,
    encode_body,
    fold,
)
from interlock.systems.orchestrator.courses import Recording, course_for
from interlock.systems.orchestrator.facts import JobFacts
from interlock.systems.orchestrator.failures import Failure, lost, pause_before, timed_out
from interlock.systems.orchestrator.lines import Consequences, later, named, track_of
from interlock.systems.orchestrator.saying import maker_of
from interlock.systems.orchestrator.settings import OrchestratorSettings

Refusal: TypeAlias = Refused[Any] | None
"""Why a machine has refused; None when it has not."""


Holder: TypeAlias = JobHolder | AttemptBody | LeaseBody


class Draft:
    """The working copy of one job."""

    __slots__ = (
        "_consequences",
        "_known_facts",
        "_recording",
        "body",
        "granting",
        "id",
        "is_news",
        "job",
        "lines",
        "lost",
        "now",
        "outward",
        "place",
        "record",
        "remarks",
        "settings",
        "stop_reason",
    )

    def __init__(
        self,
        job_id: str,
        state: JobState,
        body: JobBody,
        place: Place | Record,
        now: datetime,
        settings: OrchestratorSettings,
        record: Record | None = None,
    ) -> None:
        self.id = job_id
        self.job = JobHolder(state, body.data, body.timer_at)
        self.body = body
        self.place = place
        self.now = now
        self.settings = settings
        self.record = record
        self.lines: list[StepLine] = []
        self.is_news = False
        self.outward: list[Coupling[Facts]] = []
        self.granting: Granting | None = None
        self.lost: tuple[AttemptBody, ...] = ()
        self.remarks: tuple[tuple[AttemptBody, str], ...] = ()
        """Lines for the logs of attempts that cannot write them: their time is up, or they are lost."""
        self.stop_reason = "cancel"
        self._consequences: list[tuple[Coupling[Facts], AttemptBody | None]] = []
        self._known_facts: JobFacts | None = None
        self._recording: Recording | None = None

    @classmethod
    def of(
        cls, record: Record, now: datetime, settings: OrchestratorSettings, body: JobBody | None = None
    ) -> Draft:
        """A working copy of a job that is there; `body` is what its record says, for who has that already."""
        if body is None:
            body = decode_body(record.body)
        return cls(record.id, _STATES[record.state], body, record, now, settings, record)

    # Telling

    def tell_job(self, event: Event) -> Refusal:
        """Say something to the job, and settle what follows."""
        return self._refused_or_settled(self._tell(JOB, self.job, "", None, event))

    def tell_attempt(self, one: AttemptBody, event: Event) -> Refusal:
        """Say something to an attempt, and settle what follows."""
        return self._tell_all(ATTEMPT, one, one, event)

    def tell_lease(self, one: AttemptBody, event: Event) -> Refusal:
        """Say something under the lease of an attempt, and settle what follows."""
        assert one.lease is not None
        return self._tell_all(LEASE, one.lease, one, event)

    def fire_due(self) -> None:
        """Tell every machine whose deadline has passed, the earliest first."""
        while due := min(
            ((at, order, fire) for order, (at, fire) in enumerate(self._timers()) if at <= self.now),
            default=None,
        ):
            before = len(self.lines)
            due[2]()
            if len(self.lines) == before:  # the table would have nothing of it: do not ask for ever
                return

    # What it has become

    @property
    def ready_at(self) -> datetime | None:
        """From when on somebody may claim it."""
        first: datetime | None = None
        for one in self.body.attempts:
            at = one.ready_at
            if at is not None and one.state in attempt.UNLEASED and (first is None or at < first):
                first = at
        return first

    @property
    def deadline_at(self) -> datetime | None:
        """When the next of its timers runs out."""
        first = self.job.timer_at
        for one in self.body.attempts:
            for at in (one.timer_at, _lease_timer(one)):
                if at is not None and (first is None or at < first):
                    first = at
        return first

    def change(self, *, mark: str, actor: str, reason: str = "", cause: str = "") -> Change:
        """The record as it shall become. Renewals alone are no news, and leave no entry."""
        self.body.data, self.body.timer_at = self.job.data, self.job.timer_at
        note = None
        if self.record is None or self.is_news:
            note = Note(steps=tuple(self.lines), actor=actor, reason=reason, cause=cause, request_id=mark)
        return Change(
            kind=JOB.name,
            id=self.id,
            expected=self.record.version if self.record else 0,
            expected_at=self.record.updated_at if self.record else None,
            state=self.job.state,
            body=encode_body(self.body),
            parent=self.place.parent,
            queue=self.place.queue,
            labels=self.place.labels,
            priority=self.place.priority,
            ready_at=self.ready_at,
            handler=self.body.task,
            deadline_at=self.deadline_at,
            note=note,
        )

    # How one thing leads to another

    def _tell_all(
        self, machine: Machine[Any, Any], holder: Holder, one: AttemptBody, event: Event
    ) -> Refusal:
        """By the course that it took before, where machines that stood like these were told the same."""
        held = one.lease
        stands = self.job.state, one.state, None if held is None else held.state
        key = (machine.name, type(event), stands, self.body.run is None)
        course = course_for(key)
        if course is not None and course.taken(self, one, event):
            return None
        self._recording = recording = Recording()
        refused = self._refused_or_settled(self._tell(machine, holder, one.name, one, event))
        self._recording = None
        if refused is None:
            recording.keep(key)
        return refused

    def _refused_or_settled(self, refused: Refusal) -> Refusal:
        if refused is None:
            self._settle()
        return refused

    def _tell(
        self, machine: Machine[Any, Any], holder: Holder, name: str, one: AttemptBody | None, event: Event
    ) -> Refusal:
        decision = machine.decide(holder.state, holder.data, event)
        if not isinstance(decision, Moved):
            return decision
        holder.state, holder.data = decision.state, decision.data
        track = track_of(machine, decision.steps)
        self.lines += track.lines(name)
        self.is_news = self.is_news or track.is_news
        if track.sets_timer and not isinstance(holder, LeaseBody):
            holder.timer_at = later(self.now, self.seconds(track.arms)) if track.arms else None
        if self._recording is not None:
            self._recording.told(machine, track, event)
        for noteworthy, consequences in track.alone if self.body.run is None else track.parts:
            if noteworthy is not None and one is not None:
                self.note_attempt(one, noteworthy)
            asked = self._ask(consequences, one)
            if self._recording is not None:
                self._recording.part(noteworthy, asked)
        return None

    def _ask(self, consequences: Consequences, one: AttemptBody | None) -> list[tuple[Coupling[Facts], bool]]:
        """Note which consequences are to be delivered; the answer is what their conditions said."""
        asked: list[tuple[Coupling[Facts], bool]] = []
        for coupling in consequences:
            holds = not coupling.when or coupling.holds(self.facts(one))
            if holds:
                self._consequences.append((coupling, one))
            if coupling.when:
                asked.append((coupling, holds))
        return asked

    def _settle(self) -> None:
        """A consequence that the receiver refuses or ignores is none; its table has said so."""
        deliveries = self.DELIVERIES
        for coupling, one in self._consequences:  # what follows from these is appended meanwhile
            deliver = deliveries.get(coupling.to)
            if self._recording is not None:
                self._recording.follows(coupling, None if deliver is None else maker_of(coupling))
            if deliver is None:
                self.outward.append(coupling)
            else:
                deliver(self, coupling, one)
        self._consequences.clear()

    def seconds(self, setting: str) -> float:
        """How long a timer runs: as the job says, or else as the settings do."""
        own = None
        if setting == "attempt_timeout_s":
            own = self.body.timeout_s
        elif setting == "job_timeout_s":
            own = self.body.job_timeout_s
        return own if own is not None else float(getattr(self.settings.durations, setting))

    def note_attempt(self, one: AttemptBody, step: Step[Any]) -> None:
        """What the record says about an attempt beside its state."""
        if step.target is attempt.STARTING:
            one.started_at = self.now
        elif step.target in attempt.ENDED:
            one.ended_at = self.now
            if step.target is not attempt.STALE:  # the next attempt takes its place in the queue
                one.ready_at = None
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

    def _timers(self) -> list[tuple[datetime, Callable[[], Refusal]]]:
        timers: list[tuple[datetime, Callable[[], Refusal]]] = []
        if self.job.timer_at:
            timers.append((self.job.timer_at, self._time_out_job))
        for one in self.body.attempts:
            if one.timer_at:
                timers.append((one.timer_at, partial(self._fire_attempt, one)))
            if expires_at := _lease_timer(one):
                timers.append((expires_at, partial(self._expire, one)))
        return timers

    def _time_out_job(self) -> Refusal:
        self.stop_reason, self.job.timer_at = "timeout", None
        error = f"The job took longer than {self.seconds('job_timeout_s'):g} s and is being stopped."
        active = [one for one in self.body.attempts if one.state in attempt.HELD]
        self.remarks += tuple((one, error) for one in active)
        return self.tell_job(job.Timeout(at=self.now, still_active=self.body.active))

    def _fire_attempt(self, one: AttemptBody) -> Refusal:
        within = ATTEMPT.table.entry(one.state).within
        one.timer_at = None
        return None if within is None else self.tell_attempt(one, named(type_of(within.event)))

    def _expire(self, one: AttemptBody) -> Refusal:
        return self.tell_lease(one, lease.Expire(at=self.now))

    # Whom a consequence reaches

    def _reach_job(self, coupling: Coupling[Facts], one: AttemptBody | None) -> None:
        refused = self._tell(JOB, self.job, "", None, self._event(coupling, one))
        if refused is None and self.job.state is job.FAILED and one is not None:
            self.body.failure = self.body.failure or one.failure

    def _reach_attempt(self, coupling: Coupling[Facts], one: AttemptBody | None) -> None:
        if one is not None:
            self._tell(ATTEMPT, one, one.name, one, self._event(coupling, one))

    def _reach_attempts(self, coupling: Coupling[Facts], _: AttemptBody | None) -> None:
        for one in self.body.attempts:
            if one.state not in attempt.ENDED:
                self._tell(ATTEMPT, one, one.name, one, self._event(coupling, one))

    def _reach_lease(self, coupling: Coupling[Facts], one: AttemptBody | None) -> None:
        if one is None:
            return
        if coupling.event is None:
            self.grant_lease(one)
        elif one.lease is not None:
            self._tell(LEASE, one.lease, one.name, one, self._event(coupling, one))

    def grant_lease(self, one: AttemptBody) -> None:
        """The lease that is being granted is this attempt's."""
        assert self.granting is not None
        expires_at = later(self.now, self.settings.durations.ack_window_s)
        data = Lease(runner_id=self.granting.runner_id, expires_at=expires_at)
        one.lease = LeaseBody(data=data, digest=self.granting.digest, granted_at=self.now)

    def _create_first(self, _: Coupling[Facts], __: AttemptBody | None) -> None:
        for shard in range(1, self.body.data.worker_count + 1):
            self.body.attempts.append(AttemptBody(shard=shard, created_at=self.now))

    def _create_next(self, _: Coupling[Facts], one: AttemptBody | None) -> None:
        assert one is not None
        if one.waits:  # it was given back until the children have ended, and whoever keeps trees says when
            following = AttemptBody(shard=one.shard, index=one.index + 1, created_at=self.now, waits=True)
            self.body.attempts.append(following)
            fold(self.body)
            return
        if one.failure is not None and one.state is not attempt.STALE:
            ready_at = self.now + self._pause_after(one, one.failure)
        else:  # lost or given back, through no fault of its own: it keeps its place in the queue
            ready_at, one.ready_at = one.ready_at or self.now, None
        following = AttemptBody(shard=one.shard, index=one.index + 1, created_at=self.now, ready_at=ready_at)
        self.body.attempts.append(following)
        fold(self.body)
        if ready_at <= self.now:
            self._tell(ATTEMPT, following, following.name, following, attempt.publish)

    def _pause_after(self, one: AttemptBody, failure: Failure) -> timedelta:
        if failure.retry_after_s is not None:
            return timedelta(seconds=failure.retry_after_s)
        facts = self.facts(one)
        return pause_before(facts.rule, facts.retries_used + 1, f"{self.id}.{one.shard}")

    def facts(self, one: AttemptBody | None) -> JobFacts:
        """A view, not a copy: it tells how things are when it is asked."""
        facts = self._known_facts
        if facts is None or facts.one is not one:
            facts = self._known_facts = JobFacts(self.job, self.body, self.settings, one)
        return facts

    def _event(self, coupling: Coupling[Facts], one: AttemptBody | None) -> Event:
        return maker_of(coupling)(self, one)

    DELIVERIES: ClassVar[dict[str, Callable[[Draft, Coupling[Facts], AttemptBody | None], None]]] = {
        "its job": _reach_job,
        "its attempt": _reach_attempt,
        "itself": _reach_attempt,
        "each of its attempts": _reach_attempts,
        "its lease": _reach_lease,
        "the first attempt of each shard": _create_first,
        "the next attempt of the shard": _create_next,
    }


OUTWARD = frozenset(
    {
        "each of its children",
        "each job that needs it",
        "each of its siblings",
        "its parent",
        "its run",
        "the simulation it executed",
        "the task under it",
    }
)
"""Receivers that are not in the record: whoever commits the draft sees to other records, and a task
learns of its lease from the answer to its next message."""

_TELLS_OF_DEATH = {
    attempt.force_cancel.name: False,
    attempt.lease_expired.name: False,
    attempt.Completed.name: True,
}
"""How what was active can end under a cancel without saying itself whether all of it is gone."""

_STATES = {str(state): state for state in JobState}


def _lease_timer(one: AttemptBody) -> datetime | None:
    return one.lease.timer_at if one.lease is not None else None
