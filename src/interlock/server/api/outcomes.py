"""What became of runs: who was told, why jobs have failed, and which are flaky."""

from __future__ import annotations

import msgspec

from interlock.errors import UnknownRun
from interlock.server.declaring import Call, Route
from interlock.systems.access.principals import Role
from interlock.systems.runs.analysing.analysing import FlakyJobs, RunAnalysis
from interlock.systems.runs.reporting.reporting import ReportView

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


async def reports(call: Call) -> Reports:
    """How far each reporter is."""
    return Reports(tuple(await call.parts.household.runs.reports(call.path["run_id"])))


async def report_again(call: Call) -> Reports:
    """Those who were given up on are told once more."""
    return Reports(tuple(await call.parts.household.runs.report_again(call.path["run_id"])))


async def analysis(call: Call) -> RunAnalysis:
    """The class of each failure, how sure one can be, and why."""
    return await call.parts.household.runs.analysing.of(call.path["run_id"])


async def flaky(call: Call) -> FlakyJobs:
    """Jobs that have passed and failed on one commit."""
    asked: FlakyQuery = call.query
    return await call.parts.household.runs.analysing.flaky(
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
