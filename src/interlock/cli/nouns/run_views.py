"""Runs on the command line: search, columns and actions.

Also `run compare|flaky|report|graph|approve|decline`, and `run rerun --preview`.
"""

from __future__ import annotations

import shutil
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial

import typer

from interlock.cli import output, verbs
from interlock.cli.connection import actor, run_connected
from interlock.cli.errors import colour_wanted
from interlock.cli.options import GraphFormat
from interlock.cli.output import Sheet, ago, full_time, iso, print_struct, span
from interlock.cli.sheets import COLOURS
from interlock.cli.verbs import (
    Action,
    ListPage,
    Noun,
    filter_among,
    has_filter,
    list_records,
    page_answer,
    part_of,
    too_many,
    whole_id,
)
from interlock.errors import UnknownRun
from interlock.lifecycles import run
from interlock.lifecycles.run import RunState
from interlock.remote.interfaces import Services
from interlock.remote.service_connection import ServiceConnection
from interlock.systems.runs.graph import MARKS, TONES, Node, run_graph
from interlock.systems.runs.graph_text import LineSegment, draw_text
from interlock.systems.runs.search import found_runs
from interlock.text import harmless
from interlock.wire.filters import read_run_filter, run_id_of
from interlock.wire.runs import (
    FlakyJob,
    JobChange,
    Plan,
    ReportView,
    RerunPreview,
    RunComparison,
    RunFilter,
    RunJobView,
    RunView,
    Which,
)

PAGE = 500
MOST = 1_000


async def whole_run_id(connection: ServiceConnection, text: str) -> str:
    """Return the id of a run from the text that was typed."""
    return await whole_id(connection, text, noun="run", prefix="r", error=UnknownRun, ids=_ids)


async def _ids(
    connection: ServiceConnection, since: datetime, until: datetime, cursor: str
) -> tuple[list[str], str]:
    views, following = await connection.services.runs.find(
        RunFilter(since=since, until=until), cursor=cursor, limit=PAGE
    )
    return [view.id for view in views], following


async def chosen_runs(
    connection: ServiceConnection, words: Sequence[str], action: Action[RunView]
) -> list[RunView]:
    """Return the runs that ids name, or a filter in states of the action."""
    runs = connection.services.runs
    wanted = filter_among(words, run_id_of, read_run_filter)
    if wanted is None:
        ids = [await whole_run_id(connection, word) for word in words]
        return [await runs.outline(run_id) for run_id in dict.fromkeys(ids)]
    narrowed = wanted.among(action.states)
    if not narrowed.wanted_states:
        return []
    found = await found_runs(runs, narrowed, await connection.now(), limit=MOST)
    if found.cursor:
        raise too_many("run", wanted, MOST, keys="since:, until:, workflow: or outcome:")
    return found.views


@dataclass(frozen=True, slots=True)
class RunChange:
    """A change of state of the run or of one of its jobs."""

    at: datetime
    what: str
    """The name of a job, or empty for the run itself."""
    before: str
    after: str
    says: str = ""


def list_sheet(views: Iterable[RunView], now: datetime, *, terminal: bool) -> Sheet:
    """Return one row for each run."""
    times = ("asked for", "took") if terminal else ("created", "started", "ended")
    rows = [
        (
            view.id,
            view.state,
            view.outcome or "",
            view.workflow,
            change_of(view),
            *_times(view, now, terminal=terminal),
            run_status(view),
        )
        for view in views
    ]
    columns = ("id", "state", "outcome", "workflow", "change", *times, "message")
    return Sheet("run", "", columns, rows, one_line=True, spare=("workflow", "took", "asked for", "change"))


def run_sheets(view: RunView, now: datetime, *, terminal: bool) -> list[Sheet]:
    """Return all tables about one run."""
    about = [(what, value) for what, value in _facts_of(view, now, terminal=terminal) if value]
    jobs = [_job_row(job, now, terminal=terminal) for job in view.jobs]
    skipped = [(job.name, job.why) for job in view.skipped]
    return [
        Sheet("about", "Run", ("what", "value"), about),
        Sheet("job", "Jobs", ("name", "id", "state", "needs", "took", "message"), jobs),
        Sheet("skipped", "Left out", ("name", "why"), skipped),
    ]


def plan_sheets(plan: Plan) -> list[Sheet]:
    """Return the tables of a plan: its jobs, and those left out."""
    rows = [
        (job.name, ", ".join(job.needs), "" if job.required else "optional", job.why) for job in plan.jobs
    ]
    return [
        Sheet("job", "Jobs", ("name", "needs", "", "why"), rows),
        Sheet("skipped", "Left out", ("name", "why"), [(job.name, job.why) for job in plan.skipped]),
    ]


def change_of(view: RunView) -> str:
    """Return the evaluated change in short: `main 5f1c0d0`."""
    source = view.source
    where = source.ref.removeprefix("refs/heads/").removeprefix("refs/tags/")
    if source.pull_request is not None:
        where = f"#{source.pull_request}"
    return " ".join(filter(None, (source.repository, where, source.sha[:7])))


def run_status(view: RunView) -> str:
    """Return the progress of a run, or why it ended."""
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
    """Return the subject of an approval, as `a change from a fork (mallory)`."""
    if view.awaiting is None:
        return ""
    named = ", ".join(view.awaiting.environments)
    what = f"environment {named}" if named else "a change from a fork"
    return f"{what} ({view.source.actor})" if view.source.actor else what


def tally_text(view: RunView) -> str:
    """Return the number of jobs in each state."""
    return " ".join(f"{MARKS.get(state, state)}{number}" for state, number in view.tally.items() if number)


def span_of(node: Node, now: datetime) -> str:
    """Return why a job waits, or how long it has taken so far."""
    if node.awaits:
        return f"waits for {'a person' if node.awaits == 'approval' else 'a signal'}"
    return span(node.started_at, node.completed_at, now)


def _facts_of(view: RunView, now: datetime, *, terminal: bool) -> Iterator[tuple[str, str]]:
    when = partial(full_time, now=now, terminal=terminal)
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
        yield "approved", f"{what} by {made.by or 'an operator'} for {made.sha[:12] or 'this run'}{comment}"
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
        yield "all gone", "yes" if view.confirmed_dead else "NOT CONFIRMED: a process of it may still run"


def _job_row(job: RunJobView, now: datetime, *, terminal: bool) -> tuple[str, ...]:
    took = span(job.started_at, job.completed_at, now) if terminal else iso(job.completed_at)
    failure = f"{job.failure.failure_class}: {job.failure.error}" if job.failure else ""
    optional = "" if job.required else "optional; "
    reason = failure or job.reason or job.why
    return job.name, job.job_id, job.state, ", ".join(job.needs), took, f"{optional}{reason}"


def _times(view: RunView, now: datetime, *, terminal: bool) -> tuple[str, ...]:
    if not terminal:
        return iso(view.created_at), iso(view.started_at), iso(view.completed_at)
    return ago(view.created_at, now), span(view.started_at, view.completed_at, now)


def list_runs(store: str | None, words: Sequence[str], *, limit: int, cursor: str, as_json: bool) -> None:
    """Print the runs that match."""
    wanted = read_run_filter(" ".join(words))

    async def search(connection: ServiceConnection) -> ListPage[RunView]:
        found = await found_runs(
            connection.services.runs, wanted, await connection.now(), limit=limit, cursor=cursor
        )
        return ListPage(found.views, found.cursor, found.stopped_early)

    list_records(NOUN, store, search, partial(page_answer, "run"), as_json=as_json)


def outcome_line(view: RunView) -> str:
    """Return a run with its state, for a pipe."""
    return "\t".join((view.id, view.state, run_status(view)))


def cancel(*, reason: str = "", request_id: str | None = None) -> Action[RunView]:
    """Return the action that requests the cancellation of runs."""

    async def act(place: Services, run_id: str) -> RunView:
        key = part_of(request_id, run_id)
        return await place.runs.cancel(run_id, reason=reason, request_id=key, actor=actor())

    states = tuple(str(state) for state in run.RunState if state not in run.SETTLED)
    return Action(verb="cancel", act=act, line=outcome_line, states=states, concurrent=1)


def rerun(*, which: Which = "all", job: str = "", request_id: str | None = None) -> Action[RunView]:
    """Return the action that submits finished runs again.

    It prints only the new id, so that it can be used.
    """

    async def act(place: Services, run_id: str) -> RunView:
        key = part_of(request_id, run_id)
        return await place.runs.rerun(run_id, which, job=job, request_id=key, actor=actor())

    states = tuple(map(str, run.SETTLED))
    return Action(verb="rerun", act=act, line=lambda view: view.id, states=states, concurrent=1)


NOUN: Noun[RunView] = Noun(
    name="run",
    find=whole_run_id,
    get=lambda connection, run_id: connection.services.runs.view(run_id),
    chosen=chosen_runs,
    list_sheet=list_sheet,
    sheets=run_sheets,
    history=lambda connection, run_id: connection.services.runs.history(run_id),
    explain=lambda connection, run_id: connection.services.runs.explain(run_id),
    actions={"cancel": cancel, "rerun": rerun},
)


FLAKY_PAGE = 1_000
_FLAKY = ("repository", "workflow", "job", "flaky on", "latest", "what happened")
_CHANGE = ("job", "change", "took", "before", "job id", "job id before")
_REPORT = ("reporter", "state", "told", "tries", "next try", "error")


def compare(store: str | None, text: str, other: str, *, as_json: bool) -> None:
    """Print how the jobs of a run differ from another or the last green one."""

    async def work(connection: ServiceConnection) -> RunComparison:
        run_id = await whole_run_id(connection, text)
        beside = await whole_run_id(connection, other) if other else ""
        return await connection.services.runs.compare(run_id, other=beside)

    found = run_connected(store, work)
    if as_json:
        print_struct(found)
        return
    output.print_sheets([output.Sheet("job", "", _CHANGE, [_change_row(each) for each in found.changes])])
    typer.echo(_compared_with(found), err=True)
    if found.more:
        typer.echo(f"… and {found.more} more jobs that differ", err=True)


def _compared_with(found: RunComparison) -> str:
    beside = found.other or found.green
    if beside is None:
        return f"None of the {found.looked_at} earlier runs that were searched is green."
    which = ", the last green run" if found.other is None else ""
    note = "" if found.changes else ": no job has failed, become slower, been added or removed"
    return f"Compared with {beside.id}{which}{note}."


def _change_row(each: JobChange) -> tuple[str, ...]:
    took, before = (
        f"{seconds:.1f} s" if seconds is not None else "" for seconds in (each.took_s, each.before_s)
    )
    return each.name, each.change, took, before, each.job_id, each.before_job_id


def flaky(store: str | None, repository: str, workflow: str, *, as_json: bool) -> None:
    """Print every job that has passed and failed on one commit."""

    async def work(connection: ServiceConnection) -> list[FlakyJob]:
        found: list[FlakyJob] = []
        cursor = ""
        while True:
            page = await connection.services.runs.flaky(
                repository=repository, workflow=workflow, cursor=cursor, limit=FLAKY_PAGE
            )
            found += page.jobs
            if not (cursor := page.cursor):
                return found

    jobs = run_connected(store, work)
    if as_json:
        print_struct(jobs)
        return
    output.print_sheets([output.Sheet("job", "", _FLAKY, [_flaky_row(job) for job in jobs])])
    if not jobs:
        typer.echo("No job has passed and failed on one commit lately.", err=True)


def report(store: str | None, text: str, *, again: bool, as_json: bool) -> None:
    """Print the notifications about a run."""

    async def work(connection: ServiceConnection) -> list[ReportView]:
        runs = connection.services.runs
        run_id = await whole_run_id(connection, text)
        return await runs.report_again(run_id) if again else await runs.reports(run_id)

    found = run_connected(store, work)
    if as_json:
        print_struct(found)
        return
    output.print_sheets([output.Sheet("report", "", _REPORT, [_report_row(view) for view in found])])
    if not found:
        typer.echo("No reporter is notified about it, except for the log.", err=True)


def _flaky_row(job: FlakyJob) -> tuple[str, ...]:
    of = f"{job.contradicted} of {job.commits} commits"
    return job.repository, job.workflow, job.job, of, job.latest_sha[:12], job.latest


def _report_row(view: ReportView) -> tuple[str, ...]:
    at = iso(view.next_try_at) if view.next_try_at is not None else ""
    return view.reporter, view.state, view.told or "nothing", str(view.tries), at, view.last_error


WIDE = 10_000
"""Width of a graph in a pipe, which has no edge."""


def show_graph(store: str | None, text: str, form: GraphFormat) -> None:
    """Print the graph of a run."""

    async def work(port: ServiceConnection) -> tuple[RunView, datetime]:
        return await port.services.runs.view(await whole_run_id(port, text)), await port.now()

    view, now = run_connected(store, work)
    match str(form):
        case "json":
            print_struct(run_graph(view, most=WIDE))
        case "text":
            width = shutil.get_terminal_size().columns if output.on_terminal() else WIDE
            for line in drawn(view, now, width):
                typer.echo(coloured(line), color=colour_wanted())
        case other:
            print(_written(other, view, now), end="")


def _written(form: str, view: RunView, now: datetime) -> str:
    from interlock.systems.runs import graph_export

    graph, note = run_graph(view), partial(span_of, now=now)
    title = heading(view)
    match form:
        case "svg":
            return graph_export.draw_svg(graph, title, note)
        case "dot":
            return graph_export.draw_dot(graph, title, note)
        case _:
            return graph_export.draw_mermaid(graph, note)


def drawn(view: RunView, now: datetime, width: int) -> Iterator[Sequence[LineSegment]]:
    """Yield a heading, the graph, and the jobs that were left out."""
    graph = run_graph(view)
    yield [LineSegment(heading(view))]
    yield from draw_text(graph, width, partial(span_of, now=now))
    if graph.left_out:
        yield [LineSegment(f"… and {graph.left_out:,} more jobs")]
    yield from ([LineSegment(f"↷ {job.name}: {job.why}"[:width])] for job in view.skipped)


def heading(view: RunView) -> str:
    """Return the run in one line."""
    state = f"{view.state} ({view.outcome})" if view.outcome and view.state != view.outcome else view.state
    return "  ".join(filter(None, (view.workflow, view.id, state, change_of(view), run_status(view))))


def coloured(line: Sequence[LineSegment]) -> str:
    """Return a line with the colours of the states."""
    shown = [(piece.node, harmless(piece.text)) for piece in line]
    return "".join(
        text if node is None else typer.style(text, fg=COLOURS.get(TONES.get(node.state, "")))
        for node, text in shown
    )


def preview(store: str | None, which: Which, job: str, words: Sequence[str], *, as_json: bool) -> None:
    """Print which jobs of one run a rerun would execute or keep."""
    if has_filter(words) or len(words) != 1:
        raise typer.BadParameter("lists the jobs of one run: give its id", param_hint="--preview")

    async def work(port: ServiceConnection) -> RerunPreview:
        return await port.services.runs.preview(await whole_run_id(port, words[0]), which, job=job)

    found = run_connected(store, work)
    if as_json:
        print_struct(found)
        return
    rows = [(name, "again") for name in found.again] + [(name, "kept") for name in found.kept]
    output.print_sheets([output.Sheet("job", "", ("job", "would be"), rows)])
    if found.planned_anew:
        typer.echo("The run has no plan: its jobs are known once the planner has made one.", err=True)


def decide(
    store: str | None, verb: str, text: str, request_id: str | None, *, as_json: bool, **details: str
) -> None:
    """Approve or decline a run, and print its state."""

    async def work(port: ServiceConnection) -> RunView:
        change: Callable[..., Awaitable[RunView]] = getattr(port.services.runs, verb)
        return await change(await whole_run_id(port, text), request_id=request_id, actor=actor(), **details)

    verbs.act(store, work, lambda view, _: [outcome_line(view)], as_json=as_json)
