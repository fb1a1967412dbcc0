"""An environment with a run, written as data."""

from __future__ import annotations

from functools import cached_property

import msgspec

from interlock.systems.orchestrator.body import RunPart
from interlock.systems.orchestrator.settings import OrchestratorSettings
from interlock.systems.runs.plans import Graph
from interlock.verify.jobs.plan import Plan
from interlock.verify.jobs.values import FAR_S

RUN_ID = "r"


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
    fork: bool = False
    """The change comes from a fork, so that an operator has to approve it before it is planned."""
    environment: bool = False
    """The plan uses an environment that an operator has to approve."""
    approval_timeout: int = 0
    repeats: int = 0
    """How many words between run, jobs, planner and reporter may come twice."""

    @cached_property
    def settings(self) -> OrchestratorSettings:
        """What the deciders of jobs and runs are told."""
        settings = super().settings
        durations = msgspec.structs.replace(
            settings.durations,
            planner_timeout_s=float(self.planner_timeout or FAR_S),
            run_timeout_s=float(self.run_timeout or FAR_S),
            approval_timeout_s=float(self.approval_timeout or FAR_S),
        )
        return msgspec.structs.replace(settings, durations=durations)

    @cached_property
    def graph(self) -> Graph:
        """What the run knows of its plan: no job needs another."""
        names = tuple(f"job {number + 1}" for number in range(len(self.jobs)))
        none: tuple[tuple[int, ...], ...] = ((),) * len(names)
        return Graph(names=names, ids=names, required=self.required, needs=none, dependents=none, firsts=(0,))

    def part(self, number: int) -> RunPart:
        """What the job of this number knows of its run."""
        name, required = self.graph.names[number], self.required[number]
        return RunPart(run_id=RUN_ID, place=number, name=name, required=required, root=True)
