"""The processes of `interlock dev`.

The server here, and a worker that is restarted when its code has changed.

Files are checked twice a second, in a thread, by their names and times. A worker that is replaced shuts
down gracefully: it finishes its jobs or returns them.
"""

from __future__ import annotations

import ast
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

from interlock.cli.loading import load_kinds
from interlock.cli.project import Project
from interlock.processes import credentials, early_signals
from interlock.processes.groups import descendants
from interlock.server.logs import Log
from interlock.server.parts import Parts
from interlock.server.settings import ServerSettings
from interlock.server.sockets import Listener, serve
from interlock.systems.kinds import lifecycles_with
from interlock.worker.pool import POOL, URL

LOOK_EVERY_S = 0.5
SOON_S = 5.0
"""A worker that has ended within this time would do so again."""
BEGIN_S = 60.0
"""So long a worker may take to say that it cannot begin: a busy machine imports slowly."""
CANNOT_BEGIN = 2
GRACE_S = 5.0
"""How much longer than it should a worker may take to end before it is killed."""

_ELSEWHERE = frozenset({"__pycache__", "node_modules", "site-packages"})

Times = dict[str, int]


def worker_command(module: str, log_level: str) -> list[str]:
    """How a worker is started by hand, with this Python."""
    program = [sys.executable, "-m", "interlock", "worker", "start"]
    return [*program, module, "--log-level", log_level]


class Source:
    """The code of a worker: where it is, and when it was changed. Nothing of it is imported."""

    def __init__(self, module: str) -> None:
        self.module = module
        self._file = _file_of(module.partition(":")[0])
        self.folder = self._folder()

    def times(self) -> Times:
        """When each file was changed."""
        return dict(_times(self.folder))

    @property
    def example(self) -> str:
        """What to submit first: a task that there is, with the arguments that it must have."""
        found = next(_tasks_in(self._file), None) if self._file else None
        if found is None:
            return f"{_dotted(self.module)}:TASK"
        arguments = [f"{name}=..." for name in found[1]]
        return " ".join([f"{_dotted(self.module)}:{found[0]}", *arguments])

    def _folder(self) -> Path:
        """The whole package when it is in one: its parts are likely to import one another."""
        if self._file is None:
            return Path.cwd()
        folder = self._file.parent.resolve()
        while (folder / "__init__.py").is_file() and (folder.parent / "__init__.py").is_file():
            folder = folder.parent
        return folder


class Reloading:
    """Keeps one worker at work."""

    def __init__(
        self,
        command: Sequence[str],
        url: str,
        source: Source,
        say: Callable[[str], None],
        *,
        deadline_s: float,
    ) -> None:
        self.source = source
        self._url = url
        self._command = command
        self._say = say
        self._patience_s = deadline_s + GRACE_S
        self._process: Process | None = None
        self._started_at = 0.0
        self._times: Times = {}

    async def run(self, stop: asyncio.Event) -> None:
        """Until it is told to stop, and the worker has ended."""
        self._times = await asyncio.to_thread(self.source.times)
        await self._start()
        try:
            while not await _is_set(stop, LOOK_EVERY_S):
                await self._look(stop)
        finally:
            await self._end()

    def hurry(self) -> None:
        """Do not wait for what the worker has in hand: it is done again when its lease has ended."""
        self._kill()

    async def _look(self, stop: asyncio.Event) -> None:
        """Start the worker again, if there is a reason to."""
        times = await asyncio.to_thread(self.source.times)
        changed = sorted({name for name, _ in times.items() ^ self._times.items()})
        self._times = times
        if changed:
            self._say(f"{_shown(changed)} changed: the worker is started again.")
            await self._end()
        elif not self._has_ended_but_may_do_better():
            return
        if not stop.is_set():
            await self._start()

    def _has_ended_but_may_do_better(self) -> bool:
        """Whether the worker has ended by itself, and not right after its start."""
        if self._process is None or self._process.returncode is None:
            return False
        code, self._process = self._process.returncode, None
        soon_s = BEGIN_S if code == CANNOT_BEGIN else SOON_S
        if time.monotonic() - self._started_at < soon_s:
            self._say(f"The worker {_told(code)}; it is tried again when a file changes.")
            return False
        self._say(f"The worker {_told(code)}; it is started again.")
        return True

    async def _start(self) -> None:
        """In a session of its own: a Ctrl-C is for us, and we say once that it should go.

        It knows whose it is, so that it does not outlive us when we are killed.
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
            self._say("The worker does not end and is killed.")
            self._kill()
            await self._process.wait()
        self._process = None

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.send_signal(number)

    def _kill(self) -> None:
        """With the processes that it has started, which would not notice."""
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


def _file_of(name: str) -> Path | None:
    """Where a module would be imported from; None when that cannot be told without doing it."""
    if name.endswith(".py") or "/" in name:
        return Path(name)
    relative = Path(*name.split("."))
    for folder in (Path.cwd(), *map(Path, sys.path)):
        for file in (folder / relative.with_suffix(".py"), folder / relative / "__init__.py"):
            if file.is_file():
                return file
    return None


def _times(folder: Path) -> Iterator[tuple[str, int]]:
    for place, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if _is_ours(place, name)]
        for name in files:
            if name.endswith(".py"):
                path = f"{place}/{name}"
                with suppress(OSError):  # it may have gone since
                    yield path, os.stat(path).st_mtime_ns  # noqa: PTH116 - a Path for each takes longer


def _is_ours(place: str, name: str) -> bool:
    """Not what is installed, kept by tools or made by Python."""
    hidden = name.startswith(".") or name in _ELSEWHERE
    return not hidden and not Path(place, name, "pyvenv.cfg").exists()


def _tasks_in(file: Path) -> Iterator[tuple[str, list[str]]]:
    """Functions that are decorated with `task`, and what they cannot be called without."""
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return  # the worker says it better
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and any(
            map(_is_task, node.decorator_list)
        ):
            wanted = node.args.args[: len(node.args.args) - len(node.args.defaults)]
            alone = zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
            wanted += [argument for argument, default in alone if default is None]
            yield node.name, [argument.arg for argument in wanted if argument.arg not in ("context", "ctx")]


def _is_task(decorator: ast.expr) -> bool:
    named = decorator.func if isinstance(decorator, ast.Call) else decorator
    return getattr(named, "id", getattr(named, "attr", "")) == "task"


def _dotted(module: str) -> str:
    name = module.partition(":")[0]
    return name.removesuffix(".py").strip("./").replace("/", ".")


def _shown(changed: list[str]) -> str:
    names = [Path(name).name for name in changed[:3]]
    return ", ".join(names) + (f" and {len(changed) - 3} more" if len(changed) > 3 else "")


def _told(code: int) -> str:
    if code < 0:
        return f"was ended by {signal.Signals(-code).name}"
    return "could not begin" if code == CANNOT_BEGIN else f"has ended with code {code}"


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


async def run_dev(
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
