"""Routes of runs: submit, list, show, approve, cancel and rerun them; reports, analysis, artifacts.

Runs are about all queues, so a token that is confined to some queues sees none of them.
"""

from __future__ import annotations

from functools import partial

import msgspec

from interlock.errors import (
    InvalidRun,
    PlanRefused,
    RequestIdReused,
    TooLarge,
    TransitionNotAllowed,
    UnknownRun,
)
from interlock.lifecycles import run
from interlock.lifecycles.run import RUN
from interlock.server.api.visibility import is_shaped
from interlock.server.bulk import act_once, answer_of, part_of, with_each
from interlock.server.messages import (
    ActionAnswer,
    ApproveRun,
    CancelRun,
    DeclineRun,
    Done,
    HistoryPage,
    HistoryQuery,
    OneRun,
    RerunQuery,
    RerunRequest,
    RunActionRequest,
    RunArtifact,
    RunArtifacts,
    RunArtifactsQuery,
    RunJobs,
    RunJobsQuery,
    RunPage,
    RunQuery,
    RunsQuery,
    entry_view,
)
from interlock.server.routes import Call, Link, Route
from interlock.store.records import Key
from interlock.systems.access.principals import Role
from interlock.systems.runs.failure_analysis import FlakyJobs, RunAnalysis
from interlock.systems.runs.reporting.reporter import ReportView
from interlock.systems.runs.search import found_runs
from interlock.wire.filter_language import BadFilter
from interlock.wire.filters import WantedRuns, read_run_filter
from interlock.wire.runs import RerunPreview, RunComparison, RunExplanation, RunView


def run_id_in(call: Call) -> str:
    """The id in the address, if it can be one at all; nothing else reaches the store."""
    run_id = call.path["run_id"]
    if not is_shaped(run_id):
        raise UnknownRun(
            f"There is no run {run_id[:64]}.",
            todo="Look for it with GET /api/runs; runs are pruned a while after they were reported.",
            facts={"run_id": run_id[:64]},
        )
    return run_id


async def page_of_runs(
    call: Call, wanted: WantedRuns, *, limit: int, cursor: str = ""
) -> tuple[list[RunView], str]:
    """As many runs as were asked for, and the cursor of the next ones."""
    now = await call.parts.runtime.engine.clock.now()
    found = await found_runs(call.parts.runtime.runs, wanted, now, limit=limit, cursor=cursor, looks=1)
    return found.views, found.cursor


async def submit_run(call: Call) -> RunView:
    """Make a run; it is planned right after."""
    asked: OneRun = call.body
    # What a submitter says about repository and ref opens no secrets; an operator is taken at their word.
    claimed = not call.principal.may(Role.OPERATOR)
    return await call.parts.runtime.runs.submit(
        asked.spec(), actor=call.actor, request_id=call.request_id, claimed=claimed
    )


async def list_runs(call: Call) -> RunPage:
    """A page of what a filter means."""
    asked: RunsQuery = call.query
    views, cursor = await page_of_runs(call, read_run_filter(asked.q), limit=asked.limit, cursor=asked.cursor)
    return RunPage(runs=tuple(views), cursor=cursor)


async def get_run(call: Call) -> RunView:
    """A run as it stands."""
    asked: RunQuery = call.query
    runs, run_id = call.parts.runtime.runs, run_id_in(call)
    return await (runs.view(run_id) if asked.jobs else runs.outline(run_id))


async def get_jobs(call: Call) -> RunJobs:
    """Some of its jobs."""
    asked: RunJobsQuery = call.query
    run_id = run_id_in(call)
    jobs = await call.parts.runtime.runs.jobs(run_id, first=asked.first, limit=asked.limit + 1)
    more = len(jobs) > asked.limit
    return RunJobs(
        run_id=run_id, jobs=tuple(jobs[: asked.limit]), next=asked.first + asked.limit if more else None
    )


async def get_history(call: Call) -> HistoryPage:
    """What the journal says about a run, oldest first."""
    asked: HistoryQuery = call.query
    run_id = run_id_in(call)
    await call.parts.runtime.runs.outline(run_id)  # a run without entries is told from no run at all
    key = Key(RUN.name, run_id)
    feed = await call.parts.store.history(key, after_version=asked.after, limit=asked.limit)
    full = len(feed.entries) == asked.limit
    return HistoryPage(
        entries=tuple(map(entry_view, feed.entries)), after=feed.entries[-1].version if full else None
    )


async def explain_run(call: Call) -> RunExplanation:
    """What a run waits for, or how it ended."""
    return await call.parts.runtime.runs.explain(run_id_in(call))


async def cancel_run(call: Call) -> RunView:
    """Ask a run to stop; the view says how far that is."""
    asked: CancelRun = call.body
    return await call.parts.runtime.runs.cancel(
        run_id_in(call), reason=asked.reason, actor=call.actor, request_id=call.request_id
    )


async def approve_run(call: Call) -> RunView:
    """Let a run go on that waits for an approval."""
    asked: ApproveRun = call.body
    return await call.parts.runtime.runs.approve(
        run_id_in(call), comment=asked.comment, actor=call.actor, request_id=call.request_id
    )


async def decline_run(call: Call) -> RunView:
    """Cancel a run that waits for an approval."""
    asked: DeclineRun = call.body
    return await call.parts.runtime.runs.decline(
        run_id_in(call), reason=asked.reason, actor=call.actor, request_id=call.request_id
    )


async def rerun(call: Call) -> RunView:
    """Do a run that has ended again, as a new one."""
    asked: RerunRequest = call.body
    return await call.parts.runtime.runs.rerun(
        run_id_in(call), asked.which, job=asked.job, actor=call.actor, request_id=call.request_id
    )


async def preview_rerun(call: Call) -> RerunPreview:
    """Which jobs a rerun would execute."""
    asked: RerunQuery = call.query
    return await call.parts.runtime.runs.preview(run_id_in(call), asked.which, job=asked.job)


_RUN = {"run_id": "The id of a run."}
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

ROUTES = (
    Route(
        method="POST",
        path="/api/runs",
        name="submitRun",
        summary="Ask for a run: with its plan, with a workflow file, or by repository and commit.",
        handler=submit_run,
        role=Role.SUBMITTER,
        everything=True,
        bodies=(OneRun,),
        repeatable=True,
        answer=RunView,
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
    ),
    Route(
        method="GET",
        path="/api/runs",
        name="listRuns",
        summary="List runs without their jobs, newest first, by a filter.",
        handler=list_runs,
        role=Role.VIEWER,
        everything=True,
        query=RunsQuery,
        answer=RunPage,
        errors=(BadFilter,),
        links=(Link("listRuns", "cursor", "$response.body#/cursor"),),
    ),
    Route(
        method="GET",
        path="/api/runs/{run_id}",
        name="getRun",
        summary="Show a run with its jobs.",
        handler=get_run,
        role=Role.VIEWER,
        everything=True,
        parameters=_RUN,
        query=RunQuery,
        answer=RunView,
        errors=(UnknownRun,),
    ),
    Route(
        method="GET",
        path="/api/runs/{run_id}/jobs",
        name="getRunJobs",
        summary="Show the jobs of a run in the order of its plan.",
        handler=get_jobs,
        role=Role.VIEWER,
        everything=True,
        parameters=_RUN,
        query=RunJobsQuery,
        answer=RunJobs,
        errors=(UnknownRun,),
        links=(Link("getJob", "job_id", "$response.body#/jobs/0/job_id"),),
    ),
    Route(
        method="GET",
        path="/api/runs/{run_id}/history",
        name="getRunHistory",
        summary="Show everything that has happened to a run.",
        handler=get_history,
        role=Role.VIEWER,
        everything=True,
        parameters=_RUN,
        query=HistoryQuery,
        answer=HistoryPage,
        errors=(UnknownRun,),
    ),
    Route(
        method="GET",
        path="/api/runs/{run_id}/explain",
        name="explainRun",
        summary="Say what a run waits for, whose turn it is, and when the next deadline is.",
        handler=explain_run,
        role=Role.VIEWER,
        everything=True,
        parameters=_RUN,
        answer=RunExplanation,
        errors=(UnknownRun,),
    ),
    Route(
        method="POST",
        path="/api/runs/{run_id}/cancel",
        name="cancelRun",
        summary="Ask a run to stop, with everything of it that is active.",
        handler=cancel_run,
        role=Role.OPERATOR,
        everything=True,
        fires=(RUN.name, "cancel"),
        parameters=_RUN,
        bodies=(CancelRun,),
        body_required=False,
        repeatable=True,
        answer=RunView,
        errors=(UnknownRun, TransitionNotAllowed, RequestIdReused),
        example={"reason": "a newer push is on its way", "request_id": "stop-17"},
    ),
    Route(
        method="POST",
        path="/api/runs/{run_id}/approve",
        name="approveRun",
        summary="Approve a run that waits for it, for the commit that it is about.",
        handler=approve_run,
        role=Role.OPERATOR,
        everything=True,
        fires=(RUN.name, "approve"),
        parameters=_RUN,
        bodies=(ApproveRun,),
        body_required=False,
        repeatable=True,
        answer=RunView,
        errors=(UnknownRun, TransitionNotAllowed, RequestIdReused),
        example={"comment": "looked at the whole diff", "request_id": "approve-17"},
    ),
    Route(
        method="POST",
        path="/api/runs/{run_id}/decline",
        name="declineRun",
        summary="Decline a run that waits for an approval; it is canceled.",
        handler=decline_run,
        role=Role.OPERATOR,
        everything=True,
        fires=(RUN.name, "decline"),
        parameters=_RUN,
        bodies=(DeclineRun,),
        body_required=False,
        repeatable=True,
        answer=RunView,
        errors=(UnknownRun, TransitionNotAllowed, RequestIdReused),
        example={"reason": "it reads the environment", "request_id": "decline-17"},
    ),
    Route(
        method="POST",
        path="/api/runs/{run_id}/rerun",
        name="rerun",
        summary="Do a run that has ended again, as a new one: all of it, what failed, or from a job on.",
        handler=rerun,
        role=Role.SUBMITTER,
        everything=True,
        parameters=_RUN,
        bodies=(RerunRequest,),
        body_required=False,
        repeatable=True,
        answer=RunView,
        status=201,
        errors=(UnknownRun, InvalidRun, TransitionNotAllowed, RequestIdReused),
        example={"which": "failed", "request_id": "again-17"},
        links=(Link("getRun", "run_id"),),
    ),
    Route(
        method="GET",
        path="/api/runs/{run_id}/rerun",
        name="previewRerun",
        summary="Name the jobs that a rerun would execute, and those that it would keep.",
        handler=preview_rerun,
        role=Role.VIEWER,
        everything=True,
        parameters=_RUN,
        query=RerunQuery,
        answer=RerunPreview,
        errors=(UnknownRun, InvalidRun, TransitionNotAllowed),
    ),
)


ENDPOINT = "run actions"


async def act(call: Call) -> ActionAnswer:
    """Find them, do it with each, and say what came of it."""
    return await act_once(call, ENDPOINT, call.body, partial(_act, call))


async def _act(call: Call) -> ActionAnswer:
    asked: RunActionRequest = call.body
    states, more = await _matching(call, asked)
    if asked.dry_run:
        done = tuple(Done(id=run_id, state=state) for run_id, state in states.items())
        return ActionAnswer(action=asked.action, dry_run=True, done=done, more=more)

    async def one(run_id: str) -> Done:
        runs, request_id = call.parts.runtime.runs, part_of(call.request_id, run_id)
        if asked.action == "rerun":
            new = await runs.rerun(run_id, asked.which, actor=call.actor, request_id=request_id)
            return Done(id=run_id, state=states[run_id], new_id=new.id)
        after = await runs.cancel(run_id, reason=asked.reason, actor=call.actor, request_id=request_id)
        return Done(id=run_id, state=after.state)

    return answer_of(asked.action, await with_each(states, one), more=more)


async def _matching(call: Call, asked: RunActionRequest) -> tuple[dict[str, str], bool]:
    """Only those with which it can be done at all: what has ended is not stopped, what runs not redone."""
    ended = asked.action == "rerun"
    states = [str(state) for state in run.RUN.states if (state in run.SETTLED) is ended]
    wanted = read_run_filter(asked.filter).among(states)
    if not wanted.wanted_states:
        return {}, False
    views, cursor = await page_of_runs(call, wanted, limit=asked.limit)
    return {view.id: view.state for view in views}, bool(cursor)


BULK_ROUTES = (
    Route(
        method="POST",
        path="/api/runs/actions",
        name="actOnRuns",
        summary="Cancel or do again every run that a filter means; with dry_run only say which.",
        handler=act,
        role=Role.OPERATOR,
        everything=True,
        bodies=(RunActionRequest,),
        repeatable=True,
        answer=ActionAnswer,
        errors=(BadFilter, RequestIdReused),
        example={"filter": "outcome:failed workflow:ci since:1d", "action": "rerun", "dry_run": True},
    ),
)


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
    return await call.parts.runtime.runs.analyser.of(call.path["run_id"])


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
    return await call.parts.runtime.runs.analyser.flaky(
        repository=asked.repository,
        workflow=asked.workflow,
        cursor=asked.cursor,
        limit=max(1, min(asked.limit, 1_000)),
    )


OUTCOME_ROUTES = (
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
