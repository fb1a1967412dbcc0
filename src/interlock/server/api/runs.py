"""Routes of runs: submit, list, show, approve, cancel and rerun them; reports, analysis, webhooks.

Runs are about all queues, so a token that is confined to some queues sees none of them.

Webhooks carry no token: each is signed, and refused unless the signature is valid. Anyone can send one, so
requests with invalid headers are refused before the body is read. If webhooks are configured, an unknown name
is answered like a bad signature.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial

from interlock.api import runs as api
from interlock.api.messages import ActionAnswer, Done, HistoryPage
from interlock.errors import UnknownRun
from interlock.lifecycles import run
from interlock.lifecycles.run import RUN
from interlock.server.api.visibility import is_shaped
from interlock.server.bulk import act_once, answer_of, part_of, with_each
from interlock.server.history import history_of
from interlock.server.parts import Parts
from interlock.server.requests import check_announced
from interlock.server.routes import Call, handles
from interlock.store.records import Key
from interlock.systems.runs.search import found_runs
from interlock.systems.runs.trigger_events import TriggerSettings
from interlock.systems.runs.triggers import webhook_disabled
from interlock.systems.runs.webhook_security import check_github, check_standard
from interlock.wire.access import Role
from interlock.wire.filters import WantedRuns, read_run_filter
from interlock.wire.runs import (
    FlakyJobs,
    Receipt,
    RerunPreview,
    RunAnalysis,
    RunComparison,
    RunExplanation,
    RunView,
)


def run_id_in(call: Call) -> str:
    """Return the id in the path.

    Raise without asking the store if it cannot be an id.
    """
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
    """Return a page of runs and the cursor of the next page."""
    now = await call.parts.runtime.engine.clock.now()
    found = await found_runs(call.parts.runtime.runs, wanted, now, limit=limit, cursor=cursor, looks=1)
    return found.views, found.cursor


@handles(api.SUBMIT_RUN)
async def submit_run(call: Call) -> RunView:
    """Submit a run; it is planned asynchronously."""
    body: api.OneRun = call.body
    # Repository and ref of a submitter give no access to secrets; those of an operator are trusted.
    claimed = not call.principal.may(Role.OPERATOR)
    return await call.parts.runtime.runs.submit(
        body.spec(), actor=call.actor, request_id=call.request_id, claimed=claimed
    )


@handles(api.LIST_RUNS)
async def list_runs(call: Call) -> api.RunPage:
    """Return a page of runs that match a filter."""
    query: api.RunsQuery = call.query
    views, cursor = await page_of_runs(call, read_run_filter(query.q), limit=query.limit, cursor=query.cursor)
    return api.RunPage(runs=tuple(views), cursor=cursor)


@handles(api.GET_RUN)
async def get_run(call: Call) -> RunView:
    """Return a run."""
    query: api.RunQuery = call.query
    runs, run_id = call.parts.runtime.runs, run_id_in(call)
    return await (runs.view(run_id) if query.jobs else runs.outline(run_id))


@handles(api.GET_RUN_JOBS)
async def get_jobs(call: Call) -> api.RunJobs:
    """Return a page of the jobs of a run."""
    query: api.RunJobsQuery = call.query
    run_id = run_id_in(call)
    jobs = await call.parts.runtime.runs.jobs(run_id, first=query.first, limit=query.limit + 1)
    more = len(jobs) > query.limit
    return api.RunJobs(
        run_id=run_id, jobs=tuple(jobs[: query.limit]), next=query.first + query.limit if more else None
    )


@handles(api.GET_RUN_HISTORY)
async def get_history(call: Call) -> HistoryPage:
    """Return the journal of a run, oldest first."""
    run_id = run_id_in(call)
    await call.parts.runtime.runs.outline(run_id)  # raises if there is no such run
    return await history_of(call.parts.store, call.query, Key(RUN.name, run_id))


@handles(api.EXPLAIN_RUN)
async def explain_run(call: Call) -> RunExplanation:
    """Explain why a run waits, or how it ended."""
    return await call.parts.runtime.runs.explain(run_id_in(call))


@handles(api.CANCEL_RUN)
async def cancel_run(call: Call) -> RunView:
    """Request the cancellation of a run; the view shows its progress."""
    body: api.CancelRun = call.body
    return await call.parts.runtime.runs.cancel(
        run_id_in(call), reason=body.reason, actor=call.actor, request_id=call.request_id
    )


@handles(api.APPROVE_RUN)
async def approve_run(call: Call) -> RunView:
    """Approve a waiting run."""
    body: api.ApproveRun = call.body
    return await call.parts.runtime.runs.approve(
        run_id_in(call), comment=body.comment, actor=call.actor, request_id=call.request_id
    )


@handles(api.DECLINE_RUN)
async def decline_run(call: Call) -> RunView:
    """Decline a waiting run, which cancels it."""
    body: api.DeclineRun = call.body
    return await call.parts.runtime.runs.decline(
        run_id_in(call), reason=body.reason, actor=call.actor, request_id=call.request_id
    )


@handles(api.RERUN)
async def rerun(call: Call) -> RunView:
    """Rerun a finished run as a new run."""
    body: api.RerunRequest = call.body
    return await call.parts.runtime.runs.rerun(
        run_id_in(call), body.which, job=body.job, actor=call.actor, request_id=call.request_id
    )


@handles(api.PREVIEW_RERUN)
async def preview_rerun(call: Call) -> RerunPreview:
    """Return the jobs that a rerun would execute."""
    query: api.RerunQuery = call.query
    return await call.parts.runtime.runs.preview(run_id_in(call), query.which, job=query.job)


ENDPOINT = "run actions"


@handles(api.ACT_ON_RUNS)
async def act(call: Call) -> ActionAnswer:
    """Apply an action to all runs that match a filter, and return the results."""
    return await act_once(call, ENDPOINT, call.body, partial(_act, call))


async def _act(call: Call) -> ActionAnswer:
    body: api.RunActionRequest = call.body
    states, more = await _matching(call, body)
    if body.dry_run:
        done = tuple(Done(id=run_id, state=state) for run_id, state in states.items())
        return ActionAnswer(action=body.action, dry_run=True, done=done, more=more)

    async def one(run_id: str) -> Done:
        runs, request_id = call.parts.runtime.runs, part_of(call.request_id, run_id)
        if body.action == "rerun":
            new = await runs.rerun(run_id, body.which, actor=call.actor, request_id=request_id)
            return Done(id=run_id, state=states[run_id], new_id=new.id)
        after = await runs.cancel(run_id, reason=body.reason, actor=call.actor, request_id=request_id)
        return Done(id=run_id, state=after.state)

    return answer_of(body.action, await with_each(states, one), more=more)


async def _matching(call: Call, request: api.RunActionRequest) -> tuple[dict[str, str], bool]:
    """Return the runs in states that the action applies to.

    Unsettled runs are canceled, and settled runs are rerun.
    """
    ended = request.action == "rerun"
    states = [str(state) for state in run.RUN.states if (state in run.SETTLED) is ended]
    wanted = read_run_filter(request.filter).among(states)
    if not wanted.wanted_states:
        return {}, False
    views, cursor = await page_of_runs(call, wanted, limit=request.limit)
    return {view.id: view.state for view in views}, bool(cursor)


@handles(api.LIST_REPORTS)
async def reports(call: Call) -> api.Reports:
    """Return the notification status of each reporter."""
    return api.Reports(tuple(await call.parts.runtime.runs.reports(call.path["run_id"])))


@handles(api.REPORT_AGAIN)
async def report_again(call: Call) -> api.Reports:
    """Retry failed notifications."""
    return api.Reports(tuple(await call.parts.runtime.runs.report_again(call.path["run_id"])))


@handles(api.ANALYSE_RUN)
async def analysis(call: Call) -> RunAnalysis:
    """Return the class of each failure, with confidence and evidence."""
    return await call.parts.runtime.runs.analyser.of(call.path["run_id"])


@handles(api.COMPARE_RUN)
async def compare(call: Call) -> RunComparison:
    """Compare a run with the last green run, or with another one."""
    query: api.ComparisonQuery = call.query
    return await call.parts.runtime.runs.compare(run_id_in(call), other=query.other)


@handles(api.LIST_RUN_ARTIFACTS)
async def list_artifacts(call: Call) -> api.RunArtifacts:
    """Return the artifacts of a page of jobs of a run."""
    query: api.RunArtifactsQuery = call.query
    runtime, run_id = call.parts.runtime, run_id_in(call)
    jobs = await runtime.runs.jobs(run_id, first=query.first, limit=query.limit + 1)
    shown = [job for job in jobs[: query.limit] if job.started_at is not None]
    found = [
        api.RunArtifact(job=job.name, artifact=view)
        for job in shown
        for view in await runtime.artifacts.list(job.job_id)
    ]
    return api.RunArtifacts(
        run_id=run_id,
        artifacts=tuple(found),
        next=query.first + query.limit if len(jobs) > query.limit else None,
    )


@handles(api.LIST_FLAKY_JOBS)
async def flaky(call: Call) -> FlakyJobs:
    """Return jobs that have passed and failed on one commit."""
    query: api.FlakyQuery = call.query
    return await call.parts.runtime.runs.analyser.flaky(
        repository=query.repository,
        workflow=query.workflow,
        cursor=query.cursor,
        limit=max(1, min(query.limit, 1_000)),
    )


# Webhooks that start runs

_GITHUB = re.compile(r"sha256=[0-9a-fA-F]{64}")
_STANDARD = ("webhook-id", "webhook-timestamp", "webhook-signature")
_ANY_TIME = datetime.fromtimestamp(0, UTC)


def _triggers(parts: Parts) -> TriggerSettings:
    return parts.runtime.settings.runs.triggers


def _most(parts: Parts) -> int:
    return _triggers(parts).max_body_bytes


def _before_github(parts: Parts, _: Mapping[str, str], headers: Mapping[str, str]) -> None:
    if not _triggers(parts).github_secrets:
        raise webhook_disabled("GitHub")
    if not _GITHUB.fullmatch(headers.get("x-hub-signature-256", "")):
        check_github((), headers, b"")  # raises the specific error
    check_announced(headers, _most(parts))


def _before_generic(parts: Parts, path: Mapping[str, str], headers: Mapping[str, str]) -> None:
    hooks = {hook.name for hook in _triggers(parts).hooks if hook.keys}
    if not hooks:
        raise webhook_disabled(f"the name {path['name'][:100]}")
    if path["name"] not in hooks or not all(headers.get(name) for name in _STANDARD):
        check_standard((), headers, b"", _ANY_TIME)  # raises the specific error
    check_announced(headers, _most(parts))


@handles(api.RECEIVE_GITHUB_WEBHOOK, before=_before_github, read=bytes, most=_most)
async def github(call: Call) -> Receipt:
    """Process a delivery of GitHub."""
    return await call.parts.triggers.github(call.headers, call.body)


@handles(api.RECEIVE_WEBHOOK, before=_before_generic, read=bytes, most=_most)
async def generic(call: Call) -> Receipt:
    """Process a delivery that is signed according to Standard Webhooks."""
    return await call.parts.triggers.generic(call.path["name"], call.headers, call.body)
