"""Command `interlock top`: queues, workers, running jobs and problems on one live screen.

Only the declaration is here: it imports what it needs when it runs, so that `--help` is quick.
"""

from __future__ import annotations

from typing import Annotated

import typer

from interlock.cli.options import Json, Place, epilog, examples


def register(app: typer.Typer) -> None:
    """Add the command to the program."""
    app.command(
        "top",
        epilog=epilog(
            "\b\nA terminal gets a live screen; Ctrl-C leaves it. A pipe gets one snapshot, and each line\n"
            "begins with its subject: live, finding, queue, worker or job.",
            "\b\nExit codes:\n  0  left with Ctrl-C, or the snapshot was printed\n"
            "  2  invalid usage, or the store is unavailable",
            examples("top", "top --every 10", "top --once", "top --json | jq .numbers"),
        ),
    )(top)


def top(
    every_s: Annotated[
        float, typer.Option("--every", metavar="SECONDS", min=0.5, max=3_600.0, help="Refresh interval.")
    ] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Print one snapshot and exit.")] = False,
    store: Place = None,
    as_json: Json = False,
) -> None:
    """Show queues, workers, running jobs and problems, live."""
    from interlock.cli import output, top_screen

    if as_json or once or not output.on_terminal():
        top_screen.print_snapshot(store, as_json=as_json)
    else:
        top_screen.follow(store, every_s)
