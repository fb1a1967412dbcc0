"""Connections that break, ports that fail and loops that crash: the worker goes on, or says why not."""

from __future__ import annotations

import pytest
from tests.worker.board import Board
from tests.worker.conftest import Gate, Start

from interlock.errors import SchemaTooNew, StoreUnavailable
from interlock.lifecycles.process import STOPPED


async def test_a_worker_that_cannot_connect_tries_again_until_it_can(board: Board, start: Start) -> None:
    """S1-23: connecting failure retries."""
    board.reachable = False
    worker = start()
    await worker.lines.until("connection_failed")
    await board.until(lambda: worker.process.data.backoff_count >= 2, "a second try")
    board.reachable = True
    await board.until(lambda: board.claims, "a poll")
    assert worker.path()[:4] == ["starting", "connecting", "connecting", "connecting"]
    assert "recovering" in worker.path()


async def test_a_store_that_can_never_be_used_ends_the_worker_with_its_error(
    board: Board, start: Start
) -> None:
    board.fatal = SchemaTooNew("The schema is version 9 and this program knows 3.")
    worker = start()
    with pytest.raises(SchemaTooNew):
        await worker.running
    assert worker.process.state is STOPPED


async def test_a_store_outage_does_not_stop_a_task_whose_lease_is_still_valid(
    board: Board, start: Start, held: str, gate: Gate
) -> None:
    """A build of minutes was killed after ten seconds, and done again, while its lease lived for 120 s."""
    job = board.pin(held)
    worker = start(concurrency=2)
    await gate.until_entered()
    board.reachable = False
    await board.until(lambda: len(worker.lines.all("connection_failed")) >= 3, "it opens connections anew")
    board.reachable = True
    gate.open()
    await board.until_state(job, "succeeded")
    assert (job.attempts, job.released) == (1, [])
    assert not worker.lines.all("connection_lost")


async def test_a_connection_is_broken_when_no_lease_can_be_kept_any_more(
    board: Board, start: Start, held: str, echo: str, gate: Gate
) -> None:
    """S1-27: reconnects after db failure; R14: the task is abandoned."""
    job = board.pin(held)
    worker = start(concurrency=2, monotonic=board.clock)
    await gate.until_entered()
    board.reachable = False
    await worker.lines.until("connection_failed")
    assert worker.process.data.active_tasks == 1
    board.pass_time(board.ttl_s)
    await worker.lines.until("lease_lost")
    board.pass_time(1.0)
    await worker.lines.until("connection_lost")
    assert worker.process.data.active_tasks == 0
    board.reachable = True
    gate.open()
    await board.until_state(job, "succeeded")
    assert job.attempts == 2
    assert "abandoned" in worker.path("task")
    other = board.pin(echo)
    await board.until_state(other, "succeeded")


async def test_a_poll_that_fails_once_breaks_nothing(
    board: Board, start: Start, held: str, gate: Gate
) -> None:
    job = board.pin(held)
    worker = start(concurrency=2, patience_s=600.0)
    await gate.until_entered()
    board.before = fail_claims
    await worker.lines.until("claim_failed")
    board.before = lambda _: None
    gate.open()
    await board.until_state(job, "succeeded")
    assert job.attempts == 1
    assert not worker.lines.all("connection_lost")


def fail_claims(method: str) -> None:
    """Fail polls only: a worker that cannot reach the board recovers first, and polls no more."""
    if method == "claim":
        raise StoreUnavailable("The board cannot be reached.")


async def test_a_loop_that_crashes_begins_again(board: Board, start: Start, echo: str) -> None:
    crashes: list[str] = []

    def crash(method: str) -> None:
        if method == "claim" and len(crashes) < 2:
            crashes.append(method)
            raise RuntimeError("a bug in a port")

    board.before = crash
    worker = start()
    job = board.pin(echo)
    await board.until_state(job, "succeeded")
    assert [line["loop"] for line in worker.lines.all("loop_crashed")] == ["poll", "poll"]


async def test_a_report_loop_that_crashes_sends_its_pending_report_after_its_restart(
    board: Board, start: Start, echo: str
) -> None:
    crashes: list[str] = []

    def crash(method: str) -> None:
        if method == "report" and not crashes:
            crashes.append(method)
            raise RuntimeError("a bug in a port")

    board.before = crash
    job = board.pin(echo)
    worker = start()
    await board.until_state(job, "succeeded")
    assert [line["loop"] for line in worker.lines.all("loop_crashed")] == ["report"]
