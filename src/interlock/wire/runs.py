"""What somebody asks to be evaluated, what a planner makes of it, and how a run is shown.

A run is one evaluation of a change. Somebody asks for it with a `RunSpec`; a planner turns that into
a `Plan`, which is a graph of jobs; the jobs are executed like any others; and the outcome is told to
whoever wants to know.
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal

import msgspec

from interlock.wire.jobs import FailureView, RetryRule
from interlock.wire.views import View


class Source(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Which change is evaluated. All of it is optional: a run need not be about a repository."""

    repository: str = ""
    """What a provider calls it: `owner/name`; or where it is."""
    ref: str = ""
    """`refs/heads/main`, `refs/tags/v1`, `refs/pull/7/head`."""
    sha: str = ""
    base_sha: str = ""
    """What it is compared with to find out which paths have changed."""
    event: str = "manual"
    """push, pull_request, manual, …"""
    pull_request: int | None = None
    from_fork: bool = False
    """The change comes from people who may not see secrets."""
    changed_paths: tuple[str, ...] | None = None
    """None when it is not known: then every condition on paths holds."""
    actor: str = ""
    """Who made the change, as the provider says; information only."""
    title: str = ""


class PlannedJob(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One job of a plan."""

    name: str
    """Unique in the plan: `test (3.12)`."""
    task: str
    input: msgspec.Raw = msgspec.Raw(b"{}")
    needs: tuple[str, ...] = ()
    """Names of jobs that must have ended well, or be allowed to fail, before this one starts."""
    required: bool = True
    """The run cannot succeed without it."""
    why: str = ""
    """Why it is in the plan."""
    queue: str = "default"
    priority: int = 0
    labels: tuple[str, ...] = ()
    worker_count: int = 1
    timeout_s: float | None = None
    job_timeout_s: float | None = None
    retries: int | None = None
    retry: dict[str, RetryRule] = {}
    losses: int | None = None
    secrets: tuple[str, ...] = ()
    """Names of the secrets that it is given; never to a run from a fork."""
    environment: str = ""
    """What it deploys to; secrets can be for an environment, and an environment for some branches."""
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
    """What a run does: a graph of jobs without cycles."""

    jobs: tuple[PlannedJob, ...] = ()
    skipped: tuple[SkippedJob, ...] = ()
    fail_fast: bool = True
    timeout_s: float | None = None
    """How long the run may last, from the plan on."""
    concurrency_group: str | None = None
    """For a run that names none: what its workflow file says about it. None: the default; empty: never."""


class RunSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One evaluation that somebody asks for."""

    workflow: str = ""
    """The name of the workflow or flow; groups runs of one kind."""
    planner: str = "plan"
    """Who makes the plan: `plan` (it is given), `workflow` (a workflow file), `flow` (a Python flow)."""
    plan: Plan | None = None
    definition: str = ""
    """For the planner: the text of a workflow file, or the address of a flow (`module:function`)."""
    inputs: dict[str, str] = {}
    """What the planner may use beside the source."""
    source: Source = Source()
    concurrency_group: str | None = None
    """A newer run of the group supersedes older ones; by default workflow + ref. Empty: never."""
    labels: tuple[str, ...] = ()
    priority: int = 0
    trace: dict[str, str] = {}


class ForkTerms(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What becomes of a change from a fork; the trigger says so, never the change."""

    approval: bool = True
    """An operator has to approve the run before anything of it is planned."""
    queue: str = "untrusted"
    """Where all its jobs wait, whatever its workflow file says."""
    labels: tuple[str, ...] = ()
    """Which labels its runners have, likewise."""


class HeldTo(View, frozen=True, kw_only=True, omit_defaults=False):
    """Where the jobs of a change from a fork run, whatever its workflow file says."""

    queue: str
    labels: tuple[str, ...]


class AwaitedApproval(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why a run waits for an operator."""

    reason: str
    """`fork`: the change comes from a fork; `environment`: its jobs use one that has to be approved."""
    environments: tuple[str, ...] = ()


class Approval(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An operator has approved a run, for the one commit that it is about."""

    by: str
    at: datetime
    reason: str
    """What was approved: `fork` or `environment`."""
    sha: str = ""
    comment: str = ""
    environments: tuple[str, ...] = ()


class RunJobView(View, frozen=True, kw_only=True, omit_defaults=True):
    """A job of a run, as the run knows it."""

    name: str
    job_id: str
    state: str
    """Of the job; `WAITING` while what it needs has not ended."""
    required: bool = True
    needs: tuple[str, ...] = ()
    why: str = ""
    reason: str = ""
    """Why it was stopped: upstream, cancel, timeout, …"""
    failure: FailureView | None = None
    started_at: datetime | None = None
    completed_at: datetime | None = None
    workflow: str = ""
    """The workflow that it belongs to, where the run is of several workflow files."""


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
    """Why it ended so: plan_failed, required_job_failed, job_canceled, cancel, declined, not_approved,
    superseded, timeout, …"""
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
    """After a cancel: whether everything that was active is known to be gone."""
    fail_fast: bool = True
    tally: dict[str, int] = msgspec.field(default_factory=dict)
    """How many jobs there are in each state."""
    jobs: tuple[RunJobView, ...] = ()
    """In the order of the plan; only when one run is asked for."""
    skipped: tuple[SkippedJob, ...] = ()
    culprit: str = ""
    """The required job without which it could not succeed."""
    error: str = ""
    """What went wrong while it was planned."""
    origin_run_id: str | None = None
    """The run that this one does again."""
    superseded_by: str | None = None
    awaiting: AwaitedApproval | None = None
    """What an operator has to approve before it goes on."""
    approvals: tuple[Approval, ...] = ()
    held_to: HeldTo | None = None
    """Where its jobs run, where the change comes from a fork."""


class RerunPreview(View, frozen=True, kw_only=True, omit_defaults=True):
    """Which jobs a rerun would execute; the names are in the order of the plan."""

    run_id: str
    again: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    """Jobs that have succeeded and count as done in the new run."""
    planned_anew: bool = False
    """The run has no plan, so the planner makes one and no names are known yet."""


class JobChange(View, frozen=True, kw_only=True, omit_defaults=True):
    """How a job differs from the job of the same name in the last green run."""

    name: str
    change: Literal["failed", "slower", "new", "gone"]
    """`failed`: it had succeeded; `slower`: by a quarter and by two seconds at least."""
    job_id: str = ""
    before_job_id: str = ""
    took_s: float | None = None
    before_s: float | None = None


class RunComparison(View, frozen=True, kw_only=True, omit_defaults=True):
    """A run beside the last green run of its workflow, repository and ref."""

    run_id: str
    green: RunView | None = None
    """Without its jobs; missing when none of the earlier runs that were looked at is green."""
    looked_at: int = msgspec.field(default_factory=int)
    """How many earlier runs were looked at."""
    changes: tuple[JobChange, ...] = ()
    """The worst first: failed, slower, new, gone."""
    more: int = 0
    """How many changes are left out."""
    other: RunView | None = None
    """The run that was named to compare with, without its jobs; then `green` is missing."""


class RunFilter(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which runs are looked for; empty parts do not filter."""

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
    """One thing of a run that has not ended."""

    entity: str
    """`run r_…`, or the name of a job."""
    state: str
    sentence: str
    job_id: str = ""
    turn: str = ""
    """Who has to do something next."""
    deadline_at: datetime | None = None
    """When something happens even if nobody does."""
    deadline_event: str = ""
    accepts: tuple[str, ...] = ()
    """What may happen to it now."""


class RunExplanation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a run waits for, or how it ended."""

    run_id: str
    state: str
    sentence: str
    lines: tuple[RunWaiting, ...] = ()
    more: int = 0
    """How many jobs that have not ended are not among the lines."""
    findings: tuple[str, ...] = ()
    """Why jobs of it have failed, as far as that can be told; the analysis of the run says more."""
    next_deadline_at: datetime | None = None
    todo: str = ""


class Evidence(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A sign that was found."""

    kind: str
    """exit_code, signal, exception, output, record or history."""
    says: str
    found: str = ""
    """Where it shows: the code, the name, the line."""
    failure_class: str
    weight: float


class JobFinding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What somebody should know about a job that has failed."""

    job: str
    job_id: str
    failure_class: str
    """What speaks for itself most; what was retried and why is with the job."""
    confidence: float
    """From 0 to 1: how sure one can be who has only this evidence."""
    evidence: tuple[Evidence, ...]
    """The strongest first."""
    flaky: bool = False
    """It has passed and failed on one of the latest commits."""
    error: str = ""


class FlakyJob(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job that has passed and failed on one commit."""

    repository: str
    workflow: str
    job: str
    commits: int
    """On how many of the latest commits it has ended."""
    contradicted: int
    """On how many of them it has passed and failed."""
    latest_sha: str
    """The latest of those."""
    latest: str
    """What happened there."""
    updated_at: datetime


class RunAnalysis(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What somebody should know about a run that has not gone well."""

    run_id: str
    findings: tuple[JobFinding, ...] = ()
    """Of the jobs that have failed, in the order of the plan; at most a hundred."""
    more: int = 0
    """How many failed jobs are left out."""
    flaky: tuple[FlakyJob, ...] = ()
    """Its jobs that have passed and failed on one commit lately, also those that have passed here."""


class FlakyJobs(msgspec.Struct, frozen=True, kw_only=True):
    """Some of them; `cursor` goes on after them and is empty at the end."""

    jobs: tuple[FlakyJob, ...]
    cursor: str = ""


class ReportView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How far a reporter is with a run."""

    reporter: str
    state: str
    word: str
    """The latest that there is to tell."""
    told: str = ""
    """The latest that the receiver has."""
    tries: int = 0
    last_error: str = ""
    next_try_at: datetime | None = None
    given_up_at: datetime | None = None
    """When it will be given up on."""
    updated_at: datetime


class FailedReport(ReportView, frozen=True, kw_only=True, omit_defaults=True):
    """A report that a receiver does not have, and its run."""

    run_id: str


class Receipt(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the sender of a webhook is told."""

    accepted: bool
    """Whether there is a run for it."""
    run_id: str = ""
    reason: str = ""
    """Why there is none."""
