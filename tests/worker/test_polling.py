"""How a worker looks for work and for what was lost: how often, how much of it, and what wakes it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.worker.board import Board, BoardPort, Job
from tests.worker.conftest import Gate, Start

from interlock.lifecycles.process import BACKING_OFF
from interlock.wire.runner import ClaimRequest, Complete, Grant
from interlock.worker import executors


async def test_an_empty_queue_is_polled_less_and_less_often(board: Board, start: Start) -> None:
    """S1-27: backoff increases on empty queue; S1-23: no tasks to backing off, and back to recovering."""
    worker = start()
    await board.until(lambda: len(board.claims) >= 4, "four polls")
    assert worker.process.data.backoff_count >= 3
    path = worker.path()
    after = path.index("backing_off")
    assert path[after - 1 : after + 3] == ["running", "backing_off", "recovering", "running"]


async def test_new_work_ends_the_backoff_at_once(board: Board, start: Start, echo: str) -> None:
    """R16: however long it would last."""
    worker = start(first_backoff_s=600.0, durations=_long_backoff())
    await board.until(lambda: worker.process.state is BACKING_OFF, "the backoff")
    job = board.pin(echo)
    await board.until_state(job, "succeeded")
    await board.until(lambda: worker.process.data.backoff_count == 1, "the backoff to begin anew")


async def test_a_job_submitted_during_a_poll_is_claimed_without_waiting_for_the_backoff(
    board: Board, start: Start, echo: str
) -> None:
    """Work that is pinned after a poll has looked, and before the answer is there."""
    pinned: list[Job] = []

    class Late(BoardPort):
        async def claim(self, request: ClaimRequest) -> list[Grant]:
            grants = await super().claim(request)
            if not pinned:
                pinned.append(board.pin(echo))
            return grants

    worker = start(first_backoff_s=600.0, durations=_long_backoff(), connect=lambda: Late(board))
    await board.until(lambda: pinned, "the first poll")
    await board.until_state(pinned[0], "succeeded")
    assert "backing_off" in worker.path(), "the first poll had found nothing"


async def test_an_idle_worker_does_not_look_for_lost_leases_more_often_than_it_should(
    board: Board, start: Start
) -> None:
    """S1-17: no round trip that is not needed."""
    start(durations=_long_backoff(), first_backoff_s=0.001)
    await board.until(lambda: len(board.claims) >= 6, "six polls")
    assert board.recoveries == 1


async def test_a_worker_without_a_free_slot_still_checks_for_lost_leases(
    board: Board, start: Start, held: str, gate: Gate
) -> None:
    """R15"""
    board.pin(held)
    start(concurrency=1)
    await gate.until_entered()
    seen = board.recoveries
    await board.until(lambda: board.recoveries > seen + 1, "more recoveries")
    gate.open()


async def test_a_worker_runs_a_job_whose_lease_expired_at_another_worker(
    board: Board, start: Start, echo: str
) -> None:
    """S1-27: recovers an expired lease from another worker."""
    job = board.pin(echo, {"value": 1})
    board.claim(ClaimRequest(runner_id="dead#1"))
    board.pass_time(board.ttl_s)
    start()
    await board.until_state(job, "succeeded")
    assert (job.attempts, job.losses) == (2, 1)


async def test_claims_are_batched_up_to_the_free_slots_while_others_run(
    board: Board, start: Start, held: str, echo: str, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        executors, "SOON_S", -1.0
    )  # nothing is so quick that more would be asked for ahead of it
    board.pin(held)
    start(concurrency=5)
    await gate.until_entered()
    jobs = [board.pin(echo) for _ in range(10)]
    for job in jobs:
        await board.until_state(job, "succeeded")
    assert board.claims[0].limit == 5
    assert {claim.limit for claim in board.claims[1:]} <= {1, 2, 3, 4}
    assert all(claim.acknowledge for claim in board.claims)
    gate.open()


async def test_claiming_and_reporting_overlap(board: Board, start: Start, echo: str) -> None:
    """While one batch of reports is under way the next work is claimed."""
    import threading

    board.held["report"] = threading.Event()
    jobs = [board.pin(echo) for _ in range(4)]
    start(concurrency=2)
    await board.until(lambda: all(job.attempts for job in jobs), "the second claim")
    assert not board.said(Complete)
    board.held["report"].set()
    for job in jobs:
        await board.until_state(job, "succeeded")


async def test_no_more_is_claimed_than_can_be_reported(board: Board, start: Start, echo: str) -> None:
    import threading

    board.held["report"] = threading.Event()
    jobs = [board.pin(echo) for _ in range(20)]
    start(concurrency=2)
    await board.until(lambda: sum(job.attempts for job in jobs) == 6, "as many as it has slots")
    await asyncio.sleep(0)
    assert sum(job.attempts for job in jobs) == 6
    board.held["report"].set()
    for job in jobs:
        await board.until_state(job, "succeeded")


def _long_backoff() -> Any:
    from interlock.lifecycles.durations import Durations

    return Durations(backoff_cap_s=600.0, sweep_every_s=600.0)
