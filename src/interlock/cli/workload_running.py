"""What `interlock workload run` does: submit a job to a queue of its own, and work it off right here.

So the job is an ordinary one: it has a lease that is kept alive, it is journalled, and whoever cancels it
anywhere stops the agents. Ctrl-C cancels it, and waits until every agent has said that it has stopped.
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

from interlock.cli import connecting, project
from interlock.cli.answers import print_struct
from interlock.cli.following import CANCELED, COMPLETED, FAILED, Following
from interlock.cli.printing import on_terminal, print_sheets
from interlock.cli.workload_screen import Lines, Screen, Silent
from interlock.cli.workload_sheets import result_sheets
from interlock.errors import CannotLoad, CannotWrite, InterlockError, JobFailed
from interlock.lifecycles import job
from interlock.plurals import counted
from interlock.remote.addresses import is_server
from interlock.remote.interfaces import Reach
from interlock.systems.embedded import EmbeddedOrchestrator
from interlock.systems.fleet.coverage import Verdict
from interlock.systems.fleet.line import Access
from interlock.systems.fleet.live import Live
from interlock.systems.fleet.outcome import WorkloadResult
from interlock.systems.fleet.spec import TASK, WorkloadSpec
from interlock.systems.fleet.workload_file import read_workload
from interlock.wire.jobs import JobView
from interlock.worker.context import Context
from interlock.worker.logs import make_log
from interlock.worker.port import OrchestratorPort
from interlock.worker.process import WorkerProcess
from interlock.worker.settings import WorkerSettings
from interlock.worker.tasks import Registry
from interlock.workloads import Watcher, access_here, drive, drive_workload

PARTIAL, INTERRUPTED = 1, 130
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Tls(msgspec.Struct, frozen=True):
    """Files for the lines to agents, as the command line names them."""

    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None


def run(
    store: str | None, file: Path, agents: str | None, out: Path | None, tls: Tls, *, as_json: bool
) -> int:
    """Run a workload; the answer is the exit code."""
    given = tuple(each.strip() for each in agents.split(",") if each.strip()) if agents else ()
    spec = read_workload(_text(file), str(file), given)
    files = {name: str(path) for name, path in msgspec.structs.asdict(tls).items() if path is not None}
    access = msgspec.structs.replace(access_here(), **files).check()
    here = project.load(store)
    onlooker = Onlooker(spec, out, access, as_json=as_json)
    return asyncio.run(_run(here, spec, onlooker))


class Onlooker(Watcher):
    """Shows how it goes, and keeps what has come of it."""

    def __init__(self, spec: WorkloadSpec, out: Path | None, access: Access, *, as_json: bool) -> None:
        self.access = access
        self.result: WorkloadResult | None = None
        self.interrupted = False
        self._as_json = as_json
        self._out = out
        title = f"{spec.name} on {counted(len(spec.agents), 'agent')}"
        self.screen = Silent() if as_json else Screen(title) if on_terminal() else Lines()

    def show(self, live: Live) -> None:
        """How it goes now."""
        self.screen.show(live)

    def save(self, result: WorkloadResult, files: Mapping[str, bytes]) -> None:
        """Keep the result, and write the files where somebody wants them."""
        self.result = result
        if self._out is not None:
            write_files(self._out, files)

    def told(self, view: JobView) -> int:
        """Say what has come of it; the answer is the exit code."""
        if self.result is None:
            raise _nothing_came(view)
        if self._as_json:
            print_struct({"job_id": view.id, "state": view.state, "result": self.result})
        else:
            print_sheets(result_sheets(self.result))
        return INTERRUPTED if self.interrupted else exit_code(view, self.result)


def exit_code(view: JobView, result: WorkloadResult | None) -> int:
    """What a job that drove a fleet is worth."""
    if view.state == job.COMPLETED:
        less = (Verdict.PARTIAL, Verdict.DEGRADED)
        lacks = result is not None and (result.verdict in less or bool(result.missed))
        return PARTIAL if lacks else COMPLETED
    return CANCELED if view.state == job.CANCELED else FAILED


def write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Every form of a result, into a folder."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            (folder / name).write_bytes(content)
    except OSError as error:
        raise CannotWrite(
            f"{folder} cannot be written to: {error.strerror}.",
            todo="Name another folder with --out.",
            facts={"path": str(folder)},
        ) from None


async def _run(here: project.Project, spec: WorkloadSpec, onlooker: Onlooker) -> int:
    queue = f"workload-{secrets.token_hex(6)}"
    async with connecting.connected(here) as reach:
        submitted = drive_workload.options(queue=queue, description=spec.name).spec(spec)
        job_id = await reach.here.jobs.submit(submitted, actor=connecting.actor())
        worker = _worker(here, queue, onlooker)
        working = asyncio.create_task(worker.run(), name="driver")
        onlooker.screen.begin()
        try:
            with _heeding(lambda: _interrupt(reach, job_id, onlooker, worker)):
                view = await _ended(reach, job_id, working)
        finally:
            onlooker.screen.end()
            worker.shutdown.request()
            await asyncio.wait([working])
        return onlooker.told(view)


async def _ended(reach: Reach, job_id: str, working: asyncio.Task[int]) -> JobView:
    """The job once it has ended, or as it is when nobody is left to drive it."""
    following = Following(reach, [job_id], tell_steps=False).news()
    try:
        while not working.done():
            news = await anext(following, None)
            if news is None:
                break
    finally:
        await following.aclose()
    return await reach.here.jobs.get(job_id)


async def _interrupt(reach: Reach, job_id: str, onlooker: Onlooker, worker: WorkerProcess) -> None:
    """Cancel the job for real; where the store does not answer, the driver goes, and its agents stop."""
    onlooker.interrupted = True
    try:
        await reach.here.jobs.cancel(job_id, reason="Ctrl-C", actor=connecting.actor())
    except InterlockError:
        worker.shutdown.request()


def _worker(here: project.Project, queue: str, onlooker: Onlooker) -> WorkerProcess:
    registry = Registry()

    async def drive_here(workload: WorkloadSpec, *, ctx: Context) -> WorkloadResult:
        return await drive(workload, ctx, onlooker, onlooker.access)

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

    return HttpOrchestrator(
        here.url, names=lambda: secrets.token_hex(16), token=connecting.token(), ca=connecting.ca()
    )


@contextmanager
def _heeding(interrupt: Callable[[], Awaitable[None]]) -> Iterator[None]:
    """The first signal stops the workload; whoever sends another does not want to wait for that."""
    loop = asyncio.get_running_loop()
    main = asyncio.current_task()
    asked: list[asyncio.Future[None]] = []

    def heed() -> None:
        if asked:
            assert main is not None
            main.cancel()
        else:
            asked.append(asyncio.ensure_future(interrupt()))

    for each in SIGNALS:
        loop.add_signal_handler(each, heed)
    try:
        yield
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
    finally:
        for each in SIGNALS:
            with suppress(ValueError):
                loop.remove_signal_handler(each)


def _nothing_came(view: JobView) -> InterlockError:
    failure = view.failure
    stopped = f"Nothing came of it: it was stopped ({view.stop_reason})."
    return JobFailed(
        failure.error.partition(": ")[2] if failure else stopped,
        todo=f"See more with: interlock job logs {view.id}",
        facts={"job_id": view.id, "state": view.state},
    )


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no UTF-8"
        raise CannotLoad(
            f"{file} cannot be read: {why}.", todo="Name a workload file.", facts={"file": str(file)}
        ) from None
