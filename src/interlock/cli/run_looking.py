"""What `interlock run list|show|history|explain` do."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec
import typer

from interlock.cli import job_sheets, printing, run_sheets
from interlock.cli.answers import print_struct
from interlock.cli.connecting import ask
from interlock.cli.run_finding import whole_run_id
from interlock.cli.steps import StepShown, steps_in
from interlock.remote.interfaces import Reach
from interlock.systems.runs.search import FoundRuns, found_runs
from interlock.wire.harmless import harmless
from interlock.wire.run_filters import read_run_filter
from interlock.wire.runs import RunExplanation, RunView


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
    printing.print_sheets([run_sheets.list_sheet(found.views, now, terminal=printing.on_terminal())])
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
        printing.print_sheets(run_sheets.run_sheets(view, now, terminal=printing.on_terminal()))


def history(store: str | None, text: str, *, as_json: bool) -> None:
    """Print every step of a run."""

    async def work(port: Reach) -> list[StepShown]:
        run_id = await whole_run_id(port.here.runs, text)
        return list(steps_in(await port.here.runs.history(run_id)))

    steps = ask(store, work)
    if as_json:
        print_struct(steps)
    else:
        printing.print_sheets([job_sheets.history_sheet(steps, terminal=printing.on_terminal())])


def explain(store: str | None, text: str, *, as_json: bool) -> None:
    """Print what a run waits for."""

    async def work(port: Reach) -> tuple[RunExplanation, datetime]:
        run_id = await whole_run_id(port.here.runs, text)
        return await port.here.runs.explain(run_id), await port.now()

    told, now = ask(store, work)
    if as_json:
        print_struct(told)
        return
    terminal = printing.on_terminal()
    typer.echo(harmless(f"{told.run_id} is {told.state}. {told.sentence}"))
    printing.print_sheets([run_sheets.explanation_sheet(told, now, terminal=terminal)])
    if told.more:
        typer.echo(f"… and {told.more} more jobs that have not ended", err=True)
    if told.todo:
        typer.echo(f"→ {told.todo}")
