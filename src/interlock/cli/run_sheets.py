"""What is shown of runs, as rows; how they are shown is not decided here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime

from interlock.cli.printing import Sheet
from interlock.cli.times import ago, iso, lasting, shown
from interlock.lifecycles.run import RunState
from interlock.systems.runs.drawing.graph import MARKS, Node
from interlock.wire.runs import Plan, RunExplanation, RunJobView, RunView


def list_sheet(views: Iterable[RunView], now: datetime, *, terminal: bool) -> Sheet:
    """One line for each run."""
    times = ("asked for", "took") if terminal else ("created", "started", "ended")
    rows = [
        (
            view.id,
            view.state,
            view.outcome or "",
            view.workflow,
            change_of(view),
            *_times(view, now, terminal=terminal),
            said(view),
        )
        for view in views
    ]
    columns = ("id", "state", "outcome", "workflow", "change", *times, "says")
    return Sheet("run", "", columns, rows, one_line=True, spare=("workflow", "took", "asked for", "change"))


def run_sheets(view: RunView, now: datetime, *, terminal: bool) -> list[Sheet]:
    """Everything about one run."""
    about = [(what, value) for what, value in _about(view, now, terminal=terminal) if value]
    jobs = [_job_row(job, now, terminal=terminal) for job in view.jobs]
    skipped = [(job.name, job.why) for job in view.skipped]
    return [
        Sheet("about", "Run", ("what", "value"), about),
        Sheet("job", "Jobs", ("name", "id", "state", "needs", "took", "says"), jobs),
        Sheet("skipped", "Left out", ("name", "why"), skipped),
    ]


def plan_sheets(plan: Plan) -> list[Sheet]:
    """What a run would do."""
    rows = [
        (job.name, ", ".join(job.needs), "" if job.required else "optional", job.why) for job in plan.jobs
    ]
    return [
        Sheet("job", "Jobs", ("name", "needs", "", "why"), rows),
        Sheet("skipped", "Left out", ("name", "why"), [(job.name, job.why) for job in plan.skipped]),
    ]


def explanation_sheet(told: RunExplanation, now: datetime, *, terminal: bool) -> Sheet:
    """What it waits for, one line for each thing that has not ended."""
    rows = [
        (line.entity, line.state, line.sentence, line.turn, shown(line.deadline_at, now, terminal=terminal))
        for line in told.lines
    ]
    rows += [("finding", "", finding, "", "") for finding in told.findings]
    return Sheet("waiting", "", ("what", "state", "why", "turn", "deadline"), rows)


def change_of(view: RunView) -> str:
    """What it evaluates, in short: `main 5f1c0d0`."""
    source = view.source
    where = source.ref.removeprefix("refs/heads/").removeprefix("refs/tags/")
    if source.pull_request is not None:
        where = f"#{source.pull_request}"
    return " ".join(filter(None, (source.repository, where, source.sha[:7])))


def said(view: RunView) -> str:
    """What a run says about itself: how far it is, or why it ended so."""
    if view.error:
        return view.error.splitlines()[0]
    culprit = f" {view.culprit}" if view.culprit else ""
    if view.outcome not in (None, "SUCCESS"):
        return f"{view.reason.replace('_', ' ')}{culprit}".strip()
    if view.cancel_requested and view.outcome is None:
        return "stopping"
    if view.awaiting is not None and view.outcome is None:
        return f"waits for approval: {awaited(view)}"
    return tally_text(view)


def awaited(view: RunView) -> str:
    """What an operator has to approve, and of whom: `a fork (mallory)`."""
    if view.awaiting is None:
        return ""
    named = ", ".join(view.awaiting.environments)
    what = f"environment {named}" if named else "a change from a fork"
    return f"{what} ({view.source.actor})" if view.source.actor else what


def tally_text(view: RunView) -> str:
    """How many jobs stand how."""
    return " ".join(f"{MARKS.get(state, state)}{number}" for state, number in view.tally.items() if number)


def span_of(node: Node, now: datetime) -> str:
    """How long a job has taken so far."""
    if node.started_at is None:
        return ""
    return lasting(max(0.0, ((node.completed_at or now) - node.started_at).total_seconds()))


def _about(view: RunView, now: datetime, *, terminal: bool) -> Iterator[tuple[str, str]]:
    def when(at: datetime | None) -> str:
        return f"{ago(at, now)} ({iso(at)})" if terminal and at else iso(at)

    source = view.source
    yield "id", view.id
    yield "state", view.state
    yield "outcome", view.outcome or ""
    yield "reason", f"{view.reason} {view.culprit}".strip()
    yield "error", view.error
    yield "workflow", view.workflow
    yield "repository", source.repository
    yield "ref", source.ref
    yield "commit", source.sha
    yield "event", source.event if source != type(source)() else ""
    yield "change by", f"{source.actor} (from a fork)".strip() if source.from_fork else source.actor
    if view.state == RunState.AWAITING_APPROVAL:
        yield "waits for", f"approval of {awaited(view)}: interlock run approve {view.id}"
    for made in view.approvals:
        what = ", ".join(made.environments) or made.reason
        comment = f": {made.comment}" if made.comment else ""
        yield "approved", f"{what} by {made.by or 'somebody'} for {made.sha[:12] or 'this run'}{comment}"
    yield "title", source.title
    yield "group", view.concurrency_group
    yield "labels", ", ".join(view.labels)
    yield "again after", view.origin_run_id or ""
    yield "superseded by", view.superseded_by or ""
    yield "jobs", tally_text(view)
    yield "asked for", when(view.created_at)
    yield "planned", when(view.planned_at)
    yield "started", when(view.started_at)
    yield "ended", when(view.completed_at)
    yield "reported", when(view.reported_at)
    yield "next deadline", when(view.deadline_at)
    if view.confirmed_dead is not None:
        yield "all gone", "yes" if view.confirmed_dead else "NOT CONFIRMED: something of it may still run"


def _job_row(job: RunJobView, now: datetime, *, terminal: bool) -> tuple[str, ...]:
    took = iso(job.completed_at)
    if terminal:
        took = (
            lasting(max(0.0, ((job.completed_at or now) - job.started_at).total_seconds()))
            if job.started_at
            else ""
        )
    failure = f"{job.failure.failure_class}: {job.failure.error}" if job.failure else ""
    optional = "" if job.required else "optional; "
    told = failure or job.reason or job.why
    return job.name, job.job_id, job.state, ", ".join(job.needs), took, f"{optional}{told}"


def _times(view: RunView, now: datetime, *, terminal: bool) -> tuple[str, ...]:
    if not terminal:
        return iso(view.created_at), iso(view.started_at), iso(view.completed_at)
    began = view.started_at
    took = "" if began is None else lasting(max(0.0, ((view.completed_at or now) - began).total_seconds()))
    return ago(view.created_at, now), took
