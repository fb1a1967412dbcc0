"""Command `workload run`: drive a workload from here.

It submits an ordinary job to its own queue and executes it here: it has a lease, it is
journalled, and canceling it stops the agents. Ctrl-C cancels it, and waits until every agent has stopped.
"""

from __future__ import annotations

import asyncio
import secrets
import signal
import socket
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from interlock.cli import project
from interlock.cli.connection import actor, ca, connected, token
from interlock.cli.nouns.workload_views import exit_code, result_sheets, write_files
from interlock.cli.nouns.workload_watch import workload_screen
from interlock.cli.output import print_sheets, print_struct
from interlock.cli.watch import JobFollower
from interlock.errors import CannotLoad, InterlockError, JobFailed
from interlock.remote import is_server
from interlock.remote.service_connection import ServiceConnection
from interlock.systems.embedded import EmbeddedOrchestrator
from interlock.systems.fleet.agent_client import Access
from interlock.systems.fleet.outcome import WorkloadProgress
from interlock.systems.fleet.spec import TASK
from interlock.systems.fleet.workload_file import read_workload
from interlock.text import counted
from interlock.wire.jobs import JobView
from interlock.wire.workloads import WorkloadResult, WorkloadSpec
from interlock.worker.context import Context
from interlock.worker.port import OrchestratorPort
from interlock.worker.process import WorkerProcess
from interlock.worker.settings import WorkerSettings
from interlock.worker.tasks import Registry
from interlock.worker.telemetry import make_log
from interlock.workloads import Watcher, access_here, drive, drive_workload

INTERRUPTED = 130
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Tls(msgspec.Struct, frozen=True):
    """TLS files for connections to agents."""

    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None


def run(
    store: str | None, file: Path, agents: str | None, out: Path | None, tls: Tls, *, as_json: bool
) -> int:
    """Run a workload; return the exit code."""
    given = tuple(each.strip() for each in agents.split(",") if each.strip()) if agents else ()
    spec = read_workload(_text(file), str(file), given)
    files = {name: str(path) for name, path in msgspec.structs.asdict(tls).items() if path is not None}
    access = msgspec.structs.replace(access_here(), **files).check()
    here = project.load(store)
    display = WorkloadDisplay(spec, out, access, as_json=as_json)
    return asyncio.run(_run(here, spec, display))


class WorkloadDisplay(Watcher):
    """Shows the progress of a workload, and keeps its result."""

    def __init__(self, spec: WorkloadSpec, out: Path | None, access: Access, *, as_json: bool) -> None:
        self.access = access
        self.result: WorkloadResult | None = None
        self.interrupted = False
        self._as_json = as_json
        self._out = out
        self._title = f"{spec.name} on {counted(len(spec.agents), 'agent')}"
        self._unshown: asyncio.Queue[WorkloadProgress | None] = asyncio.Queue()

    def show(self, live: WorkloadProgress) -> None:
        """Show the progress soon: the drive does not wait for the terminal."""
        self._unshown.put_nowait(live)

    async def follow(self) -> None:
        """Show all progress until the display is closed."""
        with workload_screen(self._title, as_json=self._as_json) as screen:
            while (live := await self._unshown.get()) is not None:
                await screen.show(live)

    def close(self) -> None:
        """Close the display after the last progress."""
        self._unshown.put_nowait(None)

    def save(self, result: WorkloadResult, files: Mapping[str, bytes]) -> None:
        """Keep the result, and write the files to the folder of --out."""
        self.result = result
        if self._out is not None:
            write_files(self._out, files)

    def finish(self, view: JobView) -> int:
        """Print the result; return the exit code."""
        if self.result is None:
            raise _no_result(view)
        if self._as_json:
            print_struct({"job_id": view.id, "state": view.state, "result": self.result})
        else:
            print_sheets(result_sheets(self.result))
        return INTERRUPTED if self.interrupted else exit_code(view, self.result)


async def _run(here: project.Project, spec: WorkloadSpec, display: WorkloadDisplay) -> int:
    queue = f"workload-{secrets.token_hex(6)}"
    async with connected(here) as connection:
        submitted = drive_workload.options(queue=queue, description=spec.name).spec(spec)
        job_id = await connection.services.jobs.submit(submitted, actor=actor())
        worker = _worker(here, queue, display)
        working = asyncio.create_task(worker.run(), name="driver")
        following = asyncio.create_task(display.follow(), name="display")
        try:
            with _stopped_by_signals(lambda: _interrupt(connection, job_id, display, worker)):
                view = await _ended(connection, job_id, working)
        finally:
            display.close()
            worker.shutdown.request()
            await asyncio.wait([working, following])
        await following
        return display.finish(view)


async def _ended(connection: ServiceConnection, job_id: str, working: asyncio.Task[int]) -> JobView:
    """Return the job once it has ended, or as it is when its driver has ended."""
    following = JobFollower(connection, [job_id], with_steps=False).news()
    try:
        while not working.done():
            news = await anext(following, None)
            if news is None:
                break
    finally:
        await following.aclose()
    return await connection.services.jobs.get(job_id)


async def _interrupt(
    connection: ServiceConnection, job_id: str, display: WorkloadDisplay, worker: WorkerProcess
) -> None:
    """Cancel the job; if the store is unavailable, stop the driver."""
    display.interrupted = True
    try:
        await connection.services.jobs.cancel(job_id, reason="Ctrl-C", actor=actor())
    except InterlockError:
        worker.shutdown.request()


def _worker(here: project.Project, queue: str, display: WorkloadDisplay) -> WorkerProcess:
    registry = Registry()

    async def drive_here(workload: WorkloadSpec, *, ctx: Context) -> WorkloadResult:
        return await drive(workload, ctx, display, display.access)

    registry.task(name=TASK, executor="async")(drive_here)
    durations = here.settings.durations
    settings = WorkerSettings(
        name=f"{socket.gethostname()}-{queue}",
        queues=(queue,),
        concurrency=1,
        durations=durations,
        # Agents have 15 seconds to stop, and the cancel is forced only after 30.
        stop_grace_s=0.8 * durations.cancel_deadline_s,
        max_result_bytes=here.settings.max_result_bytes,
        supervised=False,
        log_level="error",
    )
    return WorkerProcess(
        settings,
        registry,
        lambda: _port(here),
        incarnation=secrets.token_hex(4),
        log=make_log("error", "text"),
    )


def _port(here: project.Project) -> OrchestratorPort:
    if not is_server(here.url):
        return EmbeddedOrchestrator(here.url, settings=here.settings)
    from interlock.worker.http import HttpOrchestrator

    return HttpOrchestrator(here.url, names=lambda: secrets.token_hex(16), token=token(), ca=ca())


@contextmanager
def _stopped_by_signals(interrupt: Callable[[], Awaitable[None]]) -> Iterator[None]:
    """Stop the workload on the first signal; exit at once on the second."""
    loop = asyncio.get_running_loop()
    main = asyncio.current_task()
    stops: list[asyncio.Future[None]] = []

    def on_signal() -> None:
        if stops:
            assert main is not None
            main.cancel()
        else:
            stops.append(asyncio.ensure_future(interrupt()))

    for each in SIGNALS:
        loop.add_signal_handler(each, on_signal)
    try:
        yield
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
    finally:
        for each in SIGNALS:
            with suppress(ValueError):
                loop.remove_signal_handler(each)


def _no_result(view: JobView) -> InterlockError:
    failure = view.failure
    stopped = f"There is no result: the workload was stopped ({view.stop_reason})."
    return JobFailed(
        failure.error.partition(": ")[2] if failure else stopped,
        todo=f"See more with: interlock job logs {view.id}",
        facts={"job_id": view.id, "state": view.state},
    )


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise CannotLoad(
            f"{file} cannot be read: {why}.", todo="Name a workload file.", facts={"file": str(file)}
        ) from None
