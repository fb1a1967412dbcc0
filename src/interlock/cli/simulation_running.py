"""What `interlock simulation run` does: start a simulation, and a worker here that executes only that."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import typer

from interlock.cli import project
from interlock.cli.answers import print_struct
from interlock.cli.connecting import actor, connected, store_url
from interlock.cli.simulation_specs import Asked, found
from interlock.cli.simulation_watching import follow
from interlock.errors import CannotLoad
from interlock.lifecycles import simulation
from interlock.remote.offering import Reach

GOING_S = 35.0
"""A little longer than a worker takes at most to give back what it has."""
DEAD_EVERY_S = 0.5


def run(store: str | None, asked: Asked, *, as_json: bool) -> int:
    """Run it to its end; the answer is the exit code."""
    here, wanted = project.load(store), found(asked)
    url = store_url(here)
    queue = f"here-{secrets.token_hex(4)}"
    spec = msgspec.structs.replace(wanted.spec, queue=queue)

    async def work() -> int:
        async with connected(here) as port:
            made = await port.here.simulations.create_run(spec, actor=actor())
            if not as_json:
                typer.echo(made.run_id, err=True)
            with _worker(wanted.module, url, queue) as (process, log):
                code = await _followed(port, made.run_id, process, log, as_json=as_json)
            view = await port.here.simulations.get(made.run_id)
            if not as_json and view.status == simulation.COMPLETED and isinstance(view.result, msgspec.Raw):
                print_struct(view.result)
            return code

    try:
        return asyncio.run(work())
    except KeyboardInterrupt:
        typer.echo("Stopped; see `interlock simulation list`, and go on with `simulation resume`.", err=True)
        raise


async def _followed(
    port: Reach, run_id: str, process: subprocess.Popen[bytes], log: Path, *, as_json: bool
) -> int:
    """Until it stands, or its worker has ended without it."""
    following = asyncio.ensure_future(follow(port, run_id, None, as_json=as_json))
    try:
        while not following.done():
            await asyncio.wait([following], timeout=DEAD_EVERY_S)
            if process.poll() is not None and not following.done():
                last = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:]
                raise CannotLoad(
                    f"The worker of {run_id} has ended by itself: {' '.join(last) or 'it says nothing'}.",
                    todo="Start one by hand to see why: interlock worker start MODULE",
                    facts={"run_id": run_id, "exit_code": process.returncode},
                )
        return following.result()
    finally:
        following.cancel()
        await asyncio.wait([following])


@contextlib.contextmanager
def _worker(module: str, url: str, queue: str) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """A worker for one queue; it is gone when this is over, and gives back what it has."""
    command = [sys.executable, "-m", "interlock", "worker", "start", module, "--store", url]
    command += ["--queue", queue, "--name", queue, "--slots", "1"]
    with tempfile.TemporaryDirectory(prefix="interlock-simulation-") as folder:
        log = Path(folder) / "worker.log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
            )
        try:
            yield process, log
        finally:
            process.terminate()
            try:
                process.wait(GOING_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
