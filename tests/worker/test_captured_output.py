"""What handlers print and log is in the log of their job: of the right attempt, masked and bounded."""

from __future__ import annotations

import asyncio
import io
import logging
import sys
import threading
from contextvars import copy_context

import pytest
from tests.worker.test_context import START, grant

from interlock.wire.runner import Grant
from interlock.worker.captured_output import capturing
from interlock.worker.context import MAX_LINE_BYTES, Context

log = logging.getLogger("shop.tasks")


@pytest.fixture(autouse=True)
def _root_as_before() -> object:
    root = logging.getLogger()
    before = root.level
    yield
    root.setLevel(before)


def context_of(given: Grant | None = None) -> Context:
    return Context(given or grant(), now=lambda: START)


def lines(context: Context) -> list[tuple[str, str]]:
    return [(line.level, line.text) for line in context.take().log]


def test_prints_and_records_of_a_handler_are_lines_of_its_log(capsys: pytest.CaptureFixture[str]) -> None:
    context = context_of()
    with capturing("info"):
        print("nobody's")
        log.warning("nobody's either")
        with context.active():
            print("one", 1)
            print("two\nthree")
            print("oops", file=sys.stderr)
            log.info("packed %d", 3)
            log.warning("slow")
    assert lines(context) == [
        ("stdout", "one 1"),
        ("stdout", "two"),
        ("stdout", "three"),
        ("stderr", "oops"),
        ("info", "shop.tasks: packed 3"),
        ("warning", "shop.tasks: slow"),
    ]
    assert "one 1\ntwo\nthree\n" in capsys.readouterr().out, "the worker's own output has it as well"


def test_output_below_the_capture_level_is_not_captured() -> None:
    context = context_of()
    with capturing("info"), context.active():
        logging.getLogger("library").setLevel(logging.DEBUG)
        logging.getLogger("library").debug("noise")
    with capturing("error"), context.active():
        log.warning("not that bad")
        log.error("bad")
    with capturing("off"), context.active():
        print("not captured")
        log.error("not captured either")
    assert lines(context) == [("error", "shop.tasks: bad")]


def test_a_logged_exception_is_captured_with_its_traceback() -> None:
    context = context_of()
    with capturing("info"), context.active():
        try:
            int("many")
        except ValueError:
            log.exception("could not send")
    found = lines(context)
    assert found[0] == ("error", "shop.tasks: could not send")
    assert found[-1] == ("error", "ValueError: invalid literal for int() with base 10: 'many'")


def test_a_line_without_an_end_is_kept_until_the_handler_ends() -> None:
    context = context_of()
    with capturing("info"):
        with context.active():
            print("half", end=" ")
            assert lines(context) == []
            print("a line", end="")
        assert lines(context) == [("stdout", "half a line")]


def test_a_line_that_is_written_over_again_and_again_is_kept_as_it_was_last() -> None:
    context = context_of()
    with capturing("info"), context.active():
        for share in range(0, 101, 10):
            print(f"\r{share} %", end="")
        print()
        print("x" * (3 * MAX_LINE_BYTES), end="")
    found = lines(context)
    assert found[0] == ("stdout", "100 %")
    assert all(len(text) <= MAX_LINE_BYTES for _, text in found)
    assert sum(len(text) for _, text in found[1:]) == 3 * MAX_LINE_BYTES, "split, and not cut"


def test_secrets_are_masked_in_printed_and_logged_output() -> None:
    context = context_of(grant(secrets={"KEY": "very-secret-value"}))
    with capturing("info"), context.active():
        print("the key is very-secret-value")
        log.info("the key is %s", "very-secret-value")
    assert [text for _, text in lines(context)] == ["the key is ***", "shop.tasks: the key is ***"]


async def test_handlers_side_by_side_are_distinguished() -> None:
    contexts = [context_of() for _ in range(4)]
    turn = asyncio.Barrier(2)
    meeting = threading.Barrier(2)

    async def in_the_loop(number: int) -> None:
        with contexts[number].active():
            print("task", end=" ")
            await turn.wait()
            print(number)
            await asyncio.to_thread(log.info, "in a thread of task %d", number)

    def in_a_thread(number: int) -> None:
        with contexts[number].active():
            print("thread", end=" ")
            meeting.wait(60)
            print(number)

    with capturing("info"):
        threads = [threading.Thread(target=copy_context().run, args=(in_a_thread, n)) for n in (2, 3)]
        for thread in threads:
            thread.start()
        await asyncio.gather(in_the_loop(0), in_the_loop(1))
        for thread in threads:
            await asyncio.to_thread(thread.join)
    assert [lines(context) for context in contexts] == [
        [("stdout", "task 0"), ("info", "shop.tasks: in a thread of task 0")],
        [("stdout", "task 1"), ("info", "shop.tasks: in a thread of task 1")],
        [("stdout", "thread 2")],
        [("stdout", "thread 3")],
    ]


def test_other_handlers_of_the_program_get_no_more_than_before() -> None:
    written = io.StringIO()
    own, root = logging.StreamHandler(written), logging.getLogger()
    root.setLevel(logging.WARNING)
    root.addHandler(own)
    try:
        with capturing("info"), context_of().active():
            log.info("for the job")
            log.warning("for everybody")
        assert (written.getvalue(), own.level) == ("for everybody\n", logging.NOTSET)
    finally:
        root.removeHandler(own)


def test_everything_is_as_it_was_afterwards() -> None:
    root, out, err = logging.getLogger(), sys.stdout, sys.stderr
    before = (root.level, list(root.handlers))
    with capturing("info"):
        assert sys.stdout is not out
        assert sys.stdout.isatty() == out.isatty()
    assert (sys.stdout, sys.stderr) == (out, err)
    assert (root.level, root.handlers) == before
