"""A run: one evaluation of a change, from its plan of jobs to the report of its outcome.

Invariants:

* It succeeds only when every required job has succeeded.
* Its outcome is decided once. Reporting hides the state, so the outcome is kept beside it and never
  changes; it is reported once.
* It is CANCELED only on request, and only when its active jobs have ended or its deadline has passed.
* A run that needs approval has no jobs before an operator has approved it.
* It cannot hang: approving, planning, waiting and running, and cancelling each have a deadline.

Why: decisions 0022 and 0290.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from interlock.lifecycles.durations import deadline
from interlock.lifecycles.owners import Owner
from interlock.machine import (
    STAY,
    Across,
    Always,
    Event,
    Machine,
    Tone,
    command,
    consequence,
    end,
    ignore,
    message,
    on,
    refuse,
    state,
    timer,
    walk,
)


class RunState(StrEnum):
    """States of a run."""

    CREATED = "CREATED"
    AWAITING_APPROVAL = "AWAITING_APPROVAL"
    PLANNING = "PLANNING"
    PLAN_FAILED = "PLAN_FAILED"
    QUEUED = "QUEUED"
    RUNNING = "RUNNING"
    CANCEL_REQUESTED = "CANCEL_REQUESTED"
    SUCCESS = "SUCCESS"
    FAILED = "FAILED"
    CANCELED = "CANCELED"
    TIMEOUT = "TIMEOUT"
    REPORTED = "REPORTED"


CREATED, PLANNING, PLAN_FAILED = RunState.CREATED, RunState.PLANNING, RunState.PLAN_FAILED
AWAITING_APPROVAL = RunState.AWAITING_APPROVAL
QUEUED, RUNNING, CANCEL_REQUESTED = RunState.QUEUED, RunState.RUNNING, RunState.CANCEL_REQUESTED
SUCCESS, FAILED, CANCELED, TIMEOUT = RunState.SUCCESS, RunState.FAILED, RunState.CANCELED, RunState.TIMEOUT
REPORTED = RunState.REPORTED

OUTCOMES = (SUCCESS, FAILED, CANCELED, TIMEOUT)
SETTLED = (*OUTCOMES, REPORTED)
UNPLANNED = (CREATED, AWAITING_APPROVAL, PLANNING)
PLANNED = (QUEUED, RUNNING)


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """Data of a run."""

    outcome: RunState | None = None
    cancel_requested: bool = False


hold: Event = command("hold", "It needs an approval before it continues.", by=Owner.ORCHESTRATOR)
approve: Event = command("approve", "An operator approves this run, for its commit.", by=Owner.USER)
decline: Event = command("decline", "An operator does not approve it.", by=Owner.USER)
approval_timeout: Event = timer("approval_timeout", "No operator has decided in time.", by=Owner.CLOCK)
unattended: Event = timer("unattended", "No planner has started on it.", by=Owner.CLOCK)
start_planning: Event = command("start_planning", "The planner is asked for a plan.", by=Owner.ORCHESTRATOR)
planned: Event = message("planned", "The planner has returned a plan.", by=Owner.PLANNER)
planning_failed: Event = message("planning_failed", "The planner has reported an error.", by=Owner.PLANNER)
planner_timeout: Event = timer("planner_timeout", "The planner took too long.", by=Owner.CLOCK)
finalize: Event = command("finalize", "The failed plan becomes the outcome.", by=Owner.ORCHESTRATOR)
begin: Event = consequence(
    "begin", "Its first attempt is active, or there is nothing to do.", by=Owner.ORCHESTRATOR
)
required_jobs_succeeded: Event = consequence(
    "required_jobs_succeeded", "The last required job has succeeded.", by=Owner.ORCHESTRATOR
)
required_job_failed: Event = consequence(
    "required_job_failed", "A required job has failed, or was cancelled alone.", by=Owner.ORCHESTRATOR
)
cancel: Event = command("cancel", "A user cancels it, or a newer run supersedes it.", by=Owner.USER)
all_stopped: Event = consequence("all_stopped", "Nothing of it is active any more.", by=Owner.ORCHESTRATOR)
force_cancel: Event = timer("force_cancel", "The cancel deadline has passed.", by=Owner.CLOCK)
time_out: Event = timer("time_out", "The run has exceeded its timeout.", by=Owner.CLOCK)
reported: Event = message("reported", "The final statuses are published.", by=Owner.REPORTER)


def ask_to_stop(run: Run, request: object) -> Run:
    """Record the request to cancel."""
    return msgspec.structs.replace(run, cancel_requested=True)


def succeeds(run: Run, cause: object) -> Run:
    """Fix the outcome: SUCCESS."""
    return msgspec.structs.replace(run, outcome=SUCCESS)


def fails(run: Run, cause: object) -> Run:
    """Fix the outcome: FAILED."""
    return msgspec.structs.replace(run, outcome=FAILED)


def is_canceled(run: Run, cause: object) -> Run:
    """Fix the outcome: CANCELED."""
    return msgspec.structs.replace(run, outcome=CANCELED)


def times_out(run: Run, cause: object) -> Run:
    """Fix the outcome: TIMEOUT."""
    return msgspec.structs.replace(run, outcome=TIMEOUT)


APPROVAL_TIMEOUT = deadline(approval_timeout, "approval_timeout_s")
UNATTENDED = deadline(unattended, "planner_timeout_s")
PLANNER_TIMEOUT = deadline(planner_timeout, "planner_timeout_s")
RUN_TIMEOUT = deadline(time_out, "run_timeout_s", since="the plan")
CANCEL_DEADLINE = deadline(force_cancel, "cancel_deadline_s", since="the request")

_SETTLED = "the outcome is decided and does not change"
_NO_PLAN = "there is no plan yet"

# fmt: off
RUN = Machine[RunState, Run](
    "run",
    "One evaluation of a change: a plan of jobs, until its outcome is reported.",
    initial=CREATED,
    spine=(CREATED, PLANNING, QUEUED, RUNNING, SUCCESS, REPORTED),
    stop=(cancel,),
    states=(
        state(CREATED, "Recorded; planning has not begun.", turn=Owner.ORCHESTRATOR, within=UNATTENDED),
        state(AWAITING_APPROVAL, "Waits for the approval of an operator.",
              turn=Owner.USER, within=APPROVAL_TIMEOUT, tone=Tone.WAITING),
        state(PLANNING, "The planner works out the jobs.", turn=Owner.PLANNER, within=PLANNER_TIMEOUT),
        state(PLAN_FAILED, "There is no plan; the run is about to fail.",
              turn=Owner.ORCHESTRATOR, tone=Tone.BAD),
        state(QUEUED, "Its jobs wait for runners.",
              turn=Owner.ORCHESTRATOR, within=RUN_TIMEOUT, tone=Tone.WAITING),
        state(RUNNING, "At least one attempt is or was active.", turn=Owner.ORCHESTRATOR, within=RUN_TIMEOUT),
        state(CANCEL_REQUESTED, "Stop requested; parts may still be active.",
              turn=Owner.ORCHESTRATOR, within=CANCEL_DEADLINE),
        state(SUCCESS, "Every required job has succeeded.", turn=Owner.REPORTER, tone=Tone.GOOD),
        state(FAILED, "The plan or a required job has failed.", turn=Owner.REPORTER, tone=Tone.BAD),
        state(CANCELED, "Stopped on request.", turn=Owner.REPORTER, tone=Tone.STOPPED),
        state(TIMEOUT, "Exceeded its timeout; reported as a failure.",
              turn=Owner.REPORTER, tone=Tone.BAD),
        end(REPORTED, "The outcome was published, once.", tone=Tone.STOPPED),
    ),
    rows=(
        on(start_planning, CREATED, PLANNING, owner=Owner.ORCHESTRATOR, why="A trigger created the run."),
        on(unattended, CREATED, STAY, owner=Owner.ORCHESTRATOR, arms=UNATTENDED,
           why="Its planner is gone; planning is requested again."),
        on(hold, (CREATED, PLANNING), AWAITING_APPROVAL, owner=Owner.ORCHESTRATOR,
           why="A change from a fork, or an environment, needs an approval."),
        on(approve, AWAITING_APPROVAL, CREATED, owner=Owner.ORCHESTRATOR,
           why="It is planned, unless it was held with a plan, which is kept."),
        on(decline, AWAITING_APPROVAL, CANCEL_REQUESTED, owner=Owner.ORCHESTRATOR, then=ask_to_stop,
           why="Nothing of it is active, so it is canceled at once."),
        on(approval_timeout, AWAITING_APPROVAL, FAILED, owner=Owner.ORCHESTRATOR, then=fails,
           why="A run does not wait forever for an approval."),
        on(planned, PLANNING, QUEUED, owner=Owner.ORCHESTRATOR,
           why="The jobs are created in the same commit."),
        on(planning_failed, PLANNING, PLAN_FAILED, owner=Owner.ORCHESTRATOR,
           why="Without a plan there are no jobs."),
        on(planner_timeout, PLANNING, PLAN_FAILED, owner=Owner.ORCHESTRATOR, why="Silence is failure."),
        on(finalize, PLAN_FAILED, FAILED, owner=Owner.ORCHESTRATOR, then=fails,
           why="A run without a plan cannot succeed."),
        on(begin, QUEUED, RUNNING, owner=Owner.ORCHESTRATOR, why="The first attempt of the run is active."),
        on(required_jobs_succeeded, RUNNING, SUCCESS, owner=Owner.ORCHESTRATOR, then=succeeds,
           why="Optional jobs do not count."),
        on(required_job_failed, RUNNING, FAILED, owner=Owner.ORCHESTRATOR, then=fails,
           why="A required job has no retry left."),
        walk(required_jobs_succeeded, QUEUED, first=begin, why="An empty plan succeeds at once."),
        walk(required_job_failed, QUEUED, first=begin, why="A job can end before its first attempt."),
        on(time_out, PLANNED, TIMEOUT, owner=Owner.ORCHESTRATOR, then=times_out,
           why="Its timeout has passed."),

        on(cancel, (*UNPLANNED, *PLANNED), CANCEL_REQUESTED, owner=Owner.ORCHESTRATOR, then=ask_to_stop,
           why="Cancelling has two phases: ask, then finalize."),
        on(all_stopped, CANCEL_REQUESTED, CANCELED, owner=Owner.ORCHESTRATOR, then=is_canceled,
           why="Nothing is active any more."),
        on(force_cancel, CANCEL_REQUESTED, CANCELED, owner=Owner.ORCHESTRATOR, then=is_canceled,
           why="An unresponsive runner must not block a cancel."),

        on(reported, OUTCOMES, REPORTED, owner=Owner.REPORTER, why="The outcome was delivered."),

        refuse(cancel, PLAN_FAILED, why="planning has failed; the run is about to end as FAILED"),
        ignore(cancel, CANCEL_REQUESTED, why="a cancel was requested before; the deadline does not move"),
        *(refuse(cancel, outcome, why=_SETTLED) for outcome in OUTCOMES),

        *(refuse(each, CREATED, why="no plan was requested") for each in (planned, planning_failed)),
        *(ignore(each, AWAITING_APPROVAL, why="nothing is planned before an approval; the message is late")
          for each in (planned, planning_failed)),
        *(refuse(each, (CREATED, PLANNING, PLAN_FAILED, *PLANNED, CANCEL_REQUESTED),
                 why="it does not wait for an approval") for each in (approve, decline)),
        *(refuse(each, OUTCOMES, why=_SETTLED) for each in (approve, decline)),
        ignore(approval_timeout, (CREATED, PLANNING, PLAN_FAILED, *PLANNED, CANCEL_REQUESTED, *SETTLED),
               why="it does not wait for an approval"),
        *(ignore(each, (PLAN_FAILED, *PLANNED), why="the plan is decided; the message is late or came twice")
          for each in (planned, planning_failed)),
        *(ignore(each, (CANCEL_REQUESTED, *SETTLED), why="a plan that arrives after the end creates nothing")
          for each in (planned, planning_failed)),
        ignore(unattended, (AWAITING_APPROVAL, PLANNING, PLAN_FAILED, *PLANNED, CANCEL_REQUESTED, *SETTLED),
               why="planning has begun, or is no longer wanted"),
        ignore(planner_timeout,
               (CREATED, AWAITING_APPROVAL, PLAN_FAILED, *PLANNED, CANCEL_REQUESTED, *SETTLED),
               why="the planner is not at work"),

        *(refuse(fact, (*UNPLANNED, PLAN_FAILED), why=_NO_PLAN)
          for fact in (begin, required_jobs_succeeded, required_job_failed)),
        ignore(begin, RUNNING, why="it has begun"),
        *(ignore(fact, CANCEL_REQUESTED, why="it is being cancelled; how its jobs end changes nothing")
          for fact in (begin, required_jobs_succeeded, required_job_failed)),
        *(ignore(late, SETTLED, why=_SETTLED) for late in
          (begin, required_jobs_succeeded, required_job_failed, all_stopped, force_cancel, time_out)),
        ignore(all_stopped, (*UNPLANNED, PLAN_FAILED, *PLANNED), why="no cancel is under way"),
        ignore(force_cancel, (*UNPLANNED, PLAN_FAILED, *PLANNED), why="no cancel is under way"),
        ignore(time_out, (*UNPLANNED, PLAN_FAILED), why=_NO_PLAN),
        ignore(time_out, CANCEL_REQUESTED, why="it is being stopped; the cancel deadline decides"),

        refuse(reported, (*UNPLANNED, PLAN_FAILED, *PLANNED, CANCEL_REQUESTED),
               why="there is no outcome to report yet"),
        ignore(reported, REPORTED, why="it was reported; the message came twice"),
    ),
    invariants=(
        Always(
            "the outcome is known exactly when the run is settled",
            lambda state, run: (run.outcome is not None) == (state in SETTLED),
        ),
        Always(
            "an unreported outcome is the state",
            lambda state, run: state not in OUTCOMES or run.outcome is state,
        ),
        Always(
            "it is CANCELED only after a request",
            lambda _, run: run.outcome is not CANCELED or run.cancel_requested,
        ),
        Across(
            "the outcome is decided once",
            lambda _, before, __, after: before.outcome in (None, after.outcome),
        ),
    ),
)
# fmt: on
