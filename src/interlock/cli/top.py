"""The live screen of `interlock top`: read a snapshot, draw it, and repeat."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from interlock.cli import output
from interlock.cli.connection import run_connected
from interlock.cli.nouns import job_views, queues, worker_views
from interlock.cli.output import Sheet
from interlock.errors import NotAllowed, StoreUnavailable
from interlock.lifecycles import job
from interlock.lifecycles.job import JOB
from interlock.lifecycles.worker import WORKER
from interlock.remote.service_connection import ServiceConnection
from interlock.store.records import Query
from interlock.systems.supervisor.workers import LIVING
from interlock.text import harmless
from interlock.wire.figures import Finding, LiveNumbers
from interlock.wire.jobs import JobView, QueueView
from interlock.wire.workers import WorkerView

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

JOBS = 50
WORKERS = 200
LEAST_ROWS = 3
"""Rows that every table keeps on a low terminal."""
HEAD, AROUND = 2, 3
"""Lines of the head, and lines around the rows of a table: a blank one, its header and a rule."""


class SystemSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a system at one time."""

    at: datetime
    numbers: LiveNumbers
    findings: tuple[Finding, ...]
    queues: tuple[QueueView, ...]
    workers: tuple[WorkerView, ...]
    """Live workers; none for a token that may not see them."""
    jobs: tuple[JobView, ...]
    """Running jobs, the newest first."""


async def look(connection: ServiceConnection) -> SystemSnapshot:
    """Read a snapshot."""
    here = connection.services
    overview = await here.overview.take()
    running, _ = await here.jobs.find(Query(kind=JOB.name, states=(job.RUNNING,), limit=JOBS))
    workers: Sequence[WorkerView] = ()
    with suppress(NotAllowed):
        workers, _ = await here.workers.find(Query(kind=WORKER.name, states=LIVING, limit=WORKERS))
    return SystemSnapshot(
        at=await connection.now(),
        numbers=overview.numbers,
        findings=overview.findings,
        queues=tuple(await here.queues.list()),
        workers=tuple(sorted(workers, key=lambda each: each.name)),
        jobs=tuple(running),
    )


def print_snapshot(store: str | None, *, as_json: bool) -> None:
    """Print one snapshot, for people, pipes or programs."""
    seen = run_connected(store, look)
    if as_json:
        output.print_struct(seen)
    else:
        output.print_sheets([live_sheet(seen), *sheets_of(seen, terminal=output.on_terminal())])


def live_sheet(seen: SystemSnapshot) -> Sheet:
    """Return the numbers as one row."""
    numbers = seen.numbers
    known = {"pending": numbers.pending, "running": numbers.running, "workers": numbers.workers}
    known |= {"slots": numbers.slots, "busy": numbers.busy}
    return Sheet(
        "live", "", tuple(known), [tuple("" if each is None else str(each) for each in known.values())]
    )


def sheets_of(seen: SystemSnapshot, *, terminal: bool) -> list[Sheet]:
    """Return the tables of a snapshot, the most urgent first."""
    findings = [
        (each.level, each.sentence, each.remedy.command if each.remedy else "") for each in seen.findings
    ]
    workers = worker_views.list_sheet(seen.workers, seen.at, terminal=terminal)
    jobs = job_views.list_sheet(seen.jobs, seen.at, terminal=terminal)
    return [
        Sheet("finding", "", ("level", "problem", "to do"), findings),
        queues.list_sheet(seen.queues, seen.at, terminal=terminal),
        workers,
        jobs,
    ]


def follow(store: str | None, every_s: float) -> None:
    """Show the live screen until Ctrl-C."""
    from rich.live import Live

    from interlock.cli.tables import console_here

    console = console_here()

    async def work(connection: ServiceConnection) -> None:
        seen, trouble = await look(connection), ""
        with Live(_screen(seen, trouble, console), console=console, screen=True, auto_refresh=False) as live:
            while True:
                await asyncio.sleep(every_s)
                try:
                    seen, trouble = await look(connection), ""
                except StoreUnavailable as error:  # it may come back
                    trouble = error.sentence
                live.update(_screen(seen, trouble, console), refresh=True)

    with suppress(KeyboardInterrupt):  # the way to leave
        run_connected(store, work)


def _screen(seen: SystemSnapshot, trouble: str, console: Console) -> RenderableType:
    """Draw a snapshot into the terminal, with as many rows as fit."""
    from rich.console import Group
    from rich.text import Text

    from interlock.cli.tables import table_of

    filled = [sheet for sheet in sheets_of(seen, terminal=True) if sheet.rows]
    head = Text(f"{seen.at:%H:%M:%S} UTC   {summary(seen.numbers)}", style="bold")
    note = Text(harmless(trouble), style="red") if trouble else Text("Ctrl-C leaves.", style="dim")
    tables = [table_of(sheet, console.width) for sheet in fit(filled, console.height - HEAD)]
    return Group(head, note, *tables)


def summary(numbers: LiveNumbers) -> str:
    """Return the numbers in one line."""
    least = "+" if numbers.capped else ""
    parts = [f"{numbers.pending:,}{least} pending", f"{numbers.running:,}{least} running"]
    if numbers.workers is not None:
        parts.append(
            f"{numbers.workers:,} workers, {numbers.busy or 0:,} of {numbers.slots or 0:,} slots busy"
        )
    return "   ".join(parts)


def fit(sheets: Sequence[Sheet], height: int) -> list[Sheet]:
    """Return the tables with as many rows as fit.

    The longest table gives up rows first.
    """
    rows = [len(sheet.rows) for sheet in sheets]
    spare = height - AROUND * len(sheets)
    while sum(rows) > spare and rows and max(rows) > LEAST_ROWS:
        rows[rows.index(max(rows))] -= 1
    return list(_cut(sheets, rows))


def _cut(sheets: Sequence[Sheet], rows: Sequence[int]) -> Iterator[Sheet]:
    for sheet, most in zip(sheets, rows, strict=True):
        left = len(sheet.rows) - most
        title = f"… {left} more not shown" if left else ""
        yield Sheet(sheet.noun, title, sheet.columns, sheet.rows[:most], one_line=True, spare=sheet.spare)
