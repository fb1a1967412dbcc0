"""Workers as somebody starts them on a host: they are started, killed, frozen, and asked to go.

Nothing here sleeps. What workers log and what handlers note comes through pipes, what becomes of jobs
through the store's feed; each of these stirs whoever waits. Every wait has a deadline, and whoever
runs into one is shown what all workers have said.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

import msgspec
import pytest
from tests.clocks import move_server, move_sqlite
from tests.journeys import errands
from tests.programs import Program
from tests.waiting import PROGRAM_S

from interlock.cli import project
from interlock.client import Interlock
from interlock.engine.audit import audit
from interlock.errors import StoreUnavailable
from interlock.lifecycles import job
from interlock.lifecycles.durations import Durations
from interlock.store.records import Entry, Query
from interlock.store.urls import store_for
from interlock.systems.access.tokens import Tokens
from interlock.systems.catalogue import CATALOGUE, JOURNALLED
from interlock.systems.embedded import EmbeddedOrchestrator
from interlock.testing.process_control import freeze
from interlock.testing.servers import PostgresServer, RedisServer
from interlock.wire.access import Role
from interlock.wire.jobs import JobView

ROOT = Path(__file__).parents[2]
WORKER, SUPERVISOR = ("worker", "start"), ("supervisor",)
LOOK_ANYWAY_S = 0.5
"""A call may be lost, and the end of a process calls nobody."""
LAST_WORDS_S = 2.0
SHOWN_LINES, SHOWN_LENGTH = 15, 200
"""How much of each worker's log a failing test shows."""
DULL = ('"no_tasks_available"', '"backoff_complete"', '"recovery_complete"')
"""Events of a worker that has nothing to do."""

STEADY = Durations(
    # What must not happen by itself: a machine may stand still for ten seconds, at any moment.
    lease_ttl_s=120.0,
    ack_window_s=120.0,
    cancel_deadline_s=60.0,
    abort_warning_s=20.0,
    abort_kill_s=40.0,
    shutdown_deadline_s=90.0,
    worker_silence_s=3_600.0,
    simulation_silence_s=3_600.0,
    # What makes things prompt; sooner or later makes no difference.
    heartbeat_every_s=1.0,  # also how long the answer to one is waited for
    worker_beat_every_s=0.3,
    sweep_every_s=0.2,
    backoff_cap_s=0.4,
    simulation_stale_s=3.0,
    shutdown_soft_s=0.4,
)
"""No lease and no deadline ends unless a test moves the clock of the store; see `Crew.pass_time`."""
LETS_FINISH = msgspec.structs.replace(STEADY, shutdown_soft_s=60.0)
"""A worker that is asked to go lets its tasks finish."""
FORCES_SOON = msgspec.structs.replace(
    STEADY,
    abort_warning_s=0.2,
    abort_kill_s=0.4,
    cancel_deadline_s=1.0,
    shutdown_deadline_s=1.8,
)
"""A worker that is asked to go is gone at once, by force where nothing else helps."""


def stores(*quick: str) -> pytest.MarkDecorator:
    """Run a test on each store; those that are not named are left to `make test-all`."""
    cases = [
        pytest.param(kind, marks=() if kind in quick else pytest.mark.long)
        for kind in ("sqlite", "postgres", "redis")
    ]
    return pytest.mark.parametrize("place", cases, indirect=True)


class Place(NamedTuple):
    """An empty store, and the server that it is on if there is one."""

    url: str
    server: PostgresServer | RedisServer | None = None


class Stir:
    """Wakes everybody who waits for something to be true, whenever something has happened."""

    def __init__(self) -> None:
        self._waiting: set[asyncio.Event] = set()

    def __call__(self) -> None:
        for event in self._waiting:
            event.set()

    async def until(self, true: Callable[[], Awaitable[bool]]) -> None:
        """Come back when it is true. It is asked at the beginning and after each stir."""
        event = asyncio.Event()
        self._waiting.add(event)
        try:
            while not await true():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_ANYWAY_S):
                        await event.wait()
                event.clear()
        finally:
            self._waiting.discard(event)


class Worker:
    """One worker process."""

    def __init__(self, crew: Crew, name: str, process: Program) -> None:
        self.name = name
        self.pid = process.pid
        """The process to signal."""
        self.log: list[dict[str, Any]] = []
        self.words: list[str] = []
        """What it has written, as it stands."""
        self._crew = crew
        self._process = process
        self._reading = asyncio.create_task(self._read())

    @property
    def exit_code(self) -> int | None:
        """None while it lives."""
        return self._process.returncode

    @property
    def states(self) -> list[str]:
        """The states that it has been in, as its log tells."""
        return [line["to_state"] for line in self.log if line["message"] == "worker_state_transition"]

    def said(self, message: str) -> list[dict[str, Any]]:
        """The lines of its log with that name."""
        return [line for line in self.log if line["message"] == message]

    async def says(self, message: str) -> None:
        """Wait for a line of its log."""
        await self._crew.until(lambda: bool(self.said(message)), f"{self.name} says {message}")

    async def drops(self, job_id: str) -> None:
        """Wait until it has learned that its lease on a job was over: from a heartbeat, or its report."""
        await self._crew.until(
            lambda: any(
                line["task_id"] == job_id for line in self.said("lease_lost") + self.said("report_failed")
            ),
            f"{self.name} drops {job_id}",
        )

    async def is_in(self, state: str) -> None:
        """Wait until it has come to a state."""
        await self._crew.until(lambda: state in self.states, f"{self.name} is {state}")

    async def kill(self) -> None:
        """`kill -9`, and wait for its end: a process that is yet to die may be given jobs by its server."""
        os.kill(self.pid, signal.SIGKILL)
        await self._process.ended()

    async def freeze(self) -> None:
        """As a laptop that is closed, or a host that swaps."""
        await asyncio.to_thread(freeze, self.pid, self._crew.url)

    def thaw(self) -> None:
        """It goes on, and does not know that time has passed."""
        os.kill(self.pid, signal.SIGCONT)

    def ask_to_go(self, how: signal.Signals = signal.SIGTERM) -> None:
        """As every orchestrator of containers does."""
        os.kill(self.pid, how)

    async def gone(self) -> int:
        """Wait for its end; its exit code."""
        await self._crew.until(
            lambda: self._process.returncode is not None and self._reading.done(), f"{self.name} is gone"
        )
        assert self._process.returncode is not None
        return self._process.returncode

    async def end(self) -> None:
        """Leave nothing of it behind, however it is."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            self._process.kill()
        await self._process.ended()
        with contextlib.suppress(TimeoutError):  # a process that it has started may hold the pipe open
            await asyncio.wait_for(self._reading, LAST_WORDS_S)
        self._process.stop_reading()

    async def _read(self) -> None:
        async for line in await self._process.reader(self._process.stderr):
            self.words.append(line.decode(errors="replace").rstrip())
            with contextlib.suppress(msgspec.DecodeError):
                entry = msgspec.json.decode(line)
                if isinstance(entry, dict) and "message" in entry:
                    self.log.append(entry)
            self._crew.stir()
        await self._process.ended()
        self._crew.stir()


class Crew:
    """The workers of one project on one store, and a client beside them."""

    def __init__(self, folder: Path, place: Place) -> None:
        self.folder = folder
        self.url, self._database = place
        self.notes: list[str] = []
        """What handlers have said, in the order in which it came."""
        self.stir = Stir()
        self.workers: list[Worker] = []
        self._gates = folder / "gates"
        self._pipe = folder / "notes"
        self._reader = -1
        self._rest = b""
        self._unsubscribe: Callable[[], None] = lambda: None
        self._jumps = 0

    async def open(self, durations: Durations = STEADY, *, tree_quotas: Sequence[int] = ()) -> Self:
        """Lay out the project and connect the client; may be done again with other settings."""
        if self._reader < 0:
            self._gates.mkdir()
            os.mkfifo(self._pipe)
            # Also for writing, so that it has no end when the last handler closes it.
            self._reader = os.open(self._pipe, os.O_RDWR | os.O_NONBLOCK)
            asyncio.get_running_loop().add_reader(self._reader, self._take_notes)
        else:
            await self._disconnect()
        lines = (f"{name} = {seconds}" for name, seconds in msgspec.structs.asdict(durations).items())
        quotas = [f"tree_quotas = {list(tree_quotas)}"] if tree_quotas else []
        text = "\n".join([*quotas, "[durations]", *lines, ""])
        (self.folder / project.FILE).write_text(text, encoding="utf-8")
        settings = project.load(self.url, start=self.folder).settings
        self.durations = durations
        self.il = Interlock(self.url, settings=settings, actor="somebody")
        # A client gives a store 20 s to answer, which a slow machine may need to open one.
        assert isinstance(self.il._port, EmbeddedOrchestrator)
        self.il._port._make_store = lambda: store_for(self.url, CATALOGUE, timeout_s=PROGRAM_S)
        await self.il.open()
        loop = asyncio.get_running_loop()
        self._unsubscribe = self.il.services.store.subscribe(lambda: _soon(loop, self.stir))
        return self

    async def close(self) -> None:
        """End everybody, and let go of everything."""
        for worker in self.workers:
            await worker.end()
        await self._disconnect()
        asyncio.get_running_loop().remove_reader(self._reader)
        os.close(self._reader)

    # Workers

    async def start(
        self,
        name: str = "anna",
        *options: str,
        module: str = errands.__name__,
        command: Sequence[str] = WORKER,
        program: Sequence[str] = (),
    ) -> Worker:
        """Start a worker, or what another `command` is; as a fresh process where there is a `program`."""
        process = Program(
            *(*command, module, "--store", self.url, "--name", name, *options),
            folder=self.folder,
            environment=self._environment(),
            stdout=None,
            program=program,
        )
        worker = Worker(self, name, process)
        self.workers.append(worker)
        return worker

    async def ready(self, name: str = "anna", *options: str, **how: Any) -> Worker:
        """Start a worker, and come back when it waits for work."""
        worker = await self.start(name, *options, **how)
        await worker.is_in("backing_off")
        return worker

    # Time

    async def pass_time(self, seconds: float) -> None:
        """Set the clock of the store ahead, at once and for everybody.

        What is due by then is overdue: also the leases of workers that are alive, unless they are longer.
        """
        if self._database is not None:
            move_server(self._database, seconds)
            return
        move_sqlite(self.il.services.store, seconds)
        # The next commit takes everybody along. A token is a commit that no job and no worker is part of.
        self._jumps += 1
        await Tokens(self.il.services.engine).create(f"jump-{self._jumps}", Role.VIEWER, lasts=None)

    async def let_leases_run_out(self) -> None:
        """Have every lease end that is held now; whatever is granted afterwards lasts as long as ever."""
        await self.pass_time(self.durations.lease_ttl_s + 1)

    # Waiting

    async def until(self, true: Callable[[], bool | Awaitable[bool]], what: str) -> None:
        """Wait for something to be true, or fail; it may take a worker that has yet to be started."""

        async def ask() -> bool:
            answer = true()
            return answer if isinstance(answer, bool) else await answer

        try:
            async with asyncio.timeout(PROGRAM_S):
                await self.stir.until(ask)
        except TimeoutError:
            raise AssertionError(f"It was not so within {PROGRAM_S:g} s that {what}.") from None

    async def noted(self, beginning: str, times: int = 1) -> str:
        """Wait until handlers have said so; the last line that begins like this."""
        what = f"a handler notes {beginning!r} {times} times"
        await self.until(lambda: self.count(beginning) >= times, what)
        return [line for line in self.notes if line.startswith(beginning)][-1]

    def count(self, beginning: str) -> int:
        """How many notes begin like this."""
        return sum(line.startswith(beginning) for line in self.notes)

    async def sees(self, job_id: str, true: Callable[[JobView], bool], what: str) -> JobView:
        """Wait until something is true of a job; the job as it is then."""
        seen: list[JobView] = []

        async def look() -> bool:
            with contextlib.suppress(StoreUnavailable):
                seen[:] = [await self.il.job(job_id)]
                return true(seen[0])
            return False

        try:
            await self.until(look, f"{what} is true of {job_id}")
        except AssertionError as error:
            raise AssertionError(f"{error} It is {briefly(seen[0]) if seen else 'not seen'}.") from None
        return seen[0]

    async def ended(self, job_id: str) -> JobView:
        """Wait for the end of a job."""
        return await self.sees(job_id, lambda view: view.state in job.ENDED, "it has ended")

    async def all_completed(self, number: int) -> None:
        """Wait until so many jobs of the store are COMPLETED."""
        query = Query(kind="job", states=(job.COMPLETED,))
        seen = 0

        async def look() -> bool:
            nonlocal seen
            with contextlib.suppress(StoreUnavailable):
                seen = (await self.il.services.jobs.count(query, cap=number + 1)).number
                return seen == number
            return False

        try:
            await self.until(look, f"{number} jobs are COMPLETED")
        except AssertionError as error:
            raise AssertionError(f"{error} {seen} are.") from None

    # Looking

    def open_gate(self, gate: str) -> None:
        """Let the handler go on that waits there."""
        (self._gates / gate).touch()

    async def history(self, job_id: str) -> list[Entry]:
        """The journal of a job."""
        return await self.il.services.jobs.history(job_id)

    async def steps(self, job_id: str, machine: str) -> list[str]:
        """How one of the machines of a job has moved: `event → STATE`, in order."""
        entries = await self.history(job_id)
        lines = [line for entry in entries for line in entry.note.steps if line.machine == machine]
        return [f"{line.event} → {line.target}" for line in lines if line.moves]

    async def faults(self) -> list[str]:
        """Where the journal and the records of all jobs disagree."""
        found = await audit(self.il.services.store, JOURNALLED, ["job"])
        return [f"{fault.id} version {fault.version}: {fault.sentence}" for fault in found.faults]

    # Inside

    async def _disconnect(self) -> None:
        self._unsubscribe()
        await self.il.close()

    def _environment(self) -> Mapping[str, str]:
        inherited = {name: value for name, value in os.environ.items() if name != "INTERLOCK_URL"}
        ours = {errands.NOTES: str(self._pipe), errands.GATES: str(self._gates), "PYTHONPATH": str(ROOT)}
        return {**inherited, **ours}

    def _take_notes(self) -> None:
        *lines, self._rest = (self._rest + os.read(self._reader, 65_536)).split(b"\n")
        self.notes += [line.decode() for line in lines]
        self.stir()

    def story(self) -> str:
        """The last words of everybody, as a test shows them that has failed."""
        parts = ["notes: " + ", ".join(self.notes[-SHOWN_LINES:])]
        for worker in self.workers:
            parts.append(f"--- {worker.name} (pid {worker.pid}, exit code {worker.exit_code})")
            parts += last_lines(worker.words)
        return "\n".join(parts)


def last_lines(log: Sequence[str]) -> list[str]:
    """The last lines of a log that tell something, shortened."""
    telling = [line for line in log if not any(dull in line for dull in DULL)]
    return [_essence(line)[:SHOWN_LENGTH] for line in telling[-SHOWN_LINES:]]


def briefly(view: JobView) -> str:
    """A job in one line."""
    attempts = ", ".join(
        f"{one.state} ({one.lease.state if one.lease else 'no lease'})" for one in view.attempts
    )
    return f"{view.state}, losses {view.losses}, attempts {attempts or 'none'}"


def _essence(line: str) -> str:
    """A line of a log without what each of them says."""
    try:
        entry = msgspec.json.decode(line, type=dict[str, Any])
    except msgspec.DecodeError:
        return line
    at = entry.pop("timestamp", None) or entry.pop("at", "")
    time, message = str(at)[11:23], entry.pop("message", "")
    for name in ("level", "logger", "worker_id"):
        entry.pop(name, None)
    return f"{time} {message} " + " ".join(f"{name}={value}" for name, value in entry.items())


def alive(pid: int) -> bool:
    """Return whether a process is there and has not ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(") ")[2][0] not in "ZX"


def _soon(loop: asyncio.AbstractEventLoop, act: Callable[[], None]) -> None:
    with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
        loop.call_soon_threadsafe(act)
