"""Claims about runs: of every value and step, of each outcome, and of the jobs of a plan.

Claims about a run alone are those of its table and of the model checker. Claims about its plan use the stored
plan, not the states that the run has recorded for its jobs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from interlock.lifecycles import job, run
from interlock.lifecycles.run import RUN, RunState
from interlock.systems.runs.body import RunBody
from interlock_verification.claims import FactClaim
from interlock_verification.models.run_decisions import APPROVED_FIRST, RUN_ABSORBS, STEPS_HOLD, TABLES_HOLD
from interlock_verification.models.run_world import FAILURE_HAS_A_CAUSE, SUCCESS_IS_EARNED

PLANLESS_FAILURES = ("plan_failed", "planner_timeout", "not_approved")
"""Reasons of a failure before there is a plan."""


class RunWritten(NamedTuple):
    """A written run."""

    run_id: str
    state: RunState
    body: RunBody

    def __str__(self) -> str:
        return f"{self.run_id} is {self.state}"


class RunTransition(NamedTuple):
    """Two successive values of a run."""

    run_id: str
    before: RunState
    body_before: RunBody
    after: RunState
    body_after: RunBody

    def __str__(self) -> str:
        return f"{self.run_id}: {self.before} → {self.after}"


class RunOutcome(NamedTuple):
    """The decided outcome of a run."""

    run_id: str
    body: RunBody
    required: Mapping[str, str]
    """The states of its required jobs."""
    cancel_requested: bool

    def __str__(self) -> str:
        return f"{self.run_id} is decided {self.body.data.outcome}, {self.body.reason}: {dict(self.required)}"


class CreatedRunJob(NamedTuple):
    """A created job of a plan."""

    job_id: str
    run_id: str
    place: int
    first: str
    """The job that was created first at this place of the plan."""
    guarded: bool
    """Whether the plan uses an environment, which needs an approval."""
    approved: bool

    def __str__(self) -> str:
        approved = "" if self.approved else ", without an approval"
        return f"place {self.place} of {self.run_id} is {self.first} and {self.job_id}{approved}"


class StartedRunJob(NamedTuple):
    """The first grant of a job of a plan."""

    job_id: str
    needs: Mapping[str, tuple[str, bool]]
    """The state of each job that it needs, and whether that is required."""

    def __str__(self) -> str:
        return f"{self.job_id} begins while its dependencies are {dict(self.needs)}"


def needs_have_succeeded(started: StartedRunJob) -> bool:
    """Return whether each needed job has completed, or may fail."""
    return all(
        state == job.COMPLETED or (state in job.ENDED and not required)
        for state, required in started.needs.values()
    )


def success_is_earned(decided: RunOutcome) -> bool:
    """Return whether a successful run has only completed required jobs."""
    if decided.body.data.outcome is not run.SUCCESS:
        return True
    return all(state == job.COMPLETED for state in decided.required.values())


def failure_has_a_cause(decided: RunOutcome) -> bool:
    """Return whether a failed run has no plan, or a failed required job."""
    if decided.body.data.outcome is not run.FAILED or decided.body.reason in PLANLESS_FAILURES:
        return True
    return not {job.FAILED, job.CANCELED}.isdisjoint(decided.required.values())


def cancel_was_requested(decided: RunOutcome) -> bool:
    """Return whether a canceled run was canceled by a client, or superseded."""
    canceled = decided.body.data.outcome is run.CANCELED
    return not canceled or decided.cancel_requested or decided.body.superseded_by is not None


RUN_CLAIMS: Sequence[FactClaim[Any]] = (
    FactClaim(
        "run.step_invariants",
        STEPS_HOLD,
        RunTransition,
        lambda step: (
            not RUN.broken_across(step.before, step.body_before.data, step.after, step.body_after.data)
        ),
    ),
    FactClaim(
        "run.reported_is_final",
        RUN_ABSORBS,
        RunTransition,
        lambda step: step.before not in RUN.terminal or step.after is step.before,
    ),
    FactClaim("run.success_is_earned", SUCCESS_IS_EARNED, RunOutcome, success_is_earned),
    FactClaim("run.failure_has_a_cause", FAILURE_HAS_A_CAUSE, RunOutcome, failure_has_a_cause),
    FactClaim(
        "run.cancel_was_requested",
        "a run is canceled only after a request, or when it is superseded",
        RunOutcome,
        cancel_was_requested,
    ),
    FactClaim(
        "run.invariants", TABLES_HOLD, RunWritten, lambda run: not RUN.broken(run.state, run.body.data)
    ),
    FactClaim(
        "run.approved_first",
        APPROVED_FIRST,
        CreatedRunJob,
        lambda created: created.approved or not created.guarded,
    ),
    FactClaim(
        "run.job_is_created_once",
        "a job of a plan is created once",
        CreatedRunJob,
        lambda created: created.first == created.job_id,
    ),
    FactClaim(
        "run.needs_first",
        "a job of a run begins only after its required dependencies have succeeded",
        StartedRunJob,
        needs_have_succeeded,
    ),
)
