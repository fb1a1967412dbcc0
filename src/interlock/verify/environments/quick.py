"""Environments that are explored whenever the tests run."""

from __future__ import annotations

from interlock.verify.jobs import judge as seen
from interlock.verify.jobs.plan import JobPlan, Plan
from interlock.verify.runs.plan import RunPlan

LOST_AND_DONE = "a lost attempt is tried again and the job completes"
LOST_TOO_OFTEN = "a job that is lost too often fails"
TRIED_AND_DONE = "a failure is tried again and the job completes"
NO_TRY_LEFT = "a job fails when no try is left"
GIVEN_BACK = "work that is given back is done by another attempt"
KEPT = "a result that comes under a cancel is kept"
TIMED_OUT = "an attempt is timed out"
OUT_OF_TIME = "a job is canceled because its time is up"
FORCED = "a cancel is forced"
OTHERS_STOPPED = "one shard fails and the others are stopped"

QUICK: tuple[Plan, ...] = (
    Plan(
        name="first-job",
        doc="One job is submitted, perhaps twice, and done by one worker, whose grant may get lost.",
        submits=True,
        duplicates=1,
        losses=1,
        shows=(LOST_AND_DONE, LOST_TOO_OFTEN, NO_TRY_LEFT, seen.LATE, seen.TWICE, seen.REPEATED),
        states=832,
    ),
    Plan(
        name="two-workers",
        doc="Two workers and a job with a retry: one of them dies, a message comes twice.",
        jobs=(JobPlan(retries=1),),
        workers=2,
        crashes=1,
        duplicates=1,
        shows=(LOST_AND_DONE, LOST_TOO_OFTEN, TRIED_AND_DONE, NO_TRY_LEFT, seen.LATE, seen.TWICE),
        states=22_416,
    ),
    Plan(
        name="cancel",
        doc="A user cancels at any moment; the worker hears of it, or dies, or is done before.",
        cancels=1,
        crashes=1,
        duplicates=1,
        heartbeats=2,
        shows=(KEPT, FORCED, seen.ACKNOWLEDGED, seen.REPEATED),
        states=16_379,
    ),
    Plan(
        name="shards",
        doc="Two shards side by side, a cancel, and a shard that fails.",
        jobs=(JobPlan(shards=2),),
        workers=2,
        cancels=1,
        shows=(OTHERS_STOPPED, KEPT, FORCED, seen.ACKNOWLEDGED),
        states=63_791,
    ),
    Plan(
        name="timeouts",
        doc="Attempts and the job itself run out of time, in any order with the lease.",
        jobs=(JobPlan(retries=1, attempt_timeout=2, job_timeout=4),),
        cancels=1,
        crashes=1,
        heartbeats=2,
        shows=(TIMED_OUT, OUT_OF_TIME, LOST_AND_DONE, FORCED),
        states=41_282,
    ),
    Plan(
        name="given-back",
        doc="Workers that acknowledge with the claim are asked to go, and give their work back.",
        workers=2,
        acknowledge=True,
        releases=2,
        duplicates=1,
        shows=(GIVEN_BACK, LOST_AND_DONE, seen.LATE),
        states=10_875,
    ),
    Plan(
        name="race",
        doc="Two orchestrators decide at once about one job of two workers; a user cancels.",
        workers=2,
        orchestrators=2,
        heartbeats=0,
        fails=False,
        cancels=1,
        duplicates=1,
        shows=(seen.LOOKED_AGAIN, seen.TOO_LATE, seen.REPEATED, LOST_TOO_OFTEN),
        states=25_662,
    ),
    RunPlan(
        name="run",
        doc="A run of one job: the planner fails or is late, words come twice, it is canceled, it times out.",
        jobs=(JobPlan(losses=0),),
        run_cancels=1,
        planner_fails=True,
        planner_timeout=1,
        run_timeout=3,
        repeats=1,
        shows=(
            "a required job fails and so does the run",
            "a run is canceled while its jobs are at work",
            "a run is canceled by force",
            "a run times out",
            "a plan arrives after the end",
            "planning fails",
        ),
        states=20_031,
    ),
    RunPlan(
        name="run-of-a-fork",
        doc="A run of a fork waits for an operator; it is approved, declined, canceled, or nobody decides.",
        jobs=(JobPlan(losses=0),),
        heartbeats=0,
        fork=True,
        approval_timeout=2,
        planner_fails=True,
        planner_timeout=1,
        run_cancels=1,
        repeats=1,
        shows=("a run is approved", "a run is not approved in time", "planning fails"),
        states=5_694,
    ),
    RunPlan(
        name="run-that-deploys",
        doc="The plan of a run has to be approved before its jobs are made.",
        jobs=(JobPlan(losses=0),),
        heartbeats=0,
        environment=True,
        approval_timeout=2,
        planner_timeout=1,
        run_cancels=1,
        repeats=1,
        shows=("a run is approved", "a run is not approved in time", "a plan arrives after the end"),
        states=5_740,
    ),
    RunPlan(
        name="run-of-two",
        doc="A run of a required and an optional job, which one worker does.",
        jobs=(JobPlan(losses=0), JobPlan(losses=0, job_timeout=80_000)),
        required=(True, False),
        heartbeats=0,
        run_cancels=1,
        shows=("an optional job fails and the run succeeds", "a run is canceled by force"),
        states=104_741,
    ),
    RunPlan(
        name="run-without-haste",
        doc="A run of two required jobs lets them finish although one has failed; a job is canceled alone.",
        jobs=(JobPlan(losses=0), JobPlan(losses=0, job_timeout=80_000)),
        required=(True, True),
        fail_fast=False,
        heartbeats=0,
        cancels=1,
        shows=("a required job fails and so does the run",),
        states=33_854,
    ),
)
