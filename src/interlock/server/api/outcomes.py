"""What became of runs: who was told, why jobs have failed, what they left behind, and which are flaky."""

from __future__ import annotations

import msgspec

from interlock.errors import UnknownRun
from interlock.server.api.run_queries import run_id_in
from interlock.server.routes import Call, Route
from interlock.server.run_messages import RunArtifact, RunArtifacts, RunArtifactsQuery
from interlock.systems.access.principals import Role
from interlock.systems.runs.analysis.analyser import FlakyJobs, RunAnalysis
from interlock.systems.runs.reporting.reporter import ReportView
from interlock.wire.runs import RunComparison

_RUN = {"run_id": "The id of a run."}


class Reports(msgspec.Struct, frozen=True):
    """Who is told about a run; without reporters of its own a server tells its log, and has none."""

    reports: tuple[ReportView, ...]


class FlakyQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which flaky jobs are looked for."""

    repository: str = ""
    workflow: str = ""
    cursor: str = ""
    limit: int = 100


class ComparisonQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a run is compared with."""

    other: str = ""
    """The id of a run; without one the last green run of the same workflow, repository and ref."""


async def reports(call: Call) -> Reports:
    """How far each reporter is."""
    return Reports(tuple(await call.parts.runtime.runs.reports(call.path["run_id"])))


async def report_again(call: Call) -> Reports:
    """Those who were given up on are told once more."""
    return Reports(tuple(await call.parts.runtime.runs.report_again(call.path["run_id"])))


async def analysis(call: Call) -> RunAnalysis:
    """The class of each failure, how sure one can be, and why."""
    return await call.parts.runtime.runs.analysing.of(call.path["run_id"])


async def compare(call: Call) -> RunComparison:
    """What has changed since the last green run, or since another one."""
    asked: ComparisonQuery = call.query
    return await call.parts.runtime.runs.compare(run_id_in(call), other=asked.other)


async def list_artifacts(call: Call) -> RunArtifacts:
    """What some of its jobs have left behind; a job that has not started has left nothing."""
    asked: RunArtifactsQuery = call.query
    runtime, run_id = call.parts.runtime, run_id_in(call)
    jobs = await runtime.runs.jobs(run_id, first=asked.first, limit=asked.limit + 1)
    shown = [job for job in jobs[: asked.limit] if job.started_at is not None]
    found = [
        RunArtifact(job=job.name, artifact=view)
        for job in shown
        for view in await runtime.artifacts.list(job.job_id)
    ]
    return RunArtifacts(
        run_id=run_id,
        artifacts=tuple(found),
        next=asked.first + asked.limit if len(jobs) > asked.limit else None,
    )


async def flaky(call: Call) -> FlakyJobs:
    """Jobs that have passed and failed on one commit."""
    asked: FlakyQuery = call.query
    return await call.parts.runtime.runs.analysing.flaky(
        repository=asked.repository,
        workflow=asked.workflow,
        cursor=asked.cursor,
        limit=max(1, min(asked.limit, 1_000)),
    )


ROUTES = (
    Route(
        method="GET",
        path="/api/runs/{run_id}/reports",
        name="listReports",
        summary="Show who is told about a run, and how far that is.",
        handler=reports,
        role=Role.VIEWER,
        everything=True,
        answer=Reports,
        errors=(UnknownRun,),
        parameters=_RUN,
    ),
    Route(
        method="POST",
        path="/api/runs/{run_id}/reports/again",
        name="reportAgain",
        summary="Tell those once more about a run who were given up on.",
        handler=report_again,
        role=Role.OPERATOR,
        everything=True,
        answer=Reports,
        errors=(UnknownRun,),
        parameters=_RUN,
    ),
    Route(
        method="GET",
        path="/api/runs/{run_id}/analysis",
        name="analyseRun",
        summary="Say why jobs of a run have failed, how sure that is, and by which evidence.",
        handler=analysis,
        role=Role.VIEWER,
        everything=True,
        answer=RunAnalysis,
        errors=(UnknownRun,),
        parameters=_RUN,
    ),
    Route(
        method="GET",
        path="/api/runs/{run_id}/comparison",
        name="compareRun",
        summary="Compare a run with the last green run of its workflow, repository and ref, or with another.",
        handler=compare,
        role=Role.VIEWER,
        everything=True,
        query=ComparisonQuery,
        answer=RunComparison,
        errors=(UnknownRun,),
        parameters=_RUN,
    ),
    Route(
        method="GET",
        path="/api/runs/{run_id}/artifacts",
        name="listRunArtifacts",
        summary="List what the jobs of a run have left behind, in the order of its plan.",
        handler=list_artifacts,
        role=Role.VIEWER,
        everything=True,
        query=RunArtifactsQuery,
        answer=RunArtifacts,
        errors=(UnknownRun,),
        parameters=_RUN,
    ),
    Route(
        method="GET",
        path="/api/flaky",
        name="listFlakyJobs",
        summary="List jobs that have passed and failed on one commit lately.",
        handler=flaky,
        role=Role.VIEWER,
        everything=True,
        query=FlakyQuery,
        answer=FlakyJobs,
    ),
)
