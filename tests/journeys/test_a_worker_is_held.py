"""The supervisor pauses, resumes, drains and terminates workers, and what it says is what happens."""

from __future__ import annotations

import contextlib
import signal

from tests.journeys import errands
from tests.journeys.crew import Crew, Worker, alive, stores

from interlock.errors import StoreUnavailable, UnknownWorker
from interlock.store.records import Query
from interlock.systems.supervisor.workers import Workers
from interlock.wire.workers import WorkerView


def workers(crew: Crew) -> Workers:
    return crew.il.services.workers


async def seen(crew: Crew, name: str, state: str) -> WorkerView:
    """Wait until the newest life under a name is in a state."""
    found: list[WorkerView] = []

    async def look() -> bool:
        with contextlib.suppress(StoreUnavailable, UnknownWorker):
            lives, _ = await workers(crew).find(Query(kind="worker", parent=name))
            found[:] = lives[:1]
        return bool(found) and found[0].state == state

    await crew.until(look, f"{name} is {state} in the books")
    return found[0]


async def heeded(crew: Crew, worker_id: str) -> WorkerView:
    """Wait until the worker has carried out what it was told."""

    async def look() -> bool:
        return (await workers(crew).get(worker_id)).heeded

    await crew.until(look, f"{worker_id} has done as it was told")
    return await workers(crew).get(worker_id)


async def supervised(crew: Crew, name: str = "anna", *options: str) -> tuple[Worker, WorkerView]:
    """A worker that has had a task."""
    worker = await crew.ready(name, *options)
    await crew.ended((await crew.il.submit(errands.jot, 0)).id)
    return worker, await seen(crew, name, "RUNNING")


@stores("sqlite")
async def test_a_worker_is_in_the_books_from_its_start_to_its_end(crew: Crew) -> None:
    worker = await crew.ready("anna", "--label", "gpu")
    idle = await seen(crew, "anna", "IDLE")
    assert (idle.pid, idle.labels, idle.capacity) == (worker.pid, ("gpu",), 10)
    await crew.ended((await crew.il.submit(errands.jot, 1)).id)
    await seen(crew, "anna", "RUNNING")
    worker.ask_to_go()
    assert await worker.gone() == 0
    left = await seen(crew, "anna", "COMPLETED")
    assert (left.id, left.processed) == (idle.id, 1)


@stores("sqlite")
async def test_a_paused_worker_finishes_its_job_and_claims_no_new_one(crew: Crew) -> None:
    _, view = await supervised(crew)
    first = await crew.il.submit(errands.held, "first")
    await crew.noted("first")
    await workers(crew).pause(view.id, reason="look")
    await heeded(crew, view.id)
    second = await crew.il.submit(errands.jot, 7)
    crew.open_gate("first.1")
    assert (await crew.ended(first.id)).state == "COMPLETED"
    await heeded(crew, view.id)
    assert (await crew.il.job(second.id)).state == "PENDING"
    await workers(crew).resume(view.id)
    assert (await crew.ended(second.id)).state == "COMPLETED"


async def test_a_worker_paused_with_give_back_releases_its_job_without_counting_a_loss(crew: Crew) -> None:
    _, view = await supervised(crew)
    made = await crew.il.submit(errands.polite)
    await crew.noted("polite")
    await workers(crew).pause(view.id, give_back=True)
    await heeded(crew, view.id)
    job = await crew.sees(made.id, lambda job: len(job.attempts) == 2, "it was given back")
    assert (job.state, [one.state for one in job.attempts]) == ("RUNNING", ["STALE", "QUEUED"])
    assert (job.losses, job.failure) == (0, None)


@stores("redis")
async def test_a_terminated_worker_is_gone_with_its_work_although_nothing_in_it_listens(crew: Crew) -> None:
    worker, view = await supervised(crew)
    made = await crew.il.submit(errands.deaf_thread, "deaf")
    await crew.noted("deaf")
    await workers(crew).terminate(view.id, reason="on fire")
    await worker.gone()
    assert not alive(worker.pid)
    assert (await workers(crew).get(view.id)).state == "TERMINATED"
    job = await crew.sees(
        made.id, lambda job: job.attempts[-1].state == "QUEUED", "it has returned to the queue"
    )
    assert {one.state for one in job.attempts[:-1]} == {"STALE"}
    assert (job.losses, crew.count("deaf")) == (0, 1)


async def test_a_worker_that_ignores_every_signal_is_terminated_with_its_child_process(crew: Crew) -> None:
    worker, view = await supervised(crew)
    made = await crew.il.submit(errands.stubborn, "stubborn")
    child = int((await crew.noted("stubborn began")).split()[-1])
    worker.ask_to_go()
    worker.ask_to_go(signal.SIGINT)
    await crew.ended((await crew.il.submit(errands.jot, 2)).id)
    assert worker.exit_code is None, "it has not even noticed"
    await workers(crew).terminate(view.id, reason="it does not listen")
    await worker.gone()
    await crew.until(lambda: not alive(child), "its child has gone as well")
    # A claim that was under way when it was terminated is taken back: an attempt more, which nobody began.
    job = await crew.sees(
        made.id, lambda job: job.attempts[-1].state == "QUEUED", "it has returned to the queue"
    )
    assert {one.state for one in job.attempts[:-1]} == {"STALE"}
    assert (job.losses, crew.count("stubborn began")) == (0, 1)
    again = await crew.ready("berta")
    await crew.noted("stubborn began", 2)
    await workers(crew).terminate((await seen(crew, "berta", "RUNNING")).id)
    await again.gone()


async def test_a_burst_worker_can_be_paused_and_resumed(crew: Crew) -> None:
    made = await crew.il.submit(errands.held, "only")
    worker = await crew.start("anna", "--burst")
    await crew.noted("only began")
    view = await seen(crew, "anna", "RUNNING")
    assert (view.pid, view.active) == (worker.pid, 1)
    await workers(crew).pause(view.id)
    await heeded(crew, view.id)
    second = await crew.il.submit(errands.jot, 3)
    crew.open_gate("only.1")
    assert (await crew.ended(made.id)).state == "COMPLETED"
    assert (await crew.il.job(second.id)).state == "PENDING"
    assert worker.exit_code is None, "who is held waits, although there is nothing that it may do"
    await workers(crew).resume(view.id)
    assert await worker.gone() == 0
    assert (await crew.il.job(second.id)).state == "COMPLETED"
    assert (await seen(crew, "anna", "COMPLETED")).processed == 2


async def test_a_worker_whose_event_loop_is_blocked_sends_heartbeats_and_can_be_terminated(
    crew: Crew,
) -> None:
    worker, view = await supervised(crew)
    made = await crew.il.submit(errands.compute, "computing")
    await crew.noted("computing began")
    beats = (await workers(crew).get(view.id)).last_heartbeat_at

    async def beaten() -> bool:
        return (await workers(crew).get(view.id)).last_heartbeat_at != beats

    await crew.until(beaten, "it still gives signs of life")
    await workers(crew).terminate(view.id)
    await worker.gone()
    job = await crew.sees(made.id, lambda job: len(job.attempts) == 2, "it has returned to the queue")
    assert job.losses == 0


async def test_a_drained_worker_finishes_its_job_and_exits_with_code_0(crew: Crew) -> None:
    worker, view = await supervised(crew)
    made = await crew.il.submit(errands.held, "last")
    await crew.noted("last")
    await workers(crew).drain(view.id, reason="new code")
    await worker.says("orders")
    second = await crew.il.submit(errands.jot, 1)
    crew.open_gate("last.1")
    assert await worker.gone() == 0
    assert (await crew.il.job(made.id)).state == "COMPLETED"
    waiting = await crew.il.job(second.id)  # a claim that was under way may have got it, and gives it back
    assert (waiting.attempts[-1].state, waiting.losses) == ("QUEUED", 0)
    assert "jot 1" not in crew.notes
    assert (await workers(crew).get(view.id)).state == "COMPLETED"


@stores("sqlite")
async def test_a_killed_worker_is_written_off_and_its_work_is_done_by_another(crew: Crew) -> None:
    worker, view = await supervised(crew)
    made = await crew.il.submit(errands.held, "interrupted")
    await crew.noted("interrupted")
    await worker.kill()
    await worker.gone()
    await crew.pass_time(crew.durations.worker_silence_s + 1)
    await crew.ready("berta")
    crew.open_gate("interrupted.2")
    assert (await crew.ended(made.id)).state == "COMPLETED"
    assert (await seen(crew, "anna", "TERMINATED")).id == view.id


async def test_a_frozen_worker_that_was_written_off_registers_anew_and_works_on(crew: Crew) -> None:
    worker, view = await supervised(crew)
    await worker.freeze()
    await crew.pass_time(crew.durations.worker_silence_s + 1)
    other = await crew.ready("berta")
    await seen(crew, "anna", "TERMINATED")
    worker.thaw()
    again = await seen(crew, "anna", "RUNNING")
    assert (again.id != view.id, again.incarnation) == (True, view.incarnation)
    other.ask_to_go()
    await other.gone()
    assert (await crew.ended((await crew.il.submit(errands.jot, 5)).id)).state == "COMPLETED"
    assert worker.exit_code is None
    assert await crew.faults() == []
