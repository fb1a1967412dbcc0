"""What `interlock job list|show|history|explain` and `interlock queue …` do."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec
import typer

from interlock.cli import job_sheets, printing
from interlock.cli.answers import print_struct
from interlock.cli.connecting import actor, ask
from interlock.cli.finding import Found, blocked, find, whole_id
from interlock.cli.steps import StepShown, steps_in
from interlock.remote.interfaces import Reach
from interlock.systems.orchestrator.explanation import Explanation
from interlock.systems.orchestrator.queues import QueueState
from interlock.wire.filters import read_filter
from interlock.wire.harmless import harmless, harmless_lines
from interlock.wire.jobs import JobView, QueueHold, QueueView

PAGE = 1_000


class JobList(msgspec.Struct, frozen=True, kw_only=True):
    """A list of jobs for a program."""

    jobs: list[JobView]
    cursor: str
    """Where it goes on; empty at the end."""
    stopped_early: bool
    """There was too much to look through; go on at the cursor."""


def list_jobs(
    store: str | None, words: Sequence[str], *, limit: int | None, cursor: str, as_json: bool
) -> None:
    """Print the jobs that match; without a limit all of them."""
    wanted = read_filter(" ".join(words))

    async def work(port: Reach) -> tuple[Found, list[Explanation], datetime]:
        found = await find(port.here.jobs, wanted, limit=limit or PAGE, cursor=cursor)
        while limit is None and found.cursor:
            more = await find(port.here.jobs, wanted, limit=PAGE, cursor=found.cursor)
            found = Found([*found.views, *more.views], more.cursor)
        return found, [] if as_json else await blocked(port.here.jobs, found.views), await port.now()

    found, stuck, now = ask(store, work)
    if as_json:
        print_struct(JobList(jobs=found.views, cursor=found.cursor, stopped_early=found.stopped_early))
        return
    terminal = printing.on_terminal()
    printing.print_sheets([job_sheets.list_sheet(found.views, now, terminal=terminal)])
    _tell_the_rest(found)
    for told in stuck:
        typer.echo(harmless(f"Waiting ({told.job_id}): {told.blocked}"), err=True)


def _tell_the_rest(found: Found) -> None:
    """What is not in the list is said beside it: whoever reads the list must not take it for all."""
    if found.stopped_early:
        typer.echo(
            "Stopped before all jobs were looked at. Narrow the filter with since: or state:, or go on with "
            f"--cursor {found.cursor}",
            err=True,
        )
    elif found.cursor:
        typer.echo(f"There are more: --cursor {found.cursor}, or --all.", err=True)
    elif not found.views:
        typer.echo("No job matches.", err=True)


def show(store: str | None, text: str, *, as_json: bool) -> None:
    """Print one job."""

    async def work(port: Reach) -> tuple[JobView, datetime]:
        return await port.here.jobs.get(await whole_id(port.here.jobs, text)), await port.now()

    view, now = ask(store, work)
    if as_json:
        print_struct(view)
    else:
        printing.print_sheets(job_sheets.job_sheets(view, now, terminal=printing.on_terminal()))
        if view.failure is not None and view.failure.details and printing.on_terminal():
            typer.echo(harmless_lines(view.failure.details))


def history(store: str | None, text: str, *, as_json: bool) -> None:
    """Print every step of a job."""

    async def work(port: Reach) -> list[StepShown]:
        job_id = await whole_id(port.here.jobs, text)
        return list(steps_in(await port.here.jobs.history(job_id)))

    steps = ask(store, work)
    if as_json:
        print_struct(steps)
    else:
        printing.print_sheets([job_sheets.history_sheet(steps, terminal=printing.on_terminal())])


def explain(store: str | None, text: str, *, as_json: bool) -> None:
    """Print what a job waits for."""

    async def work(port: Reach) -> tuple[Explanation, datetime]:
        job_id = await whole_id(port.here.jobs, text)
        return await port.here.jobs.explain(job_id), await port.now()

    told, now = ask(store, work)
    if as_json:
        print_struct(told)
        return
    terminal = printing.on_terminal()
    typer.echo(harmless(f"{told.job_id} is {told.state}. {told.sentence}"))
    printing.print_sheets([job_sheets.explanation_sheet(told, now, terminal=terminal)])
    if told.todo:
        typer.echo(f"→ {told.todo}")


def list_queues(store: str | None, *, as_json: bool) -> None:
    """Print the queues that have jobs which have not ended."""

    async def work(port: Reach) -> tuple[list[QueueView], datetime]:
        return await port.here.queues.list(), await port.now()

    queues, now = ask(store, work)
    if as_json:
        print_struct(queues)
        return
    printing.print_sheets([job_sheets.queues_sheet(queues, now, terminal=printing.on_terminal())])
    if not queues:
        typer.echo("No queue has a job that has not ended, and none is paused.", err=True)


def hold_queue(store: str | None, verb: str, name: str, reason: str, *, as_json: bool) -> None:
    """Pause or resume a queue."""

    async def work(port: Reach) -> QueueHold:
        held: QueueHold = await getattr(port.here.queues, verb)(name, reason=reason, actor=actor())
        return held

    held = ask(store, work)
    if as_json:
        print_struct(held)
    elif held.state == QueueState.PAUSED:
        typer.echo(f"The queue {harmless(name)} is paused: its jobs wait, and those that run go on.")
    else:
        typer.echo(f"The jobs of the queue {harmless(name)} are given out.")
