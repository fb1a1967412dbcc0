"""Environments for a long evening: together with the quick ones more than five million states."""

from __future__ import annotations

from interlock.verify.environments import quick as q
from interlock.verify.jobs import judge as seen
from interlock.verify.jobs.plan import JobPlan, Plan
from interlock.verify.runs.plan import RunPlan

LONG: tuple[Plan, ...] = (
    Plan(
        name="race-and-faults",
        doc="Two orchestrators, two workers: one of any dies, a message comes twice, a user cancels.",
        workers=2,
        orchestrators=2,
        crashes=1,
        duplicates=1,
        cancels=1,
        shows=(
            seen.LOOKED_AGAIN,
            seen.TOO_LATE,
            seen.REPEATED,
            seen.LATE,
            seen.TWICE,
            seen.ACKNOWLEDGED,
            q.FORCED,
            q.KEPT,
            q.LOST_AND_DONE,
            q.LOST_TOO_OFTEN,
        ),
        states=940_889,
    ),
    Plan(
        name="two-jobs",
        doc="Two jobs, two workers, two attempts each: one worker dies, a message comes twice.",
        jobs=(JobPlan(), JobPlan()),
        workers=2,
        crashes=1,
        duplicates=1,
        shows=(q.LOST_AND_DONE, q.LOST_TOO_OFTEN, q.NO_TRY_LEFT, seen.LATE, seen.TWICE),
        states=1_269_705,
    ),
    Plan(
        name="shards-and-faults",
        doc="Two shards, two workers of which one dies, a cancel.",
        jobs=(JobPlan(shards=2),),
        workers=2,
        crashes=1,
        cancels=1,
        shows=(q.OTHERS_STOPPED, q.KEPT, q.FORCED, q.LOST_AND_DONE, seen.ACKNOWLEDGED),
        states=404_024,
    ),
    RunPlan(
        name="run-and-repeats",
        doc="A run of a required and an optional job, done by two workers; words come twice.",
        jobs=(JobPlan(losses=0), JobPlan(losses=0, job_timeout=80_000)),
        required=(True, False),
        workers=2,
        heartbeats=0,
        run_cancels=1,
        repeats=1,
        shows=("an optional job fails and the run succeeds", "a run is canceled by force"),
        states=1_852_214,
    ),
    Plan(
        name="timeouts-and-faults",
        doc="Attempts and the job run out of time; one of two workers dies, a message comes twice, a cancel.",
        jobs=(JobPlan(retries=1, attempt_timeout=2, job_timeout=4),),
        workers=2,
        crashes=1,
        duplicates=1,
        cancels=1,
        heartbeats=2,
        shows=(q.TIMED_OUT, q.OUT_OF_TIME, q.LOST_AND_DONE, q.FORCED, seen.LATE, seen.REPEATED),
        states=738_097,
    ),
)
