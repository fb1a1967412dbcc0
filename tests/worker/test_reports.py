"""What is reported is what happened, and it arrives or the lease has ended (S1-12, S1-27; R10, R11)."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import msgspec
import pytest
from tests.worker.board import Board, Clock
from tests.worker.conftest import Gate, Start

from interlock.errors import StoreUnavailable
from interlock.wire.runner import Complete, Failed, Heartbeat, Message, NotHeard, Succeeded
from interlock.worker.context import Context
from interlock.worker.outcomes import clean, failure_of, success_of, tail
from interlock.worker.tasks import Registry


class Refused(ConnectionError):
    """An error of a library, with a past."""


async def test_a_worker_reports_a_failing_task(board: Board, start: Start, registry: Registry) -> None:
    """S1-27"""

    @registry.task(name="fails")
    async def fails() -> None:
        raise Refused("nobody\nlistens")

    job = board.pin("fails")
    worker = start()
    await board.until_state(job, "failed")
    assert job.failure.error == "Refused: nobody"
    names = job.failure.exception.split()
    assert names[0].endswith("test_reports.Refused")
    assert names[1:3] == ["builtins.ConnectionError", "builtins.OSError"]
    assert "in fails" in job.failure.details
    assert "interlock/worker" not in job.failure.details, "our own frames say nothing to anybody"
    assert await worker.stop() == 0
    assert (worker.process.data.processed, worker.process.data.failed) == (0, 1)
    assert worker.path("task")[-2:] == ["reporting", "failed"]


async def test_a_grant_of_a_task_that_this_worker_does_not_have_is_given_back(
    board: Board, start: Start, echo: str
) -> None:
    """The board is like a server of an earlier version: it does not look at the tasks of a claim."""
    stranger = board.pin("ecko")
    worker = start()
    await board.until(lambda: len(stranger.released) >= 2, "the job to be given back twice")
    known = board.pin(echo, {"value": 7})
    await board.until_state(known, "succeeded")
    assert set(stranger.released) == {"this worker has no task ecko"}
    assert (stranger.outcome, stranger.losses) == (None, 0)
    assert {request.tasks for request in board.claims} == {("echo", "interlock.shell")}
    assert await worker.stop() == 0
    assert (worker.process.data.processed, worker.process.data.failed) == (1, 0)


async def test_arguments_that_do_not_fit_are_the_users(
    board: Board, start: Start, registry: Registry
) -> None:
    @registry.task(name="double")
    async def double(number: int) -> int:
        return 2 * number

    job = board.pin("double", {"number": "three"})
    start()
    await board.until_state(job, "failed")
    assert job.failure.failure_class == "user"
    assert "number" in job.failure.error


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (object(), "result"),
        ({"inner": {1, 2, 3}, "bad": float("nan")}, "bad"),
        ("x" * 300_000, "300002 bytes"),
    ],
)
async def test_a_result_that_cannot_be_stored_fails_the_job_with_the_reason(
    board: Board, start: Start, registry: Registry, value: Any, words: str
) -> None:
    @registry.task(name="gives")
    async def gives() -> Any:
        return value

    job = board.pin("gives")
    start()
    await board.until_state(job, "failed")
    assert words in job.failure.error
    assert job.failure.failure_class == "user"


async def test_a_result_that_the_orchestrator_refuses_becomes_a_failure(
    board: Board, start: Start, echo: str
) -> None:
    def refuse(message: Message) -> NotHeard | None:
        succeeded = isinstance(message, Complete) and isinstance(message.outcome, Succeeded)
        return NotHeard(code="too_large", error="It is too large.", todo="Less.") if succeeded else None

    board.refusing = refuse
    job = board.pin(echo)
    start()
    await board.until_state(job, "failed")
    assert job.failure.error == "The result was refused: It is too large."


async def test_a_report_that_cannot_be_delivered_is_sent_again(board: Board, start: Start, echo: str) -> None:
    tries = []

    def fail_twice(method: str) -> None:
        if method == "report":
            tries.append(method)
            if len(tries) <= 2:
                raise StoreUnavailable("away")

    board.before = fail_twice
    job = board.pin(echo)
    worker = start(patience_s=600.0)
    await board.until_state(job, "succeeded")
    assert len(tries) == 3
    assert len(worker.lines.all("report_delayed")) == 2


async def test_a_report_that_is_never_delivered_ends_the_task_with_its_lease(
    board: Board, start: Start, echo: str
) -> None:
    """S1-25: reporting failure to failed; R11."""

    def fail(method: str) -> None:
        if method in ("report", "renew"):
            raise StoreUnavailable("away")

    board.before = fail
    board.pin(echo)
    clock = Clock()
    worker = start(patience_s=10_000.0, monotonic=clock)
    await worker.lines.until("report_delayed")
    assert not worker.lines.all("report_failed")
    clock.move(board.ttl_s)
    await worker.lines.until("report_failed")
    await board.until(lambda: worker.process.data.active_tasks == 0, "the slot")
    assert worker.path("task")[-2:] == ["reporting", "failed"]


async def test_reports_gather_while_the_port_is_busy(board: Board, start: Start, echo: str) -> None:
    board.held["report"] = threading.Event()
    jobs = [board.pin(echo) for _ in range(12)]
    worker = start(concurrency=4)
    await board.until(lambda: worker.process.data.active_tasks == 12, "all slots to be taken")
    board.held["report"].set()
    for job in jobs:
        await board.until_state(job, "succeeded")
    assert max(board.batches) >= 8, "what gathered went in one batch"


async def test_the_last_progress_and_checkpoint_are_sent_in_a_heartbeat_before_the_report(
    board: Board, start: Start, registry: Registry
) -> None:
    """Progress and a checkpoint have no place in a completion, so a heartbeat goes ahead of it."""

    @registry.task(name="last_words")
    async def last_words(ctx: Context) -> None:
        ctx.log("one")
        ctx.progress(9, 10)
        ctx.checkpoint({"at": 9})
        raise ValueError("almost")

    job = board.pin("last_words")
    start(flush_every_s=60.0)
    await board.until_state(job, "failed")
    assert job.lines == ["one"]
    assert job.progress is not None
    assert job.progress.done == 9
    assert bytes(job.checkpoint or b"") == b'{"at":9}'
    ahead, last = board.messages[-2:]
    assert isinstance(ahead, Heartbeat)
    assert isinstance(last, Complete)
    assert last.sequence > ahead.sequence


async def test_a_report_that_a_renewal_overtakes_loses_nothing(
    board: Board, start: Start, registry: Registry
) -> None:
    """The report has its numbers when it leaves; a renewal with a higher one may arrive before it."""

    @registry.task(name="last_words")
    async def last_words(ctx: Context) -> None:
        ctx.log("one")
        ctx.progress(9, 10)

    heard_before: list[int] = []
    board.before = lambda method: heard_before.append(len(board.messages)) if method == "report" else None
    board.held["report"] = threading.Event()
    job = board.pin("last_words")
    start(flush_every_s=60.0)
    await board.until(
        lambda: heard_before and len(board.messages) > heard_before[0], "a renewal after the report has left"
    )
    renewal = board.messages[-1]
    board.held["report"].set()
    await board.until_state(job, "succeeded")
    assert job.lines == ["one"]
    assert job.progress is not None
    assert job.progress.done == 9
    (ahead,) = [message for message in board.said(Heartbeat) if message.log]
    assert renewal.log == ()
    assert renewal.sequence > ahead.sequence


async def test_the_orchestrator_receives_one_report_when_a_task_completes(
    board: Board, start: Start, echo: str
) -> None:
    """S1-27: notify on completion. The report is the notification; there is no second one."""
    job = board.pin(echo)
    worker = start()
    await board.until_state(job, "succeeded")
    assert [message.runner_id for message in board.said(Complete)] == [worker.process.runner_id]


async def test_a_handler_that_cancels_itself_has_failed(
    board: Board, start: Start, registry: Registry
) -> None:
    @registry.task(name="gives_up")
    async def gives_up() -> None:
        raise asyncio.CancelledError

    job = board.pin("gives_up")
    start()
    await board.until_state(job, "failed")
    assert "without a request" in job.failure.error


async def test_a_handler_that_exits_has_failed_and_the_worker_lives(
    board: Board, start: Start, registry: Registry, echo: str
) -> None:
    @registry.task(name="exits")
    def exits() -> None:
        raise SystemExit(3)

    job = board.pin("exits")
    start()
    await board.until_state(job, "failed")
    assert job.failure.exit_code == 3
    other = board.pin(echo)
    await board.until_state(other, "succeeded")


async def test_the_report_of_a_stale_attempt_is_refused_and_the_task_ends_failed(
    board: Board, start: Start, held: str, gate: Gate
) -> None:
    board.heartbeat_every_s = 400.0
    job = board.pin(held)
    worker = start(flush_every_s=600.0)
    await gate.until_entered()
    await board.until(lambda: board.said(Heartbeat), "the one heartbeat that there is before the report")
    board.take_away(job)
    gate.open()
    line = await worker.lines.until("report_failed")
    assert line["error"] == "The lease has ended."
    assert worker.path("task")[-1] == "failed"


def test_a_long_traceback_keeps_its_end() -> None:
    text = tail("x" * 100_000 + "the reason")
    assert len(text.encode()) <= 16_384
    assert text.startswith("...")
    assert text.endswith("the reason")


def test_a_long_traceback_of_wide_letters_is_cut_between_them() -> None:
    text = tail("ö" * 20_000)
    assert len(text.encode()) <= 16_384
    assert text.endswith("öö")


@pytest.mark.parametrize("text", ["\ud800 alone", "null \x00 byte"])
def test_an_error_that_no_database_can_hold_is_cleaned(text: str) -> None:
    failed = failure_of(ValueError(text))
    assert msgspec.json.encode(failed)
    assert "\x00" not in failed.error + failed.details
    assert clean(text) == clean(clean(text))


def test_an_exception_without_a_message_is_reported_by_its_type_name() -> None:
    assert failure_of(KeyError()).error == "KeyError"


def test_nothing_is_reported_as_null() -> None:
    assert success_of(None) == Succeeded(msgspec.Raw(b"null"))


def test_a_result_of_just_the_allowed_size_is_kept() -> None:
    assert isinstance(success_of("x" * 98, max_bytes=100), Succeeded)
    assert isinstance(success_of("x" * 99, max_bytes=100), Failed)
