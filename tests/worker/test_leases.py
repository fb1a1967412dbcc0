"""Leases are renewed from outside the event loop, and a lost one stops the work (S1-14, S1-15, S1-27)."""

from __future__ import annotations

import asyncio
import threading

import msgspec
import pytest
from tests.waiting import PATIENCE_S, until_so
from tests.worker.board import Board, Clock
from tests.worker.conftest import QUICK, Gate, Start

from interlock.errors import StoreUnavailable
from interlock.wire.runner import CancelAck, Complete, Heartbeat, Message, NotHeard, Release, StaleCode
from interlock.worker.context import Context
from interlock.worker.side_loop import SideLoop
from interlock.worker.tasks import Registry


async def test_a_lease_is_renewed_for_as_long_as_the_work_takes(
    board: Board, start: Start, held: str, gate: Gate
) -> None:
    """S1-27: lease renewal during long processing; three lease lengths."""
    job = board.pin(held)
    start()
    await gate.until_entered()
    for _ in range(5):
        board.pass_time(0.6 * board.ttl_s)
        await board.until_renewed(job)
    gate.open()
    await board.until_state(job, "succeeded")
    assert (job.attempts, job.losses) == (1, 0)


async def test_a_task_that_loses_its_lease_while_it_stops_for_a_shutdown_is_ended_at_once(
    board: Board, start: Start, held: str, gate: Gate
) -> None:
    """It counted as reporting, which nobody interrupts, although it had nothing to report yet."""
    job = board.pin(held)
    worker = start(durations=msgspec.structs.replace(QUICK, shutdown_soft_s=0.1))
    await gate.until_entered()
    worker.process.shutdown.request()
    await board.until(lambda: worker.path("task")[-1:] == ["reporting"], "it to be told")
    board.take_away(job, StaleCode.LEASE_REVOKED)
    await worker.lines.until("lease_lost")
    assert await worker.ended() == 0, "it would have been stopped after six minutes"
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

    @registry.task(name="blocking")
    async def blocking() -> None:
        lease = board.lease_of(job)
        for _ in range(3):
            board.pass_time(0.6 * board.ttl_s)
            until = board.clock() + board.ttl_s
            # In the event loop, where no handler should wait.
            until_so(lambda until=until: lease.expires_at >= until, "the lease was renewed")  # type: ignore[misc]

    job = board.pin("blocking")
    start()
    await board.until_state(job, "succeeded", "failed")
    assert (job.state, job.losses) == ("succeeded", 0)


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


async def test_a_handler_whose_lease_is_lost_is_cancelled_with_the_stop_reason_lost(
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


async def test_a_worker_gives_up_a_lease_that_it_cannot_renew_before_it_expires_in_the_store(
    board: Board, start: Start, held: str, gate: Gate
) -> None:
    """The store is away for the renewer only; it is tried until the margin of the time to live."""
    board.held["renew"] = threading.Event()
    job = board.pin(held)
    worker = start(monotonic=board.clock)
    await gate.until_entered()
    board.pass_time(board.heartbeat_every_s)
    await worker.lines.until("renewal_failed")
    assert not worker.lines.all("lease_lost")
    board.pass_time(board.ttl_s - board.heartbeat_every_s - 1.0)
    await worker.lines.until("lease_lost")
    assert board.clock() < board.lease_of(job).expires_at, "the store still believes in the lease"
    assert job.state == "leased"
    assert not board.said(Complete)


async def test_a_renewal_that_fails_for_a_moment_is_repeated(
    board: Board, start: Start, held: str, gate: Gate
) -> None:
    failures: list[str] = []

    def fail_twice(method: str) -> None:
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
    clock = Clock()

    @registry.task(name="frozen")
    async def sleeper() -> str:
        clock.move(board.ttl_s)  # the whole process has stood still for so long
        return "too late"

    job = board.pin("frozen")
    worker = start(monotonic=clock)
    await board.until(lambda: "abandoned" in worker.path("task"), "the task to be abandoned")
    assert not board.said(Complete)
    assert job.outcome is None


async def test_progress_logs_and_checkpoints_are_sent_before_the_next_heartbeat_is_due(
    board: Board, start: Start, registry: Registry, gate: Gate
) -> None:
    board.heartbeat_every_s = 400.0

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


async def test_log_lines_of_a_failed_heartbeat_are_stored_once_even_if_the_handler_ends_meanwhile(
    board: Board, start: Start, registry: Registry, gate: Gate
) -> None:
    """The report waits for the heartbeat that is under way, and takes along what that brings back."""
    board.heartbeat_every_s = 400.0  # there is the one that carries what the handler has said, and no other
    renewing, go_on = threading.Event(), threading.Event()

    def lose_first(method: str) -> None:
        if method == "renew" and not renewing.is_set():
            renewing.set()
            board.changed()
            go_on.wait(PATIENCE_S)
            raise StoreUnavailable("away")

    @registry.task(name="talkative")
    async def talkative(ctx: Context) -> None:
        ctx.log("only once")
        await gate.pass_through()

    board.before = lose_first
    job = board.pin("talkative")
    worker = start()
    await board.until(renewing.is_set, "the heartbeat")
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
    board.heartbeat_every_s = 400.0  # there is the one that carries what the handler has said, and no other
    renewing, go_on = threading.Event(), threading.Event()

    def hold_first(method: str) -> None:
        if method == "renew" and not renewing.is_set():
            renewing.set()
            board.changed()
            go_on.wait(PATIENCE_S)

    @registry.task(name="talkative")
    async def talkative(ctx: Context) -> None:
        ctx.log("too late")
        await gate.pass_through()

    board.before = hold_first
    job = board.pin("talkative")
    worker = start()
    await board.until(renewing.is_set, "the heartbeat")
    board.take_away(job)
    gate.open()
    await board.until(lambda: "reporting" in worker.path("task"), "the handler to end")
    go_on.set()
    await worker.lines.until("report_failed")
    await board.until(lambda: worker.process.data.active_tasks == 0, "the slot")


async def test_a_worker_checks_the_lease_at_once_when_its_attempt_has_timed_out(
    board: Board, start: Start, silent: str
) -> None:
    """Not a heartbeat later: the orchestrator has given it up, and so should we."""
    board.heartbeat_every_s, board.timeout_s = 400.0, 0.2

    board.before = lambda method: board.take_away(job) if method == "renew" else None
    job = board.pin(silent)
    worker = start()
    line = await worker.lines.until("lease_lost")
    assert line["code"] == "LEASE_REVOKED"


async def test_a_heartbeat_whose_contents_are_refused_renews_the_lease_without_them(
    board: Board, start: Start, held: str, gate: Gate
) -> None:
    board.heartbeat_every_s = 400.0  # there is the one that carries what the handler has said, and no other

    def refuse(message: Message) -> NotHeard | None:
        if not (isinstance(message, Heartbeat) and isinstance(message.checkpoint, msgspec.Raw)):
            return None
        board.pass_time(0.6 * board.ttl_s)
        return NotHeard(code="too_large", error="The checkpoint is too large.")

    board.refusing = refuse
    job = board.pin(held)
    worker = start(flush_every_s=600.0)
    await worker.lines.until("heartbeat_refused")
    await board.until_renewed(job)
    board.pass_time(0.6 * board.ttl_s)
    gate.open()
    await board.until_state(job, "succeeded")
    assert job.losses == 0


async def test_a_heartbeat_that_is_refused_again_and_again_does_not_keep_the_worker_busy(
    board: Board, start: Start, silent: str, gate: Gate
) -> None:
    """The next one comes when it is due, as if it had been heard; the lease is lost in its time."""

    board.refusing = lambda message: (
        NotHeard(code="error", error="Not now.") if isinstance(message, Heartbeat) else None
    )
    board.pin(silent)
    clock = Clock()
    worker = start(monotonic=clock)
    await gate.until_entered()
    for count in range(1, 5):
        clock.move(board.heartbeat_every_s)
        await board.until(lambda count=count: len(board.said(Heartbeat)) >= count, "the heartbeat")  # type: ignore[misc]
    assert len(board.said(Heartbeat)) == 4, "one for each time that one was due"
    clock.move(board.ttl_s)
    await worker.lines.until("lease_lost")


# Cancelling


async def test_a_cancel_is_acknowledged_after_the_handler_has_stopped(
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
    assert [ack.confirmed_dead for ack in board.said(CancelAck)] == [True]
    assert worker.process.data.failed == 0, "what was asked for is no failure"


async def test_a_handler_that_does_not_listen_is_cancelled_after_its_grace(
    board: Board, start: Start, held: str, gate: Gate
) -> None:
    job = board.pin(held)
    start()
    await gate.until_entered()
    board.cancel(job)
    await board.until_state(job, "canceled")


async def test_a_worker_logs_that_a_thread_that_ignores_its_cancel_cannot_be_stopped(
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


async def test_the_renewal_of_a_lease_that_expired_while_its_report_waits_is_retried_with_pauses(
    board: Board, start: Start, silent: str, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not given up, since its end may have been heard; but nobody is in a hurry any more."""
    away, clock = threading.Event(), Clock()
    pauses: list[float | None] = []
    wait = SideLoop.wait

    async def note(side: SideLoop, seconds: float | None = None) -> None:
        pauses.append(seconds)
        board.changed()
        await wait(side, seconds)

    def fail(method: str) -> None:
        if away.is_set() and method == "renew":
            raise StoreUnavailable("away")

    board.before = fail
    board.pin(silent)
    worker = start(monotonic=clock)
    await gate.until_entered()
    board.held["report"] = threading.Event()
    gate.open()
    await board.until(lambda: "reporting" in worker.path("task"), "the report to wait")
    away.set()
    clock.move(board.ttl_s + 1.0)
    await worker.lines.until("renewal_failed")
    monkeypatch.setattr(SideLoop, "wait", note)
    await board.until(lambda: len(pauses) >= 3, "three more tries")
    assert all(pause is not None and pause >= 0.1 for pause in pauses), pauses
    assert not worker.lines.all("lease_lost")
