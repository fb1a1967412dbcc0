"""Runs: their specification, their plan, and their views.

A run is one evaluation of a change. A client submits a `RunSpec`; a planner turns it into a `Plan`, which is
a graph of jobs; workers execute the jobs like any others; and reporters deliver the outcome to its receivers.
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal, TypeAlias

import msgspec

from interlock.wire.access import Role
from interlock.wire.jobs import FailureView, RetryRule
from interlock.wire.views import View
from interlock.wire.waits import OpenWait

Which: TypeAlias = Literal["all", "failed", "from"]
"""Jobs of a run to execute again."""


class Source(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The change to evaluate. All fields are optional: a run need not have a repository."""

    repository: str = ""
    """Name at the provider (`owner/name`), or the location."""
    ref: str = ""
    """`refs/heads/main`, `refs/tags/v1`, `refs/pull/7/head`."""
    sha: str = ""
    base_sha: str = ""
    """Base commit for finding the changed paths."""
    event: str = "manual"
    """Event that caused the run: push, pull_request, manual, …"""
    pull_request: int | None = None
    from_fork: bool = False
    """The author of the change may not read secrets."""
    changed_paths: tuple[str, ...] | None = None
    """None when unknown: then every condition on paths holds."""
    actor: str = ""
    """Author of the change, as the provider says; information only."""
    title: str = ""


class PlannedApproval(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """A question that a person has to answer before a job of a plan starts."""

    question: str
    approvers: tuple[str, ...] = ()
    """Names of the principals that may answer; empty: every one with the role."""
    role: Role = Role.OPERATOR
    timeout_s: float | None = None
    """Time to wait; None: `approval_timeout_s` of the server."""


class PlannedJob(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A job of a plan."""

    name: str
    """Unique in the plan: `test (3.12)`."""
    task: str
    input: msgspec.Raw = msgspec.Raw(b"{}")
    needs: tuple[str, ...] = ()
    """Names of jobs that must have ended well, or be allowed to fail, before this one starts."""
    required: bool = True
    """The run cannot succeed without it."""
    why: str = ""
    """Reason why it is in the plan."""
    queue: str = "default"
    priority: int = 0
    labels: tuple[str, ...] = ()
    worker_count: int = 1
    timeout_s: float | None = None
    job_timeout_s: float | None = None
    retries: int | None = None
    retry: dict[str, RetryRule] = {}
    losses: int | None = None
    limits: tuple[str, ...] = ()
    """Limits that the job counts against; each must be declared."""
    weight: int = 1
    """Number of slots of each limit that it takes."""
    secrets: tuple[str, ...] = ()
    """Names of its secrets; never granted to a run from a fork."""
    environment: str = ""
    """Environment that it deploys to; secrets can be limited to it, and it to some branches."""
    approval: PlannedApproval | None = None
    """A person has to approve before it starts; a rejection cancels it."""
    line: int = 0
    """The line of its workflow file where it begins; 0 where there is none."""
    workflow: str = ""
    """The workflow that it belongs to, where the plan is of several workflow files."""


class SkippedJob(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A job that the plan leaves out."""

    name: str
    why: str
    workflow: str = ""
    """The workflow that it belongs to, where the plan is of several workflow files."""


class Plan(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The plan of a run: a graph of jobs without cycles."""

    jobs: tuple[PlannedJob, ...] = ()
    skipped: tuple[SkippedJob, ...] = ()
    fail_fast: bool = True
    timeout_s: float | None = None
    """Timeout of the run, from its plan on."""
    concurrency_group: str | None = None
    """Group from the workflow file, for a run that names none. None: the default; empty: no group."""


class RunSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A run to submit."""

    workflow: str = ""
    """The name of the workflow or flow; groups runs of one kind."""
    planner: str = "plan"
    """Planner: `plan` (the plan is given), `workflow` (a workflow file) or `flow` (a Python flow)."""
    plan: Plan | None = None
    definition: str = ""
    """Source for the planner: the text of a workflow file, or the address of a flow (`module:function`)."""
    inputs: dict[str, str] = {}
    """Further inputs of the planner."""
    source: Source = Source()
    concurrency_group: str | None = None
    """A newer run of the group supersedes older ones; by default workflow + ref. Empty: never."""
    labels: tuple[str, ...] = ()
    priority: int = 0
    trace: dict[str, str] = {}


class ForkTerms(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Terms for a change from a fork; the trigger sets them, never the change."""

    approval: bool = True
    """An operator has to approve the run before it is planned."""
    queue: str = "untrusted"
    """Queue of all its jobs, overriding the workflow file."""
    labels: tuple[str, ...] = ()
    """Labels of its runners, overriding the workflow file."""


class HeldTo(View, frozen=True, kw_only=True, omit_defaults=False):
    """Queue and labels for the jobs of a change from a fork, overriding the workflow file."""

    queue: str
    labels: tuple[str, ...]


class AwaitedApproval(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Reason why a run waits for an operator."""

    reason: str
    """`fork`: the change comes from a fork; `environment`: its jobs use one that needs approval."""
    environments: tuple[str, ...] = ()


class Approval(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An approval of a run, for the commit of the run only."""

    by: str
    at: datetime
    reason: str
    """Subject of the approval: `fork` or `environment`."""
    sha: str = ""
    comment: str = ""
    environments: tuple[str, ...] = ()


class RunJobView(View, frozen=True, kw_only=True, omit_defaults=True):
    """A job of a run, as the run records it."""

    name: str
    job_id: str
    state: str
    """State of the job; `WAITING` while its needs have not ended."""
    required: bool = True
    needs: tuple[str, ...] = ()
    why: str = ""
    reason: str = ""
    """Reason why it was stopped: upstream, cancel, timeout, …"""
    failure: FailureView | None = None
    started_at: datetime | None = None
    completed_at: datetime | None = None
    workflow: str = ""
    """The workflow that it belongs to, where the run is of several workflow files."""
    awaiting: OpenWait | None = None
    """Approval or signal that it waits for."""


class RunView(View, frozen=True, kw_only=True, omit_defaults=True):
    """A run as it is shown everywhere."""

    id: str
    state: str
    version: int
    workflow: str
    created_at: datetime
    updated_at: datetime
    outcome: str | None = None
    """Decided once; it stays when the run has been reported."""
    reason: str = ""
    """Reason of the outcome: plan_failed, required_job_failed, job_canceled, cancel, declined, not_approved,
    superseded, timeout, …
    """
    source: Source = Source()
    planner: str = "plan"
    concurrency_group: str = ""
    labels: tuple[str, ...] = ()
    priority: int = 0
    planned_at: datetime | None = None
    started_at: datetime | None = None
    completed_at: datetime | None = None
    reported_at: datetime | None = None
    deadline_at: datetime | None = None
    cancel_requested: bool = False
    confirmed_dead: bool | None = None
    """After a cancel: whether all active processes are known to be dead."""
    fail_fast: bool = True
    tally: dict[str, int] = msgspec.field(default_factory=dict)
    """Number of jobs by state."""
    jobs: tuple[RunJobView, ...] = ()
    """Jobs in the order of the plan; only when one run is requested."""
    skipped: tuple[SkippedJob, ...] = ()
    culprit: str = ""
    """The required job whose failure decided the outcome."""
    error: str = ""
    """Error of the planner."""
    origin_run_id: str | None = None
    """The run that this run repeats."""
    superseded_by: str | None = None
    awaiting: AwaitedApproval | None = None
    """Approval that the run waits for."""
    approvals: tuple[Approval, ...] = ()
    held_to: HeldTo | None = None
    """Queue and labels of its jobs, where the change comes from a fork."""


class RerunPreview(View, frozen=True, kw_only=True, omit_defaults=True):
    """Jobs that a rerun would execute; the names are in the order of the plan."""

    run_id: str
    again: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    """Jobs that have succeeded and are not executed again."""
    planned_anew: bool = False
    """The run has no plan, so the rerun is planned anew and its names are unknown."""


class JobChange(View, frozen=True, kw_only=True, omit_defaults=True):
    """Difference between a job and the job of the same name in the last green run."""

    name: str
    change: Literal["failed", "slower", "new", "gone"]
    """`failed`: it succeeded before; `slower`: by a quarter and at least two seconds."""
    job_id: str = ""
    before_job_id: str = ""
    took_s: float | None = None
    before_s: float | None = None


class RunComparison(View, frozen=True, kw_only=True, omit_defaults=True):
    """Comparison of a run with the last green run of its workflow, repository and ref."""

    run_id: str
    green: RunView | None = None
    """The green run without its jobs; missing when none of the examined runs is green."""
    looked_at: int = msgspec.field(default_factory=int)
    """Number of earlier runs examined."""
    changes: tuple[JobChange, ...] = ()
    """Changes, the worst first: failed, slower, new, gone."""
    more: int = 0
    """Number of changes left out."""
    other: RunView | None = None
    """The run to compare with that the request named, without its jobs; then `green` is missing."""


class RunFilter(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A filter of runs for the store; empty parts do not filter."""

    states: tuple[str, ...] = ()
    workflow: str = ""
    repository: str = ""
    ref: str = ""
    sha: str = ""
    concurrency_group: str = ""
    origin_run_id: str = ""
    labels: tuple[str, ...] = ()
    since: datetime | None = None
    """Created at or after."""
    until: datetime | None = None
    """Created before."""


class RunWaiting(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A part of a run that has not ended."""

    entity: str
    """`run r_…`, or the name of a job."""
    state: str
    sentence: str
    job_id: str = ""
    turn: str = ""
    """Owner of the next step."""
    deadline_at: datetime | None = None
    """Time of the next timer, which fires without any request."""
    deadline_event: str = ""
    accepts: tuple[str, ...] = ()
    """Events that are allowed now."""


class RunExplanation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Reason why a run waits, or how it ended."""

    run_id: str
    state: str
    sentence: str
    lines: tuple[RunWaiting, ...] = ()
    more: int = 0
    """Number of jobs that have not ended and are not among the lines."""
    findings: tuple[str, ...] = ()
    """Likely causes of its failed jobs; the analysis of the run has more."""
    next_deadline_at: datetime | None = None
    todo: str = ""


class Evidence(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Evidence of a failure class."""

    kind: str
    """Kind of evidence: exit_code, signal, exception, output, record or history."""
    says: str
    found: str = ""
    """Source of the evidence: the code, the name or the line."""
    failure_class: str
    weight: float


class JobFinding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Analysis of a failed job."""

    job: str
    job_id: str
    failure_class: str
    """The most likely failure class; the job itself records its retries and their reasons."""
    confidence: float
    """Confidence in the class, from 0 to 1."""
    evidence: tuple[Evidence, ...]
    """Evidence, strongest first."""
    flaky: bool = False
    """The job has passed and failed on one of the latest commits."""
    error: str = ""


class FlakyJob(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job that has passed and failed on one commit."""

    repository: str
    workflow: str
    job: str
    commits: int
    """Number of the latest commits on which it has ended."""
    contradicted: int
    """Number of commits on which it has passed and failed."""
    latest_sha: str
    """The latest of these commits."""
    latest: str
    """Outcomes on that commit."""
    updated_at: datetime


class RunAnalysis(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Analysis of a run that has not succeeded."""

    run_id: str
    findings: tuple[JobFinding, ...] = ()
    """Findings of failed jobs, in the order of the plan; at most a hundred."""
    more: int = 0
    """Number of failed jobs left out."""
    flaky: tuple[FlakyJob, ...] = ()
    """Jobs of the run that recently passed and failed on one commit, also those that passed here."""


class FlakyJobs(msgspec.Struct, frozen=True, kw_only=True):
    """A page of flaky jobs; `cursor` is for the next page, and is empty at the end."""

    jobs: tuple[FlakyJob, ...]
    cursor: str = ""


class ReportView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Progress of a reporter with a run."""

    reporter: str
    state: str
    word: str
    """The latest state to report."""
    told: str = ""
    """The latest state that the receiver has."""
    tries: int = 0
    last_error: str = ""
    next_try_at: datetime | None = None
    given_up_at: datetime | None = None
    """Time at which the reporter gives up."""
    updated_at: datetime


class FailedReport(ReportView, frozen=True, kw_only=True, omit_defaults=True):
    """A report that was not delivered, and its run."""

    run_id: str


class Receipt(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Answer to the sender of a webhook."""

    accepted: bool
    """Whether a run was created or found for it."""
    run_id: str = ""
    reason: str = ""
    """Reason why there is no run."""
