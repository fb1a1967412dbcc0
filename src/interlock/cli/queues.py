"""`interlock queue …`: what waits, and where."""

from __future__ import annotations

import typer

from interlock.cli.options import Json, Place, examples

app = typer.Typer(help="See what waits, and where.", no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def queue() -> None:
    """See what waits, and where."""


@app.command("list", epilog=examples("queue list", "queue list --json", "queue list | cut -f1,2"))
def list_queues(store: Place = None, as_json: Json = False) -> None:
    """List the queues that have jobs which have not ended."""
    from interlock.cli import looking

    looking.list_queues(store, as_json=as_json)
