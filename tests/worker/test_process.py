"""A worker process from its start to its end, with the board in view (S1-1..7, S1-21, S1-23..24, S1-27)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from tests.worker.board import Board, Clock
from tests.worker.conftest import Gate, Start

from interlock.errors import TransitionNotAllowed
from interlock.lifecycles import PROCESS
from interlock.lifecycles.process import BACKING_OFF, RUNNING, connected, shutdown_requested
from interlock.machine import Refused
from interlock.wire.runner import Complete
from interlock.worker.context import Context
from interlock.worker.host import Begins, Join, MachineThreads
from interlock.worker.tasks import Registry


async def test_a_worker_starts_connects_recovers_and_runs(board: Board, start: Start, echo: str) -> None:
    """S1-23: startup to connecting, connecting to recovering, recovery to running."""
    worker = start()
    job = board.pin(echo, {"value": 5})
    await board.until_state(job, "succeeded")
    assert worker.path()[:4] == ["starting", "connecting", "recovering", "running"]
    assert board.recoveries >= 1


async def test_a_worker_processes_a_single_task_to_completion(board: Board, start: Start, echo: str) -> None:
    """S1-27"""
    job = board.pin(echo, {"value": {"a": [1, 2]}})
    worker = start()
    await board.until_state(job, "succeeded")
    assert job.result == {"a": [1, 2]}
    assert await worker.stop() == 0
    assert worker.path("task") == ["pending", "claiming", "processing", "reporting", "completed"]
    assert (worker.process.data.processed, worker.process.data.failed) == (1, 0)


async def test_every_loop_beside_the_event_loop_runs_where_the_threads_are_given(
    board: Board, start: Start
) -> None:
    """Whoever simulates workers has no threads, and must be able to say so in one place."""
    threads = NamedThreads()
    worker = start(threads_from=threads)
    await board.until(lambda: worker.process.state is RUNNING, "the worker to run")
    assert await worker.stop() == 0
    assert sorted(threads.names) == ["interlock-renewer", "interlock-supervision", "interlock-watchdog"]


class NamedThreads(MachineThreads):
    """Those of the machine; knows which were asked for."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def serve(
        self, name: str, main: Callable[[], Coroutine[Any, Any, None]], begins: Begins | None = None
    ) -> Join:
        self.names.append(name)
        return super().serve(name, main, begins)

    def repeat(self, name: str, every_s: float, body: Callable[[], None]) -> Join:
        self.names.append(name)
        return super().repeat(name, every_s, body)


async def test_a_running_worker_has_a_connection_and_a_stopped_one_has_none(
    board: Board, start: Start, held: str, gate: Gate
) -> None:
    """S1-24: running has connection, stopped releases connection."""
    board.pin(held)
    worker = start()
    await gate.until_entered()
    before = worker.process.data
    assert (before.connected, board.connections >= 1) == (True, True)
    gate.open()
    assert await worker.stop() == 0
    after = worker.process.data
    assert (after.connected, board.connections) == (False, 0)
    assert worker.path()[-2:] == ["shutting_down", "stopped"]


async def test_there_is_one_handler_at_a_time_for_one_slot(
    board: Board, start: Start, held: str, gate: Gate
) -> None:
    """S1-24: single active task."""
    jobs = [board.pin(held) for _ in range(3)]
    start(concurrency=1)
    await gate.until_entered()
    await board.until(lambda: len(board.messages) >= 1, "a heartbeat")
    assert gate.entered == 1
    assert [job.state for job in jobs[1:]] == ["queued", "queued"]
    gate.open()
    for job in jobs:
        await board.until_state(job, "succeeded")


async def test_two_processes_under_one_name_are_distinguished(
    board: Board, start: Start, held: str, gate: Gate
) -> None:
    first, second = start(concurrency=1), start(concurrency=1)
    jobs = [board.pin(held), board.pin(held)]
    await gate.until_entered(2)
    assert first.process.runner_id != second.process.runner_id
    assert {claim.runner_id.partition("#")[0] for claim in board.claims} == {"tester"}
    gate.open()
    for job in jobs:
        await board.until_state(job, "succeeded")
        assert job.attempts == 1


async def test_an_event_that_the_table_does_not_allow_is_refused_and_logged(
    board: Board, start: Start
) -> None:
    """S1-19, S1-23: invalid transition."""
    worker = start()
    await board.until(lambda: board.claims, "a poll")
    before = (worker.process.state, worker.process.data)
    assert not worker.process.send(connected)
    assert (worker.process.state, worker.process.data) == before
    line = worker.lines.all("invalid_transition_attempted")[-1]
    assert (line["machine"], line["event"], line["level"]) == ("process", "connected", "warning")
    assert line["current_state"] == before[0]
    refused = PROCESS.decide(*before, connected)
    assert isinstance(refused, Refused)
    assert isinstance(refused.error(), TransitionNotAllowed)


async def test_a_second_shutdown_request_is_ignored_without_a_warning(board: Board, start: Start) -> None:
    """R12"""
    worker = start()
    await board.until(lambda: worker.process.state in (RUNNING, BACKING_OFF), "it to run")
    worker.process.shutdown.request()
    worker.process.shutdown.request()
    assert await worker.stop() == 0
    worker.process.send(shutdown_requested)
    assert not worker.lines.all("invalid_transition_attempted")


async def test_a_handler_that_computes_for_long_lets_others_have_their_turn(
    board: Board, start: Start, registry: Registry
) -> None:
    """A batch of handlers that never wait is begun in slices."""
    clock = Clock()
    reported_before: list[int] = []

    @registry.task(name="slow")
    async def slow() -> None:
        reported_before.append(len(board.said(Complete)))
        clock.move(0.01)

    jobs = [board.pin("slow") for _ in range(20)]
    start(concurrency=20, monotonic=clock)
    for job in jobs:
        await board.until_state(job, "succeeded")
    assert reported_before[0] == 0
    assert reported_before[-1] > 0, "the last had not begun when the first was reported"


async def test_a_worker_fills_all_of_its_slots_although_its_handlers_do_not_end(
    board: Board, start: Start, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a batch is begun in slices there is no room; whoever polls is told when there is again."""
    from interlock.worker import process

    clock, gate = Clock(), Gate()

    @registry.task(name="endless")
    async def endless() -> None:
        clock.move(0.01)
        await gate.pass_through()

    monkeypatch.setattr(process, "MAX_BATCH", 2)
    for _ in range(4):
        board.pin("endless")
    start(concurrency=4, monotonic=clock)
    await gate.until_entered(4)
    gate.open()


async def test_current_gives_the_context_in_every_executor(
    board: Board, start: Start, registry: Registry
) -> None:
    from interlock.worker.context import current

    @registry.task(name="at_once")
    async def at_once() -> str:
        return current().job_id

    @registry.task(name="waiting")
    async def waiting() -> str:
        await asyncio.sleep(0)
        return current().job_id

    @registry.task(name="in_thread")
    def in_thread(ctx: Context) -> str:
        assert current() is ctx
        return ctx.job_id

    jobs = [board.pin(task) for task in ("at_once", "waiting", "in_thread")]
    start()
    for job in jobs:
        await board.until_state(job, "succeeded")
        assert job.result == job.id
