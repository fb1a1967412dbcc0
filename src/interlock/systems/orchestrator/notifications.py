"""Messages of a job: to its run, when it begins and ends; to its simulation, when it is lost.

A job that has failed and has no try left sends a message to an alert task, if settings name one.

A message is part of the commit that causes it, and is named after the job and its state: so none is lost or
duplicated. The reconciler of runs processes many at once. A message to a simulation names the execution and
the attempt, so that it is ignored by a later execution.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from interlock.engine.outbox import outgoing
from interlock.lifecycles import attempt, job
from interlock.lifecycles.couplings import Recipient
from interlock.store.records import Change, Commit, Outcome, Record
from interlock.systems.orchestrator.aggregate import JobAggregate
from interlock.systems.orchestrator.body import ANY_PLACE, JobBody, RunPart, given_of, place_in_run
from interlock.systems.orchestrator.shapes import ANY_RUN
from interlock.wire.jobs import DeadLetter

RUN_JOBS = "run.jobs"
"""The topic of messages to runs about one of their jobs."""

RUN_JOBS_TOGETHER = "run.jobs.together"
"""The topic of messages to runs about several of their jobs, which were decided together."""

TO_SIMULATION = "simulation.lost"
"""The topic of messages to simulations that have lost their execution."""

DEAD_LETTERS = "job.dead_letter"
"""The topic under which an alert task is submitted for a job that has no try left."""

_ENCODER = msgspec.json.Encoder()


class JobChanged(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A job of a run has taken a step that concerns the run."""

    run_id: str
    place: int
    event: str
    source: str
    target: str
    unconfirmed: bool = False
    """Whether stopped processes are not confirmed to have ended."""

    @property
    def each(self) -> Sequence[JobChanged]:
        """The change of each job that it is about."""
        return (self,)

    def message(self, job_id: str, now: datetime, commit_id: str) -> Change:
        """Return the message to the run, to commit with the step of this job."""
        return outgoing(f"{job_id}.{self.target}", RUN_JOBS, _ENCODER.encode(self), now, commit_id=commit_id)


class JobsChanged(msgspec.Struct, frozen=True, gc=False):
    """Jobs of a run have taken the same step, in one commit."""

    run_id: str
    places: tuple[int, ...]
    event: str
    source: str
    target: str

    @property
    def first(self) -> JobChanged:
        """The change of the first of them."""
        return JobChanged(self.run_id, self.places[0], self.event, self.source, self.target)

    @property
    def each(self) -> Sequence[JobChanged]:
        """The change of each job that it is about."""
        return [JobChanged(self.run_id, place, self.event, self.source, self.target) for place in self.places]

    def message(self, job_id: str, now: datetime, commit_id: str) -> Change:
        """Return the message to the run, to commit with the steps of its jobs."""
        return outgoing(
            f"{job_id}.{self.target}", RUN_JOBS_TOGETHER, _ENCODER.encode(self), now, commit_id=commit_id
        )


class ExecutionLost(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A simulation has lost its execution."""

    run_id: str
    execution: int
    attempt: int
    """The last attempt that has ended."""
    again: bool
    """Whether another attempt of the job will resume the simulation."""
    reason: str = ""


class RunsNotified(msgspec.Struct, frozen=True):
    """Published when jobs have sent messages to their runs."""


class TreesNotified(msgspec.Struct, frozen=True):
    """Published when jobs have sent messages to their trees or their children."""


class JobsSwept(msgspec.Struct, frozen=True):
    """Published when deadlines of jobs were handled; other stops are committed by the engine."""

    commits: Sequence[Commit]
    outcomes: Sequence[Outcome]


def notifications_for(draft: JobAggregate, commit_id: str) -> tuple[Change, ...]:
    """Return the message about the newest step that concerns the run, if any."""
    if draft.body.run is None:
        return _to_simulation(draft, commit_id)
    change = change_for_run(draft)
    return () if change is None else (change.message(draft.id, draft.now, commit_id),)


def change_for_run(draft: JobAggregate) -> JobChanged | None:
    """Return the newest step that concerns the run; None if there is none."""
    part = draft.body.run
    if part is None:
        return None
    steps = [step for coupling, step in draft.outward if coupling.to is Recipient.ITS_RUN]
    if not steps or not _concerns_run(steps[-1].target, part.root):
        return None
    last = steps[-1]
    unconfirmed = any(one.confirmed_dead is False for one in draft.body.attempts)
    given = draft.given if draft.record is None else draft.record.given
    place = place_in_run(part, given or b"")
    return JobChanged(part.run_id, place, last.event, last.source, last.target, unconfirmed)


def change_of_all(one: JobChanged, records: Sequence[Record]) -> JobChanged | JobsChanged:
    """Return the change of these jobs of a run, from that of one like them."""
    if one.run_id == ANY_RUN:
        assert records[0].parent is not None, "it is a job of a run"
        one = msgspec.structs.replace(one, run_id=records[0].parent)
    if one.place != ANY_PLACE:
        return one  # an old job, which is like no other
    part = RunPart(run_id=one.run_id)
    places = [place_in_run(part, record.given) for record in records]
    assert ANY_PLACE not in places, "each job of a run has a place in its plan"
    if len(places) == 1:
        return msgspec.structs.replace(one, place=places[0])
    return JobsChanged(one.run_id, tuple(places), one.event, one.source, one.target)


def _to_simulation(draft: JobAggregate, commit_id: str) -> tuple[Change, ...]:
    part = draft.body.simulation
    if part is None or all(each.to is not Recipient.ITS_SIMULATION for each, _ in draft.outward):
        return ()
    ended = [one for one in draft.body.attempts if one.state in attempt.ENDED]
    failures = [one.failure.error for one in ended if one.failure is not None]
    last = max((one.index for one in ended), default=0)
    over = draft.root.state in job.ENDED
    why = failures[-1] if failures else f"the job {draft.id} is {draft.root.state}" if over else "given back"
    message = ExecutionLost(part.run_id, part.execution, last, not over, why)
    name = f"{draft.id}.simulation.{draft.version}"
    return (outgoing(name, TO_SIMULATION, _ENCODER.encode(message), draft.now, commit_id=commit_id),)


def _concerns_run(state: str, root: bool) -> bool:
    """Return whether a state concerns the run: a root's start, or any end."""
    return state in job.ENDED or (root and state == job.RUNNING)


class Alert(msgspec.Struct, frozen=True):
    """A job to be submitted because another one has failed."""

    task: str
    queue: str
    letter: DeadLetter


def alert_for(draft: JobAggregate) -> tuple[Change, ...]:
    """Return the message about a new dead letter, if there is an alert task."""
    hook, body = draft.settings.dead_letters, draft.body
    before = None if draft.record is None else draft.record.state
    if not hook.task or draft.root.state is not job.FAILED or before == job.FAILED:
        return ()
    if body.task == hook.task or belongs_elsewhere(body):
        return ()
    letter = DeadLetter(
        job_id=draft.id,
        task=body.task,
        queue=draft.place.queue or "",
        failed_at=draft.now,
        failure_class=str(body.failure.failure_class) if body.failure is not None else "",
        error=body.failure.error if body.failure is not None else "",
        attempts=body.tries,
        metadata=given_of(draft.record).metadata if draft.record is not None else {},
    )
    order = Alert(hook.task, hook.queue, letter)
    return (outgoing(f"{draft.id}.dead_letter", DEAD_LETTERS, _ENCODER.encode(order), draft.now),)


def belongs_elsewhere(body: JobBody) -> bool:
    """Return whether a run or a simulation handles the failure of a job."""
    return body.run is not None or body.simulation is not None
