"""Asking for runs, looking at them, stopping them, and doing them again."""

from __future__ import annotations

from interlock.errors import (
    InvalidRun,
    PlanRefused,
    RequestIdReused,
    TooLarge,
    TransitionNotAllowed,
    UnknownRun,
)
from interlock.lifecycles.run import RUN
from interlock.server.api.run_queries import page_of_runs, run_id_in
from interlock.server.messages import HistoryPage, HistoryQuery, entry_view
from interlock.server.routes import Call, Link, Route
from interlock.server.run_messages import (
    ApproveRun,
    CancelRun,
    DeclineRun,
    OneRun,
    RerunQuery,
    RerunRequest,
    RunJobs,
    RunJobsQuery,
    RunPage,
    RunQuery,
    RunsQuery,
)
from interlock.store.records import Key
from interlock.systems.access.principals import Role
from interlock.wire.filter_words import BadFilter
from interlock.wire.run_filters import read_run_filter
from interlock.wire.runs import RerunPreview, RunExplanation, RunView


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
