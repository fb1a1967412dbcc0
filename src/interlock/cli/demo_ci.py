"""`interlock demo --repository FOLDER`: the workflow of a repository, evaluated by two runners of its own.

The runners are processes, each job works in a fresh checkout of the commit, and the graph is what
`interlock run watch` shows. It ends with 0 when the run has succeeded.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import chdir, contextmanager, suppress
from pathlib import Path

import typer

from interlock.cli import project, run_specs, run_watching
from interlock.cli.connecting import actor, connected
from interlock.cli.run_graphs import drawn
from interlock.remote.interfaces import JobsApi
from interlock.wire.runs import RunSpec

RUNNERS = ("anna", "ben")
PATIENCE_S = 1_800.0
"""A demonstration that is not over by then has failed."""
WIDTH = 150


def run_ci(repository: Path) -> int:
    """Evaluate the commit that is checked out there; the answer is the exit code."""
    with tempfile.TemporaryDirectory(prefix="interlock-ci-") as folder:
        here = project.load(f"sqlite:///{folder}/ci.db", start=Path(folder))
        with chdir(repository):
            spec = run_specs.spec_for(run_specs.Asked(), here.url)
        typer.echo(f"\nThe workflow {spec.workflow} of {repository.resolve()}, on two runners.\n")
        with _runners(Path(folder), here.url):
            return asyncio.run(_evaluated(here, spec))


async def _evaluated(here: project.Project, spec: RunSpec) -> int:
    async with connected(here) as port:
        run = await port.here.runs.submit(spec, actor=actor())
        code = await run_watching.follow(port, run.id, PATIENCE_S, as_json=False)
        view = await port.here.runs.view(run.id)
        if not sys.stdout.isatty():
            for line in drawn(view, await port.now(), WIDTH):
                typer.echo("".join(piece.text for piece in line))
        tries = await _tries(port.here.jobs, {job.name: job.job_id for job in view.jobs})
    for name, number in tries.items():
        typer.echo(f"{name} was tried {number} times, and nobody had to do anything about it.")
    return code


async def _tries(jobs: JobsApi, names: dict[str, str]) -> dict[str, int]:
    found = {}
    for name, job_id in names.items():
        view = await jobs.get(job_id)
        if len(view.attempts) > 1:
            found[name] = len(view.attempts)
    return found


@contextmanager
def _runners(folder: Path, url: str) -> Iterator[None]:
    """Two runners of steps, as anybody would start them; they are gone when this is over."""
    command = [sys.executable, "-m", "interlock", "worker", "start", "--shell", "--store", url]
    beside = str(Path(sys.executable).parent)
    environment = {name: value for name, value in os.environ.items() if name != "INTERLOCK_URL"}
    # What is installed beside this Python is what the steps use.
    environment["PATH"] = f"{beside}{os.pathsep}{environment.get('PATH', os.defpath)}"
    started: list[subprocess.Popen[bytes]] = []
    try:
        for name in RUNNERS:
            with (folder / f"{name}.log").open("wb") as log:
                arguments = [*command, "--name", name, "--slots", "2"]
                started.append(
                    subprocess.Popen(arguments, cwd=folder, stdout=log, stderr=log, env=environment)
                )
        yield
    finally:
        for process in started:
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
        for process in started:
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
