"""A worker that is asked to go goes, in time, and nothing is lost (S1-7, S1-24, S1-27, S1-29; R12, R13)."""

from __future__ import annotations

import asyncio
import threading

import msgspec
import pytest
from tests.waiting import PATIENCE_S
from tests.worker.board import Board
from tests.worker.conftest import OVERDUE_S, QUICK, STOPPED_S, TOLD_S, Gate, Start

from interlock.wire.runner import Complete, Release
from interlock.worker import process
from interlock.worker.context import Context, TaskCancelled
from interlock.worker.tasks import Registry


async def test_a_shutdown_waits_for_the_active_task(
    board: Board, start: Start, held: str, gate: Gate
) -> None:
    """S1-23, S1-27: graceful shutdown completes the active task."""
    job = board.pin(held)
    worker = start()
    await gate.until_entered()
    worker.process.shutdown.request()
    await board.until(lambda: worker.process.state == "shutting_down", "the shutdown")
    assert not worker.running.done()
    gate.open()
    assert await worker.ended() == 0
    assert (job.state, job.result, job.attempts) == ("succeeded", "through", 1)


async def test_a_worker_that_is_shutting_down_takes_nothing_new(
    board: Board, start: Start, held: str, echo: str, gate: Gate
) -> None:
    """S1-24"""
    board.pin(held)
    worker = start()
    await gate.until_entered()
    worker.process.shutdown.request()
    await board.until(lambda: worker.process.state == "shutting_down", "the shutdown")
    polls = len(board.claims)
    late = board.pin(echo)
    gate.open()
    assert await worker.ended() == 0
    assert len(board.claims) == polls
    assert late.state == "queued"


async def test_a_task_that_outlasts_the_soft_shutdown_deadline_saves_a_checkpoint_and_is_released(
    board: Board, start: Start, registry: Registry
) -> None:
    """R13: told at the soft deadline; it returns to the queue and uses up no try."""
    reasons = []

    @registry.task(name="long")
    async def long(ctx: Context) -> None:
        await ctx.wait_cancelled()
        reasons.append(ctx.stop_reason)
        ctx.checkpoint({"page": 42})
        ctx.log("saved")
        raise TaskCancelled

    job = board.pin("long")
    worker = start()
    await board.until_state(job, "running")
    assert await worker.stop(TOLD_S) == 0
    assert (job.state, job.released, job.losses) == ("queued", ["shutdown"], 0)
    assert reasons == ["shutdown"]
    assert b"".join([bytes(job.checkpoint or b"")]) == b'{"page":42}'
    assert "saved" in job.lines
    assert worker.path("task")[-2:] == ["reporting", "abandoned"]
    assert (worker.process.data.processed, worker.process.data.failed) == (0, 0)


async def test_a_task_that_does_not_listen_is_cancelled_before_the_hard_deadline(
    board: Board, start: Start, held: str, gate: Gate
) -> None:
    """What it had saved before is kept."""
    job = board.pin(held)
    worker = start()
    await gate.until_entered()
    assert await worker.stop(STOPPED_S) == 0
    assert job.released == ["shutdown"]
    assert bytes(job.checkpoint or b"") == b'{"at":7}'


async def test_a_value_returned_after_a_shutdown_request_is_not_reported_as_the_result(
    board: Board, start: Start, registry: Registry
) -> None:
    """Nobody can know whether it is finished, and to do it again is the lesser evil."""

    @registry.task(name="polite")
    async def polite(ctx: Context) -> str:
        await ctx.wait_cancelled()
        return "half of it"

    job = board.pin("polite")
    worker = start()
    await board.until_state(job, "running")
    assert await worker.stop(TOLD_S) == 0
    assert job.state == "queued"
    assert not board.said(Complete)


async def test_a_shutdown_that_takes_too_long_is_forced(
    board: Board, start: Start, held_in_thread: str, gate: Gate
) -> None:
    """S1-24: timeout forces stop; a thread cannot be stopped, and is not waited for."""
    job = board.pin(held_in_thread)
    worker = start()
    await gate.until_entered()
    assert await worker.stop(OVERDUE_S) == 1
    assert worker.path()[-1] == "stopped"
    assert worker.lines.all("worker_shutdown")[-1]["forced"] is True
    assert not job.released, "nobody said that it has stopped, so its lease expires"
    assert job.outcome is None
    gate.open()


async def test_a_job_that_is_granted_during_a_shutdown_is_released(
    board: Board, start: Start, echo: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S1-25: shutdown during claiming."""
    monkeypatch.setattr(process, "_LAST_CLAIM_S", PATIENCE_S)
    board.held["claim"] = threading.Event()
    worker = start()
    await board.until(lambda: worker.process.state == "running", "it to poll")
    job = board.pin(echo)
    worker.process.shutdown.request()
    board.held["claim"].set()
    assert await worker.ended() == 0
    assert (job.state, job.attempts, job.released) == ("queued", 1, ["shutdown"])
    assert worker.path("task") == ["pending", "claiming", "abandoned"]


async def test_a_job_that_waits_for_a_thread_is_released_at_once_on_shutdown(
    board: Board, start: Start, held_in_thread: str, gate: Gate
) -> None:
    """What is not begun is left to others, while what has begun is waited for."""
    jobs = [board.pin(held_in_thread), board.pin(held_in_thread)]
    worker = start(concurrency=2, threads=1)
    await gate.until_entered()
    await board.until(lambda: all(job.attempts for job in jobs), "both to be granted")
    worker.process.shutdown.request()
    await board.until(lambda: board.said(Release), "the release")
    gate.open()
    assert await worker.ended() == 0
    assert [job.state for job in jobs] == ["succeeded", "queued"]


@pytest.mark.parametrize("away", [True, False])
async def test_a_worker_that_is_connecting_can_be_shut_down(
    board: Board, start: Start, *, away: bool
) -> None:
    """Also when the store does not answer at all."""
    if away:
        board.reachable = False
    else:
        board.held["connect"] = threading.Event()
    worker = start()
    await board.until(lambda: worker.process.state == "connecting", "it to connect")
    assert await worker.stop() == 0
    assert worker.path()[-2:] == ["shutting_down", "stopped"]


async def test_a_worker_that_is_starting_can_be_shut_down(board: Board, start: Start) -> None:
    """R12: the request is latched before the loop has come round once."""
    worker = start()
    worker.process.shutdown.request()
    assert await worker.ended() == 0
    assert worker.path() == ["starting", "shutting_down", "stopped"]
    assert board.opened == 0


async def test_a_worker_that_backs_off_can_be_shut_down(board: Board, start: Start) -> None:
    """S1-23"""
    durations = msgspec.structs.replace(QUICK, backoff_cap_s=600.0)
    worker = start(first_backoff_s=600.0, durations=durations)
    await board.until(lambda: worker.process.state == "backing_off", "the backoff")
    assert await worker.stop() == 0
    assert worker.path()[-3:] == ["backing_off", "shutting_down", "stopped"]


async def test_reports_are_delivered_before_the_worker_is_gone(board: Board, start: Start, echo: str) -> None:
    board.held["report"] = threading.Event()
    job = board.pin(echo)
    worker = start()
    await board.until(lambda: "reporting" in worker.path("task"), "the report")
    worker.process.shutdown.request()
    await board.until(lambda: worker.process.state == "shutting_down", "the shutdown")
    board.held["report"].set()
    assert await worker.ended() == 0
    assert job.state == "succeeded"


async def test_a_store_that_stays_away_does_not_keep_a_worker_from_going(
    board: Board, start: Start, held: str, gate: Gate
) -> None:
    job = board.pin(held)
    worker = start()
    await gate.until_entered()
    board.reachable = False
    gate.open()
    await worker.lines.until("report_delayed")
    assert await worker.stop(OVERDUE_S) == 1, "something could not be said, so it was forced"
    assert job.state != "succeeded"


async def test_a_handler_that_ignores_its_cancellation_does_not_hold_up_the_end(
    board: Board, start: Start, registry: Registry
) -> None:
    ignored = asyncio.Event()

    @registry.task(name="stubborn")
    async def stubborn() -> None:
        while not ignored.is_set():
            try:
                await ignored.wait()
            except asyncio.CancelledError:
                continue

    job = board.pin("stubborn")
    worker = start()
    await board.until_state(job, "running")
    assert await worker.stop(OVERDUE_S) == 1
    ignored.set()
    await asyncio.sleep(0)
