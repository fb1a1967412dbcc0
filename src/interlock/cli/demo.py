"""Command `interlock demo`.

A photo studio on SQLite with two workers, of which one is killed; or the workflow of a repository.

The workers are processes of their own, the kill is a SIGKILL, and the history at the end is read from the
journal. The exit code is 0 if every outcome is as expected.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import chdir, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec
import typer
from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from interlock.cli import project
from interlock.cli.connection import actor, connected
from interlock.cli.journal import steps_in
from interlock.cli.nouns import run_submit, run_watch
from interlock.cli.nouns.run_views import drawn
from interlock.cli.tables import style_of
from interlock.client import Interlock
from interlock.demo import tasks
from interlock.engine.audit import audit
from interlock.errors import CannotLoad
from interlock.lifecycles import job
from interlock.remote.interfaces import JobsApi
from interlock.systems.catalogue import JOURNALLED
from interlock.wire.jobs import AttemptView, JobSpec, JobView
from interlock.wire.runs import RunSpec

MANY = "studio.develop"
_BAR = 30


class DemoScreen:
    """Displays the jobs: live on a terminal, as lines of changes in a pipe."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, auto_refresh=False) if console.is_terminal else None
        self._states: dict[str, str] = {}

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, views: Sequence[JobView]) -> None:
        """Display the current jobs."""
        if self._live is not None:
            self._live.update(_picture(views), refresh=True)
        else:
            self._print_changes(views)

    def print_line(self, what: str) -> None:
        """Print an action of the fault injector."""
        self._console.print(Text(f"  ⚡ {what}", style="bold yellow"))

    def _print_changes(self, views: Sequence[JobView]) -> None:
        for view in views:
            now = f"{view.state} {view.attempts[-1].state if view.attempts else ''}".strip()
            if self._states.get(view.id) != now:
                self._states[view.id] = now
                self._console.print(f"{view.id}  {view.task:<15} {now}")


def _picture(views: Sequence[JobView]) -> Group:
    table = Table.grid(padding=(0, 2, 0, 0))
    many = [view for view in views if view.task == MANY]
    done = sum(view.state == job.COMPLETED for view in many)
    table.add_row(
        Text(f"{MANY} ({len(many)} of them)", style="bold"),
        Text(f"{done}/{len(many)}", style="green" if done == len(many) else "default"),
        ProgressBar(total=len(many), completed=done, width=_BAR),
        Text(""),
    )
    for view in views:
        if view.task != MANY:
            table.add_row(
                Text(view.task, style="bold"),
                Text(view.state, style=style_of(view.state)),
                *_cells(view),
            )
    return Group(table)


def _cells(view: JobView) -> tuple[ProgressBar | Text, Text]:
    one = view.attempts[-1]
    bar: ProgressBar | Text = Text("")
    if one.progress is not None and one.progress.total:
        bar = ProgressBar(total=one.progress.total, completed=one.progress.done or 0, width=_BAR)
    elif one.progress is not None:
        bar = Text(one.progress.message)
    return bar, Text(_words(view, one), style="dim")


def _words(view: JobView, one: AttemptView) -> str:
    words = [f"attempt {one.index}"]
    if one.lease is not None and not one.ended_at:
        words.append(f"on {one.lease.runner_id.partition('#')[0]}")
    failed = [f"{a.failure.failure_class}: {a.failure.error}" for a in view.attempts if a.failure]
    if failed:
        words.append(f"after {failed[-1]}" if not one.failure else failed[-1])
    if view.stop_reason:
        words.append(f"stopped: {view.stop_reason}")
    return ", ".join(words)


async def print_history(il: Interlock, job_id: str, console: Console) -> None:
    """Print all steps of one job from the journal."""
    history = await il.services.jobs.history(job_id)
    console.print(f"[bold]The history of the film, {job_id}, from the journal:[/]")
    table = Table.grid(padding=(0, 2, 0, 0))
    for step in steps_in(history):
        after = (step.at - history[0].at).total_seconds()
        moved = Text(f"{step.source} → ", style="dim")
        moved.append(step.target, style=style_of(step.target))
        who = Text(step.actor.partition("#")[0] or step.owner, style="dim")
        table.add_row(Text(f"{after:6.2f} s", style="dim"), step.who, step.event, moved, who, step.reason)
    console.print(table)
    view = await il.job(job_id)
    console.print(f"It ended {view.state} and returned {bytes(view.result).decode()}." if view.result else "")


PHOTOS = 24
WORKERS = ("anna", "ben")
LOOK_EVERY_S = 0.1
PATIENCE_S = 600.0
"""The demonstration fails if it has not ended after this time."""
STOP_S = 20.0
"""A worker that has not ended after this time is killed."""
LOSSES = 100
"""Maximum losses of a job; on a machine that stalls for seconds, live workers lose leases too."""

SETTINGS = """\
# Short, so that a dead worker is noticed within a demonstration. The defaults are made for real work.
[durations]
ack_window_s = 5
lease_ttl_s = 5
heartbeat_every_s = 1
sweep_every_s = 0.5
cancel_deadline_s = 4
shutdown_soft_s = 2
shutdown_deadline_s = 4
abort_warning_s = 0.5
abort_kill_s = 1
backoff_cap_s = 0.5

# With leases this short, a worker that loses many of them has a slow machine and is given work again.
[quarantine]
occasions = 1000
"""


class DemoJobs(msgspec.Struct, frozen=True):
    """The jobs of the demonstration."""

    photos: tuple[str, ...]
    upload: str
    film: str
    archive: str
    retouch: str
    films: tuple[str, ...] = ()
    """Films that were completed before their worker could be killed."""

    @property
    def all(self) -> tuple[str, ...]:
        """All jobs."""
        return (*self.photos, *self.films, self.upload, self.film, self.archive, self.retouch)

    def with_another_film(self, film: str) -> DemoJobs:
        """Return the jobs with another film, whose history is shown."""
        return msgspec.structs.replace(self, film=film, films=(*self.films, self.film))


def run_demo() -> int:
    """Run the demonstration; return 0 if every outcome is as expected."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 150  # a pipe has no width
    with tempfile.TemporaryDirectory(prefix="interlock-demo-") as folder:
        (Path(folder) / project.FILE).write_text(SETTINGS, encoding="utf-8")
        return asyncio.run(_play(Path(folder), console))


async def _play(folder: Path, console: Console) -> int:
    here = project.load(f"sqlite:///{folder}/studio.db", start=folder)
    console.print(f"A store at [bold]{here.url}[/], two workers, {PHOTOS + 4} jobs.\n")
    with _workers(folder, here.url, tasks.__name__, "--slots", "4") as workers:
        async with Interlock(here.url, settings=here.settings, actor="demo") as il:
            jobs = await _submit(il)
            watched = await _watch(il, jobs, workers, console)
            if watched is None:
                console.print(f"[red]It had not finished after {PATIENCE_S:g} s.[/]")
                return 1
            jobs, views = watched
            console.print()
            await print_history(il, jobs.film, console)
            return await _judge(il, jobs, views, console)


async def _submit(il: Interlock) -> DemoJobs:
    specs = [tasks.develop.spec(photo=photo) for photo in range(1, PHOTOS + 1)]
    specs += [
        tasks.upload.spec(album="holiday"),
        tasks.render.spec(),
        tasks.archive.spec(),
        tasks.retouch.spec(),
    ]
    specs = [_prioritized(spec) if spec.task != tasks.develop.name else _lasting(spec) for spec in specs]
    ids = [made.id for made in await il.submit_many(specs)]
    upload, film, archive, retouch = ids[PHOTOS:]
    return DemoJobs(tuple(ids[:PHOTOS]), upload, film, archive, retouch)


def _prioritized(spec: JobSpec) -> JobSpec:
    """Return a job that starts before the others.

    There are few long ones and many short ones.
    """
    return msgspec.structs.replace(_lasting(spec), priority=10)


def _lasting(spec: JobSpec) -> JobSpec:
    """Return the spec with enough losses that the job is always run again."""
    return msgspec.structs.replace(spec, losses=LOSSES)


class FaultInjector:
    """Kills one worker, and cancels one job."""

    def __init__(
        self, il: Interlock, jobs: DemoJobs, workers: Sequence[subprocess.Popen[bytes]], screen: DemoScreen
    ) -> None:
        self.jobs: DemoJobs = jobs
        self.killed: bool = False
        self._cancelled = False
        self._il = il
        self._workers = workers
        self._screen = screen

    async def inject(self, by_id: Mapping[str, JobView]) -> None:
        """Inject the faults that are due."""
        film = by_id[self.jobs.film]
        if not self.killed and film.state in job.ENDED:
            await self._render_again()
        elif not self.killed and (name := _half_way(film)):
            await self._kill(name)
        if self.killed and not self._cancelled and _has_begun(by_id[self.jobs.archive]):
            self._cancelled = True
            self._screen.print_line("canceling the archive job")
            await self._il.cancel(self.jobs.archive, reason="it is no longer needed")

    async def _kill(self, name: str) -> None:
        """Kill the worker, unless the film was completed meanwhile."""
        worker = self._workers[WORKERS.index(name)]
        worker.send_signal(signal.SIGSTOP)  # so that the film does not end between the look and the kill
        if (await self._il.job(self.jobs.film)).state in job.ENDED:
            worker.send_signal(signal.SIGCONT)
            return
        self.killed = True
        self._screen.print_line(f"kill -9 {name}, which is half-way through the film")
        worker.kill()

    async def _render_again(self) -> None:
        """Submit another film: this one ended before its worker could be killed."""
        self._screen.print_line("the film was rendered too quickly; rendering another one")
        (again,) = await self._il.submit_many([_prioritized(tasks.render.spec())])
        self.jobs = self.jobs.with_another_film(again.id)


async def _watch(
    il: Interlock, jobs: DemoJobs, workers: Sequence[subprocess.Popen[bytes]], console: Console
) -> tuple[DemoJobs, list[JobView]] | None:
    """Show the jobs until all have ended, and inject the faults."""
    with DemoScreen(console) as screen:
        injector = FaultInjector(il, jobs, workers, screen)
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            views = [view for view in await il.services.jobs.get_many(injector.jobs.all) if view is not None]
            screen.show(views)
            await injector.inject({view.id: view for view in views})
            if injector.killed and all(view.state in job.ENDED for view in views):
                return injector.jobs, views
            _expect_alive(workers, but=1 if injector.killed else 0)
            await asyncio.sleep(LOOK_EVERY_S)
    return None


def _expect_alive(workers: Sequence[subprocess.Popen[bytes]], *, but: int) -> None:
    """Raise an error if a worker has exited: it could not start."""
    gone = [name for name, process in zip(WORKERS, workers, strict=True) if process.poll() is not None]
    if len(gone) > but:
        raise CannotLoad(
            f"The worker {gone[0]} has ended by itself.",
            todo=f"Start one by hand to see why: interlock worker start {tasks.__name__}",
        )


def _half_way(film: JobView) -> str:
    """Return the worker that is half-way through the film, or "" before."""
    (one,) = film.attempts[-1:]
    done = one.progress.done if one.progress is not None else None
    if one.ended_at or one.lease is None or (done or 0) < tasks.FILM_SCENES / 2:
        return ""
    return one.lease.runner_id.partition("#")[0]


def _has_begun(view: JobView) -> bool:
    return any(one.progress is not None and not one.ended_at for one in view.attempts)


async def _judge(il: Interlock, jobs: DemoJobs, views: Sequence[JobView], console: Console) -> int:
    """Compare the outcomes with those expected, and audit the journal.

    Return the exit code.
    """
    wanted = dict.fromkeys((*jobs.photos, *jobs.films, jobs.upload, jobs.film), job.COMPLETED)
    wanted |= {jobs.archive: job.CANCELED, jobs.retouch: job.FAILED}
    wrong = [f"{view.task} {view.id} is {view.state}" for view in views if view.state != wanted[view.id]]
    film = next(view for view in views if view.id == jobs.film)
    if len(film.attempts) < 2 or film.losses < 1:
        wrong.append(f"the film had {len(film.attempts)} attempts and {film.losses} losses, not 2 and 1")
    found = await audit(il.services.store, JOURNALLED, ["job"])
    wrong += [fault.sentence for fault in found.faults]
    console.print(
        f"\n[bold]{len(views)}[/] jobs ended; [bold]{found.steps}[/] steps replayed from the journal, "
        f"[bold]{len(found.faults)}[/] of them wrong."
    )
    for sentence in wrong:
        console.print(f"[red]unexpected:[/] {sentence}")
    console.print("Next: [bold]interlock submit --help[/], [bold]interlock worker start --help[/].")
    return 1 if wrong else 0


@contextmanager
def _workers(
    folder: Path, url: str, *options: str, path: str = "", stop_s: float = STOP_S
) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Start two workers, with `path` in PATH, and stop them at the end."""
    command = [sys.executable, "-m", "interlock", "worker", "start", "--store", url, *options]
    environment = {name: value for name, value in os.environ.items() if name != "INTERLOCK_URL"}
    if path:
        environment["PATH"] = f"{path}{os.pathsep}{environment.get('PATH', os.defpath)}"
    started: list[subprocess.Popen[bytes]] = []
    try:
        for name in WORKERS:
            with (folder / f"{name}.log").open("wb") as log:
                arguments = [*command, "--name", name]
                started.append(
                    subprocess.Popen(arguments, cwd=folder, stdout=log, stderr=log, env=environment)
                )
        yield started
    finally:
        for process in started:
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
        for process in started:
            try:
                process.wait(timeout=stop_s)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


RUN_PATIENCE_S = 1_800.0
"""The demonstration fails if it has not ended after this time."""
WIDTH = 150


def run_ci(repository: Path) -> int:
    """Run the workflow of a repository; return the exit code."""
    with tempfile.TemporaryDirectory(prefix="interlock-ci-") as folder:
        here = project.load(f"sqlite:///{folder}/ci.db", start=Path(folder))
        with chdir(repository):
            spec = run_submit.spec_for(run_submit.RunOptions(), here.url)
        typer.echo(f"\nThe workflow {spec.workflow} of {repository.resolve()}, on two runners.\n")
        # Steps use the programs that are installed beside this Python.
        beside = str(Path(sys.executable).parent)
        with _workers(Path(folder), here.url, "--shell", "--slots", "2", path=beside, stop_s=10):
            return asyncio.run(_evaluated(here, spec))


async def _evaluated(here: project.Project, spec: RunSpec) -> int:
    async with connected(here) as port:
        run = await port.services.runs.submit(spec, actor=actor())
        code = await run_watch.follow(port, run.id, RUN_PATIENCE_S, as_json=False)
        view = await port.services.runs.view(run.id)
        if not sys.stdout.isatty():
            for line in drawn(view, await port.now(), WIDTH):
                typer.echo("".join(piece.text for piece in line))
        tries = await _tries(port.services.jobs, {job.name: job.job_id for job in view.jobs})
    for name, number in tries.items():
        typer.echo(f"{name} was tried {number} times: it was retried automatically.")
    return code


async def _tries(jobs: JobsApi, names: dict[str, str]) -> dict[str, int]:
    found = {}
    for name, job_id in names.items():
        view = await jobs.get(job_id)
        if len(view.attempts) > 1:
            found[name] = len(view.attempts)
    return found
