"""A host that stands still for a while costs time, and no handler, no lease that still lives, no grace."""

from __future__ import annotations

import asyncio
import inspect
import time
from pathlib import Path

import msgspec
import pytest
from tests.waiting import until
from tests.worker.board import Board, Clock
from tests.worker.conftest import QUICK, Gate, Start

from interlock.errors import StoreUnavailable
from interlock.processes.groups import Group
from interlock.worker import entry, process
from interlock.worker.context import Context
from interlock.worker.host import FORGIVEN_S, STANDSTILL_S, AwakeTime, Shutdown, since_boot
from interlock.worker.settings import WorkerSettings
from interlock.worker.tasks import Registry
from interlock.worker.telemetry import make_log

PAUSE_S = 11.0
HASTY = msgspec.structs.replace(
    QUICK,
    abort_warning_s=0.01,
    abort_kill_s=0.02,
    cancel_deadline_s=0.05,
    shutdown_soft_s=0.1,
    shutdown_deadline_s=0.3,
)


def test_time_in_which_the_process_stood_still_is_not_counted() -> None:
    clock = Clock()
    awake = AwakeTime(clock)
    awake.pulse()
    before = awake()
    clock.move(PAUSE_S)
    assert awake() - before == STANDSTILL_S, "not even before the next pulse"
    awake.pulse()
    assert awake() - before == STANDSTILL_S
    for _ in range(8):
        clock.move(0.25)
        awake.pulse()
    assert awake() - before == pytest.approx(STANDSTILL_S + 2.0)


def test_an_awake_clock_without_pulses_is_an_ordinary_one() -> None:
    clock = Clock()
    awake = AwakeTime(clock)
    before = awake()
    clock.move(PAUSE_S)
    assert awake() - before == PAUSE_S


def test_a_process_standstill_of_an_hour_delays_a_deadline_by_no_more_than_the_forgiven_time() -> None:
    clock = Clock()
    awake = AwakeTime(clock)
    awake.pulse()
    before = awake()
    clock.move(3_600.0)
    assert awake() - before == 3_600.0 - FORGIVEN_S


def test_a_worker_judges_its_leases_by_a_clock_that_counts_suspended_time() -> None:
    assert inspect.signature(process.WorkerProcess).parameters["host"].default.monotonic is since_boot
    awake_s = time.monotonic()
    assert since_boot() >= awake_s


async def test_a_claim_that_fails_because_the_host_stood_still_costs_no_task(
    board: Board, start: Start, held: str, gate: Gate
) -> None:
    """Patience was counted from the question, so the first failure after a pause broke the connection."""
    clock = Clock()
    job = board.pin(held)
    worker = start(patience_s=5.0, shutdown=Shutdown(clock))
    await gate.until_entered()

    def stand_still(method: str) -> None:
        if method == "claim":
            board.before = lambda _: None
            clock.move(PAUSE_S)
            raise StoreUnavailable("No answer in time.")

    board.before = stand_still
    board.pin("echo of nothing")  # wakes the worker, so that it claims
    await worker.lines.until("claim_failed")
    polls = len(board.claims)
    await board.until(lambda: len(board.claims) > polls, "the next claim")
    gate.open()
    await board.until_state(job, "succeeded")
    assert job.attempts == 1
    assert not worker.lines.all("connection_lost")


async def test_a_handler_has_its_grace_in_a_shutdown_although_the_host_stands_still(
    board: Board, start: Start, registry: Registry, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, tidied = Clock(), _tidying(registry, gate)
    job = board.pin("tidying")
    worker = start(durations=HASTY, shutdown=Shutdown(clock))
    await board.until_state(job, "running")
    waited = _count_waits(worker.process, monkeypatch)

    worker.process.shutdown.request()
    clock.move(HASTY.shutdown_soft_s + 0.01)
    await gate.until_entered()
    # Real time passes, but the process had none of it.
    before = waited[0]
    await until(lambda: waited[0] > before + 3, "deadlines of real time have passed")
    gate.open()

    async with asyncio.timeout(60):
        assert await worker.running == 0
    assert job.released == ["shutdown"]
    assert tidied == [job.id], "it was not cut off"


async def test_a_handler_has_its_grace_after_a_cancel_although_the_host_stands_still(
    board: Board, start: Start, registry: Registry, gate: Gate
) -> None:
    clock, tidied = Clock(), _tidying(registry, gate)
    job = board.pin("tidying")
    start(stop_grace_s=0.05, shutdown=Shutdown(clock))
    await board.until_state(job, "running")

    board.cancel(job)
    await gate.until_entered()
    renewals = len(board.messages)
    await board.until(lambda: len(board.messages) > renewals + 5, "more real time than the grace")
    gate.open()

    await board.until_state(job, "canceled")
    assert tidied == [job.id], "it was not cut off"


async def test_a_process_that_stood_still_in_its_shutdown_is_not_ended_by_force_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock()
    forced: list[int] = []
    monkeypatch.setattr(entry, "_leave", forced.append)
    shutdown = Shutdown(clock)
    settings = WorkerSettings(name="anna")
    leave_if_overdue, *_ = entry._duties(settings, shutdown, make_log("error", "text"))
    shutdown.awake.pulse()
    shutdown.request()

    def live(seconds: float) -> None:
        for _ in range(int(seconds / 0.5)):
            clock.move(0.5)
            shutdown.awake.pulse()
            leave_if_overdue()

    live(settings.durations.shutdown_deadline_s - 5.0)
    clock.move(PAUSE_S)
    shutdown.awake.pulse()
    leave_if_overdue()
    assert not forced
    live(5.0)
    assert forced, "when the process had all the time that it may have, it is"


async def test_a_command_has_its_grace_although_the_host_stands_still(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The timer was due right after the pause, before the command could act on its signal."""
    loop, passed_s = asyncio.get_running_loop(), [0.0]
    real = loop.time
    monkeypatch.setattr(loop, "time", lambda: real() + passed_s[0])
    lines: list[str] = []
    gate = tmp_path / "gate"
    script = (
        f"trap 'while [ ! -e {gate} ]; do echo told; sleep 0.01; done; exit 3' TERM; echo up; "
        "while true; do sleep 0.01; done"
    )
    group = await Group.start(["sh", "-c", script], lambda line, _: lines.append(line))
    await until(lambda: "up" in lines, "it runs")

    group.terminate(400.0)
    await until(lambda: "told" in lines, "it is told")
    due = asyncio.Event()
    loop.call_later(400.0, due.set)
    passed_s[0] += 401.0
    await due.wait()
    count = len(lines)
    await until(lambda: len(lines) > count + 20 or group._output.exited.is_set(), "it goes on")
    gate.touch()

    assert (await group.ended()).code == 3


def _tidying(registry: Registry, gate: Gate) -> list[str]:
    """Declare a task that stops when told, but not before the gate is open; return who came to an end."""
    tidied: list[str] = []

    @registry.task(name="tidying")
    async def tidying(ctx: Context) -> None:
        await ctx.wait_cancelled()
        await gate.pass_through()
        tidied.append(ctx.job_id)
        ctx.raise_if_cancelled()

    return tidied


def _count_waits(worker: process.WorkerProcess, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    counted, real = [0], worker._all_end_within

    async def counting(seconds: float) -> bool:
        counted[0] += 1
        return await real(seconds)

    monkeypatch.setattr(worker, "_all_end_within", counting)
    return counted
