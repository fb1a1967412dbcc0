"""What a handler says is kept, bounded, until the runner takes it; what the runner says wakes the handler."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from tests.waiting import PATIENCE_S

from interlock.errors import InvalidArguments, JobError, NotJson, TooLarge
from interlock.testing.clocks import JumpingClock
from interlock.wire.runner import Grant, LogLine, Progress, size_of
from interlock.worker.context import NOTHING, Context, TaskCancelled, UnsentMessages, current

START = datetime(2026, 1, 1, tzinfo=UTC)


def grant(**changes: Any) -> Grant:
    facts: dict[str, Any] = {
        "token": "very-secret",
        "job_id": "j_000000000001",
        "task": "shop.send",
        "input": msgspec.Raw(b"{}"),
        "fence": 7,
        "granted_at": START,
        "expires_at": START,
        "ttl_s": 120.0,
        "heartbeat_every_s": 20.0,
        "timeout_s": 60.0,
    }
    return Grant(**{**facts, **changes})


@pytest.fixture
def clock() -> JumpingClock:
    return JumpingClock(START)


@pytest.fixture
def context(clock: JumpingClock) -> Context:
    return Context(grant(), now=clock)


def texts(unsent: UnsentMessages) -> list[str]:
    return [line.text for line in unsent.log]


def test_a_context_has_the_ids_queue_shard_attempt_and_trace_of_its_job(clock: JumpingClock) -> None:
    given = grant(
        shard=2, shards=3, attempt=4, queue="mail", parent_job_id="j_2", depth=1, trace={"traceparent": "00"}
    )
    context = Context(given, now=clock)
    assert (context.job_id, context.task, context.queue) == ("j_000000000001", "shop.send", "mail")
    assert (context.shard, context.shards, context.attempt, context.fence) == (2, 3, 4, 7)
    assert (context.parent_job_id, context.depth, context.trace) == ("j_2", 1, {"traceparent": "00"})


def test_the_token_is_not_shown(context: Context) -> None:
    assert repr(context) == "<Context of shop.send j_000000000001, shard 1, attempt 1>"


def test_a_new_context_has_nothing_to_send(context: Context) -> None:
    assert context.take() is NOTHING
    assert not context.take()


def test_progress_lines_and_checkpoints_are_handed_over_once(context: Context, clock: JumpingClock) -> None:
    context.progress(1, 10, "begun")
    context.log("hello")
    clock.jump("1s")
    context.log("careful", level="WARNING")
    context.checkpoint({"page": 3})
    unsent = context.take()
    assert unsent.progress == Progress(done=1, total=10, message="begun")
    assert unsent.log == (LogLine(START, "info", "hello"), LogLine(clock(), "warning", "careful"))
    assert bytes(unsent.checkpoint or b"") == b'{"page":3}'
    assert unsent
    assert context.take() is NOTHING


def test_of_progress_and_checkpoints_the_latest_wins(context: Context) -> None:
    for page in range(5):
        context.progress(page)
        context.checkpoint(page)
    unsent = context.take()
    assert unsent.progress == Progress(done=4)
    assert bytes(unsent.checkpoint or b"") == b"4"


def test_a_number_that_is_left_out_stays_as_it_was(context: Context) -> None:
    context.progress(total=10, message="counting")
    context.take()
    context.progress(3)
    assert context.take().progress == Progress(done=3, total=10)


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (3, 3),
        (2.5, 2.5),
        (Decimal("0.5"), 0.5),
        (True, 1.0),
        (float("nan"), None),
        (float("inf"), None),
        (2**60, 2.0**60),
    ],
)
def test_progress_is_a_number_that_can_be_sent(context: Context, given: Any, kept: float | None) -> None:
    context.progress(given)
    unsent = context.take().progress
    assert unsent == Progress(done=kept)
    assert msgspec.json.decode(msgspec.json.encode(unsent), type=Progress) == unsent


@pytest.mark.parametrize("wrong", ["much", [1], 10**400])
def test_progress_that_is_not_a_number_raises_invalid_arguments(context: Context, wrong: Any) -> None:
    with pytest.raises(InvalidArguments, match="is a number"):
        context.progress(wrong)
    assert context.take() is NOTHING


def test_a_checkpoint_that_is_too_large_is_refused_and_the_last_one_stays(context: Context) -> None:
    context.checkpoint("x" * (64 * 1024 - 2))
    with pytest.raises(TooLarge, match="65,537 bytes; at most 65,536"):
        context.checkpoint("y" * (64 * 1024 - 1))
    assert len(bytes(context.take().checkpoint or b"")) == 64 * 1024


def test_a_checkpoint_that_json_cannot_hold_is_refused(context: Context) -> None:
    with pytest.raises(NotJson, match=r"^checkpoint\.at is of type object"):
        context.checkpoint({"at": object()})


@dataclass
class Position:
    page: int


def test_a_later_attempt_restores_a_checkpoint_as_a_type(context: Context, clock: JumpingClock) -> None:
    context.checkpoint(Position(3))
    saved = context.take().checkpoint
    later = Context(grant(attempt=2, checkpoint=saved), now=clock)
    assert later.restored() == {"page": 3}
    assert later.restored(type=Position) == Position(3)
    with pytest.raises(InvalidArguments, match=r"^The checkpoint does not fit: expected str, got object"):
        later.restored(str)
    with pytest.raises(InvalidArguments, match=r"Context cannot be made from JSON"):
        later.restored(Context)


def test_the_first_attempt_has_nothing_to_restore(context: Context) -> None:
    context.checkpoint(1)
    assert context.restored() is None


@pytest.mark.parametrize("text", ["x" * 8_192, "x" * 10_000, "ü" * 10_000, "a" + "🙂" * 20_000])
def test_a_line_that_is_too_long_becomes_several(context: Context, text: str) -> None:
    context.log(text)
    lines = texts(context.take())
    assert "".join(lines) == text
    assert max(len(each.encode()) for each in lines) <= 8_192


def test_an_upload_is_reported_once_and_again_when_that_was_not_delivered(context: Context) -> None:
    context.uploading()
    unsent = context.take()
    assert unsent.uploading
    assert not context.take().uploading
    context.put_back(unsent)
    assert context.take().uploading


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        ("a\n", "a"),
        (42, "42"),
        ("half \ud800", "half \\ud800"),
        ("nul\x00", "nul\\x00"),
        ("two\nlines", "two\nlines"),
    ],
)
def test_logged_values_become_text_that_json_can_encode(context: Context, value: object, kept: str) -> None:
    context.log(value)
    context.progress(message=str(value).rstrip())
    unsent = context.take()
    assert texts(unsent) == [kept]
    assert msgspec.json.decode(msgspec.json.encode(unsent.log), type=tuple[LogLine, ...]) == unsent.log
    assert unsent.progress == Progress(message=kept)


def test_a_level_can_be_sent_as_well(context: Context) -> None:
    context.log("x", level="LOUD\ud800" * 1_000)
    assert context.take().log[0].level == "loud\\ud800" * 4


def written(numbers: range) -> int:
    """How many bytes these numbers are in a log."""
    return sum(len(f"{number}\n") for number in numbers)


def test_a_log_with_too_many_lines_drops_the_oldest_and_keeps_offsets(context: Context) -> None:
    for number in range(1_500):
        context.log(number)
    unsent = context.take()
    assert len(unsent.log) == 1_000
    assert texts(unsent) == [str(number) for number in range(500, 1_500)]
    assert unsent.log_offset == written(range(500))
    context.log("and on")
    unsent = context.take()
    assert (texts(unsent), unsent.log_offset) == (["and on"], written(range(1_500)))


def test_a_log_of_too_many_bytes_loses_the_oldest_as_well(context: Context) -> None:
    for _ in range(40):
        context.log("ü" * 4_000)
    unsent = context.take()
    size = sum(len(text.encode()) + 1 for text in texts(unsent))
    assert 248 * 1024 <= size <= 256 * 1024
    assert unsent.log_offset + size == 40 * 8_001


def test_a_full_log_without_a_lost_line_begins_at_the_beginning(context: Context) -> None:
    for number in range(1_000):
        context.log(number)
    unsent = context.take()
    assert (texts(unsent)[0], len(unsent.log), unsent.log_offset) == ("0", 1_000, 0)


def test_output_that_could_not_be_sent_is_put_back_before_newer_output(context: Context) -> None:
    context.log("first")
    context.progress(1)
    context.checkpoint("old")
    context.heartbeat()
    failed = context.take()
    context.log("second")
    context.progress(2)
    context.put_back(failed)
    unsent = context.take()
    assert texts(unsent) == ["first", "second"]
    assert unsent.progress == Progress(done=2)
    assert bytes(unsent.checkpoint or b"") == b'"old"'
    assert unsent.heartbeat


def test_lines_that_are_lost_in_several_rounds_are_one_gap(context: Context) -> None:
    for number in range(1_500):
        context.log(number)
    failed = context.take()
    for number in range(1_500, 1_600):
        context.log(number)
    context.put_back(failed)
    unsent = context.take()
    assert texts(unsent) == [str(number) for number in range(600, 1_600)]
    assert unsent.log_offset == written(range(600))


def test_unsent_log_lines_are_not_put_back_if_lines_after_them_were_dropped(context: Context) -> None:
    context.log("first")
    failed = context.take()
    for _ in range(40):  # so large that a few bytes are free, but not for the next one
        context.log("x" * 7_000)
    context.put_back(failed)
    unsent = context.take()
    assert set(texts(unsent)) == {"x" * 7_000}
    assert unsent.log_offset == len("first\n") + (40 - len(unsent.log)) * 7_001


def test_to_put_back_nothing_changes_nothing(context: Context) -> None:
    context.put_back(NOTHING)
    assert context.take() is NOTHING


SAYINGS: list[Callable[[Context], None]] = [
    lambda context: context.log("x"),
    lambda context: context.progress(1),
    lambda context: context.checkpoint(1),
    lambda context: context.heartbeat(),
]


@pytest.mark.parametrize("say", SAYINGS, ids=["log", "progress", "checkpoint", "heartbeat"])
def test_the_runner_is_woken_once_until_it_has_taken(
    say: Callable[[Context], None], clock: JumpingClock
) -> None:
    wakes: list[int] = []
    context = Context(grant(), now=clock, wake=lambda: wakes.append(1))
    say(context)
    say(context)
    assert len(wakes) == 1
    failed = context.take()
    say(context)
    assert len(wakes) == 2
    context.put_back(failed)
    say(context)
    assert len(wakes) == 3


def test_a_heartbeat_alone_is_something_to_send(context: Context) -> None:
    context.heartbeat()
    assert context.take() == UnsentMessages(heartbeat=True)


def test_a_handler_is_not_cancelled_before_a_stop_is_requested(context: Context) -> None:
    context.raise_if_cancelled()
    assert (context.cancelled, context.stop_reason) == (False, None)


def test_a_stopped_handler_receives_the_latest_stop_reason(context: Context) -> None:
    context.stop("cancel")
    context.stop("lost")
    with pytest.raises(TaskCancelled) as caught:
        context.raise_if_cancelled()
    assert (context.cancelled, context.stop_reason, caught.value.reason) == (True, "lost", "lost")


def test_stopping_passes_through_a_handler_that_catches_every_exception(context: Context) -> None:
    def handler() -> None:
        for _ in range(2):
            try:
                context.raise_if_cancelled()
            except Exception:  # noqa: BLE001 - this is what handlers do
                pytest.fail("It would have gone on with the next.")

    context.stop("cancel")
    with pytest.raises(TaskCancelled):
        handler()


async def test_stopping_ends_a_handler_in_the_loop_without_ending_the_loop(context: Context) -> None:
    async def handler() -> None:
        context.raise_if_cancelled()

    context.stop("cancel")
    running = asyncio.create_task(handler())
    done, _ = await asyncio.wait({running})
    assert isinstance(running.exception(), TaskCancelled)
    assert done == {running}


async def test_a_handler_in_the_loop_is_woken_by_a_stop_from_a_thread(context: Context) -> None:
    waiting = [asyncio.create_task(context.wait_cancelled()) for _ in range(3)]
    await asyncio.sleep(0)
    await asyncio.to_thread(context.stop, "cancel")
    assert await asyncio.wait_for(asyncio.gather(*waiting), PATIENCE_S) == [True, True, True]
    assert await context.wait_cancelled()


async def test_a_wait_in_the_loop_ends_with_its_time(context: Context) -> None:
    assert await context.wait_cancelled(0) is False
    assert await context.wait_cancelled(timeout_s=0.001) is False
    context.stop("cancel")
    assert await context.wait_cancelled(0) is True


async def test_a_wait_that_is_given_up_leaves_nothing_behind(context: Context) -> None:
    waiting = asyncio.create_task(context.wait_cancelled())
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert context._waiters == ()
    context.stop("cancel")


def test_a_handler_in_a_thread_is_woken(context: Context) -> None:
    assert context.wait_cancelled_sync(0) is False
    with ThreadPoolExecutor(3) as pool:
        waiting = [pool.submit(context.wait_cancelled_sync, PATIENCE_S) for _ in range(3)]
        context.stop("cancel")
        assert [wait.result(PATIENCE_S) for wait in waiting] == [True, True, True]
    assert context.wait_cancelled_sync(PATIENCE_S) is True


def test_a_loop_that_is_gone_does_not_disturb_a_stop(context: Context) -> None:
    loop = asyncio.new_event_loop()
    waiting = loop.create_task(context.wait_cancelled())
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    context.stop("cancel")
    assert context.cancelled
    waiting._log_destroy_pending = False  # type: ignore[attr-defined]
    waiting.get_coro().close()
    del waiting
    gc.collect()


def test_log_lines_of_concurrent_threads_are_sent_once_or_counted_as_missing(clock: JumpingClock) -> None:
    news = threading.Event()
    context = Context(grant(), now=clock, wake=news.set)
    threads, each = 8, 2_000
    together = threading.Barrier(threads)
    received: list[str] = []
    missing = end = 0

    def speak(speaker: int) -> None:
        together.wait(PATIENCE_S)
        for number in range(each):
            context.log(f"{speaker} {number}")
            context.progress(number, each)
            context.checkpoint(number)

    def listen(unsent: UnsentMessages) -> None:
        nonlocal missing, end
        if unsent.log:
            missing += unsent.log_offset - end
            end = unsent.log_offset + sum(map(size_of, unsent.log))
        received.extend(texts(unsent))

    with ThreadPoolExecutor(threads) as pool:
        speaking = [pool.submit(speak, speaker) for speaker in range(threads)]
        failures = 0
        while not all(one.done() for one in speaking):
            news.wait(0.05)
            news.clear()
            unsent = context.take()
            if unsent and failures % 3 == 0:
                context.put_back(unsent)
                unsent = context.take()
            failures += 1
            listen(unsent)
        for one in speaking:
            one.result()
    listen(context.take())
    assert len(received) == len(set(received))
    logged = (f"{speaker} {number}" for speaker in range(threads) for number in range(each))
    assert sum(len(text) + 1 for text in received) + missing == sum(len(text) + 1 for text in logged)
    for speaker in range(threads):
        numbers = [int(text.split()[1]) for text in received if text.startswith(f"{speaker} ")]
        assert numbers == sorted(numbers)
    assert context.take() is NOTHING


class Chatty:
    """Part of a ring, so that only the garbage collector ends it, whenever that runs."""

    def __init__(self, context: Context) -> None:
        self.me, self.context = self, context

    def __del__(self) -> None:
        self.context.log("gone")


def test_a_finalizer_that_logs_in_the_middle_of_it_is_no_deadlock(context: Context) -> None:
    with context._lock:
        Chatty(context)
        gc.collect()
    assert texts(context.take()) == ["gone"]


def test_there_is_no_context_where_no_handler_runs() -> None:
    with pytest.raises(JobError, match="No handler is running here"):
        current()


def test_the_running_handler_finds_its_context(context: Context, clock: JumpingClock) -> None:
    other = Context(grant(job_id="j_other"), now=clock)
    with context.active():
        assert current() is context
        with other.active():
            assert current() is other
        assert current() is context
    with pytest.raises(JobError):
        current()


async def test_handlers_side_by_side_each_find_their_own_context(clock: JumpingClock) -> None:
    async def handler(context: Context) -> bool:
        with context.active():
            await asyncio.sleep(0)
            return current() is context and await asyncio.to_thread(current) is context

    contexts = [Context(grant(job_id=f"j_{number}"), now=clock) for number in range(5)]
    assert all(await asyncio.gather(*map(handler, contexts)))


def test_the_cost_of_a_job_is_the_sum_of_its_spend_calls_and_none_before_the_first(context: Context) -> None:
    assert context.cost is None
    context.spend(0)
    context.spend(0.25)
    context.spend(2)
    assert context.cost == 2.25


@pytest.mark.parametrize("wrong", [-1, float("inf"), float("nan"), "much", None])
def test_a_cost_that_is_no_cost_is_refused_and_changes_nothing(context: Context, wrong: Any) -> None:
    context.spend(1)
    with pytest.raises(InvalidArguments, match="The cost cannot be"):
        context.spend(wrong)
    assert context.cost == 1
