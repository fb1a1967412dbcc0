"""Command `interlock demo`.

Only the declaration is here: what it needs is imported when it runs, so that `--help` is quick.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the command to the program."""
    app.command(
        "demo",
        epilog="\b\nExamples:\n  interlock demo\n  NO_COLOR=1 interlock demo\n  interlock demo > demo.txt\n"
        "  interlock demo --repository .",
    )(demo)


def demo(
    repository: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Run the workflow of this repository on two runners instead."),
    ] = None,
) -> None:
    """Watch 28 jobs on two workers, one of which is killed.

    Shows the jobs live, then the history of the killed worker's job from the journal. Takes half a minute.
    """
    if repository is not None:
        from interlock.cli.demo_screen import run_ci

        raise typer.Exit(run_ci(repository))
    from interlock.cli.demo_screen import run_demo

    raise typer.Exit(run_demo())
