"""Command `interlock dev`: a server and a worker on one machine, for development.

The server is this process. The worker is a child process, which is restarted when the code has changed.
Only the declaration is here: it imports what it needs when it runs, so that `--help` is quick.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from interlock.cli.options import Kinds, Store, TaskModule, Yes, epilog, examples


class Level(StrEnum):
    """The levels of a log."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def register(app: typer.Typer) -> None:
    """Add the command to the program."""
    app.command(
        "dev",
        epilog=epilog(
            "\b\nThe data is kept. When a .py file in the folder of the tasks changes, the worker finishes\n"
            "its jobs and is restarted.",
            "\b\nSIGTERM or Ctrl-C stops both once the jobs have ended or returned to the queue; a second\n"
            "one stops them at once.",
            "\b\nExit codes:\n  0  stopped by a signal\n"
            "  1  emptying the database was not confirmed\n"
            "  2  it could not start: an address or the store",
            examples(
                "dev shop.tasks",
                "dev shop/tasks.py --port 9000",
                "dev shop.tasks --open",
                "dev shop.tasks --reset",
            ),
        ),
    )(dev)


def dev(
    module: TaskModule = None,
    port: Annotated[int, typer.Option(help="Port to listen on; 0 chooses a free one.")] = 8088,
    store: Store = None,
    kinds: Kinds = None,
    reset: Annotated[
        bool, typer.Option("--reset", help="Empty the database first (SQLite only), after confirmation.")
    ] = False,
    yes: Yes = False,
    open_browser: Annotated[bool, typer.Option("--open", help="Open the dashboard in a browser.")] = False,
    log_level: Annotated[Level, typer.Option(help="Log level of server and worker.")] = Level.WARNING,
) -> None:
    """Run a server and a worker on this machine, for development."""
    import asyncio

    from interlock.cli import connection, project
    from interlock.cli.dev_processes import TaskSource, WorkerReloader, print_line, run_dev, worker_command
    from interlock.cli.nouns.db import empty_database
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
        worker = WorkerReloader(command, url, TaskSource(name), print_line, deadline_s=deadline_s)
    make_private()
    hide_password(url)
    settings = ServerSettings(port=port)
    asyncio.run(run_dev(here, settings, Log(log_level, "auto"), worker, open_browser=open_browser))
