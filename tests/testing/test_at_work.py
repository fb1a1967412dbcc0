"""Whoever tests tasks of their own gets the real thing, and nothing of it stays behind."""

from __future__ import annotations

import asyncio
import tempfile
import threading
from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest
from tests.waiting import PATIENCE_S, until

from interlock import Context, Registry
from interlock.client import JobHandle
from interlock.errors import JobFailed
from interlock.testing.at_work import QUICK, at_work

shop = Registry()


@shop.task
async def double(number: int) -> int:
    return 2 * number


@shop.task(retries=1)
def fail_once(ctx: Context) -> int:
    if ctx.attempt == 1:
        raise ValueError("the first time it fails")
    return ctx.attempt


@shop.task
async def fail() -> None:
    raise ValueError("it always fails")


@shop.task
async def wait_for_ever() -> None:
    """Does not listen."""
    await asyncio.Event().wait()


async def test_a_task_can_be_tested_with_a_real_worker() -> None:
    async with at_work(shop) as il:
        job = await il.submit(double, 21)
        assert await job.result(timeout_s=PATIENCE_S) == 42


async def test_retries_and_failures_are_the_real_ones() -> None:
    async with at_work(shop) as il:
        again = await il.submit(fail_once)
        never = await il.submit(fail)
        assert await again.result(timeout_s=PATIENCE_S) == 2
        with pytest.raises(JobFailed, match="it always fails"):
            await never.result(timeout_s=PATIENCE_S)


async def test_a_handler_that_does_not_listen_is_stopped_and_its_cancel_is_not_forced() -> None:
    async with at_work(shop) as il:
        job = await il.submit(wait_for_ever)
        await until(lambda: is_in(job, "RUNNING"), "it is at work")
        await job.cancel(reason="nobody needs it")
        view = await il.wait(job.id, timeout_s=PATIENCE_S)
        assert (view.state, [str(one.state) for one in view.attempts]) == ("CANCELED", ["CANCELED"])
        assert [one.forced for one in view.attempts] == [False]


async def test_a_handler_that_is_still_running_does_not_delay_the_end_of_a_test() -> None:
    async with asyncio.timeout(PATIENCE_S), at_work(shop) as il:
        job = await il.submit(wait_for_ever)
        await until(lambda: is_in(job, "RUNNING"), "it is at work")


def test_nothing_ends_by_itself_on_a_machine_that_stands_still_for_ten_seconds() -> None:
    for name in (
        "lease_ttl_s",
        "ack_window_s",
        "cancel_deadline_s",
        "shutdown_deadline_s",
        "worker_silence_s",
    ):
        assert getattr(QUICK, name) >= 30.0, name


async def is_in(job: JobHandle, state: str) -> bool:
    return (await job.view()).state == state


async def test_a_connection_that_still_writes_when_its_folder_is_removed_fails_no_test(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    over = threading.Event()

    def write(folder: Path) -> None:
        for number in count():
            if over.is_set() or not folder.is_dir():
                return
            with suppress(FileNotFoundError):
                (folder / str(number % 1_000)).touch()

    async with at_work(shop) as il:
        assert await (await il.submit(double, 21)).result(timeout_s=PATIENCE_S) == 42
        [folder] = tmp_path.iterdir()
        writing = threading.Thread(target=write, args=(folder,), daemon=True)
        writing.start()
    over.set()
    await asyncio.to_thread(writing.join)
