"""Runs: submit, list, show, approve, cancel and rerun them; reports, analysis, webhooks that start them."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from interlock.api.messages import (
    MAX_PAGE,
    ActionAnswer,
    Cursor,
    HistoryPage,
    HistoryQuery,
    Input,
    Limit,
    Output,
    Reason,
    ReasonedRequest,
    RequestId,
)
from interlock.api.operation import Link, Operation, Parameter, id_of
from interlock.errors import (
    BadFilter,
    BadPayload,
    InvalidRun,
    NotSigned,
    PlanRefused,
    RequestIdReused,
    TooLarge,
    TransitionNotAllowed,
    UnknownRun,
    WebhookOff,
)
from interlock.lifecycles.run import RUN
from interlock.wire.access import Role
from interlock.wire.artifacts import ArtifactView
from interlock.wire.runs import (
    FlakyJobs,
    Receipt,
    ReportView,
    RerunPreview,
    RunAnalysis,
    RunComparison,
    RunExplanation,
    RunJobView,
    RunSpec,
    RunView,
    Which,
)

_RUN = id_of("run", UnknownRun)


RunFilterText = Annotated[
    str, Meta(max_length=2_000, description="Filter, such as `outcome:failed workflow:ci since:1d`.")
]


class OneRun(RunSpec, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One run to submit, optionally with a request id."""

    request_id: RequestId | None = None

    def spec(self) -> RunSpec:
        """Return the run without the request id, which is not part of it."""
        return RunSpec(**{name: getattr(self, name) for name in RunSpec.__struct_fields__})


class RunsQuery(Input, frozen=True, kw_only=True):
    """Filter and page of runs."""

    q: RunFilterText = ""
    limit: Limit = 50
    cursor: Cursor = ""


class RunQuery(Input, frozen=True, kw_only=True):
    """Parts of a run to return."""

    jobs: Annotated[bool, Meta(description="Include the jobs of the run.")] = True


class RunJobsQuery(Input, frozen=True, kw_only=True):
    """Page of the jobs of a run."""

    first: Annotated[int, Meta(ge=0, le=1_000_000, description="Position in the plan to start at.")] = 0
    limit: Annotated[int, Meta(ge=1, le=MAX_PAGE, description="Maximum number of results.")] = 200


class CancelRun(ReasonedRequest, frozen=True, kw_only=True):
    """Cancel a run."""


class ApproveRun(Input, frozen=True, kw_only=True):
    """Approve a run that waits for approval."""

    comment: Reason = ""
    request_id: RequestId | None = None


class DeclineRun(ReasonedRequest, frozen=True, kw_only=True):
    """Decline a run that waits for approval."""


class RerunRequest(Input, frozen=True, kw_only=True):
    """Rerun a run that has ended."""

    which: Annotated[
        Which,
        Meta(description="`from`: run one job and its dependents again; keep the others."),
    ] = "all"
    job: Annotated[str, Meta(max_length=200, description="The name of the job, with `from`.")] = ""
    request_id: RequestId | None = None


class RerunQuery(Input, frozen=True, kw_only=True):
    """Rerun to preview."""

    which: Annotated[
        Which,
        Meta(description="`from`: run one job and its dependents again; keep the others."),
    ] = "all"
    job: Annotated[str, Meta(max_length=200, description="The name of the job, with `from`.")] = ""


class RunArtifactsQuery(Input, frozen=True, kw_only=True):
    """Page of the jobs whose artifacts are listed."""

    first: Annotated[int, Meta(ge=0, le=1_000_000, description="Position in the plan to start at.")] = 0
    limit: Annotated[int, Meta(ge=1, le=100, description="Maximum number of jobs.")] = 50


class RunActionRequest(Input, frozen=True, kw_only=True):
    """An action on every run that matches a filter."""

    filter: RunFilterText
    action: Literal["cancel", "rerun"]
    which: Literal["all", "failed"] = "all"
    dry_run: Annotated[bool, Meta(description="Only list the runs that would change.")] = False
    limit: Limit = 100
    reason: Reason = ""
    request_id: RequestId | None = None


class RunPage(Output, frozen=True, kw_only=True):
    """Runs without their jobs, newest first. `cursor` is for the next page, and is empty at the end."""

    runs: tuple[RunView, ...]
    cursor: str


class RunJobs(Output, frozen=True, kw_only=True):
    """Jobs of a run in the order of its plan. `next` is where more begin, and is missing at the end."""

    run_id: str
    jobs: tuple[RunJobView, ...]
    next: int | None = None


class RunArtifact(Output, frozen=True, kw_only=True):
    """An artifact, and the name of its job."""

    job: str
    artifact: ArtifactView


class RunArtifacts(Output, frozen=True, kw_only=True):
    """Artifacts of some jobs of a run in the order of its plan. `next` is where more jobs begin."""

    run_id: str
    artifacts: tuple[RunArtifact, ...]
    next: int | None = None


class Reports(msgspec.Struct, frozen=True):
    """Reports of a run; a server without reporters writes to its log, and has none."""

    reports: tuple[ReportView, ...]


class FlakyQuery(Input, frozen=True, kw_only=True):
    """Filter and page of flaky jobs."""

    repository: Annotated[str, Meta(description="Only jobs of runs of this repository.")] = ""
    workflow: Annotated[str, Meta(description="Only jobs of runs of this workflow.")] = ""
    cursor: Annotated[str, Meta(description="Cursor from the previous page.")] = ""
    limit: Annotated[int, Meta(description="Maximum number of results.")] = 100


class ComparisonQuery(Input, frozen=True, kw_only=True):
    """Run to compare with."""

    other: Annotated[
        str,
        Meta(
            description="The id of a run (default: the last green run of its workflow, repository and ref)."
        ),
    ] = ""


class GithubEvent(msgspec.Struct, frozen=True):
    """An event as GitHub documents it: push and pull_request start runs, others are accepted and ignored."""


class AnyEvent(msgspec.Struct, frozen=True):
    """A RunSpec, or any JSON from which the settings of the hook extract one."""


LIST_REPORTS = Operation(
    name="listReports",
    request="GET /api/runs/{run_id}/reports",
    summary="Show the notification status of a run.",
    role=Role.VIEWER,
    parameters=_RUN,
    output=Reports,
    errors=(UnknownRun,),
)

REPORT_AGAIN = Operation(
    name="reportAgain",
    request="POST /api/runs/{run_id}/reports/again",
    summary="Retry the failed notifications of a run.",
    role=Role.OPERATOR,
    parameters=_RUN,
    output=Reports,
    errors=(UnknownRun,),
)

ANALYSE_RUN = Operation(
    name="analyseRun",
    request="GET /api/runs/{run_id}/analysis",
    summary="Explain why jobs of a run have failed, with confidence and evidence.",
    role=Role.VIEWER,
    parameters=_RUN,
    output=RunAnalysis,
    errors=(UnknownRun,),
)

COMPARE_RUN = Operation(
    name="compareRun",
    request="GET /api/runs/{run_id}/comparison",
    summary="Compare a run with the last green run of its workflow, repository and ref, or with another.",
    role=Role.VIEWER,
    parameters=_RUN,
    input=ComparisonQuery,
    output=RunComparison,
    errors=(UnknownRun,),
)

LIST_RUN_ARTIFACTS = Operation(
    name="listRunArtifacts",
    request="GET /api/runs/{run_id}/artifacts",
    summary="List the artifacts of a run, in the order of its plan.",
    role=Role.VIEWER,
    parameters=_RUN,
    input=RunArtifactsQuery,
    output=RunArtifacts,
    errors=(UnknownRun,),
)

LIST_FLAKY_JOBS = Operation(
    name="listFlakyJobs",
    request="GET /api/flaky",
    summary="List flaky jobs: those that have recently passed and failed on one commit.",
    role=Role.VIEWER,
    input=FlakyQuery,
    output=FlakyJobs,
)

RECEIVE_GITHUB_WEBHOOK = Operation(
    name="receiveGithubWebhook",
    request="POST /api/webhooks/github",
    summary="Receive a webhook of GitHub, and start a run if a rule matches it.",
    role=None,
    signed=True,
    free=True,
    input=GithubEvent,
    required=True,
    output=Receipt,
    status=202,
    errors=(NotSigned, WebhookOff, BadPayload),
    example={"ref": "refs/heads/main", "before": "a" * 40, "after": "b" * 40, "repository": {}},
    answer_example={"accepted": True, "run_id": "r_0123456789ab"},
)

RECEIVE_WEBHOOK = Operation(
    name="receiveWebhook",
    request="POST /api/webhooks/generic/{name}",
    summary="Receive a signed webhook (Standard Webhooks), and start the run that it requests.",
    role=None,
    signed=True,
    free=True,
    parameters={"name": Parameter("Name of the hook in the settings.")},
    input=AnyEvent,
    required=True,
    output=Receipt,
    status=202,
    errors=(NotSigned, WebhookOff, BadPayload),
    example={"commit": {"id": "b" * 40}, "target": "staging"},
    answer_example={"accepted": True, "run_id": "r_0123456789ab"},
)

_EXAMPLE = {
    "workflow": "ci",
    "plan": {
        "jobs": [
            {"name": "lint", "task": "interlock.shell", "input": {"run": "make lint"}},
            {"name": "test", "task": "interlock.shell", "input": {"run": "make test"}, "needs": ["lint"]},
        ]
    },
    "source": {"repository": "shop/web", "ref": "refs/heads/main", "sha": "5f1c0d0", "event": "manual"},
    "request_id": "push-17",
}

SUBMIT_RUN = Operation(
    name="submitRun",
    request="POST /api/runs",
    summary="Submit a run: with a plan, with a workflow file, or by repository and commit.",
    role=Role.SUBMITTER,
    input=OneRun,
    required=True,
    output=RunView,
    status=201,
    errors=(InvalidRun, PlanRefused, TooLarge, RequestIdReused),
    example=_EXAMPLE,
    links=(
        Link("getRun", "run_id"),
        Link("getRunJobs", "run_id"),
        Link("getRunHistory", "run_id"),
        Link("explainRun", "run_id"),
        Link("approveRun", "run_id"),
        Link("cancelRun", "run_id"),
        Link("rerun", "run_id"),
    ),
)

LIST_RUNS = Operation(
    name="listRuns",
    request="GET /api/runs",
    summary="List runs without their jobs, newest first, by a filter.",
    role=Role.VIEWER,
    input=RunsQuery,
    output=RunPage,
    errors=(BadFilter,),
    links=(Link("listRuns", "cursor", "$response.body#/cursor"),),
)

GET_RUN = Operation(
    name="getRun",
    request="GET /api/runs/{run_id}",
    summary="Show a run with its jobs.",
    role=Role.VIEWER,
    parameters=_RUN,
    input=RunQuery,
    output=RunView,
    errors=(UnknownRun,),
)

GET_RUN_JOBS = Operation(
    name="getRunJobs",
    request="GET /api/runs/{run_id}/jobs",
    summary="Show the jobs of a run in the order of its plan.",
    role=Role.VIEWER,
    parameters=_RUN,
    input=RunJobsQuery,
    output=RunJobs,
    errors=(UnknownRun,),
    links=(Link("getJob", "job_id", "$response.body#/jobs/0/job_id"),),
)

GET_RUN_HISTORY = Operation(
    name="getRunHistory",
    request="GET /api/runs/{run_id}/history",
    summary="Show the history of a run.",
    role=Role.VIEWER,
    parameters=_RUN,
    input=HistoryQuery,
    output=HistoryPage,
    errors=(UnknownRun,),
)

EXPLAIN_RUN = Operation(
    name="explainRun",
    request="GET /api/runs/{run_id}/explain",
    summary="Explain why a run waits, which role acts next, and when the next deadline is.",
    role=Role.VIEWER,
    parameters=_RUN,
    output=RunExplanation,
    errors=(UnknownRun,),
)

CANCEL_RUN = Operation(
    name="cancelRun",
    request="POST /api/runs/{run_id}/cancel",
    summary="Cancel a run and its active jobs.",
    role=Role.OPERATOR,
    parameters=_RUN,
    input=CancelRun,
    output=RunView,
    errors=(UnknownRun, TransitionNotAllowed, RequestIdReused),
    fires=(RUN.name, "cancel"),
    example={"reason": "a newer push is on its way", "request_id": "stop-17"},
)

APPROVE_RUN = Operation(
    name="approveRun",
    request="POST /api/runs/{run_id}/approve",
    summary="Approve a run that waits for approval, for its commit.",
    role=Role.OPERATOR,
    parameters=_RUN,
    input=ApproveRun,
    output=RunView,
    errors=(UnknownRun, TransitionNotAllowed, RequestIdReused),
    fires=(RUN.name, "approve"),
    example={"comment": "looked at the whole diff", "request_id": "approve-17"},
)

DECLINE_RUN = Operation(
    name="declineRun",
    request="POST /api/runs/{run_id}/decline",
    summary="Decline a run that waits for an approval; it is canceled.",
    role=Role.OPERATOR,
    parameters=_RUN,
    input=DeclineRun,
    output=RunView,
    errors=(UnknownRun, TransitionNotAllowed, RequestIdReused),
    fires=(RUN.name, "decline"),
    example={"reason": "it reads the environment", "request_id": "decline-17"},
)

RERUN = Operation(
    name="rerun",
    request="POST /api/runs/{run_id}/rerun",
    summary="Rerun a finished run as a new run: all jobs, failed jobs, or from one job on.",
    role=Role.SUBMITTER,
    parameters=_RUN,
    input=RerunRequest,
    output=RunView,
    status=201,
    errors=(UnknownRun, InvalidRun, TransitionNotAllowed, RequestIdReused),
    example={"which": "failed", "request_id": "again-17"},
    links=(Link("getRun", "run_id"),),
)

PREVIEW_RERUN = Operation(
    name="previewRerun",
    request="GET /api/runs/{run_id}/rerun",
    summary="Preview a rerun: the jobs that it would execute, and those that it would keep.",
    role=Role.VIEWER,
    parameters=_RUN,
    input=RerunQuery,
    output=RerunPreview,
    errors=(UnknownRun, InvalidRun, TransitionNotAllowed),
)

ACT_ON_RUNS = Operation(
    name="actOnRuns",
    request="POST /api/runs/actions",
    summary="Cancel or rerun all runs that match a filter; dry_run only lists them.",
    role=Role.OPERATOR,
    input=RunActionRequest,
    output=ActionAnswer,
    errors=(BadFilter, RequestIdReused),
    example={"filter": "outcome:failed workflow:ci since:1d", "action": "rerun", "dry_run": True},
)
