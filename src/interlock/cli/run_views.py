"""Find the runs that the user names, and show them.

`run list|show|history|explain|compare|flaky|report|graph`.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

import msgspec
import typer

from interlock.cli import job_views, output
from interlock.cli.bulk_actions import filter_among, too_many
from interlock.cli.connection import ask
from interlock.cli.errors import colour_wanted
from interlock.cli.journal import StepShown, steps_in
from interlock.cli.output import Sheet, ago, iso, lasting, print_struct, shown
from interlock.errors import UnknownRun
from interlock.lifecycles.run import RunState
from interlock.remote.interfaces import Reach, RunsApi
from interlock.systems.orchestrator.ids import drawn_at
from interlock.systems.runs.failure_analysis import FlakyJob
from interlock.systems.runs.graph import MARKS, Node, run_graph
from interlock.systems.runs.graph_text import LineSegment, draw_text
from interlock.systems.runs.reporting.reporter import ReportView
from interlock.systems.runs.search import FoundRuns, found_runs
from interlock.text import harmless
from interlock.wire.filter_language import ID_DIGITS
from interlock.wire.filters import WantedRuns, read_run_filter, run_id_of
from interlock.wire.runs import (
    JobChange,
    Plan,
    RunComparison,
    RunExplanation,
    RunFilter,
    RunJobView,
    RunView,
)

if TYPE_CHECKING:
    from interlock.cli.runs import Format


PAGE = 500
MOST = 1_000
MAX_CANDIDATES = 10
_PREFIX = "r_"
# An id names the time at which it was drawn; so far around it the run may have been stored.
_AROUND = timedelta(minutes=5)


async def whole_run_id(runs: RunsApi, text: str) -> str:
    """The id of a run from what somebody typed: the beginning is enough where it is the only one."""
    run_id = run_id_of(text)
    if run_id is None:
        raise UnknownRun(
            f"{text!r} is not the id of a run, which is {_PREFIX} and {ID_DIGITS} hex digits.",
            todo="Take ids from `interlock run list`; the beginning is enough.",
            facts={"run_id": text},
        )
    if len(run_id) == len(_PREFIX) + ID_DIGITS:
        return run_id
    return await _completed(runs, run_id)


async def chosen_runs(port: Reach, words: Sequence[str], *, among: Sequence[str] = ()) -> list[RunView]:
    """The runs that ids or a filter name; of a filter only those in one of the states `among`."""
    runs = port.here.runs
    wanted = filter_in(words)
    if wanted is None:
        ids = [await whole_run_id(runs, word) for word in words]
        return [await runs.outline(run_id) for run_id in dict.fromkeys(ids)]
    narrowed = wanted.among(among) if among else wanted
    if not narrowed.wanted_states:
        return []
    found = await found_runs(runs, narrowed, await port.now(), limit=MOST)
    if found.cursor:
        raise too_many("run", wanted, MOST, keys="since:, until:, workflow: or outcome:")
    return found.views


def filter_in(words: Sequence[str]) -> WantedRuns | None:
    """The filter that words make together; None when they are ids."""
    return filter_among(words, run_id_of, read_run_filter)


async def _completed(runs: RunsApi, beginning: str) -> str:
    """The only run whose id begins like this."""
    digits = beginning.removeprefix(_PREFIX)
    first, last = (drawn_at(int(digits.ljust(ID_DIGITS, fill), 16)) for fill in "0f")
    asked = RunFilter(since=first - _AROUND, until=last + _AROUND)
    candidates: list[str] = []
    cursor = ""
    while True:
        views, cursor = await runs.find(asked, cursor=cursor, limit=PAGE)
        candidates += [view.id for view in views if view.id.startswith(beginning)]
        if not cursor or len(candidates) > MAX_CANDIDATES:
            break
    if len(candidates) == 1:
        return candidates[0]
    facts: dict[str, object] = {"run_id": beginning, "candidates": candidates[:MAX_CANDIDATES]}
    if not candidates:
        raise UnknownRun(
            f"There is no run whose id begins with {beginning}.",
            todo="Look for it with `interlock run list`; runs are pruned after a while.",
            facts=facts,
        )
    raise UnknownRun(
        f"Several runs begin with {beginning}.",
        allowed=candidates[:MAX_CANDIDATES],
        todo="Type some more of it.",
        facts=facts,
    )


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


class RunList(msgspec.Struct, frozen=True, kw_only=True):
    """A list of runs for a program."""

    runs: list[RunView]
    cursor: str
    """Where it goes on; empty at the end."""
    stopped_early: bool
    """There was too much to look through; go on at the cursor."""


def list_runs(store: str | None, words: Sequence[str], *, limit: int, cursor: str, as_json: bool) -> None:
    """Print the runs that match."""
    wanted = read_run_filter(" ".join(words))

    async def work(port: Reach) -> tuple[FoundRuns, datetime]:
        now = await port.now()
        return await found_runs(port.here.runs, wanted, now, limit=limit, cursor=cursor), now

    found, now = ask(store, work)
    if as_json:
        print_struct(RunList(runs=found.views, cursor=found.cursor, stopped_early=found.stopped_early))
        return
    output.print_sheets([list_sheet(found.views, now, terminal=output.on_terminal())])
    if found.stopped_early:
        typer.echo(f"Stopped before all runs were looked at: --cursor {found.cursor}", err=True)
    elif found.cursor:
        typer.echo(f"There are more: --cursor {found.cursor}", err=True)
    elif not found.views:
        typer.echo("No run matches.", err=True)


def show(store: str | None, text: str, *, as_json: bool) -> None:
    """Print one run."""

    async def work(port: Reach) -> tuple[RunView, datetime]:
        return await port.here.runs.view(await whole_run_id(port.here.runs, text)), await port.now()

    view, now = ask(store, work)
    if as_json:
        print_struct(view)
    else:
        output.print_sheets(run_sheets(view, now, terminal=output.on_terminal()))


def history(store: str | None, text: str, *, as_json: bool) -> None:
    """Print every step of a run."""

    async def work(port: Reach) -> list[StepShown]:
        run_id = await whole_run_id(port.here.runs, text)
        return list(steps_in(await port.here.runs.history(run_id)))

    steps = ask(store, work)
    if as_json:
        print_struct(steps)
    else:
        output.print_sheets([job_views.history_sheet(steps, terminal=output.on_terminal())])


def explain(store: str | None, text: str, *, as_json: bool) -> None:
    """Print what a run waits for."""

    async def work(port: Reach) -> tuple[RunExplanation, datetime]:
        run_id = await whole_run_id(port.here.runs, text)
        return await port.here.runs.explain(run_id), await port.now()

    told, now = ask(store, work)
    if as_json:
        print_struct(told)
        return
    terminal = output.on_terminal()
    typer.echo(harmless(f"{told.run_id} is {told.state}. {told.sentence}"))
    output.print_sheets([explanation_sheet(told, now, terminal=terminal)])
    if told.more:
        typer.echo(f"… and {told.more} more jobs that have not ended", err=True)
    if told.todo:
        typer.echo(f"→ {told.todo}")


FLAKY_PAGE = 1_000
_FLAKY = ("repository", "workflow", "job", "flaky on", "latest", "what happened")
_CHANGE = ("job", "change", "took", "before", "job id", "job id before")
_REPORT = ("reporter", "state", "told", "tries", "next try", "error")


def compare(store: str | None, text: str, other: str, *, as_json: bool) -> None:
    """Print how the jobs of a run differ from those of the last green run, or of another one."""

    async def work(reach: Reach) -> RunComparison:
        runs = reach.here.runs
        run_id = await whole_run_id(runs, text)
        return await runs.compare(run_id, other=await whole_run_id(runs, other) if other else "")

    found = ask(store, work)
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
        return f"None of the {found.looked_at} earlier runs that were looked at is green."
    which = ", the last green run" if found.other is None else ""
    told = "" if found.changes else ": no job has failed, become slower, been added or removed"
    return f"Compared with {beside.id}{which}{told}."


def _change_row(each: JobChange) -> tuple[str, ...]:
    took, before = (
        f"{seconds:.1f} s" if seconds is not None else "" for seconds in (each.took_s, each.before_s)
    )
    return each.name, each.change, took, before, each.job_id, each.before_job_id


def flaky(store: str | None, repository: str, workflow: str, *, as_json: bool) -> None:
    """Print every job that has passed and failed on one commit."""

    async def work(reach: Reach) -> list[FlakyJob]:
        found: list[FlakyJob] = []
        cursor = ""
        while True:
            page = await reach.here.runs.flaky(
                repository=repository, workflow=workflow, cursor=cursor, limit=FLAKY_PAGE
            )
            found += page.jobs
            if not (cursor := page.cursor):
                return found

    jobs = ask(store, work)
    if as_json:
        print_struct(jobs)
        return
    output.print_sheets([output.Sheet("job", "", _FLAKY, [_flaky_row(job) for job in jobs])])
    if not jobs:
        typer.echo("No job has passed and failed on one commit lately.", err=True)


def report(store: str | None, text: str, *, again: bool, as_json: bool) -> None:
    """Print who is told about a run."""

    async def work(reach: Reach) -> list[ReportView]:
        runs = reach.here.runs
        run_id = await whole_run_id(runs, text)
        return await runs.report_again(run_id) if again else await runs.reports(run_id)

    found = ask(store, work)
    if as_json:
        print_struct(found)
        return
    output.print_sheets([output.Sheet("report", "", _REPORT, [_report_row(view) for view in found])])
    if not found:
        typer.echo("Nobody but the log is told about it.", err=True)


def _flaky_row(job: FlakyJob) -> tuple[str, ...]:
    of = f"{job.contradicted} of {job.commits} commits"
    return job.repository, job.workflow, job.job, of, job.latest_sha[:12], job.latest


def _report_row(view: ReportView) -> tuple[str, ...]:
    at = iso(view.next_try_at) if view.next_try_at is not None else ""
    return view.reporter, view.state, view.told or "nothing", str(view.tries), at, view.last_error


WIDE = 10_000
"""A pipe has no edge."""


def show_graph(store: str | None, text: str, form: Format) -> None:
    """Print the graph of a run."""

    async def work(port: Reach) -> tuple[RunView, datetime]:
        return await port.here.runs.view(await whole_run_id(port.here.runs, text)), await port.now()

    view, now = ask(store, work)
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
    """A heading, the graph, and what was left out."""
    graph = run_graph(view)
    yield [LineSegment(heading(view))]
    yield from draw_text(graph, width, partial(span_of, now=now))
    if graph.left_out:
        yield [LineSegment(f"… and {graph.left_out:,} more jobs")]
    yield from ([LineSegment(f"↷ {job.name}: {job.why}"[:width])] for job in view.skipped)


def heading(view: RunView) -> str:
    """The run in one line."""
    state = f"{view.state} ({view.outcome})" if view.outcome and view.state != view.outcome else view.state
    return "  ".join(filter(None, (view.workflow, view.id, state, change_of(view), said(view))))


def coloured(line: Sequence[LineSegment]) -> str:
    """A line with the colours of the states."""
    shown = [(piece.node, harmless(piece.text)) for piece in line]
    return "".join(
        text if node is None else typer.style(text, fg=_COLOURS.get(node.state)) for node, text in shown
    )


_COLOURS = {
    "COMPLETED": "green",
    "FAILED": "red",
    "CANCELED": "yellow",
    "STOPPING": "yellow",
    "RUNNING": "cyan",
}
