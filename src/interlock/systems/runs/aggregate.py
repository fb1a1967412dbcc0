"""The aggregate of a run: its machine, the facts of a step, and the targets of its couplings.

The table of the run decides its transitions, and `WIRING` maps the couplings to the run itself or to its
jobs. Orders to its jobs are collected, to be committed with it. Steps of its jobs arrive as messages
(`apply_job_changes`). Facts are computed from the record when a coupling needs them. This module reads no
clock and no store, and contains no rule of a lifecycle: those are in the tables.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from functools import lru_cache
from itertools import chain
from typing import Any, ClassVar

from msgspec.structs import replace

from interlock.engine.aggregate import Aggregate, Columns
from interlock.lifecycles import job, run
from interlock.lifecycles.couplings import COUPLINGS, Deliverer, Recipient
from interlock.lifecycles.durations import Durations
from interlock.lifecycles.job import JOB, JobState
from interlock.lifecycles.run import RUN, Run, RunState
from interlock.machine import Event, Machine, Step
from interlock.machine.cascade import EventRules, Refusal, Root, Wiring, create, order, to
from interlock.store.records import Record
from interlock.systems.orchestrator.notifications import JobChanged, JobsChanged
from interlock.systems.runs import body as letters
from interlock.systems.runs.body import RunBody, decode_run, encode_run, group_key, labels_of
from interlock.systems.runs.plans import PlanGraph
from interlock.wire.runs import Approval, AwaitedApproval


class RunFacts:
    """Facts about a run for couplings, from the perspective of one of its jobs."""

    __slots__ = ("_body", "_data", "_required")

    def __init__(self, data: Run, body: RunBody, required: bool = False) -> None:
        self._data = data
        self._body = body
        self._required = required

    @property
    def stopping(self) -> bool:
        """Whether cancellation was requested."""
        return self._data.cancel_requested

    @property
    def anything_active(self) -> bool:
        """Whether a job of the run has not ended."""
        return self._body.left > 0

    @property
    def required(self) -> bool:
        """Whether the run needs the job to succeed."""
        return self._required

    @property
    def every_required_job_succeeded(self) -> bool:
        """Whether all required jobs have succeeded."""
        return self._body.required_left == 0

    @property
    def fail_fast(self) -> bool:
        """Whether to stop the other jobs after a failure."""
        return self._body.fail_fast

    @property
    def tries_left(self) -> bool:
        """False: only jobs are retried, not runs."""
        return False

    @property
    def fails_parent(self) -> bool:
        """False: a run has no parent."""
        return False

    @property
    def stops_siblings(self) -> bool:
        """False: a run has no siblings."""
        return False

    @property
    def followed(self) -> bool:
        """False: no job comes after a run."""
        return False

    @property
    def losses_left(self) -> bool:
        """False: a run cannot be lost."""
        return False

    @property
    def every_shard_succeeded(self) -> bool:
        """False: a run has no shards."""
        return False


UPSTREAM, FAIL_FAST, TIMEOUT = "upstream", "fail_fast", "timeout"
NOT_APPROVED = "not_approved"


_STATES = {str(state): state for state in RunState}
_WAITING = ord(letters.WAITING)
_ENDED, _SUCCEEDED = letters.ENDED.encode(), letters.SUCCEEDED.encode()
_SHARED = (job.RUNNING, job.COMPLETED)
"""Steps that a run follows once for many jobs: no coupling of such a step is about one of them."""


class RunAggregate(Aggregate):
    """The working copy of one run."""

    __slots__ = ("_states", "body", "durations", "graph", "hold", "release", "stop")
    kind: ClassVar[str] = RUN.name

    def __init__(
        self,
        run_id: str,
        state: RunState,
        body: RunBody,
        now: datetime,
        durations: Durations,
        *,
        graph: PlanGraph | None = None,
        record: Record | None = None,
    ) -> None:
        super().__init__(run_id, Root(state, body.data, body.timer_at), now, record)
        self.body: RunBody = body
        self.graph = graph
        self.durations: Durations = durations
        self.hold: list[int] = []
        """Places of jobs to create and hold back."""
        self.release: list[int] = []
        """Places of jobs to release to runners."""
        self.stop: dict[int, str] = {}
        """Places of jobs to stop, with the reason code."""
        self._states = bytearray(body.states.encode())

    @classmethod
    def of(
        cls, record: Record, now: datetime, durations: Durations, *, graph: PlanGraph | None = None
    ) -> RunAggregate:
        """Return the working copy of a record."""
        body = decode_run(record.body)
        return cls(record.id, _STATES[record.state], body, now, durations, graph=graph, record=record)

    @classmethod
    def new(cls, run_id: str, body: RunBody, now: datetime, durations: Durations) -> RunAggregate:
        """Return a run that is to be created.

        The timer of its first state runs from now on.
        """
        made = cls(run_id, RUN.initial, body, now, durations)
        made.arm(RUN, made.root)
        return made

    # Commands

    def accept(self, graph: PlanGraph) -> Refusal:
        """Accept the plan: initialise the states of the jobs, and send `planned`."""
        if self.state is run.PLANNING:
            self.graph = graph
            self.body.accept(graph)
            self.body.planned_at = self.now
            self._states = bytearray(self.body.states.encode())
        return self.send(run.planned)

    def wait_for_approval(self, awaits: AwaitedApproval) -> Refusal:
        """Record the required approval, and wait for it."""
        if (refused := self.send(run.hold)) is None:
            self.body.awaits = awaits
        return refused

    def approve(self, by: str, comment: str) -> Refusal:
        """Approve the run, and record who approved which commit."""
        awaits = self.body.awaits
        if (refused := self.send(run.approve)) is None and awaits is not None:
            self.body.awaits = None
            made = Approval(
                by=by,
                at=self.now,
                reason=awaits.reason,
                sha=self.body.spec.source.sha,
                comment=comment,
                environments=awaits.environments,
            )
            self.body.approvals = (*self.body.approvals, made)
        return refused

    def fail_planning(self, event: Event, error: str, reason: str = "plan_failed") -> Refusal:
        """End the run because there is no plan."""
        if (refused := self.send(event)) is None:
            self._end_without_plan(error, reason)
        return refused

    def apply_jobs(self, changes: Iterable[JobChanged | JobsChanged]) -> None:
        """Apply the changes of jobs to the run and to its other jobs."""
        ended: list[int] = []
        for change in changes:
            if type(change) is JobsChanged and change.target in _SHARED:
                ended += self._apply_step(change.first, change.places)
            else:
                for one in change.each:
                    ended += self._apply_step(one, (one.place,))
        self._release_after(ended)

    def fire_due(self) -> None:
        """Send the event of an expired timer.

        Ignore the planning timer if the plan is stored.
        """
        if self.root.timer_at is None or self.root.timer_at > self.now:
            return
        if self.is_planned_already:
            self.arm(RUN, self.root)
            return
        super().fire_due()
        if self.state is run.PLAN_FAILED:
            error = f"The planner took longer than {self.durations.planner_timeout_s:g} s."
            self._end_without_plan(error, "planner_timeout")

    def _end_without_plan(self, error: str, reason: str) -> None:
        self.body.error, self.body.reason = error, reason
        self.send(run.finalize)

    def columns(self) -> Columns:
        """Return the columns by which the run is found."""
        if self.record is None:
            return Columns(
                parent=self.body.origin_run_id,
                queue=group_key(self.body.spec),
                labels=labels_of(self.body.spec),
                priority=self.body.spec.priority,
            )
        record = self.record
        return Columns(
            parent=record.parent, queue=record.queue, labels=record.labels, priority=record.priority
        )

    def encoded(self) -> bytes:
        """Return the body, encoded for the record."""
        self.body.states = self._states.decode()
        self.body.data, self.body.timer_at = self.root.data, self.root.timer_at
        return encode_run(self.body)

    @property
    def is_planned_already(self) -> bool:
        """Whether the plan is stored and only has to be accepted: then the planner is not late."""
        return self.state is run.PLANNING and self.body.pieces > 0

    @property
    def is_unchanged(self) -> bool:
        """Whether nothing was decided that has to be stored."""
        body = self.body
        is_same = self.root.timer_at == body.timer_at and self._states == body.states.encode()
        return is_same and not self.taken

    @property
    def is_decided(self) -> bool:
        """Whether the outcome was decided in this decision."""
        return self.has_entered(run.OUTCOMES)

    # Facts for the table

    def facts(self, owner: JobChanged | None) -> RunFacts:
        """Return the facts for couplings, about the run and the reporting job."""
        required = owner is not None and self.graph is not None and self.graph.required[owner.place]
        return RunFacts(self.root.data, self.body, required)

    def seconds(self, setting: str) -> float:
        """Return the duration of a timer: from the plan, or from the settings."""
        if setting != "run_timeout_s":
            return float(getattr(self.durations, setting))
        own = self.body.timeout_s
        return (self.durations.run_timeout_s if own is None else own) + self.body.approvals_s

    def entered(self, step: Step[Any], owner: JobChanged | None) -> None:
        """Record the data that belong to the new state."""
        body = self.body
        if step.target is run.RUNNING:
            body.started_at = body.started_at or self.now
        elif step.target is run.REPORTED:
            body.reported_at = self.now
        else:
            body.completed_at = self.now
            body.reason = self._reason(step, owner) or body.reason
            if step.target is run.CANCELED:
                body.forced = step.event == run.force_cancel.name

    def _reason(self, step: Step[Any], owner: JobChanged | None) -> str:
        """Return the reason code of the outcome.

        A failed required job is the culprit.
        """
        if step.event == run.required_job_failed.name and owner is not None and self.graph is not None:
            self.body.culprit = self.graph.names[owner.place]
            return "job_canceled" if owner.target == job.CANCELED else "required_job_failed"
        if step.event == run.approval_timeout.name:
            return NOT_APPROVED
        stopped = {run.TIMEOUT: TIMEOUT, run.CANCELED: self.body.stop_reason or "cancel"}
        return stopped.get(step.target, "")

    # States of its jobs

    def _state_of(self, place: int) -> str:
        return chr(self._states[place])

    def _apply_step(self, change: JobChanged, places: Sequence[int]) -> list[int]:
        """Apply the same change of jobs.

        Return the places of those that have ended by it.
        """
        step = _step_of_job(JOB, change.event, change.source, change.target)
        after = letters.HEARD.get(change.target, "")
        if self.graph is None or step is None:
            return []
        states, has_ended, is_begun = self._states, after in letters.ENDED, True
        new: list[int] = []
        for place in places:
            before = chr(states[place]) if 0 <= place < len(states) else ""
            if not before or before in letters.ENDED:
                continue
            new.append(place)
            if has_ended or before != letters.STOPPING:
                states[place] = ord(after)
            is_begun = is_begun and before == letters.RUNNING
        if not new:
            return []
        if has_ended:
            self._count(new, after, unconfirmed=change.unconfirmed)
        owner = change if change.place == new[0] else replace(change, place=new[0])
        if has_ended and step.source is job.RUNNING and not is_begun:
            # Its start was not reported, or the message is still on its way.
            self.follow_step(JOB, _begins(JOB), owner)
        self.follow_step(JOB, step, owner)
        return new if has_ended else []

    def _count(self, ended: Sequence[int], after: str, *, unconfirmed: bool) -> None:
        assert self.graph is not None
        self.body.left -= len(ended)
        self.body.unconfirmed += len(ended) if unconfirmed else 0
        if after in letters.SUCCEEDED:
            required = self.graph.required
            self.body.required_left -= sum([required[place] for place in ended])

    def _release_after(self, ended: Iterable[int]) -> None:
        """Release the jobs whose needs have all succeeded, or were optional."""
        graph = self.graph
        if graph is None:
            return
        states = self._states
        following = dict.fromkeys(chain.from_iterable([graph.dependents[one] for one in ended]))
        waiting = [place for place in following if states[place] == _WAITING]
        # Each is looked at once: in a plan of layers, all jobs of a layer need all of the one before.
        unmet = self._unmet(set(chain.from_iterable([graph.needs[place] for place in waiting])))
        for place in waiting:
            if unmet.isdisjoint(graph.needs[place]):
                states[place] = ord(letters.RELEASED)
                self.release.append(place)

    def _unmet(self, needed: Collection[int]) -> set[int]:
        """Return those of these jobs that the jobs that need them still wait for."""
        assert self.graph is not None
        states, required = self._states, self.graph.required
        return {one for one in needed if states[one] not in (_SUCCEEDED if required[one] else _ENDED)}

    # Orders to its jobs

    def stop_dependents(self, owner: JobChanged) -> None:
        """Stop the dependents of a failed job.

        Those of stopped required jobs are stopped in turn.
        """
        assert self.graph is not None
        waiting = [owner.place]
        while waiting:
            stopped = [each for each in self.graph.dependents[waiting.pop()] if self._stop(each, UPSTREAM)]
            waiting += [each for each in stopped if self.graph.required[each]]

    def stop_jobs(self, _: JobChanged | None) -> None:
        """Stop every job that has not ended."""
        stopping = {run.TIMEOUT: TIMEOUT, run.FAILED: FAIL_FAST}
        why = stopping.get(self.state, self.body.stop_reason or "cancel")
        for place in range(len(self._states)):
            self._stop(place, why)

    def create_jobs(self, _: JobChanged | None) -> None:
        """Create the jobs of the plan; hold back those that need others."""
        for place, letter in enumerate(self._states.decode()):
            if letter == letters.WAITING:
                self.hold.append(place)
            elif letter == letters.RELEASED:
                self.release.append(place)

    def _stop(self, place: int, why: str) -> bool:
        if self._state_of(place) in letters.ENDED + letters.STOPPING:
            return False
        self._states[place] = ord(letters.STOPPING)
        self.stop[place] = why
        return True


@lru_cache(maxsize=1_024)
def _step_of_job(
    table: Machine[JobState, Any], event: str, source: str, target: str
) -> Step[JobState] | None:
    """Return the step of a job, from its table.

    Return None for a step that is not in it.
    """
    steps = (step for state in table.states if state == source for step in table.steps_at(state))
    return next((step for step in steps if step.event == event and step.target == target), None)


@lru_cache(maxsize=8)
def _begins(table: Machine[JobState, Any]) -> Step[JobState]:
    """Return the step with which a job begins."""
    return next(each for each in table.steps_from(job.PENDING) if each.target is job.RUNNING)


def _run(record: RunAggregate, _: JobChanged | None) -> Any:
    return record.root


WIRING = Wiring(
    (RUN,),
    COUPLINGS,
    {
        Recipient.ITSELF: to(RUN, _run),
        Recipient.ITS_RUN: to(RUN, _run),
        Recipient.JOBS_OF_PLAN: create(RunAggregate.create_jobs),
        Recipient.ITS_JOBS: order(RunAggregate.stop_jobs),
        Recipient.UNFINISHED_JOBS: order(RunAggregate.stop_jobs),
        Recipient.DEPENDENTS: order(RunAggregate.stop_dependents),
    },
    deliverer=Deliverer.RUN,
    events=EventRules(quiet=(run.unattended,)),
    notes={RUN: (run.RUNNING, run.REPORTED, *run.OUTCOMES)},
    durations=Durations.__struct_fields__,
)
RunAggregate.wiring = WIRING
