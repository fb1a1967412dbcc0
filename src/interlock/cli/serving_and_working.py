"""What `interlock dev` does: serve in this process and work in a child of it, until somebody says stop."""

from __future__ import annotations

import asyncio
import signal
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Thread

import typer

from interlock.cli.loading import load_kinds
from interlock.cli.project import Project
from interlock.cli.reloading import Reloading
from interlock.processes import early_signals
from interlock.server.logs import Log
from interlock.server.parts import Parts
from interlock.server.settings import ServerSettings
from interlock.server.sockets import Listener, serve
from interlock.systems.catalogue import lifecycles_with

# A terminal that is closed says SIGHUP.
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def say(line: str) -> None:
    """Something about the worker, beside what it says itself."""
    typer.echo(line, err=True)


def show(url: str) -> None:
    """Open the dashboard in a browser, without waiting for it; print its address where there is none."""
    Thread(target=_show, args=(f"{url}/",), name="browser", daemon=True).start()


def _show(address: str) -> None:
    try:
        opened = webbrowser.open(address)
    except (webbrowser.Error, OSError):
        opened = False
    if not opened:
        say(f"No browser could be opened. The dashboard is at {address}")


async def run(
    here: Project, settings: ServerSettings, log: Log, worker: Reloading | None, *, open_browser: bool = False
) -> None:
    """Serve and work until a signal; the worker begins once the server answers."""
    lifecycles = lifecycles_with(declared=load_kinds(here.kinds))
    ready = asyncio.get_running_loop().create_future()

    def started(listener: Listener, parts: Parts) -> None:
        typer.echo("\n".join(announcement(listener.url, parts, worker)))
        ready.set_result(None)
        if open_browser:
            show(listener.url)

    with _stop(worker.hurry if worker else lambda: None) as stop:
        stopped = asyncio.create_task(stop.wait())
        serving = asyncio.create_task(
            serve(
                here.url,
                settings,
                orchestration=here.settings,
                log=log,
                lifecycles=lifecycles,
                started=started,
                signals=False,
            )
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

    early_signals.has_begun()
    for number in SIGNALS:
        loop.add_signal_handler(number, told)
    try:
        yield stop
    finally:
        for number in SIGNALS:
            loop.remove_signal_handler(number)
        early_signals.has_stopped()


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
