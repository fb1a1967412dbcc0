"""What `interlock run flaky` and `interlock run report` do."""

from __future__ import annotations

import typer

from interlock.cli import printing
from interlock.cli.answers import print_struct
from interlock.cli.connecting import ask
from interlock.cli.run_finding import whole_run_id
from interlock.cli.times import iso
from interlock.remote.offering import Reach
from interlock.systems.runs.analysing.analysing import FlakyJob
from interlock.systems.runs.reporting.reporting import ReportView

PAGE = 1_000
_FLAKY = ("repository", "workflow", "job", "flaky on", "latest", "what happened")
_REPORT = ("reporter", "state", "told", "tries", "next try", "error")


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
