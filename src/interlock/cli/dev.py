"""Command `interlock dev`: a server and a worker on one machine, for development.

The server is this process. The worker is a child process, which is restarted when the code has changed.
What they need is imported where it runs, so that `--help` is quick.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from interlock.cli.options import Kinds, Store, epilog, examples


class Level(StrEnum):
    """The levels of a log, as they are typed."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def register(app: typer.Typer) -> None:
    """Add the command to the program."""
    app.command(
        "dev",
        epilog=epilog(
            "\b\nThe data stays when it ends. When a .py file in the folder of the tasks changes, the\n"
            "worker finishes what it has in hand and is started again.",
            "\b\nSIGTERM or Ctrl-C ends both when what runs is finished or given back; a second one at once.",
            "\b\nExit codes:\n  0  it was asked to end\n"
            "  1  the database was not to be emptied after all\n"
            "  2  it could not begin: an address or the store",
            examples(
                "dev shop.tasks",
                "dev shop/tasks.py --port 9000",
                "dev shop.tasks --open",
                "dev shop.tasks --reset",
            ),
        ),
    )(dev)


def dev(
    module: Annotated[
        str | None,
        typer.Argument(
            metavar="MODULE",
            help="Where the tasks are: package.module, module:registry or file.py; else as the project says.",
        ),
    ] = None,
    port: Annotated[int, typer.Option(help="0 takes a free one.")] = 8088,
    store: Store = None,
    kinds: Kinds = None,
    reset: Annotated[
        bool, typer.Option("--reset", help="Empty the database first (SQLite), after asking.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    open_browser: Annotated[bool, typer.Option("--open", help="Open the dashboard in a browser.")] = False,
    log_level: Annotated[Level, typer.Option(help="How much both say about what they do.")] = Level.WARNING,
) -> None:
    """Serve the API and work on it with one command, on this machine alone."""
    import asyncio

    from interlock.cli import connection, project
    from interlock.cli.db_maintenance import empty_database
    from interlock.cli.dev_processes import Reloading, Source, run_dev, say, worker_command
    from interlock.processes.credentials import hide_password, make_private
    from interlock.server.logs import Log
    from interlock.server.settings import ServerSettings

    here = project.load(store, kinds=kinds)
    url = connection.store_url(here)
    if reset:
        empty_database(url, sure=yes)
    name = module or here.worker.module
    worker = None
    if name is not None:
        deadline_s = here.settings.durations.shutdown_deadline_s
        command = worker_command(name, log_level)
        worker = Reloading(command, url, Source(name), say, deadline_s=deadline_s)
    make_private()
    hide_password(url)
    settings = ServerSettings(port=port)
    asyncio.run(run_dev(here, settings, Log(log_level, "auto"), worker, open_browser=open_browser))
