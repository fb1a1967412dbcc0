"""`interlock dev`: a server and a worker on one machine, for whoever is writing tasks.

The server is this process and the worker a child of it, which is started again when the code has
changed. What they need is imported where it runs, so that `--help` answers at once.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from interlock.cli.options import Store, epilog, examples

if TYPE_CHECKING:
    from interlock.cli.project import Project
    from interlock.cli.reloading import Reloading
    from interlock.server.listening import Listener
    from interlock.server.logs import Log
    from interlock.server.parts import Parts
    from interlock.server.settings import ServerSettings

# A terminal that is closed says SIGHUP.
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


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
            examples("dev shop.tasks", "dev shop/tasks.py --port 9000", "dev shop.tasks --reset"),
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
    reset: Annotated[
        bool, typer.Option("--reset", help="Empty the database first (SQLite), after asking.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    log_level: Annotated[Level, typer.Option(help="How much both say about what they do.")] = Level.WARNING,
) -> None:
    """Serve the API and work on it with one command, on this machine alone."""
    from interlock.cli import connecting, project
    from interlock.cli.emptying import empty
    from interlock.cli.reloading import Reloading, Source, worker_command
    from interlock.server.logs import Log
    from interlock.server.settings import ServerSettings

    here = project.load(store)
    url = connecting.store_url(here)
    if reset:
        empty(url, sure=yes)
    name = module or here.worker.module
    worker = None
    if name is not None:
        deadline_s = here.settings.durations.shutdown_deadline_s
        worker = Reloading(worker_command(name, url, log_level), Source(name), say, deadline_s=deadline_s)
    settings = ServerSettings(port=port)
    asyncio.run(run(here, settings, Log(log_level, "auto"), worker))


def say(line: str) -> None:
    """Something about the worker, beside what it says itself."""
    typer.echo(line, err=True)


async def run(here: Project, settings: ServerSettings, log: Log, worker: Reloading | None) -> None:
    """Serve and work until a signal; the worker begins once the server answers."""
    from interlock.server.listening import serve

    ready = asyncio.get_running_loop().create_future()

    def started(listener: Listener, parts: Parts) -> None:
        typer.echo("\n".join(announcement(listener.url, parts, worker)))
        ready.set_result(None)

    with _stop(worker.hurry if worker else lambda: None) as stop:
        stopped = asyncio.create_task(stop.wait())
        serving = asyncio.create_task(
            serve(here.url, settings, orchestration=here.settings, log=log, started=started, signals=False)
        )
        working: asyncio.Task[None] | None = None
        try:
            await asyncio.wait((serving, ready, stopped), return_when=asyncio.FIRST_COMPLETED)
            if worker is not None and ready.done():
                working = asyncio.create_task(worker.run(stop))
            running = (serving, stopped) if working is None else (serving, stopped, working)
            await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stop.set()
            if not serving.done():
                serving.cancel()
            await _ends(serving, working)


async def _ends(serving: asyncio.Task[None], working: asyncio.Task[None] | None) -> None:
    """Wait for both, also when one of them has failed; then say so."""
    tasks = [serving] if working is None else [serving, working]
    await asyncio.wait(tasks)
    for task in tasks:
        if not task.cancelled():
            task.result()


@contextmanager
def _stop(again: Callable[[], None]) -> Iterator[asyncio.Event]:
    """What the first signal sets; every other one calls `again`."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()

    def told() -> None:
        if stop.is_set():
            again()
        stop.set()

    for number in SIGNALS:
        loop.add_signal_handler(number, told)
    try:
        yield stop
    finally:
        for number in SIGNALS:
            loop.remove_signal_handler(number)


def announcement(url: str, parts: Parts, worker: Reloading | None) -> Iterator[str]:
    """Where it is, where the data is and that it stays, and what to type first."""
    from interlock.cli import serving

    for line in serving.announcement(url, parts):
        yield line
        if line.startswith("  data"):
            yield "          it stays there when this ends; interlock dev --reset empties it"
    if worker is None:
        yield "  worker  none: interlock dev shop.tasks would start one for the tasks in shop/tasks.py"
    else:
        source = worker.source
        yield f"  worker  {source.module}, started again when a .py file in {source.folder} changes"
        yield f"  first   interlock submit {source.example} --server {url}"
