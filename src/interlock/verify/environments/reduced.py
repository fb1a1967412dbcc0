"""Environments small enough to be explored once for every mutant, and what must be seen in each."""

from __future__ import annotations

from interlock.verify.environments import quick as q
from interlock.verify.jobs import judging as seen
from interlock.verify.jobs.plan import JobPlan, Plan
from interlock.verify.runs.plan import RunPlan
from interlock.verify.runs.world import RUN_SIGHTS

REDUCED: tuple[Plan, ...] = (
    Plan(
        name="mutant-job",
        doc="One job with a retry and a loss, one worker, one message twice.",
        jobs=(JobPlan(retries=1),),
        duplicates=1,
        shows=(q.LOST_AND_DONE, q.LOST_TOO_OFTEN, q.TRIED_AND_DONE, q.NO_TRY_LEFT, seen.LATE, seen.TWICE),
    ),
    Plan(
        name="mutant-cancel",
        doc="A cancel at any moment.",
        jobs=(JobPlan(losses=1),),
        cancels=1,
        heartbeats=2,
        shows=(q.KEPT, q.FORCED, seen.ACKNOWLEDGED, q.LOST_AND_DONE),
    ),
    RunPlan(
        name="mutant-run",
        doc="A run of one job.",
        jobs=(JobPlan(losses=0),),
        run_cancels=1,
        planner_fails=True,
        planner_timeout=1,
        run_timeout=3,
        repeats=1,
        heartbeats=0,
        shows=RUN_SIGHTS[1:],
    ),
    Plan(
        name="mutant-timeouts",
        doc="Attempts and the job run out of time.",
        jobs=(JobPlan(retries=1, losses=0, attempt_timeout=2, job_timeout=4),),
        heartbeats=1,
        shows=(q.TIMED_OUT, q.OUT_OF_TIME),
    ),
    Plan(
        name="mutant-shards",
        doc="Two shards; what is given back.",
        jobs=(JobPlan(shards=2, losses=0),),
        workers=2,
        heartbeats=1,
        cancels=1,
        fails=True,
        acknowledge=True,
        shows=(q.OTHERS_STOPPED,),
    ),
    Plan(
        name="mutant-given-back",
        doc="Work is given back.",
        jobs=(JobPlan(losses=0),),
        releases=1,
        cancels=1,
        heartbeats=1,
        shows=(q.GIVEN_BACK,),
    ),
    RunPlan(
        name="mutant-run-of-two",
        doc="A required and an optional job.",
        jobs=(JobPlan(losses=0), JobPlan(losses=0, job_timeout=80_000)),
        required=(True, False),
        heartbeats=0,
        workers=1,
        acknowledge=True,
        shows=(RUN_SIGHTS[0],),
    ),
)
