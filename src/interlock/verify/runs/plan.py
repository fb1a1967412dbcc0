"""An environment with a run, written as data."""

from __future__ import annotations

from interlock.verify.jobs.plan import Plan


class RunPlan(Plan, frozen=True, kw_only=True, dict=True):
    """A run over the jobs of the plan."""

    required: tuple[bool, ...] = (True,)
    """For each job: whether the run cannot succeed without it."""
    fail_fast: bool = True
    run_cancels: int = 0
    planner_fails: bool = False
    run_timeout: int = 0
    """In ticks, like all durations; 0 for never."""
    planner_timeout: int = 0
    repeats: int = 0
    """How many words between run, jobs, planner and reporter may come twice."""
