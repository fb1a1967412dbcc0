"""`interlock queue …`: see what waits, and pause a queue."""

from __future__ import annotations

from typing import Annotated

import typer

from interlock.cli.options import Json, Place, examples

Name = Annotated[str, typer.Argument(metavar="QUEUE", help="Name of the queue.")]
Reason = Annotated[str, typer.Option(help="Why, for the journal and for those who look.")]

app = typer.Typer(
    help="See what waits, and pause or resume a queue.", no_args_is_help=True, rich_markup_mode=None
)


@app.callback()
def queue() -> None:
    """See what waits, and pause or resume a queue."""


@app.command("list", epilog=examples("queue list", "queue list --json", "queue list | cut -f1,2"))
def list_queues(store: Place = None, as_json: Json = False) -> None:
    """List the queues that have jobs which have not ended, or are paused."""
    from interlock.cli import job_views

    job_views.list_queues(store, as_json=as_json)


@app.command("pause", epilog=examples("queue pause mail --reason 'the mail server is away'"))
def pause(name: Name, reason: Reason = "", store: Place = None, as_json: Json = False) -> None:
    """Give out no job of a queue until it is resumed; jobs that run go on."""
    from interlock.cli import job_views

    job_views.hold_queue(store, "pause", name, reason, as_json=as_json)


@app.command("resume", epilog=examples("queue resume mail"))
def resume(name: Name, reason: Reason = "", store: Place = None, as_json: Json = False) -> None:
    """Give out the jobs of a queue again."""
    from interlock.cli import job_views

    job_views.hold_queue(store, "resume", name, reason, as_json=as_json)
