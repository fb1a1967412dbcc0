"""Jobs that are executed as a cohort, and those that have to leave it (decision 0395).

Each test has a cohort of several jobs, of which one is out of the ordinary: it goes on as a task of its own,
and nothing happens to the others.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from typing import Any

import pytest
from tests.worker.alike import all_succeeded, pinned
from tests.worker.board import Board, Clock
from tests.worker.conftest import Gate, Start

from interlock.errors import StoreUnavailable
from interlock.wire.runner import (
    Complete,
    Message,
    NotHeard,
    Release,
    Succeeded,
)
from interlock.worker import executors, task_runner
from interlock.worker.context import Context, current
from interlock.worker.executors import function_never_waits
from interlock.worker.host import Shutdown
from interlock.worker.tasks import Registry


async def test_alike_jobs_of_a_claim_are_reported_in_one_batch_and_need_no_tasks(
    board: Board, start: Start, acts: Any, tasks_made: list[str]
) -> None:
    jobs = pinned(board)
    worker = start()
    await all_succeeded(board, jobs)
    assert tasks_made == []
    assert 5 in board.batches
    assert len({message.sequence for message in board.said(Complete)}) == 1, "the number is that of the batch"
    assert await worker.stop() == 0
    assert (worker.process.data.processed, worker.process.data.failed) == (5, 0)
    assert worker.process.leftovers() == {}


async def test_the_log_has_the_path_of_each_job_of_a_cohort(board: Board, start: Start, acts: Any) -> None:
    jobs = pinned(board, 3)
    worker = start()
    await all_succeeded(board, jobs)
    await worker.stop()
    moves = worker.lines.all("task_state_transition")
    for job in jobs:
        path = [move["to_state"] for move in moves if move["task_id"] == job.id]
        assert path == ["claiming", "processing", "reporting", "completed"]


async def test_handlers_of_each_task_start_in_claim_order_even_if_other_handlers_wait_between_them(
    board: Board, start: Start, registry: Registry, gate: Gate
) -> None:
    begun: list[int] = []

    @registry.task(name="quick")
    async def quick(number: int) -> None:
        begun.append(number)

    @registry.task(name="waits")
    async def waits(number: int) -> None:
        begun.append(number)
        await gate.pass_through()

    names = ("quick", "quick", "waits", "quick", "waits", "waits", "quick", "quick")
    jobs = [board.pin(name, {"number": number}) for number, name in enumerate(names)]
    start()
    await gate.until_entered(3)
    await board.until_state(jobs[-1], "succeeded")
    quick_ones = [number for number in begun if names[number] == "quick"]
    assert quick_ones == [0, 1, 3, 6, 7]
    assert begun.index(2) < begun.index(4) < begun.index(5)
    gate.open()


async def test_a_job_that_fails_leaves_its_cohort(
    board: Board, start: Start, acts: Any, tasks_made: list[str]
) -> None:
    jobs = pinned(board)
    acts[2] = lambda _: 1 / 0
    worker = start()
    await board.until_state(jobs[2], "failed")
    await all_succeeded(board, jobs, but=jobs[2])
    assert jobs[2].failure.error == "ZeroDivisionError: division by zero"
    assert "interlock/worker" not in jobs[2].failure.details
    assert tasks_made == [jobs[2].id]
    assert await worker.stop() == 0
    assert (worker.process.data.processed, worker.process.data.failed) == (4, 1)


SAYS: dict[str, Callable[[Context], None]] = {
    "log": lambda ctx: ctx.log("said"),
    "print": lambda _: current().printed("said", "stdout"),  # without the end of the line
    "progress": lambda ctx: ctx.progress(3, 10, "said"),
    "checkpoint": lambda ctx: ctx.checkpoint("said"),
    "spend": lambda ctx: ctx.spend(1.5),
}


@pytest.mark.parametrize("way", SAYS)
async def test_the_log_progress_checkpoint_and_cost_of_a_job_arrive_with_its_report(
    board: Board, start: Start, acts: Any, tasks_made: list[str], way: str
) -> None:
    def speak(ctx: Context) -> int:
        SAYS[way](ctx)
        return 2

    acts[2] = speak
    jobs = pinned(board)
    start(flush_every_s=600.0)
    await all_succeeded(board, jobs)
    assert tasks_made == [jobs[2].id]
    report = next(message for message in board.said(Complete) if message.token.startswith(jobs[2].id))
    assert report.cost == (1.5 if way == "spend" else None)
    assert jobs[2].lines == (["said"] if way in ("log", "print") else [])
    assert (jobs[2].progress is not None) is (way == "progress")
    assert bool(jobs[2].checkpoint) is (way == "checkpoint")
    assert not any(job.lines or job.progress for job in jobs if job is not jobs[2])


async def test_a_job_that_only_reads_its_context_stays_in_its_cohort(
    board: Board, start: Start, acts: Any, tasks_made: list[str]
) -> None:
    def look(ctx: Context) -> int:
        seen.append((ctx.job_id, ctx.cancelled, current() is ctx))
        return 2

    jobs = pinned(board)
    seen: list[tuple[str, bool, bool]] = []
    acts[2] = look
    start()
    await all_succeeded(board, jobs)
    assert seen == [(jobs[2].id, False, True)]
    assert tasks_made == []


async def test_a_background_task_of_a_handler_keeps_the_context_of_its_own_job(
    board: Board, start: Start, registry: Registry, gate: Gate
) -> None:
    found: list[str] = []

    async def later() -> None:
        await gate.pass_through()
        found.append(current().job_id)
        current().log("nobody hears this any more")

    beside: list[asyncio.Task[None]] = []

    @registry.task(name="starts")
    async def starts() -> None:
        beside.append(asyncio.create_task(later()))

    jobs = [board.pin("starts") for _ in range(4)]
    start()
    for job in jobs:
        await board.until_state(job, "succeeded")
    gate.open()
    await asyncio.gather(*beside)
    assert sorted(found) == sorted(job.id for job in jobs)
    assert not any(job.lines for job in jobs)


# Reports


async def test_a_result_that_is_refused_fails_that_job_only(
    board: Board, start: Start, acts: Any, tasks_made: list[str]
) -> None:
    def refuse(message: Message) -> NotHeard | None:
        refused = (
            isinstance(message, Complete)
            and message.token.startswith(jobs[2].id)
            and isinstance(message.outcome, Succeeded)
        )
        return NotHeard(code="too_large", error="It is too large.") if refused else None

    board.refusing = refuse
    jobs = pinned(board)
    worker = start()
    await board.until_state(jobs[2], "failed")
    await all_succeeded(board, jobs, but=jobs[2])
    assert jobs[2].failure.error == "The result was refused: It is too large."
    assert tasks_made == [jobs[2].id]
    assert await worker.stop() == 0
    assert worker.process.leftovers() == {}


async def test_reports_of_a_cohort_that_are_never_delivered_end_its_tasks_with_their_leases(
    board: Board, start: Start, acts: Any
) -> None:
    def fail(method: str) -> None:
        if method in ("report", "renew"):
            raise StoreUnavailable("away")

    board.before = fail
    pinned(board)
    clock = Clock()
    worker = start(patience_s=10_000.0, monotonic=clock)
    line = await worker.lines.until("report_delayed")
    assert line["messages"] == 5
    clock.move(board.ttl_s)
    await board.until(lambda: len(worker.lines.all("report_failed")) == 5, "all to be given up")
    await board.until(lambda: worker.process.data.active_tasks == 0, "the slots")


async def test_results_are_reported_in_batches_of_a_bounded_size(
    board: Board, start: Start, acts: Any
) -> None:
    large = "x" * 250_000
    board.heartbeat_every_s = 600.0
    acts.update(dict.fromkeys(range(10), lambda _: large))
    jobs = pinned(board, 10)
    start()
    for job in jobs:
        await board.until_state(job, "succeeded")
    assert len(board.said(Complete)) == 10
    assert board.batches == [9, 1], "nine of them have more than two megabytes"


# Going


async def test_a_shutdown_releases_the_jobs_that_wait_in_a_cohort(
    board: Board, start: Start, acts: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_runner, "SLICE_S", 0.0)
    shutdown = Shutdown()

    def request_stop(_: Context) -> int:
        shutdown.request()
        return 0

    acts[0] = request_stop
    jobs = pinned(board, 200)
    worker = start(concurrency=200, shutdown=shutdown)
    assert await worker.ended() == 0
    given_back = [job for job in jobs if job.released]
    assert given_back
    assert {reason for job in given_back for reason in job.released} == {"shutdown"}
    assert all(job.state == ("queued" if job.released else "succeeded") for job in jobs)
    assert not any(job.losses for job in jobs)
    assert worker.process.leftovers() == {}


@pytest.mark.parametrize("order", ["interrupt", "revoked", "disconnected"])
async def test_an_interrupt_a_revocation_or_a_disconnect_leaves_no_job_waiting_in_a_cohort(
    board: Board, start: Start, acts: Any, order: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_runner, "SLICE_S", 0.0)

    def soon(_: Context) -> int:
        asyncio.get_running_loop().call_soon(let_go)
        return 0

    def let_go() -> None:
        board.jobs.clear()  # what is given back shall not come again
        getattr(worker.process._task_runner, order)()

    acts[0] = soon
    jobs = pinned(board, 200)
    worker = start(concurrency=200)
    await board.until(lambda: worker.process.data.active_tasks == 0 and jobs[0].outcome, "all to be let go")
    for job in jobs:
        done = job.outcome is not None
        assert done or order == "revoked" or job.released
    assert any(job.outcome is None for job in jobs)
    assert await worker.stop() == 0
    assert worker.process.leftovers() == {}


async def test_a_cohort_that_was_claimed_ahead_and_cannot_start_is_released(
    board: Board, start: Start, acts: Any, silent: str, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executors, "SOON_S", 60.0)  # whatever it does is quick
    monkeypatch.setattr(task_runner, "AHEAD_FOR_S", 0.1)
    quick = pinned(board, 16)
    worker = start(concurrency=4)
    await board.until(lambda: worker.process.data.processed == 16, "the quick ones to end")
    for _ in range(4):
        board.pin(silent)
    await gate.until_entered(4)
    waiting = pinned(board, 4)
    await board.until(lambda: all("unused" in job.released for job in waiting), "them to be given back")
    gate.open()
    for job in waiting:
        await board.until_state(job, "succeeded")
    assert {job.losses for job in quick + waiting} == {0}
    assert board.said(Release)


# Who is in a cohort


async def _bare() -> None:
    return


async def _awaits() -> None:
    await _bare()


async def _awaits_in_a_context() -> None:
    async with asyncio.timeout(None):
        pass


def _sync() -> None:
    return


def test_only_coroutine_functions_without_any_await_are_executed_as_a_cohort(registry: Registry) -> None:
    functions = {_bare: True, _awaits: False, _awaits_in_a_context: False, _sync: False}
    names = itertools.count()
    for function, expected in functions.items():
        assert function_never_waits(registry.task(name=f"n{next(names)}")(function).function) is expected


async def test_jobs_with_secrets_or_of_strangers_have_tasks_of_their_own(
    board: Board, start: Start, acts: Any, tasks_made: list[str]
) -> None:
    jobs = [
        board.pin("numbered", {"number": 0}, secrets={"KEY": "abcdefgh"}),
        board.pin("numbered", {"number": 1}, untrusted=True),
        board.pin("numbered", {"number": 2}),
    ]
    start()
    await all_succeeded(board, jobs)
    assert tasks_made == [jobs[0].id, jobs[1].id]


async def test_a_reloaded_task_is_executed_although_its_older_version_was_before(
    board: Board, start: Start, registry: Registry
) -> None:
    executed: list[str] = []

    def load(version: str) -> None:
        @registry.task(name="reloaded")
        async def reloaded() -> None:
            executed.append(version)

    load("older")
    start()
    for version in ("older", "newer"):
        load(version)
        await board.until_state(board.pin("reloaded", {}), "succeeded")
    assert executed == ["older", "newer"]
