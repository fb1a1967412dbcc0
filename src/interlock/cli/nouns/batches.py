"""`interlock batch …`: progress of batches of jobs, and cancelling them.

Each command imports its modules when it runs, so that `--help` is quick.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from interlock.cli import completion
from interlock.cli.forms import RecordsCommand
from interlock.cli.options import Cursor, Json, Limit, Place, Reason, examples, parse_seconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from interlock.cli.output import Sheet
    from interlock.remote.service_connection import ServiceConnection
    from interlock.wire.batches import BatchJob, BatchView

Id = Annotated[str, typer.Argument(metavar="ID", help="Batch.", autocompletion=completion.ids)]

app: typer.Typer = typer.Typer(
    help="Show and cancel batches of jobs.", no_args_is_help=True, rich_markup_mode=None
)


@app.callback()
def batch() -> None:
    """Show and cancel batches of jobs."""


@app.command("list", cls=RecordsCommand, epilog=examples("batch list", "batch list --json"))
def list_batches(limit: Limit = 50, cursor: Cursor = "", store: Place = None, as_json: Json = False) -> None:
    """List batches with their progress, newest first."""
    from interlock.cli.verbs import ListPage, Noun, list_records

    async def search(connection: ServiceConnection) -> ListPage[BatchView]:
        page = await connection.services.batches.page(limit=limit, cursor=cursor)
        return ListPage(page.batches, page.cursor)

    noun: Noun[BatchView] = Noun(name="batch", list_sheet=list_sheet)

    def answer(page: ListPage[BatchView]) -> object:
        return {"batches": page.views, "cursor": page.cursor}

    list_records(noun, store, search, answer, as_json=as_json, none="There is no batch.")


@app.command(
    "show",
    cls=RecordsCommand,
    epilog=examples("batch show b_0a4e98fa6cab", "batch show b_0a4e98fa6cab --jobs"),
)
def show(
    batch_id: Id,
    jobs: Annotated[bool, typer.Option("--jobs", help="List its jobs with their outcomes.")] = False,
    store: Place = None,
    as_json: Json = False,
) -> None:
    """Show a batch: its ended jobs by outcome, and its callback."""
    from interlock.cli import output
    from interlock.cli.connection import run_connected

    async def work(connection: ServiceConnection) -> tuple[BatchView, list[BatchJob]]:
        found: list[BatchJob] = []
        cursor = ""
        while jobs:
            page = await connection.services.batches.jobs(batch_id, cursor=cursor)
            found += page.jobs
            if not (cursor := page.cursor):
                break
        return await connection.services.batches.get(batch_id), found

    view, found = run_connected(store, work)
    if as_json:
        output.print_struct([view, *found] if jobs else view)
        return
    output.print_lines(_lines(view))
    if found:
        rows = [(one.id, one.state) for one in found]
        output.print_sheets([output.Sheet("job", "", ("id", "state"), rows)])


@app.command("cancel", epilog=examples("batch cancel b_0a4e98fa6cab --reason 'wrong month'"))
def cancel(batch_id: Id, reason: Reason = "", store: Place = None, as_json: Json = False) -> None:
    """Cancel all jobs of a batch that have not ended.

    Its callback is not submitted.
    """
    from interlock.cli import verbs
    from interlock.cli.connection import actor

    async def work(connection: ServiceConnection) -> BatchView:
        return await connection.services.batches.cancel(batch_id, reason=reason, actor=actor())

    verbs.act(store, work, _lines, as_json=as_json)


@app.command("wait", epilog=examples("batch wait b_0a4e98fa6cab --timeout 1h"))
def wait(
    batch_id: Id,
    timeout: Annotated[str | None, typer.Option(metavar="TIME", help="Stop waiting after 90s, 1h.")] = None,
    store: Place = None,
    as_json: Json = False,
) -> None:
    """Wait until all jobs of a batch have ended.

    The exit code is 1 unless all of them have completed.
    """
    from interlock.cli import verbs
    from interlock.cli.connection import actor
    from interlock.client_batches import BatchesClient
    from interlock.worker.middleware import no_middleware

    timeout_s = parse_seconds(timeout)

    async def work(connection: ServiceConnection) -> BatchView:
        client = BatchesClient(lambda: connection.services, connection.recover, actor(), no_middleware)
        return await client.wait(batch_id, timeout_s=timeout_s)

    view = verbs.act(store, work, _lines, as_json=as_json)
    raise typer.Exit(0 if view.counts.completed == view.counts.total else 1)


def _lines(view: BatchView, *_: object) -> Iterator[str]:
    from interlock.text import counted

    counts = view.counts
    about = f" ({view.description})" if view.description else ""
    yield f"The batch {view.id}{about} is {view.state}."
    yield (
        f"{counts.ended} of {counted(counts.total, 'job')} have ended: {counts.completed} completed, "
        f"{counts.failed} failed, {counts.canceled} canceled"
    )
    if view.callback_job_id is not None:
        yield f"callback: {view.callback_job_id} ({view.callback})"
    elif view.callback:
        yield f"callback: {view.callback}, when all have ended"
    if view.reason:
        yield f"reason: {view.reason}"


def list_sheet(batches: Sequence[BatchView], *_: object, **__: bool) -> Sheet:
    from interlock.cli.output import Sheet

    rows = [
        (
            view.id,
            view.state,
            str(view.counts.total),
            *(str(getattr(view.counts, name)) for name in ("completed", "failed", "canceled")),
            view.description,
        )
        for view in batches
    ]
    columns = ("id", "state", "jobs", "completed", "failed", "canceled", "description")
    return Sheet("batch", "", columns, rows)
