"""Command `interlock doctor`: check the installation and say what to do.

Only the declaration is here: it imports what it needs when it runs, so that `--help` is quick.
"""

from __future__ import annotations

import typer

from interlock.cli.options import FOUND_SOMETHING, Json, Place, epilog, examples


def register(app: typer.Typer) -> None:
    """Add the command to the program."""
    app.command(
        "doctor",
        epilog=epilog(
            "\b\nChecks the project file, the database or server, the clock of this machine, the disk,\n"
            "permissions, versions, workers and queues. Nothing is changed, except that opening a database\n"
            "migrates its schema, as with every command.",
            "\b\nExit codes:\n"
            "  0  no errors; there may be warnings\n"
            "  1  at least one error\n"
            "  2  invalid usage",
            examples("doctor", "doctor --server https://jobs.example.org:8088", "doctor --json"),
        ),
    )(doctor)


def doctor(store: Place = None, as_json: Json = False) -> None:
    """Check the installation and suggest remedies."""
    from interlock.cli import diagnosis

    found = diagnosis.diagnose(store)
    diagnosis.report(found, as_json=as_json)
    if any(each.status == diagnosis.ERROR for each in found):
        raise typer.Exit(FOUND_SOMETHING)
