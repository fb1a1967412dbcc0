"""Grants that a worker holds before it has a slot for them: fetched ahead, or asked for ahead."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import msgspec
import pytest
from tests.worker.board import Board
from tests.worker.conftest import QUICK, Gate, Start

from interlock.wire.runner import Ack, Complete, Release
from interlock.worker import executors, task_runner
from interlock.worker.settings import WorkerSettings
from interlock.worker.tasks import Registry


async def test_prefetched_grants_wait_unacknowledged_and_are_acknowledged_together(
    board: Board, start: Start, held: str, gate: Gate
) -> None:
    jobs = [board.pin(held) for _ in range(4)]
    start(concurrency=2, prefetch=2)
    await gate.until_entered(2)
    await board.until(lambda: all(job.attempts for job in jobs), "all to be granted")
    assert [claim.acknowledge for claim in board.claims[:2]] == [True, False]
    assert board.claims[1].limit == 2
    assert not board.said(Ack)
    gate.open()
    for job in jobs:
        await board.until_state(job, "succeeded")
    assert len(board.said(Ack)) == 2
    assert all(job.attempts == 1 for job in jobs)


async def test_a_prefetched_grant_that_is_not_used_is_given_back_in_time(
    board: Board, start: Start, held: str, gate: Gate
) -> None:
    """After half of the window for acknowledging it, which here only the worker thinks is so short."""
    first, second = board.pin(held), board.pin(held)
    start(concurrency=1, prefetch=1, durations=msgspec.structs.replace(QUICK, ack_window_s=0.4))
    await gate.until_entered()
    await board.until(lambda: board.said(Release), "a release")
    assert second.released[0] == "unused"
    assert second.losses == 0
    gate.open()
    for job in (first, second):
        await board.until_state(job, "succeeded")


async def test_a_prefetched_grant_is_given_back_at_shutdown(
    board: Board, start: Start, held: str, gate: Gate
) -> None:
    _, second = board.pin(held), board.pin(held)
    worker = start(concurrency=1, prefetch=1)
    await board.until(lambda: second.attempts == 1, "the second to be granted")
    await gate.until_entered()
    worker.process.shutdown.request()
    await board.until(lambda: second.released == ["shutdown"], "the release")
    gate.open()
    assert await worker.stop() == 0


async def test_a_prefetched_grant_whose_lease_was_revoked_is_not_counted_as_a_failure(
    board: Board, start: Start, held: str, gate: Gate
) -> None:
    """R10: nothing is written, counted or notified."""
    first, second = board.pin(held), board.pin(held)
    worker = start(concurrency=1, prefetch=1)
    await board.until(lambda: second.attempts == 1, "the second to be granted")
    await gate.until_entered()
    board.take_away(second)
    gate.open()
    await board.until_state(first, "succeeded")
    await board.until(lambda: len(board.said(Ack)) == 1, "the acknowledgement")
    assert await worker.stop() == 0
    assert (worker.process.data.processed, worker.process.data.failed) == (1, 0)
    assert len(board.said(Complete)) == 1


async def test_a_job_that_was_claimed_ahead_and_cannot_start_is_released(
    board: Board, start: Start, echo: str, held: str, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executors, "SOON_S", 60.0)  # whatever it does is quick
    monkeypatch.setattr(task_runner, "AHEAD_FOR_S", 0.1)
    for _ in range(16):
        board.pin(echo)
    worker = start(concurrency=4)
    await board.until(lambda: worker.process.data.processed == 16, "the quick ones to end")
    slow = [board.pin(held) for _ in range(8)]
    await gate.until_entered(4)
    await board.until(lambda: all(job.attempts for job in slow), "all to be granted")
    await board.until(lambda: len(board.said(Release)) >= 4, "what was asked for ahead to come back")
    assert {reason for job in slow for reason in job.released} == {"unused"}
    gate.open()
    for job in slow:
        await board.until_state(job, "succeeded")
    assert await worker.stop() == 0
    assert (worker.process.data.processed, worker.process.data.failed) == (24, 0)


async def test_after_a_full_claim_the_next_one_is_sent_before_handlers_run(
    board: Board, start: Start, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executors, "SOON_S", 60.0)  # whatever it does is quick
    monkeypatch.setattr(task_runner, "SLICE_S", 600.0)  # no busy machine cuts a cohort into slices
    sent = 0
    sent_before: list[int] = []

    def count(method: str) -> None:
        nonlocal sent
        sent += method == "claim"

    @registry.task(name="counting")
    async def counting() -> None:
        sent_before.append(sent)

    board.before = count
    jobs = [board.pin("counting") for _ in range(40)]
    start(concurrency=4)
    for job in jobs:
        await board.until_state(job, "succeeded")
    later = board.claims[2 : len(board.claims) - 2]  # the first two learn that handlers are quick
    assert {claim.limit for claim in later} == {4}
    assert sent_before[8:32] == [number + 4 for number in range(6) for _ in range(4)]


class Waiting:
    """Something that waits in a lane."""

    count = 1


def room_ahead(lanes: executors.Lanes, coming: int = 0) -> int:
    return lanes.room_ahead(coming, lanes.batch_ahead())


def test_a_worker_claims_ahead_only_while_its_handlers_are_fast() -> None:
    now = 0.0
    all_lanes = executors.Lanes(WorkerSettings(name="a", concurrency=4), lambda: now)
    lane = all_lanes["async"]
    tasks: list[Any] = [Waiting() for _ in range(16)]
    assert room_ahead(all_lanes) == 4
    for one in tasks[:12]:
        lane.running[one] = now
        assert room_ahead(all_lanes) == (3 if lane.longest_s > executors.SOON_S else 4)
        lane.left(one, now)
    assert lane.longest_s < executors.SOON_S, "it has learnt that they are quick"
    lane.running.update(dict.fromkeys(tasks[:4], now))
    assert (all_lanes.room(0), room_ahead(all_lanes), room_ahead(all_lanes, 1)) == (0, 4, -1)
    lane.waiting.append(tasks[4])
    assert room_ahead(all_lanes) == 0, "that many are there already"
    lane.waiting.clear()
    now = 2 * executors.SOON_S
    assert room_ahead(all_lanes) == 0, "what runs takes long, and what waits may have to wait"
    lane.left(tasks[0], now)
    now += executors.SOON_S
    lane.running = {tasks[5]: now}
    assert room_ahead(all_lanes) == 3, "one that took long is remembered"


@pytest.mark.parametrize(
    ("handler_s", "concurrency", "batch"),
    [(0.0, 4, 16), (0.001, 4, 10), (0.005, 4, 4), (0.04, 4, 4), (0.0, 60, 100), (0.0, 500, 500)],
)
def test_the_quicker_the_handlers_the_more_jobs_are_claimed_ahead(
    handler_s: float, concurrency: int, batch: int
) -> None:
    """At most what begins within a hundredth of a second, four times the concurrency, and a hundred."""
    now = 0.0
    settings = WorkerSettings(name="a", concurrency=concurrency)
    lanes = executors.Lanes(settings, lambda: now)
    lane = lanes["async"]
    lane.learn(handler_s, 100)
    assert room_ahead(lanes) == concurrency, "nothing runs, so nothing is claimed ahead"
    tasks: list[Any] = [Waiting() for _ in range(batch + 1)]
    lane.waiting.extend(tasks[:batch])
    assert (lanes.batch_ahead(), room_ahead(lanes)) == (batch, batch)
    lane.waiting.append(tasks[batch])
    assert room_ahead(lanes) == 0, "a whole batch waits already"
    assert settings.slots >= settings.slots_for(batch) >= batch


async def test_quick_handlers_take_no_more_jobs_than_can_be_reported(
    board: Board, start: Start, echo: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executors, "SOON_S", 60.0)
    monkeypatch.setattr(executors, "AHEAD_WORK_S", 600.0)  # whatever it does is very quick
    board.held["report"] = threading.Event()
    jobs = [board.pin(echo) for _ in range(40)]
    worker = start(concurrency=2)
    await board.until(lambda: sum(job.attempts for job in jobs) == 18, "two batches of eight, and two jobs")
    await asyncio.sleep(0)
    assert sum(job.attempts for job in jobs) == worker.process.data.slots == 18
    board.held["report"].set()
    for job in jobs:
        await board.until_state(job, "succeeded")
