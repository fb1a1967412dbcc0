"""Command `simulation run`: start a simulation, and a worker process here that executes only it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator

import msgspec
import typer

from interlock.cli import project
from interlock.cli.connection import Embedded, actor, connected, store_url
from interlock.cli.nouns.simulation_start import (
    SimulationOptions,
    SimulationToStart,
    load,
    simulation_for,
    simulation_in,
)
from interlock.cli.nouns.simulation_views import whole_id
from interlock.cli.nouns.simulation_watch import follow
from interlock.cli.output import print_struct
from interlock.errors import CannotLoad, InterlockError, InvalidArguments
from interlock.lifecycles import simulation
from interlock.processes import credentials
from interlock.wire.simulations import SimulationView
from interlock.worker.pool import POOL, URL

GOING_S = 35.0
"""Slightly longer than the maximum time in which a worker releases its jobs."""
SOON_S = 2.0
"""Delay after which the command prints why it waits."""
DEAD_EVERY_S = 0.5
TAIL_BYTES = 4_096
ERROR = "Error: "
STOPPED = "`interlock simulation run` was stopped"


def run(store: str | None, options: SimulationOptions, *, resume: str = "", as_json: bool) -> int:
    """Run a simulation here to its end, or resume one; return the exit code."""
    here = project.load(store)
    url = store_url(here)
    local = LocalRun(options, resume, f"here-{secrets.token_hex(4)}")

    async def work() -> int:
        async with connected(here) as port:
            assert isinstance(port, Embedded)  # a URL of a store leads to no server
            local.view = await local.begun(port)
            if not as_json:
                typer.echo(local.view.run_id, err=True)
            try:
                with _worker(local.module, url, local.queue) as worker:
                    code = await _followed(port, local.view.run_id, worker, as_json=as_json)
            finally:
                view = await _left(port, local.view.run_id)
            if not as_json and view.status == simulation.COMPLETED and isinstance(view.result, msgspec.Raw):
                print_struct(view.result)
            return code

    try:
        return asyncio.run(work())
    except KeyboardInterrupt:
        if local.view is not None:
            typer.echo(_how_to_go_on(local.view.run_id, options.what), err=True)
        raise


class LocalRun:
    """The simulation that is executed here: a new one, or an earlier one that is resumed."""

    def __init__(self, options: SimulationOptions, resume: str, queue: str) -> None:
        self._options = options
        self._resume = resume
        self.queue = queue
        """The queue of this execution only: no other worker takes jobs from it."""
        self.view: SimulationView | None = None
        self._new: SimulationToStart | None = None
        self.module: str
        if resume:
            self.module, known = load(simulation_in(options.what))
            self._task = known.name
        else:
            self._new = simulation_for(options)
            self.module = self._new.module

    async def begun(self, port: Embedded) -> SimulationView:
        """Create it, or resume it, for a worker of this queue."""
        simulations = port.services.simulations
        if self._new is not None:
            return await simulations.create_run(self._new.spec, actor=actor(), queue=self.queue)
        self._check_nothing_else()
        run_id = await whole_id(port, self._resume)
        await port.recover()  # the death of its worker may not have been noticed yet
        task = (await simulations.get(run_id)).task
        if task != self._task:
            what = self._options.what
            raise InvalidArguments(
                f"The simulation {run_id} executes {task or 'no task'}, and {what} is {self._task}.",
                todo="Name the file or module of its own task.",
                facts={"run_id": run_id, "task": task, "named": self._task},
            )
        return await simulations.resume(run_id, reason="resume here", actor=actor(), queue=self.queue)

    def _check_nothing_else(self) -> None:
        options = self._options
        given = [*options.words, *filter(None, (options.run_id, options.name, options.priority))]
        if given or options.steps:
            raise InvalidArguments(
                f"The simulation {self._resume} has its arguments already.",
                todo="With --resume give only the file or module, and its id.",
                facts={"run_id": self._resume, "given": given},
            )


def _how_to_go_on(run_id: str, what: str) -> str:
    return (
        f"Stopped. Resume it with `interlock simulation resume {run_id}` on any worker that knows it, or "
        f"here with `interlock simulation run {what} --resume {run_id}`."
    )


async def _left(port: Embedded, run_id: str) -> SimulationView:
    """Release the job of a simulation, whose queue no other worker serves."""
    simulations = port.services.simulations
    view = await simulations.get(run_id)
    if view.resuming or view.status in (simulation.PENDING, simulation.RUNNING):
        with contextlib.suppress(InterlockError):  # then a resume moves it
            await simulations.end_execution(run_id, view.execution, STOPPED)
        view = await simulations.get(run_id)
    return view


async def _followed(port: Embedded, run_id: str, worker: SimulationWorker, *, as_json: bool) -> int:
    """Follow it until it stops, or its worker has exited."""
    following = asyncio.ensure_future(follow(port, run_id, None, as_json=as_json))
    try:
        while not following.done():
            await asyncio.wait([following], timeout=DEAD_EVERY_S)
            if worker.process.poll() is not None and not following.done():
                raise CannotLoad(
                    f"The worker of {run_id} has ended by itself, {worker.ended_how()}.",
                    todo="Start one by hand to see why: interlock worker start MODULE",
                    facts={"run_id": run_id, "exit_code": worker.process.returncode},
                )
        return following.result()
    finally:
        following.cancel()
        await asyncio.wait([following])


class SimulationWorker:
    """The worker of one simulation, and its log."""

    def __init__(self, process: subprocess.Popen[bytes], log: int) -> None:
        self.process = process
        self._log = log

    def ended_how(self) -> str:
        """Return how the worker ended.

        That is the signal, or the exit code with the last line of its log.
        """
        code = self.process.returncode
        if code < 0:
            return f"killed by {signal.Signals(-code).name}"
        size = os.fstat(self._log).st_size
        tail = os.pread(self._log, TAIL_BYTES, max(0, size - TAIL_BYTES)).decode("utf-8", "replace")
        lines = [line for each in reversed(tail.splitlines()) if (line := each.strip())]
        error = next((line for line in lines if line.startswith(ERROR)), "")
        last = error.removeprefix(ERROR) or (lines or ["its log is empty"])[0]
        return f"with exit code {code}: {last.removesuffix('.')}"


@contextlib.contextmanager
def _worker(module: str, url: str, queue: str) -> Iterator[SimulationWorker]:
    """Start a worker for one queue, and stop it at the end.

    It releases unfinished work. It does not outlive this process. Its log is a file without a name.
    """
    command = [sys.executable, "-m", "interlock", "worker", "start", module]
    command += ["--queue", queue, "--name", queue, "--slots", "1", "--log-format", "text"]
    with tempfile.TemporaryFile(prefix="interlock-simulation-") as log:
        with credentials.handed_over({URL: url}) as (environment, pipe):
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={**environment, POOL: str(os.getpid())},
                pass_fds=(pipe,),
            )
        try:
            yield SimulationWorker(process, log.fileno())
        finally:
            process.terminate()
            _wait_for(process)


def _wait_for(process: subprocess.Popen[bytes]) -> None:
    """Let a worker release its work.

    It has a deadline, and the user can press Ctrl-C again.
    """
    try:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(SOON_S)
            return
        typer.echo(
            f"The step has not ended yet. It has {GOING_S:.0f} s; press Ctrl-C again to kill it now.",
            err=True,
        )
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GOING_S)
    finally:
        process.kill()
        process.wait()
