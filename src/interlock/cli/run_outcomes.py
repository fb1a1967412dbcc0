"""What `interlock run compare`, `run flaky` and `run report` do."""

from __future__ import annotations

import typer

from interlock.cli import printing
from interlock.cli.answers import print_struct
from interlock.cli.connecting import ask
from interlock.cli.run_finding import whole_run_id
from interlock.cli.times import iso
from interlock.remote.interfaces import Reach
from interlock.systems.runs.analysis.analyser import FlakyJob
from interlock.systems.runs.reporting.reporter import ReportView
from interlock.wire.runs import JobChange, RunComparison

PAGE = 1_000
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
    printing.print_sheets([printing.Sheet("job", "", _CHANGE, [_change_row(each) for each in found.changes])])
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
                repository=repository, workflow=workflow, cursor=cursor, limit=PAGE
            )
            found += page.jobs
            if not (cursor := page.cursor):
                return found

    jobs = ask(store, work)
    if as_json:
        print_struct(jobs)
        return
    printing.print_sheets([printing.Sheet("job", "", _FLAKY, [_flaky_row(job) for job in jobs])])
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
    printing.print_sheets([printing.Sheet("report", "", _REPORT, [_report_row(view) for view in found])])
    if not found:
        typer.echo("Nobody but the log is told about it.", err=True)


def _flaky_row(job: FlakyJob) -> tuple[str, ...]:
    of = f"{job.contradicted} of {job.commits} commits"
    return job.repository, job.workflow, job.job, of, job.latest_sha[:12], job.latest


def _report_row(view: ReportView) -> tuple[str, ...]:
    at = iso(view.next_try_at) if view.next_try_at is not None else ""
    return view.reporter, view.state, view.told or "nothing", str(view.tries), at, view.last_error
