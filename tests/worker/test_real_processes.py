"""Workers that are processes, and signals that are signals (S1-7, S1-20, S1-29; R12, R13)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.waiting import PATIENCE_S
from tests.worker.board import Board
from tests.worker.conftest import QUICK
from tests.worker.remote import served

from interlock.wire.runner import Complete
from interlock.worker.settings import WorkerSettings

ROOT = Path(__file__).parents[2]
HASTY = msgspec.structs.replace(
    QUICK,
    abort_warning_s=0.1,
    abort_kill_s=0.2,
    cancel_deadline_s=0.5,
    shutdown_soft_s=0.2,
    shutdown_deadline_s=0.5,
)
"""For a shutdown that has to be forced; leases are as long as ever."""
SHOWN_LINES = 15


class Program:
    """A worker in a process of its own."""

    def __init__(self, process: asyncio.subprocess.Process, clock: Path) -> None:
        self._process = process
        self._clock = clock
        self.pid = process.pid
        self.lines: list[dict[str, Any]] = []
        self._reading = asyncio.create_task(self._read())
        self._changed = asyncio.Event()

    async def until(self, message: str, **facts: Any) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not self.said(message, **facts):
                await self._changed.wait()
                self._changed.clear()

    def said(self, message: str, **facts: Any) -> list[dict[str, Any]]:
        return [
            line
            for line in self.lines
            if line["message"] == message and all(line.get(name) == value for name, value in facts.items())
        ]

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def set_ahead(self, seconds: float) -> None:
        """Set the clock for its leases ahead."""
        set_clock(self._clock, seconds)

    def story(self) -> str:
        """Its last lines."""
        return "\n".join([f"--- worker {self.pid}", *map(str, self.lines[-SHOWN_LINES:])])

    async def ended(self) -> int:
        async with asyncio.timeout(PATIENCE_S):
            await self._reading
            return await self._process.wait()

    async def close(self) -> None:
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
        await self._reading
        await self._process.wait()

    async def _read(self) -> None:
        assert self._process.stderr is not None
        async for line in self._process.stderr:
            with contextlib.suppress(msgspec.DecodeError):
                self.lines.append(msgspec.json.decode(line))
            self._changed.set()


Run = Callable[..., Any]


def set_clock(clock: Path, seconds: float) -> None:
    """Replace the file at once: the worker may read it at any moment."""
    fresh = clock.with_suffix(".new")
    fresh.write_text(str(seconds))
    fresh.replace(clock)


@pytest.fixture
def socket_path(tmp_path: Path) -> Path:
    return tmp_path / "board"


@pytest.fixture
async def served_board(board: Board, socket_path: Path) -> AsyncIterator[Board]:
    async with served(board, socket_path):
        yield board


@pytest.fixture
async def run(socket_path: Path, tmp_path: Path) -> AsyncIterator[Run]:
    begun: list[Program] = []

    async def run(**choices: Any) -> Program:
        settings = WorkerSettings(
            **{"name": "host-1", "durations": QUICK, "first_backoff_s": 0.02, "stop_grace_s": 0.2, **choices}
        )
        clock = tmp_path / f"clock-{len(begun)}"
        set_clock(clock, 0.0)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.worker.program", str(socket_path)),
            *(msgspec.json.encode(settings).decode(), str(clock)),
            cwd=ROOT,
            stderr=asyncio.subprocess.PIPE,
        )
        begun.append(Program(process, clock))
        return begun[-1]

    yield run
    for program in begun:
        await program.close()
        print(program.story())  # shown only where a test has failed


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_an_idle_worker_at_once(
    served_board: Board, run: Run, number: signal.Signals
) -> None:
    program = await run()
    await program.until("worker_state_transition", to_state="backing_off")
    program.signal(number)
    assert await program.ended() == 0
    assert program.said("worker_shutdown")[0]["forced"] is False


async def test_a_signal_ends_a_worker_that_cannot_connect(run: Run) -> None:
    """The store is away: nobody listens at the socket."""
    program = await run()
    await program.until("connection_failed")
    program.signal(signal.SIGTERM)
    assert await program.ended() == 0
    assert program.lines[-1]["message"] == "worker_shutdown"


async def test_a_worker_finishes_a_short_task_after_sigterm_before_it_exits(
    served_board: Board, run: Run
) -> None:
    job = served_board.pin("nap", {"seconds": 0.3})
    program = await run()
    await served_board.until(lambda: "napping" in job.lines, "the nap")
    program.signal(signal.SIGTERM)
    program.signal(signal.SIGTERM)
    assert await program.ended() == 0
    assert (job.state, job.result) == ("succeeded", "rested")


async def test_a_worker_releases_a_long_task_with_its_checkpoint_on_sigterm(
    served_board: Board, run: Run
) -> None:
    """Ten minutes of work, and a process that does not wait for their end."""
    job = served_board.pin("nap", {"seconds": 600})
    program = await run(durations=msgspec.structs.replace(QUICK, shutdown_soft_s=0.1))
    await served_board.until(lambda: "napping" in job.lines, "the nap")
    program.signal(signal.SIGTERM)
    assert await program.ended() == 0
    assert (job.state, job.released, job.losses) == ("queued", ["shutdown"], 0)
    assert bytes(job.checkpoint or b"") == b'{"began":true}'


async def test_a_handler_that_blocks_the_event_loop_does_not_keep_its_process_from_ending(
    served_board: Board, run: Run
) -> None:
    """The supervisor's thread ends it, and says so."""
    job = served_board.pin("block", {"seconds": 600})
    program = await run(durations=HASTY)
    await served_board.until(lambda: "blocking" in job.lines, "it to block")
    program.signal(signal.SIGTERM)
    assert await program.ended() == 1
    assert program.said("shutdown_forced")


async def test_a_worker_that_is_killed_takes_its_processes_with_it(
    served_board: Board, run: Run, tmp_path: Path
) -> None:
    """Even kill -9: whoever loses the worker ends itself."""
    served_board.pin("deaf", {"folder": str(tmp_path)})
    program = await run()
    await served_board.until((tmp_path / "pids").exists, "both to run")
    pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
    program.signal(signal.SIGKILL)
    assert await program.ended() == -signal.SIGKILL
    for pid in pids:
        await _gone(pid)


async def test_a_worker_that_was_stopped_past_its_lease_does_not_report(
    served_board: Board, run: Run, tmp_path: Path
) -> None:
    """SIGSTOP and SIGCONT: another has done the work meanwhile, and only its report counts."""
    job = served_board.pin("first_waits", {"path": str(tmp_path / "go on")})
    stopped = await run()
    await served_board.until(lambda: "waiting" in job.lines, "the first attempt")
    stopped.signal(signal.SIGSTOP)
    served_board.pass_time(served_board.ttl_s)
    stopped.set_ahead(served_board.ttl_s)
    other = await run()
    await served_board.until_state(job, "succeeded")
    assert (job.attempts, job.result) == (2, 2)
    (tmp_path / "go on").touch()
    stopped.signal(signal.SIGCONT)
    await stopped.until("lease_lost")
    completions = [message.runner_id for message in served_board.said(Complete)]
    assert len(completions) == 1
    for program in (stopped, other):
        program.signal(signal.SIGTERM)
        assert await program.ended() == 0


async def test_a_worker_reconnects_and_runs_jobs_after_the_orchestrator_was_unavailable(
    board: Board, socket_path: Path, run: Run
) -> None:
    async with served(board, socket_path):
        program = await run(patience_s=0.1)
        await program.until("worker_state_transition", to_state="backing_off")
    await program.until("connection_failed")
    async with served(board, socket_path):
        job = board.pin("quick", {"value": 3})
        await board.until_state(job, "succeeded")
        program.signal(signal.SIGTERM)
        assert await program.ended() == 0


async def test_every_line_of_a_worker_in_a_pipe_is_json_and_none_has_a_token(
    served_board: Board, run: Run
) -> None:
    """S1-19, R31"""
    job = served_board.pin("nap", {"seconds": 0.0})
    program = await run()
    await served_board.until_state(job, "succeeded")
    program.signal(signal.SIGTERM)
    assert await program.ended() == 0
    text = msgspec.json.encode(program.lines).decode()
    assert len(program.lines) > 8
    assert "secret" not in text
    assert {line["worker_id"].partition("#")[0] for line in program.said("worker_state_transition")} == {
        "host-1"
    }


async def _gone(pid: int) -> None:
    """Wait until a process that is not our child has ended."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(descriptor, ended.set)
    try:
        async with asyncio.timeout(PATIENCE_S):
            await ended.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)
