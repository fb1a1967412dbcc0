"""The processes of `interlock dev`.

The server here, and a worker that is restarted when its code has changed.

Files are checked twice a second, in a thread, by their names and times. A worker that is replaced shuts
down gracefully: it finishes its jobs or returns them.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
import webbrowser
from asyncio.subprocess import Process
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread

import typer

from interlock.cli.machine_names import load_kinds
from interlock.cli.project import Project
from interlock.cli.task_files import dotted, file_of, tasks_in
from interlock.processes import credentials, early_signals
from interlock.processes.groups import descendants
from interlock.server.logs import ServerLog
from interlock.server.parts import Parts
from interlock.server.settings import ServerSettings
from interlock.server.sockets import Listener, serve
from interlock.systems.kinds import lifecycles_with
from interlock.worker.pool import POOL, URL

LOOK_EVERY_S = 0.5
SOON_S = 5.0
"""A worker that ends within this time is not restarted until a file changes."""
BEGIN_S = 60.0
"""Time for a worker to report that it cannot start: imports are slow on a busy machine."""
CANNOT_START = 2
GRACE_S = 5.0
"""Extra time for a worker to exit before it is killed."""

_ELSEWHERE = frozenset({"__pycache__", "node_modules", "site-packages"})

Times = dict[str, int]


def worker_command(module: str, log_level: str) -> list[str]:
    """Return the command that starts a worker, with this Python."""
    program = [sys.executable, "-m", "interlock", "worker", "start"]
    return [*program, module, "--log-level", log_level]


class TaskSource:
    """The code of a worker, which is read but not imported."""

    def __init__(self, module: str) -> None:
        self.module = module
        self._file = file_of(module.partition(":")[0])
        self.folder: Path = self._folder()

    def times(self) -> Times:
        """Return when each file was changed."""
        return dict(_times(self.folder))

    @property
    def example(self) -> str:
        """A task to submit first, with its required arguments."""
        found = next(tasks_in(self._file), None) if self._file else None
        if found is None:
            return f"{dotted(self.module)}:TASK"
        arguments = [f"{name}=..." for name in found[1]]
        return " ".join([f"{dotted(self.module)}:{found[0]}", *arguments])

    def _folder(self) -> Path:
        """Return the folder of the package, whose modules import each other."""
        if self._file is None:
            return Path.cwd()
        folder = self._file.parent.resolve()
        while (folder / "__init__.py").is_file() and (folder.parent / "__init__.py").is_file():
            folder = folder.parent
        return folder


class WorkerReloader:
    """Keeps one worker running, and restarts it when its code changes."""

    def __init__(
        self,
        command: Sequence[str],
        url: str,
        source: TaskSource,
        show: Callable[[str], None],
        *,
        deadline_s: float,
    ) -> None:
        self.source = source
        self._url = url
        self._command = command
        self._show = show
        self._patience_s = deadline_s + GRACE_S
        self._process: Process | None = None
        self._started_at = 0.0
        self._times: Times = {}

    async def run(self, stop: asyncio.Event) -> None:
        """Run until `stop` is set and the worker has ended."""
        self._times = await asyncio.to_thread(self.source.times)
        await self._start()
        try:
            while not await _is_set(stop, LOOK_EVERY_S):
                await self._look(stop)
        finally:
            await self._end()

    def hurry(self) -> None:
        """Kill the worker: its jobs run again when their leases have expired."""
        self._kill()

    async def _look(self, stop: asyncio.Event) -> None:
        """Restart the worker, if there is a reason to."""
        times = await asyncio.to_thread(self.source.times)
        changed = sorted({name for name, _ in times.items() ^ self._times.items()})
        self._times = times
        if changed:
            self._show(f"{_shown(changed)} changed: restarting the worker.")
            await self._end()
        elif not self._should_restart():
            return
        if not stop.is_set():
            await self._start()

    def _should_restart(self) -> bool:
        """Return whether the worker has exited, but not right after its start."""
        if self._process is None or self._process.returncode is None:
            return False
        code, self._process = self._process.returncode, None
        soon_s = BEGIN_S if code == CANNOT_START else SOON_S
        if time.monotonic() - self._started_at < soon_s:
            self._show(f"The worker {_exit_text(code)}; restarting it when a file changes.")
            return False
        self._show(f"The worker {_exit_text(code)}; restarting it.")
        return True

    async def _start(self) -> None:
        """Start the worker in its own session.

        Ctrl-C reaches only this process. The worker receives the id of its parent process and exits when the
        parent does.
        """
        self._started_at = time.monotonic()
        with credentials.handed_over({URL: self._url}) as (environment, pipe):
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.DEVNULL,
                start_new_session=True,
                env={**environment, POOL: str(os.getpid())},
                pass_fds=(pipe,),
            )

    async def _end(self) -> None:
        if self._process is None:
            return
        self._signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(self._patience_s):
                await self._process.wait()
        except TimeoutError:
            self._show("The worker does not stop; killing it.")
            self._kill()
            await self._process.wait()
        self._process = None

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.send_signal(number)

    def _kill(self) -> None:
        """Kill the worker with its child processes."""
        if self._process is None or self._process.returncode is not None:
            return
        for pid in (*descendants(self._process.pid), self._process.pid):
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)


async def _is_set(event: asyncio.Event, within_s: float) -> bool:
    with suppress(TimeoutError):
        async with asyncio.timeout(within_s):
            await event.wait()
    return event.is_set()


def _times(folder: Path) -> Iterator[tuple[str, int]]:
    for place, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if _is_ours(place, name)]
        for name in files:
            if name.endswith(".py"):
                path = f"{place}/{name}"
                with suppress(OSError):  # it may have been removed since
                    yield path, os.stat(path).st_mtime_ns  # noqa: PTH116 - a Path for each takes longer


def _is_ours(place: str, name: str) -> bool:
    """Return whether a folder is source.

    A folder that was installed, is of a tool, or was made by Python is not.
    """
    hidden = name.startswith(".") or name in _ELSEWHERE
    return not hidden and not Path(place, name, "pyvenv.cfg").exists()


def _shown(changed: list[str]) -> str:
    names = [Path(name).name for name in changed[:3]]
    return ", ".join(names) + (f" and {len(changed) - 3} more" if len(changed) > 3 else "")


def _exit_text(code: int) -> str:
    if code < 0:
        return f"was killed by {signal.Signals(-code).name}"
    return "could not start" if code == CANNOT_START else f"exited with code {code}"


# A terminal that is closed sends SIGHUP.
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def print_line(line: str) -> None:
    """Print a message about the worker to stderr."""
    typer.echo(line, err=True)


def open_dashboard(url: str) -> None:
    """Open the dashboard in a browser without waiting.

    Without a browser, its address is printed.
    """
    Thread(target=_open, args=(f"{url}/",), name="browser", daemon=True).start()


def _open(address: str) -> None:
    try:
        opened = webbrowser.open(address)
    except (webbrowser.Error, OSError):
        opened = False
    if not opened:
        print_line(f"No browser could be opened. The dashboard is at {address}")


async def run_dev(
    here: Project,
    settings: ServerSettings,
    log: ServerLog,
    worker: WorkerReloader | None,
    *,
    open_browser: bool = False,
) -> None:
    """Run server and worker until a signal.

    The worker starts once the server answers.
    """
    lifecycles = lifecycles_with(declared=load_kinds(here.kinds))
    ready = asyncio.get_running_loop().create_future()

    def started(listener: Listener, parts: Parts) -> None:
        typer.echo("\n".join(announcement(listener.url, parts, worker)))
        ready.set_result(None)
        if open_browser:
            open_dashboard(listener.url)

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
    """Wait for both tasks, even if one has failed; then raise its error."""
    tasks = [serving] if working is None else [serving, working]
    await asyncio.wait(tasks)
    for task in tasks:
        if not task.cancelled():
            task.result()


@contextmanager
def _stop(again: Callable[[], None]) -> Iterator[asyncio.Event]:
    """Yield an event that the first signal sets; later signals call `again`."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()

    def on_signal() -> None:
        if stop.is_set():
            again()
        stop.set()

    early_signals.has_begun()
    for number in SIGNALS:
        loop.add_signal_handler(number, on_signal)
    try:
        yield stop
    finally:
        for number in SIGNALS:
            loop.remove_signal_handler(number)
        early_signals.has_stopped()


def announcement(url: str, parts: Parts, worker: WorkerReloader | None) -> Iterator[str]:
    """Yield the addresses, the place of the data, and first commands."""
    from interlock.cli import server

    for line in server.announcement(url, parts):
        yield line
        if line.startswith("  data"):
            yield "          it is kept when this ends; interlock dev --reset empties it"
    if worker is None:
        yield "  worker  none: interlock dev shop.tasks starts one for the tasks in shop/tasks.py"
    else:
        source = worker.source
        yield f"  worker  {source.module}, restarted when a .py file in {source.folder} changes"
        yield f"  first   interlock submit {source.example} --server {url}"
