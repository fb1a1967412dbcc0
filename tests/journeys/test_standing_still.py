"""Real processes with default settings stand still for eleven seconds: that costs time, and nothing else.

Real time is the subject here, so these tests wait for it.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from tests.journeys import errands
from tests.journeys.crew import Crew, Place, Worker, stores

from interlock.lifecycles import job
from interlock.lifecycles.durations import DEFAULTS
from interlock.wire.jobs import JobView

PAUSE_S = 11.0
COSTS = ("connection_lost", "lease_lost", "report_failed", "shutdown_forced", "handler_left_behind")
pytestmark = pytest.mark.long


async def standing_still(stop: Callable[[], object], go_on: Callable[[], object]) -> None:
    stop()
    try:
        await asyncio.sleep(PAUSE_S)
    finally:
        go_on()


def costs(worker: Worker) -> list[str]:
    """Return what a pause has cost, as the worker's log says."""
    return [message for message in COSTS if worker.said(message)]


def over_or_lost(view: JobView) -> bool:
    return view.state in job.ENDED or len(view.attempts) > 1


@asynccontextmanager
async def at_work(crew: Crew) -> AsyncIterator[Worker]:
    """A worker that waits for work and has a job, which is completed when the pause is over."""
    worker = await crew.ready("anna")
    made = await crew.il.submit(errands.held, "errand")
    await crew.noted("errand began 1")
    yield worker
    after = await crew.il.submit(errands.jot, 1)  # it still takes new work
    crew.open_gate("errand.1")
    view = await crew.sees(made.id, over_or_lost, "it has ended, or is done again")
    assert [attempt.state for attempt in view.attempts] == ["SUCCEEDED"]
    assert (await crew.ended(after.id)).state == "COMPLETED"
    assert costs(worker) == []
    assert await crew.faults() == []


@stores()
async def test_a_worker_that_stands_still_keeps_its_job(crew: Crew) -> None:
    await crew.open(DEFAULTS)
    async with at_work(crew) as worker:
        await worker.freeze()
        await standing_still(lambda: None, worker.thaw)


@pytest.mark.parametrize("place", ["postgres", "redis"], indirect=True)
async def test_a_database_that_stands_still_costs_no_attempt(crew: Crew, place: Place) -> None:
    assert place.server is not None
    await crew.open(DEFAULTS)
    async with at_work(crew):
        await standing_still(place.server.pause, place.server.resume)


@pytest.mark.parametrize("after_s", [0.0, DEFAULTS.shutdown_soft_s - 2.0])
async def test_a_worker_that_stands_still_in_its_shutdown_gives_its_work_back(
    crew: Crew, after_s: float
) -> None:
    """Right after it was asked, and across the moment at which it tells its handlers."""
    await crew.open(DEFAULTS)
    worker = await crew.ready("anna")
    made = await crew.il.submit(errands.polite)
    await crew.noted("polite began 1")

    worker.ask_to_go()
    await asyncio.sleep(after_s)
    await standing_still(
        lambda: os.kill(worker.pid, signal.SIGSTOP), lambda: os.kill(worker.pid, signal.SIGCONT)
    )

    assert await worker.gone() == 0
    view = await made.view()
    assert [attempt.state for attempt in view.attempts] == ["STALE", "QUEUED"]
    assert view.losses == 0
    assert costs(worker) == []
