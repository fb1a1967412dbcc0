"""Run, list, show, watch and abort workloads.

`workload run` submits an ordinary job to its own queue and executes it here: it has a lease, it is
journalled, and canceling it stops the agents. Ctrl-C cancels it, and waits until every agent has stopped.
"""

from __future__ import annotations

import asyncio
import secrets
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path

import msgspec
import typer

from interlock.cli import connection, project
from interlock.cli.connection import actor, run_connected
from interlock.cli.nouns.job_views import whole_id
from interlock.cli.nouns.workload_screen import (
    NoDisplay,
    WorkloadLines,
    WorkloadScreen,
    last_second_sheet,
    result_sheets,
)
from interlock.cli.output import Sheet, ago, on_terminal, print_sheets, print_struct, shown
from interlock.cli.watch import CANCELED, COMPLETED, FAILED, POLL_S, JobFollower, has_ended
from interlock.errors import CannotLoad, CannotWrite, InterlockError, JobFailed, UnknownJob
from interlock.lifecycles import job
from interlock.lifecycles.workload import WORKLOAD
from interlock.remote import is_server
from interlock.remote.reach import Reach
from interlock.remote.search import find
from interlock.store.records import Query
from interlock.systems.embedded import EmbeddedOrchestrator
from interlock.systems.fleet.agent_client import Access
from interlock.systems.fleet.outcome import (
    AgentProgress,
    WorkloadProgress,
    progress_in,
)
from interlock.systems.fleet.spec import (
    TASK,
    spec_of,
)
from interlock.systems.fleet.workload_file import read_workload
from interlock.text import counted
from interlock.wire.filters import read_filter
from interlock.wire.jobs import JobView
from interlock.wire.workloads import Verdict, WorkloadResult, WorkloadSpec, WorkloadView
from interlock.worker.context import Context
from interlock.worker.port import OrchestratorPort
from interlock.worker.process import WorkerProcess
from interlock.worker.settings import WorkerSettings
from interlock.worker.tasks import Registry
from interlock.worker.telemetry import make_log
from interlock.workloads import Watcher, access_here, drive, drive_workload

PARTIAL, INTERRUPTED = 1, 130
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
        title = f"{spec.name} on {counted(len(spec.agents), 'agent')}"
        self.screen: NoDisplay | WorkloadScreen | WorkloadLines = (
            NoDisplay() if as_json else WorkloadScreen(title) if on_terminal() else WorkloadLines()
        )

    def show(self, live: WorkloadProgress) -> None:
        """Show the progress."""
        self.screen.show(live)

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


def exit_code(view: JobView, result: WorkloadResult | None) -> int:
    """Return the exit code of a job that drove a fleet."""
    if view.state == job.COMPLETED:
        less = (Verdict.PARTIAL, Verdict.DEGRADED)
        lacks = result is not None and (result.verdict in less or bool(result.missed))
        return PARTIAL if lacks else COMPLETED
    return CANCELED if view.state == job.CANCELED else FAILED


def write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write every form of a result into a folder."""
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


async def _run(here: project.Project, spec: WorkloadSpec, display: WorkloadDisplay) -> int:
    queue = f"workload-{secrets.token_hex(6)}"
    async with connection.connected(here) as reach:
        submitted = drive_workload.options(queue=queue, description=spec.name).spec(spec)
        job_id = await reach.here.jobs.submit(submitted, actor=connection.actor())
        worker = _worker(here, queue, display)
        working = asyncio.create_task(worker.run(), name="driver")
        display.screen.begin()
        try:
            with _stopped_by_signals(lambda: _interrupt(reach, job_id, display, worker)):
                view = await _ended(reach, job_id, working)
        finally:
            display.screen.end()
            worker.shutdown.request()
            await asyncio.wait([working])
        return display.finish(view)


async def _ended(reach: Reach, job_id: str, working: asyncio.Task[int]) -> JobView:
    """Return the job once it has ended, or as it is when its driver has ended."""
    following = JobFollower(reach, [job_id], tell_steps=False).news()
    try:
        while not working.done():
            news = await anext(following, None)
            if news is None:
                break
    finally:
        await following.aclose()
    return await reach.here.jobs.get(job_id)


async def _interrupt(reach: Reach, job_id: str, display: WorkloadDisplay, worker: WorkerProcess) -> None:
    """Cancel the job; if the store is unavailable, stop the driver, which stops its agents."""
    display.interrupted = True
    try:
        await reach.here.jobs.cancel(job_id, reason="Ctrl-C", actor=connection.actor())
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

    return HttpOrchestrator(
        here.url, names=lambda: secrets.token_hex(16), token=connection.token(), ca=connection.ca()
    )


@contextmanager
def _stopped_by_signals(interrupt: Callable[[], Awaitable[None]]) -> Iterator[None]:
    """Stop the workload on the first signal, and exit without waiting on the second."""
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


FILES = ("result.json", "seconds.csv", "latencies.hlog", "report.html")
COLUMNS = ("id", "state", "name", "agents", "submitted", "said")
MEMBER_COLUMNS = ("agent", "state", "outcome", "operations", "error")


class WorkloadDetails(msgspec.Struct, frozen=True, kw_only=True):
    """A workload with its agents and its result."""

    job: JobView
    agents: tuple[WorkloadView, ...] = ()
    result: WorkloadResult | None = None
    driven: bool = True
    """Whether a controller holds a live lease of the job; without a server its loss is not noticed."""
    heard: WorkloadProgress | None = None
    """The last second in its log, when it has ended without saving a result."""


def show_list(store: str | None, limit: int, *, as_json: bool) -> None:
    """Print the newest workloads."""

    async def work(reach: Reach) -> tuple[list[JobView], datetime]:
        wanted = read_filter(f"task:{TASK}")
        return (await find(reach.here.jobs, wanted, limit=limit)).views, await reach.now()

    views, now = run_connected(store, work)
    if as_json:
        print_struct({"workloads": views})
        return
    terminal = on_terminal()
    rows = [
        (view.id, view.state, view.description, str(len(spec_of(view).agents)),
         shown(view.created_at, now, terminal=terminal), _status_text(view, now))
        for view in views
    ]  # fmt: skip
    print_sheets([Sheet("workload", "", COLUMNS, rows, one_line=True, spare=("agents", "submitted"))])
    if not views:
        typer.echo("There is no workload.", err=True)


def show(store: str | None, text: str, out: Path | None, *, as_json: bool) -> None:
    """Print the result of a workload, or its progress."""

    async def work(reach: Reach) -> tuple[WorkloadDetails, dict[str, bytes], datetime]:
        found = await _workload(reach, text)
        files = await _files(reach, found.job.id) if out is not None else {}
        return found, files, await reach.now()

    found, files, now = run_connected(store, work)
    if out is not None:
        write_files(out, files)
    if as_json:
        print_struct(found)
        return
    about = [(found.job.id, found.job.state, found.job.description, _status_text(found.job, now))]
    print_sheets([Sheet("job", "", ("id", "state", "name", "said"), about), *_sheets(found, now)])


def abort(store: str | None, text: str, reason: str, *, as_json: bool) -> None:
    """Cancel the job that drives it."""

    async def work(reach: Reach) -> JobView:
        found = await _driver(reach, text)
        return await reach.here.jobs.cancel(found.id, reason=reason, actor=actor())

    view = run_connected(store, work)
    if as_json:
        print_struct(view)
    else:
        typer.echo(f"{view.id}\t{view.state}")


def watch(store: str | None, text: str, *, as_json: bool) -> int:
    """Follow a workload that another process drives; return the exit code."""

    async def work(reach: Reach) -> int:
        found = await _driver(reach, text)
        title = f"{found.description or found.id} on {counted(len(spec_of(found).agents), 'agent')}"
        screen = NoDisplay() if as_json else WorkloadScreen(title) if on_terminal() else WorkloadLines()
        screen.begin()
        try:
            async for live in _lives(reach, found):
                screen.show(live)
        finally:
            screen.end()
        ended = await _workload(reach, found.id)
        if as_json:
            print_struct(ended)
        else:
            print_sheets(_sheets(ended, await reach.now()))
        return exit_code(ended.job, ended.result)

    return run_connected(store, work)


async def _lives(reach: Reach, found: JobView) -> AsyncIterator[WorkloadProgress]:
    """Yield every second of the log with the agents, until the job has ended.

    Without a server, this process looks after the lease of the controller.
    """
    chunks, loop, swept_at = reach.new_chunks(found.id), asyncio.get_running_loop(), float("-inf")
    while True:
        if loop.time() - swept_at >= reach.settings.durations.sweep_every_s:
            swept_at = loop.time()
            await reach.recover()
        view = await reach.here.jobs.get(found.id)
        members = await _agents(reach, found.id)
        async for chunk in chunks():
            for live in progress_in(chunk):
                yield _with_members(live, members)
        if has_ended(view):
            return
        await asyncio.sleep(POLL_S)


def _with_members(live: WorkloadProgress, members: tuple[WorkloadView, ...]) -> WorkloadProgress:
    known = tuple(
        AgentProgress(agent=each.agent, state=(each.final or each.state).lower(), operations=each.operations)
        for each in members
    )
    return msgspec.structs.replace(live, members=known)


async def _driver(reach: Reach, text: str) -> JobView:
    view = await reach.here.jobs.get(await whole_id(reach, text))
    if view.task == TASK:
        return view
    raise UnknownJob(
        f"{view.id} is a job of the task {view.task}, not a workload.",
        todo="See `interlock workload list`.",
        facts={"job_id": view.id, "task": view.task},
    )


async def _workload(reach: Reach, text: str) -> WorkloadDetails:
    view = await _driver(reach, text)
    agents, result = await _agents(reach, view.id), await _result(reach, view)
    last_second = await _last_second(reach, view) if result is None else None
    driven = _undriven_since(view, await reach.now()) is None
    return WorkloadDetails(job=view, agents=agents, result=result, driven=driven, heard=last_second)


async def _agents(reach: Reach, job_id: str) -> tuple[WorkloadView, ...]:
    query = Query(kind=WORKLOAD.name, parent=job_id, limit=1_000)
    views, _ = await reach.here.workloads.find(query)
    return tuple(sorted(views, key=lambda each: each.agent))


async def _result(reach: Reach, view: JobView) -> WorkloadResult | None:
    """Return the result from the files, which exist also after a failure; else from the job."""
    if not has_ended(view):
        return None
    with suppress(InterlockError):
        return msgspec.json.decode(await _file(reach, view.id, "result.json"), type=WorkloadResult)
    if isinstance(view.result, msgspec.Raw):
        return msgspec.json.decode(view.result, type=WorkloadResult)
    return None


async def _last_second(reach: Reach, view: JobView) -> WorkloadProgress | None:
    """Return the last second in the log of a workload whose controller was killed."""
    if not has_ended(view):
        return None
    last: WorkloadProgress | None = None
    async for chunk in reach.new_chunks(view.id)():
        last = next(reversed(list(progress_in(chunk))), last)
    return last


def _sheets(found: WorkloadDetails, now: datetime) -> list[Sheet]:
    if found.result is not None:
        return result_sheets(found.result)
    last_second = [last_second_sheet(found.heard)] if found.heard else []
    return [*last_second, _members(found.agents, now)]


async def _files(reach: Reach, job_id: str) -> dict[str, bytes]:
    return {name: await _file(reach, job_id, name) for name in FILES}


async def _file(reach: Reach, job_id: str, name: str) -> bytes:
    async with reach.here.artifacts.opened(job_id, name) as (_, pieces):
        return b"".join([piece async for piece in pieces])


def _members(agents: tuple[WorkloadView, ...], now: datetime) -> Sheet:
    rows = [
        (each.agent, each.state, each.final, f"{each.operations:,}", each.error or _silence(each, now))
        for each in agents
    ]
    return Sheet("agent", "", MEMBER_COLUMNS, rows)


def _silence(view: WorkloadView, now: datetime) -> str:
    """Return since when an agent is silent, if its deadline has passed by the store's clock."""
    if view.deadline_at is None or view.deadline_at > now:
        return ""
    return f"no report since {view.updated_at:%Y-%m-%d %H:%M:%S} UTC"


def _undriven_since(view: JobView, now: datetime) -> datetime | None:
    """Return when the lease of the controller expired, if that has not been swept yet."""
    lease = view.attempts[-1].lease if view.attempts and not has_ended(view) else None
    return lease.expires_at if lease is not None and lease.expires_at <= now else None


def _status_text(view: JobView, now: datetime) -> str:
    if view.failure is not None:
        return view.failure.error
    if (since := _undriven_since(view, now)) is not None:
        end = f"interlock workload watch {view.id}"
        return f"no controller drives it: its lease expired {ago(since, now)}. A server ends it, or: {end}"
    progress = next((one.progress for one in reversed(view.attempts) if one.progress), None)
    return view.stop_reason or (progress.message if progress else "")
