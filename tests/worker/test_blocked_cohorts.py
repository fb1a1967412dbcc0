"""Cohorts of which one job blocks the event loop: what the renewer does for all of them meanwhile."""

from __future__ import annotations

from typing import Any

import pytest
from tests.waiting import until_so
from tests.worker.alike import all_succeeded, pinned
from tests.worker.board import Board, Clock, Job
from tests.worker.conftest import Start

from interlock.errors import StoreUnavailable
from interlock.wire.runner import (
    CancelAck,
    Heartbeat,
    StaleCode,
)
from interlock.worker import task_runner
from interlock.worker.context import Context


def all_renewed(board: Board, jobs: list[Job]) -> bool:
    until = board.clock() + board.ttl_s
    return all(board.lease_of(job).expires_at >= until for job in jobs)


async def test_the_leases_of_all_are_renewed_while_one_blocks_the_event_loop(
    board: Board, start: Start, acts: Any
) -> None:
    """Of those that wait, of the one that blocks, and of those that have succeeded before it."""

    def block(_ctx: Context) -> int:
        for _ in range(3):
            board.pass_time(0.6 * board.ttl_s)
            until_so(lambda: all_renewed(board, jobs), "all leases were renewed")
        return 2

    acts[2] = block
    jobs = pinned(board)
    start(monotonic=board.clock)  # by which it would have lost its leases, had they not been renewed
    await all_succeeded(board, jobs)


async def test_progress_and_log_lines_of_a_job_are_sent_while_it_blocks_the_event_loop(
    board: Board, start: Start, acts: Any, tasks_made: list[str]
) -> None:
    def block(ctx: Context) -> int:
        board.pass_time(0.6 * board.ttl_s)  # heartbeats of the cohort go ahead of its own
        until_so(lambda: all_renewed(board, jobs), "all leases were renewed")
        ctx.progress(1, 2)
        until_so(lambda: jobs[2].progress is not None, "the progress has arrived")
        ctx.log("more")
        until_so(lambda: jobs[2].lines == ["more"], "the line has arrived")
        board.pass_time(0.6 * board.ttl_s)
        until_so(lambda: all_renewed(board, jobs), "all leases were renewed once more")
        return 2

    acts[2] = block
    jobs = pinned(board)
    start()
    await all_succeeded(board, jobs)
    assert tasks_made == [jobs[2].id]
    numbers = [(message.token, message.sequence) for message in board.messages]
    assert len(numbers) == len(set(numbers)), "each lease is renewed by its task or by its cohort, never both"


@pytest.mark.parametrize("speaks", [False, True])
async def test_a_cancel_reaches_a_job_that_blocks_the_event_loop(
    board: Board, start: Start, acts: Any, speaks: bool
) -> None:
    def block(ctx: Context) -> None:
        if speaks:
            ctx.log("here")
        board.cancel(jobs[2])
        until_so(lambda: ctx.cancelled, "it was told")
        assert ctx.stop_reason == "cancel"

    acts[2] = block
    jobs = pinned(board)
    worker = start()
    await board.until_state(jobs[2], "canceled")
    await all_succeeded(board, jobs, but=jobs[2])
    assert len(board.said(CancelAck)) == 1
    assert await worker.stop() == 0
    assert (worker.process.data.processed, worker.process.data.failed) == (4, 0)


async def test_a_lease_that_one_job_loses_stops_that_one(board: Board, start: Start, acts: Any) -> None:
    def block(ctx: Context) -> None:
        board.take_away(jobs[2], StaleCode.LEASE_REVOKED)
        until_so(lambda: ctx.stop_reason == "lost", "it was told")

    acts[2] = block
    jobs = pinned(board)
    worker = start()
    await all_succeeded(board, jobs, but=jobs[2])
    await worker.lines.until("lease_lost")
    assert jobs[2].outcome is None
    assert await worker.stop() == 0
    assert (worker.process.data.processed, worker.process.data.failed) == (4, 0)
    assert worker.process.leftovers() == {}


@pytest.mark.parametrize("how", ["cancel", "lost"])
async def test_a_job_that_waits_in_a_cohort_is_stopped_before_it_begins(
    board: Board, start: Start, acts: Any, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one blocks the event loop until the renewer has heard of it; the next slice comes after."""
    monkeypatch.setattr(task_runner, "SLICE_S", 0.0)
    begun = []

    def block(_: Context) -> int:
        if how == "cancel":
            board.cancel(jobs[3])
        else:
            board.take_away(jobs[3])
        count = len(board.said(Heartbeat))
        until_so(lambda: len(board.said(Heartbeat)) >= count + 10, "two rounds of heartbeats")
        return 0

    acts[0] = block
    acts[3] = lambda _: begun.append(3)
    jobs = pinned(board)
    worker = start()
    if how == "cancel":
        await board.until_state(jobs[3], "canceled")
    else:
        await worker.lines.until("lease_lost")
    await all_succeeded(board, jobs, but=jobs[3])
    assert begun == []
    assert len(board.said(CancelAck)) == (how == "cancel")
    assert await worker.stop() == 0
    assert worker.process.leftovers() == {}


async def test_a_cohort_whose_leases_could_not_be_renewed_is_given_up(
    board: Board, start: Start, acts: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The renewer gives it up although the event loop is blocked; nothing is reported under those leases."""
    monkeypatch.setattr(task_runner, "SLICE_S", 0.0)
    clock = Clock()
    reached = True

    def fail(method: str) -> None:
        if not reached and method in ("renew", "report", "claim"):
            raise StoreUnavailable("away")

    def block(ctx: Context) -> int:
        nonlocal reached
        reached = False
        clock.move(board.ttl_s)
        worker.process._components.renewer.find_late()  # as the watchdog's thread does
        assert ctx.stop_reason == "lost"
        return 1

    board.before = fail
    acts[1] = block
    jobs = pinned(board)
    worker = start(monotonic=clock, patience_s=10_000.0)
    await board.until(lambda: len(worker.lines.all("lease_lost")) >= 4, "all but the first to be lost")
    assert not any(job.outcome for job in jobs[1:])
    lost = {line["task_id"] for line in worker.lines.all("lease_lost")}
    assert lost == {job.id for job in jobs[1:]}
    reached = True
    assert await worker.stop() == 0


async def test_a_job_that_ends_after_its_lease_has_expired_is_not_reported(
    board: Board, start: Start, acts: Any
) -> None:
    """The handler returns at once, so that nobody but the cohort itself has looked at the clock."""

    def outlast(_: Context) -> int:
        clock.move(board.ttl_s)
        return 2

    clock = Clock()
    acts[2] = outlast
    jobs = pinned(board)
    worker = start(monotonic=clock)
    await board.until(lambda: len(worker.lines.all("lease_lost")) == 3, "three to be lost")
    await board.until_state(jobs[1], "succeeded")
    assert [job.outcome is not None for job in jobs] == [True, True, False, False, False]
    assert await worker.stop() == 0
