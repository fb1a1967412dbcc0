"""What a job tells its run: that it has begun, and how it has ended; or its simulation, that it is lost.

A word is a message in the very commit that makes it true, and is named after the job and its state:
so none is lost and none is said twice. Whoever looks after runs takes many words at once.
A word to a simulation names the execution and the attempt, so that it is nothing to one that goes on
elsewhere by then.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from interlock.engine.outbox import outgoing
from interlock.lifecycles import attempt, job
from interlock.lifecycles.couplings import Receiver
from interlock.store.records import Change, Commit, Outcome
from interlock.systems.orchestrator.aggregate import JobAggregate

RUN_JOBS = "run.jobs"
"""The topic under which runs hear of their jobs."""

TO_SIMULATION = "simulation.lost"
"""The topic under which simulations hear that nobody executes them any more."""

_ENCODER = msgspec.json.Encoder()


class JobChanged(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A job of a run has taken a step that concerns the run."""

    run_id: str
    place: int
    event: str
    source: str
    target: str
    unconfirmed: bool = False
    """Something of it was stopped, and nobody has said that all of it is gone."""


class ExecutionLost(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What was to execute a simulation does so no more."""

    run_id: str
    execution: int
    attempt: int
    """The last one that has ended."""
    again: bool
    """The job goes on: another attempt at it will resume the simulation."""
    reason: str = ""


class RunsNotified(msgspec.Struct, frozen=True):
    """Jobs have sent messages to their runs."""


class TreesNotified(msgspec.Struct, frozen=True):
    """Jobs have sent messages to their trees or their children."""


class JobsSwept(msgspec.Struct, frozen=True):
    """Deadlines of jobs were decided; other ways to stop a job are committed by the engine."""

    commits: Sequence[Commit]
    outcomes: Sequence[Outcome]


def notifications_for(draft: JobAggregate) -> tuple[Change, ...]:
    """The newest step of the job that its run has to know of, if it has taken one."""
    part = draft.body.run
    if part is None:
        return _to_simulation(draft)
    steps = [step for coupling, step in draft.outward if coupling.to is Receiver.ITS_RUN]
    if not steps or not _concerns_run(steps[-1].target, part.root):
        return ()
    last = steps[-1]
    unconfirmed = any(one.confirmed_dead is False for one in draft.body.attempts)
    word = JobChanged(part.run_id, part.place, last.event, last.source, last.target, unconfirmed)
    return (outgoing(f"{draft.id}.{last.target}", RUN_JOBS, _ENCODER.encode(word), draft.now),)


def _to_simulation(draft: JobAggregate) -> tuple[Change, ...]:
    part = draft.body.simulation
    if part is None or all(each.to is not Receiver.ITS_SIMULATION for each, _ in draft.outward):
        return ()
    ended = [one for one in draft.body.attempts if one.state in attempt.ENDED]
    failures = [one.failure.error for one in ended if one.failure is not None]
    last = max((one.index for one in ended), default=0)
    over = draft.root.state in job.ENDED
    why = failures[-1] if failures else f"the job {draft.id} is {draft.root.state}" if over else "given back"
    word = ExecutionLost(part.run_id, part.execution, last, not over, why)
    name = f"{draft.id}.simulation.{draft.version}"
    return (outgoing(name, TO_SIMULATION, _ENCODER.encode(word), draft.now),)


def _concerns_run(state: str, root: bool) -> bool:
    """A run begins with one of the jobs that need no other, and ends with any."""
    return state in job.ENDED or (root and state == job.RUNNING)
