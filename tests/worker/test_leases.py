"""Leases are renewed from outside the event loop, and a lost one stops the work (S1-14, S1-15, S1-27)."""

from __future__ import annotations

import asyncio
import threading
import time

import msgspec
import pytest
from tests.worker.board import Board
from tests.worker.conftest import QUICK, Gate, Start

from interlock.wire.runner import CancelAck, Complete, Heartbeat, Message, NotHeard, Release, StaleCode
from interlock.worker.context import Context
from interlock.worker.tasks import Registry


async def test_a_lease_is_renewed_for_as_long_as_the_work_takes(
    board: Board, start: Start, held: str, gate: Gate
) -> None:
    """S1-27: lease renewal during long processing; three lease lengths."""
    board.ttl_s = 0.5
    job = board.pin(held)
    start()
    await gate.until_entered()
    began = time.monotonic()
    await board.until(lambda: time.monotonic() > began + 1.5, "three leases to pass")
    gate.open()
    await board.until_state(job, "succeeded")
    assert (job.attempts, job.losses) == (1, 0)
    assert len(board.said(Heartbeat)) >= 5


async def test_a_lease_that_is_lost_while_a_task_saves_what_it_has_stops_it_at_once(
    board: Board, start: Start, held: str, gate: Gate
) -> None:
    """It counted as reporting, which nobody interrupts, although it had nothing to report yet."""
    job = board.pin(held)
    durations = msgspec.structs.replace(
        QUICK, lease_ttl_s=90.0, shutdown_soft_s=0.1, shutdown_deadline_s=60.0
    )
    worker = start(durations=durations)
    await gate.until_entered()
    worker.process.shutdown.request()
    await board.until(lambda: worker.path("task")[-1:] == ["reporting"], "it to be told")
    board.take_away(job, StaleCode.LEASE_REVOKED)
    await worker.lines.until("lease_lost")
    async with asyncio.timeout(20):  # it would have been stopped after 36 s
        assert await worker.running == 0
    assert worker.path("task")[-1] == "failed", "What it gives back is refused, and the table says so."
    assert not board.said(Complete)


async def test_all_leases_are_renewed_in_one_batch(board: Board, start: Start, held: str, gate: Gate) -> None:
    for _ in range(5):
        board.pin(held)
    start(concurrency=5, flush_every_s=60.0)
    await gate.until_entered(5)
    await board.until(lambda: len(board.batches) >= 3, "three renewals")
    assert board.batches[-1] == 5
    gate.open()


async def test_a_handler_that_blocks_the_event_loop_keeps_its_lease(
    board: Board, start: Start, registry: Registry
) -> None:
    """It is renewed from a thread with a connection of its own."""
    board.ttl_s = 0.5
    enough = threading.Event()

    @registry.task(name="blocking")
    async def blocking() -> str:
        before = len(board.said(Heartbeat))
        until = time.monotonic() + 1.2
        while time.monotonic() < until:
            enough.wait(0.01)  # in the event loop, where nobody should wait
        return f"{len(board.said(Heartbeat)) - before >= 3}"

    job = board.pin("blocking")
    start()
    await board.until_state(job, "succeeded")
    assert (job.result, job.losses) == ("True", 0)


async def test_a_lease_that_was_taken_away_stops_the_work_and_nothing_is_reported(
    board: Board, start: Start, held: str, gate: Gate
) -> None:
    """S1-25: lease expired to abandoned."""
    job = board.pin(held)
    worker = start()
    await gate.until_entered()
    board.take_away(job, StaleCode.LEASE_REVOKED)
    line = await worker.lines.until("lease_lost")
    assert line["code"] == "LEASE_REVOKED"
    await board.until(lambda: worker.process.data.active_tasks == 0, "the slot to be free")
    assert worker.path("task")[-1] == "abandoned"
    assert not board.said(Complete)
    assert not board.said(Release)


async def test_a_lost_handler_is_told_why_and_cancelled(
    board: Board, start: Start, registry: Registry
) -> None:
    seen: list[str | None] = []

    @registry.task(name="watchful")
    async def watchful(ctx: Context) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            seen.append(ctx.stop_reason)
            board.changed()

    job = board.pin("watchful")
    start()
    await board.until_state(job, "running")
    board.take_away(job)
    await board.until(lambda: seen, "the handler to end")
    assert seen == ["lost"]


async def test_a_lease_that_could_not_be_renewed_in_time_is_lost_before_the_store_says_so(
    board: Board, start: Start, held: str, gate: Gate
) -> None:
    """The store is away for the renewer only; it is tried until the margin of the time to live."""
    board.ttl_s = 2.0
    board.held["renew"] = threading.Event()
    job = board.pin(held)
    worker = start()
    await gate.until_entered()
    await worker.lines.until("lease_lost")
    (lease,) = board.leases.values()
    assert time.monotonic() < lease.expires_at, "the store still believes in the lease"
    assert worker.lines.all("renewal_failed")
    assert job.state == "leased"
    assert not board.said(Complete)
    board.held["renew"].set()


async def test_a_renewal_that_fails_for_a_moment_is_repeated(
    board: Board, start: Start, held: str, gate: Gate
) -> None:
    failures: list[str] = []

    def fail_twice(method: str) -> None:
        from interlock.errors import StoreUnavailable

        if method == "renew" and len(failures) < 2:
            failures.append(method)
            raise StoreUnavailable("away")

    board.before = fail_twice
    job = board.pin(held)
    start()
    await gate.until_entered()
    await board.until_state(job, "running")
    gate.open()
    await board.until_state(job, "succeeded")
    assert "before the gate" in job.lines, "what the failed heartbeats carried has come with another"


async def test_a_handler_that_was_stopped_past_its_lease_reports_nothing(
    board: Board, start: Start, registry: Registry
) -> None:
    """As after SIGSTOP: the monotonic clock says so before anybody is asked."""
    passed_s = [0.0]

    @registry.task(name="frozen")
    async def sleeper() -> str:
        passed_s[0] = 60.0  # the whole process has stood still for so long
        return "too late"

    job = board.pin("frozen")
    worker = start(monotonic=lambda: time.monotonic() + passed_s[0])
    await board.until(lambda: "abandoned" in worker.path("task"), "the task to be abandoned")
    assert not board.said(Complete)
    assert job.outcome is None


async def test_progress_logs_and_checkpoints_are_sent_before_the_next_heartbeat_is_due(
    board: Board, start: Start, registry: Registry, gate: Gate
) -> None:
    board.heartbeat_every_s, board.ttl_s = 20.0, 120.0

    @registry.task(name="talkative")
    async def talkative(ctx: Context) -> None:
        ctx.progress(3, 10, "so far")
        ctx.checkpoint([1])
        ctx.log("hello")
        await gate.pass_through()

    job = board.pin("talkative")
    start()
    await board.until(lambda: job.lines == ["hello"], "the line")
    assert job.progress is not None
    assert (job.progress.done, job.progress.total, job.progress.message) == (3, 10, "so far")
    assert bytes(job.checkpoint or b"") == b"[1]"
    gate.open()
    await board.until_state(job, "succeeded")


async def test_what_a_heartbeat_carries_is_in_the_log_once_even_when_the_handler_ends_meanwhile(
    board: Board, start: Start, registry: Registry, gate: Gate
) -> None:
    """The report waits for the heartbeat that is under way, and takes along what that brings back."""
    from interlock.errors import StoreUnavailable

    asked, go_on = threading.Event(), threading.Event()

    def lose_first(method: str) -> None:
        if method == "renew" and not asked.is_set():
            asked.set()
            board.changed()
            go_on.wait(5.0)
            raise StoreUnavailable("away")

    @registry.task(name="talkative")
    async def talkative(ctx: Context) -> None:
        ctx.log("only once")
        await gate.pass_through()

    board.before = lose_first
    job = board.pin("talkative")
    worker = start()
    await board.until(asked.is_set, "the heartbeat")
    gate.open()
    await board.until(lambda: "reporting" in worker.path("task"), "the handler to end")
    assert not board.said(Complete)
    go_on.set()
    await board.until_state(job, "succeeded")
    assert job.lines == ["only once"]


async def test_a_report_that_waits_for_a_heartbeat_is_sent_also_when_that_was_stale(
    board: Board, start: Start, registry: Registry, gate: Gate
) -> None:
    """Otherwise the task would report for ever, and its slot would be gone."""
    asked, go_on = threading.Event(), threading.Event()

    def hold_first(method: str) -> None:
        if method == "renew" and not asked.is_set():
            asked.set()
            board.changed()
            go_on.wait(5.0)

    @registry.task(name="talkative")
    async def talkative(ctx: Context) -> None:
        ctx.log("too late")
        await gate.pass_through()

    board.before = hold_first
    job = board.pin("talkative")
    worker = start()
    await board.until(asked.is_set, "the heartbeat")
    board.take_away(job)
    gate.open()
    await board.until(lambda: "reporting" in worker.path("task"), "the handler to end")
    go_on.set()
    await worker.lines.until("report_failed")
    await board.until(lambda: worker.process.data.active_tasks == 0, "the slot")


async def test_an_attempt_that_has_timed_out_is_asked_about_at_once(
    board: Board, start: Start, held: str, gate: Gate
) -> None:
    """Not a heartbeat later: the orchestrator has given it up, and so should we."""
    board.heartbeat_every_s, board.ttl_s, board.timeout_s = 20.0, 120.0, 0.2
    job = board.pin(held)
    worker = start(flush_every_s=60.0)
    await gate.until_entered()
    board.take_away(job)
    line = await worker.lines.until("lease_lost")
    assert line["code"] == "LEASE_REVOKED"


async def test_a_heartbeat_whose_contents_are_refused_renews_the_lease_without_them(
    board: Board, start: Start, held: str, gate: Gate
) -> None:
    def refuse(said: Message) -> NotHeard | None:
        too_much = isinstance(said, Heartbeat) and isinstance(said.checkpoint, msgspec.Raw)
        return NotHeard(code="too_large", error="The checkpoint is too large.") if too_much else None

    board.ttl_s = 0.5
    board.refusing = refuse
    job = board.pin(held)
    worker = start()
    await worker.lines.until("heartbeat_refused")
    began = time.monotonic()
    await board.until(lambda: time.monotonic() > began + 0.8, "the lease to have been renewed")
    gate.open()
    await board.until_state(job, "succeeded")
    assert job.losses == 0


async def test_a_heartbeat_that_is_refused_again_and_again_does_not_keep_the_worker_busy(
    board: Board, start: Start, held: str, gate: Gate
) -> None:
    """The next one comes when it is due, as if it had been heard; the lease is lost in its time."""
    board.ttl_s = 1.0
    board.refusing = lambda said: (
        NotHeard(code="error", error="Not now.") if isinstance(said, Heartbeat) else None
    )
    board.pin(held)
    worker = start()
    await worker.lines.until("lease_lost")
    assert 1 <= len(board.said(Heartbeat)) < 20
    gate.open()


# Cancelling


async def test_a_cancelled_handler_is_told_and_then_acknowledged(
    board: Board, start: Start, registry: Registry
) -> None:
    @registry.task(name="obedient")
    async def obedient(ctx: Context) -> None:
        await ctx.wait_cancelled()
        ctx.log(f"stopped by {ctx.stop_reason}")
        ctx.raise_if_cancelled()

    job = board.pin("obedient")
    worker = start(stop_grace_s=60.0)
    await board.until_state(job, "running")
    board.cancel(job)
    await board.until_state(job, "canceled")
    assert "stopped by cancel" in job.lines
    assert [said.confirmed_dead for said in board.said(CancelAck)] == [True]
    assert worker.process.data.failed == 0, "what was asked for is no failure"


async def test_a_handler_that_does_not_listen_is_cancelled_after_its_grace(
    board: Board, start: Start, held: str, gate: Gate
) -> None:
    job = board.pin(held)
    start()
    await gate.until_entered()
    board.cancel(job)
    await board.until_state(job, "canceled")


async def test_a_thread_that_does_not_listen_cannot_be_stopped_and_the_log_says_so(
    board: Board, start: Start, held_in_thread: str, echo: str, gate: Gate
) -> None:
    job = board.pin(held_in_thread)
    worker = start(concurrency=1)
    await gate.until_entered()
    board.cancel(job)
    await worker.lines.until("handler_cannot_be_stopped")
    assert not board.said(CancelAck)
    board.take_away(job)  # the orchestrator forces it when the cancel deadline has passed
    await worker.lines.until("handler_left_behind")
    other = board.pin(echo)
    await board.until_state(other, "succeeded")
    gate.open()


async def test_a_task_that_is_cancelled_before_it_could_begin_never_does(
    board: Board, start: Start, held_in_thread: str, gate: Gate
) -> None:
    first, second = board.pin(held_in_thread), board.pin(held_in_thread)
    start(concurrency=2, threads=1)
    await gate.until_entered()
    board.cancel(second)
    await board.until_state(second, "canceled")
    assert gate.entered == 1
    gate.open()
    await board.until_state(first, "succeeded")


@pytest.mark.parametrize("code", list(StaleCode))
async def test_every_kind_of_staleness_is_final_at_once(
    board: Board, start: Start, held: str, gate: Gate, code: StaleCode
) -> None:
    """R14: an owner mismatch is not retried."""
    job = board.pin(held)
    worker = start()
    await gate.until_entered()
    board.take_away(job, code)
    await worker.lines.until("lease_lost")
    assert not worker.lines.all("renewal_failed")


async def test_a_lease_that_has_run_out_while_its_report_waits_is_not_asked_for_without_a_pause(
    board: Board, start: Start, held: str, gate: Gate
) -> None:
    """It is not given up, since its end may have been heard; but nobody is in a hurry any more."""
    from interlock.errors import StoreUnavailable

    asked: list[float] = []
    away = threading.Event()

    def fail(method: str) -> None:
        if away.is_set() and method in ("renew", "hear"):
            if method == "renew":
                asked.append(time.monotonic())
            raise StoreUnavailable("away")

    board.ttl_s = 0.5
    board.before = fail
    board.pin(held)
    start()
    await gate.until_entered()
    away.set()
    gate.open()
    (lease,) = board.leases.values()
    await board.until(lambda: time.monotonic() > lease.expires_at + 1.0, "the lease to be over for long")
    late = [at for at in asked if at > lease.expires_at]
    assert len(late) <= 50, "as often as once in twenty milliseconds at most, and not in every one"
    away.clear()
