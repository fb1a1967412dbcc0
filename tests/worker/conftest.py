"""A worker process in the test's own event loop, on a board, and its log.

What should be prompt is prompt; no lease and no deadline ends within a test unless the test ends it.
"""

from __future__ import annotations

import asyncio
import io
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import msgspec
import pytest
from tests.waiting import PATIENCE_S
from tests.worker.board import Board

from interlock.lifecycles.durations import Durations
from interlock.processes import groups
from interlock.worker import task_runner
from interlock.worker.context import Context
from interlock.worker.environment import Meters, WorkerHost
from interlock.worker.process import WorkerProcess
from interlock.worker.running_task import RunningTask
from interlock.worker.settings import WorkerSettings
from interlock.worker.tasks import Registry
from interlock.worker.telemetry import make_log

QUICK = Durations(
    lease_ttl_s=900.0,
    heartbeat_every_s=0.1,
    ack_window_s=600.0,
    sweep_every_s=0.1,
    abort_warning_s=60.0,
    abort_kill_s=120.0,
    cancel_deadline_s=200.0,
    shutdown_soft_s=300.0,
    shutdown_deadline_s=600.0,
    worker_silence_s=900.0,
    backoff_cap_s=0.2,
)
TOLD_S = 301.0
"""So long after a worker was asked to go it has told its handlers, by `QUICK`."""
STOPPED_S = 500.0
"""So long after, it has stopped them; it has until 600 s to report that."""
OVERDUE_S = 601.0
"""So long after, it has to be gone."""


class Gate:
    """Something that handlers of either kind wait for, and that says how many have come."""

    def __init__(self) -> None:
        self.entered = 0
        self._opened = threading.Event()
        self._changed: list[Callable[[], None]] = []

    def enter(self) -> None:
        self.entered += 1
        for changed in list(self._changed):
            changed()

    def open(self) -> None:
        self._opened.set()
        for changed in list(self._changed):
            changed()

    def wait(self) -> None:
        """In a thread."""
        self.enter()
        assert self._opened.wait(PATIENCE_S)

    async def pass_through(self) -> None:
        """In the event loop."""
        self.enter()
        await self._until(self._opened.is_set)

    async def until_entered(self, count: int = 1) -> None:
        await self._until(lambda: self.entered >= count)

    async def _until(self, true: Callable[[], bool]) -> None:
        loop, stirred = asyncio.get_running_loop(), asyncio.Event()

        def stir() -> None:
            loop.call_soon_threadsafe(stirred.set)

        self._changed.append(stir)
        try:
            async with asyncio.timeout(PATIENCE_S):
                while not true():
                    await stirred.wait()
                    stirred.clear()
        finally:
            self._changed.remove(stir)


class Lines(io.StringIO):
    """A log that can be asked, and waited for."""

    def __init__(self, changed: Callable[[], None]) -> None:
        super().__init__()
        self._changed: list[Callable[[], None]] = [changed]

    def write(self, text: str) -> int:
        written = super().write(text)
        for changed in list(self._changed):
            changed()
        return written

    def all(self, message: str = "") -> list[dict[str, Any]]:
        lines = [msgspec.json.decode(line) for line in self.getvalue().splitlines()]
        return [line for line in lines if not message or line["message"] == message]

    async def until(self, message: str) -> dict[str, Any]:
        loop, stirred = asyncio.get_running_loop(), asyncio.Event()

        def stir() -> None:
            loop.call_soon_threadsafe(stirred.set)

        self._changed.append(stir)
        try:
            async with asyncio.timeout(PATIENCE_S):
                while not self.all(message):
                    await stirred.wait()
                    stirred.clear()
        except TimeoutError:
            raise AssertionError(f"waited in vain for {message}; the log says:\n{self.getvalue()}") from None
        finally:
            self._changed.remove(stir)
        return self.all(message)[-1]


class Worker:
    """A running worker process."""

    def __init__(self, process: WorkerProcess, lines: Lines) -> None:
        self.process = process
        self.lines = lines
        self.running = asyncio.create_task(process.run())

    async def stop(self, asked_ago_s: float = 0.0) -> int:
        """Ask it to go, as if that had been done so many seconds ago; return its exit code."""
        shutdown = self.process.shutdown
        if shutdown.requested_at is None:
            shutdown.requested_at = shutdown.awake() - asked_ago_s
        shutdown.request()
        return await self.ended()

    async def ended(self) -> int:
        """Wait for its end; return its exit code."""
        async with asyncio.timeout(PATIENCE_S):
            return await self.running

    def path(self, machine: str = "worker") -> list[str]:
        """The states that a machine of this process went through."""
        moves = self.lines.all(f"{machine}_state_transition")
        return [moves[0]["from_state"], *(move["to_state"] for move in moves)] if moves else []


Start = Callable[..., Worker]


@pytest.fixture
def registry() -> Registry:
    return Registry()


@pytest.fixture
def gate() -> Iterator[Gate]:
    """Closed until the test opens it, or is over: no handler stays behind in a thread."""
    gate = Gate()
    yield gate
    gate.open()


@pytest.fixture(autouse=True)
def _patient_with_wardens(monkeypatch: pytest.MonkeyPatch) -> None:
    """A warden that has no turn for a while is not killed for it."""
    monkeypatch.setattr(groups, "CLEAR_UP_S", PATIENCE_S)


@pytest.fixture
def board() -> Board:
    return Board(
        ttl_s=QUICK.lease_ttl_s, heartbeat_every_s=QUICK.heartbeat_every_s, ack_window_s=QUICK.ack_window_s
    )


@pytest.fixture
async def start(registry: Registry, board: Board) -> AsyncIterator[Start]:
    """Start workers; each is shut down when the test is over."""
    begun: list[Worker] = []

    def start(**choices: Any) -> Worker:
        lines = Lines(board.changed)  # whoever waits at the board looks when a state changes, too
        meters = Meters(**_chosen(choices, metrics="metrics", tracing="tracing"))
        # `threads` is a setting: how many
        host = WorkerHost(**_chosen(choices, also="also", monotonic="monotonic", threads_from="threads"))
        shutdown = choices.pop("shutdown", None)
        connect = choices.pop("connect", board.port)
        level = choices.pop("level", "info")
        settings = WorkerSettings(
            **{
                "name": "tester",
                "durations": QUICK,
                "first_backoff_s": 0.01,
                "flush_every_s": 0.02,
                "stop_grace_s": 0.1,
                "kill_grace_s": 0.1,
                "patience_s": 0.1,
                **choices,
            }
        )
        log = make_log(level, "json", lines)
        incarnation = f"i{len(begun) + 1}"
        process = WorkerProcess(
            settings,
            registry,
            connect,
            incarnation=incarnation,
            log=log,
            shutdown=shutdown,
            meters=meters,
            host=host,
        )
        begun.append(Worker(process, lines))
        return begun[-1]

    yield start
    for event in board.held.values():
        event.set()
    for worker in begun:
        if not worker.running.done():
            await worker.stop(STOPPED_S)


def _chosen(choices: dict[str, Any], **names: str) -> dict[str, Any]:
    """Take what a test has chosen, under the names that the worker has for it."""
    return {ours: choices.pop(theirs) for theirs, ours in names.items() if theirs in choices}


@pytest.fixture
def echo(registry: Registry) -> str:
    """A task that gives back what it is given."""

    @registry.task(name="echo")
    async def echo(value: Any = None) -> Any:
        return value

    return "echo"


@pytest.fixture
def held(registry: Registry, gate: Gate) -> str:
    """An async task that waits for the gate, and saves something before."""

    @registry.task(name="held")
    async def held(ctx: Context) -> str:
        ctx.checkpoint({"at": 7})
        ctx.log("before the gate")
        await gate.pass_through()
        return "through"

    return "held"


@pytest.fixture
def silent(registry: Registry, gate: Gate) -> str:
    """An async task that waits for the gate and says nothing, so that only heartbeats are sent for it."""

    @registry.task(name="silent")
    async def silent() -> str:
        await gate.pass_through()
        return "through"

    return "silent"


@pytest.fixture
def held_in_thread(registry: Registry, gate: Gate) -> str:
    """The same in a thread."""

    @registry.task(name="held_in_thread")
    def held_in_thread() -> str:
        gate.wait()
        return "through"

    return "held_in_thread"


@pytest.fixture
def acts(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> dict[int, Callable[[Context], Any]]:
    """What the handler of the task `numbered` does, by the number of its job; others return theirs.

    It never waits, so that its jobs are executed as a cohort, and no busy machine cuts that into slices.
    """
    monkeypatch.setattr(task_runner, "SLICE_S", 600.0)
    acts: dict[int, Callable[[Context], Any]] = {}

    @registry.task(name="numbered")
    async def numbered(number: int, ctx: Context) -> Any:
        return acts[number](ctx) if number in acts else number

    return acts


@pytest.fixture
def tasks_made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The jobs that have had a task of their own."""
    made: list[str] = []
    make = RunningTask.__init__

    def noted(running: RunningTask, grant: Any, *args: Any, **choices: Any) -> None:
        made.append(grant.job_id)
        make(running, grant, *args, **choices)

    monkeypatch.setattr(RunningTask, "__init__", noted)
    return made
