"""Plans: environments of jobs, and of a run over its jobs, written as data."""

from __future__ import annotations

from functools import cached_property

import msgspec

from interlock.lifecycles.durations import Durations
from interlock.systems.orchestrator.body import PlanPlace, RunPart
from interlock.systems.orchestrator.failures import FailureClass
from interlock.systems.runs.plans import PlanGraph
from interlock.systems.settings import Settings
from interlock.wire.jobs import JobSpec, RetryRule
from interlock_verification.models.job_values import FAR_S


class JobPlan(msgspec.Struct, frozen=True, kw_only=True):
    """One job. Durations are in ticks of the model's clock."""

    shards: int = 1
    retries: int = 0
    losses: int = 1
    attempt_timeout: int | None = None
    job_timeout: int | None = None
    """None: no timeout."""
    start_within: int | None = None
    """By when a worker must have started it; without one it waits for ever."""


class ModelPlan(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """A small world. Faults left at their default do not occur."""

    name: str
    doc: str
    jobs: tuple[JobPlan, ...] = (JobPlan(),)
    workers: int = 1
    orchestrators: int = 1
    """With two, loading and committing are separate steps, with any step between them."""
    acknowledge: bool = False
    """Whether a claim acknowledges at once, as workers do by default."""
    submits: bool = False
    """Whether the jobs are not submitted yet."""
    fails: bool = True
    """Whether a worker may report a failure."""
    heartbeats: int = 1
    """Maximum number of heartbeats of an attempt."""
    releases: int = 0
    snooze: int | None = None
    """For how long a job given back is not given out again; None for not at all."""
    cancels: int = 0
    crashes: int = 0
    duplicates: int = 0
    losses: int = 0
    """Number of lost responses that have a grant; other messages are lost by never being delivered."""
    ack_window: int = 1
    lease_ttl: int = 2
    cancel_deadline: int = 1
    shows: tuple[str, ...] = ()
    """Events that must occur: the names of `sometimes` claims."""
    states: int | None = None
    """The known number of states: another number means a change."""

    @cached_property
    def settings(self) -> Settings:
        """Settings for the deciders: one tick is one second, and pauses last one tick."""
        rule = RetryRule(retries=0, first_pause_s=1.0, factor=1.0, jitter=0.0)
        return Settings(
            durations=Durations(
                ack_window_s=self.ack_window,
                lease_ttl_s=self.lease_ttl,
                heartbeat_every_s=self.lease_ttl / 3,
                cancel_deadline_s=self.cancel_deadline,
                attempt_timeout_s=FAR_S,
                job_timeout_s=FAR_S,
                shutdown_deadline_s=self.cancel_deadline,
                shutdown_soft_s=self.cancel_deadline / 2,
                abort_kill_s=self.cancel_deadline / 2,
                abort_warning_s=self.cancel_deadline / 4,
            ),
            retries=dict.fromkeys(FailureClass, rule),
        )

    def part(self, number: int) -> RunPart | None:  # noqa: ARG002 - used by plans with a run
        """Return the run data of this job; None outside of a run."""
        return None

    def place(self, number: int) -> PlanPlace | None:  # noqa: ARG002 - used by plans with a run
        """Return the place of this job in its run; None outside of a run."""
        return None

    def spec(self, number: int) -> JobSpec:
        """Return the spec of this job."""
        job = self.jobs[number]
        rule = RetryRule(retries=job.retries, first_pause_s=1.0, factor=1.0, jitter=0.0)
        return JobSpec(
            task="work",
            worker_count=job.shards,
            retry={"user": rule, "timeout": rule},
            losses=job.losses,
            timeout_s=job.attempt_timeout,
            job_timeout_s=job.job_timeout,
            start_within_s=job.start_within,
        )


RUN_ID = "r_000000000001"
"""As long as other ids of runs, so that jobs are decided as those of any run."""


class RunPlan(ModelPlan, frozen=True, kw_only=True, dict=True):
    """A run over the jobs of the plan."""

    required: tuple[bool, ...] = (True,)
    """For each job: whether the run needs it."""
    fail_fast: bool = True
    run_cancels: int = 0
    planner_fails: bool = False
    run_timeout: int = 0
    """In ticks, like all durations; 0 for none."""
    planner_timeout: int = 0
    fork: bool = False
    """Whether the change comes from a fork, which needs an approval before planning."""
    environment: bool = False
    """Whether the plan uses an environment that needs an approval."""
    approval_timeout: int = 0
    repeats: int = 0
    """Number of messages between run, jobs, planner and reporter that may be repeated."""

    @cached_property
    def settings(self) -> Settings:
        """Settings for the deciders of jobs and runs."""
        settings = super().settings
        durations = msgspec.structs.replace(
            settings.durations,
            planner_timeout_s=float(self.planner_timeout or FAR_S),
            run_timeout_s=float(self.run_timeout or FAR_S),
            approval_timeout_s=float(self.approval_timeout or FAR_S),
        )
        return msgspec.structs.replace(settings, durations=durations)

    @cached_property
    def graph(self) -> PlanGraph:
        """The graph of the plan: no job needs another."""
        names = tuple(f"job {number + 1}" for number in range(len(self.jobs)))
        none: tuple[tuple[int, ...], ...] = ((),) * len(names)
        return PlanGraph(
            names=names, ids=names, required=self.required, needs=none, dependents=none, firsts=(0,)
        )

    def part(self, number: int) -> RunPart:
        """Return the run data of this job."""
        return RunPart(run_id=RUN_ID, required=self.required[number], root=True)

    def place(self, number: int) -> PlanPlace:
        """Return the place of this job in the run."""
        return PlanPlace(number, self.graph.names[number])
