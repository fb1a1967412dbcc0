"""What the specification asks of a worker as a whole, under the names that it has there.

Five of its eight are told in full elsewhere: a single task to its completion in
`test_one_job_from_submit_to_done`, a lease recovered from another worker in `test_a_worker_dies`, a
shutdown that lets the active task complete in `test_a_worker_is_asked_to_go`, renewal during long
processing in `test_many_jobs`, and a new connection after the database failed in
`test_the_database_goes_away`.
"""

from __future__ import annotations

import itertools
from datetime import datetime, timedelta

import msgspec
import pytest
from tests.journeys import errands
from tests.journeys.crew import STEADY, Crew, Worker
from tests.waiting import PROGRAM_S

from interlock.errors import JobFailed

PATIENT = msgspec.structs.replace(STEADY, backoff_cap_s=3_600.0, worker_beat_every_s=600.0)
"""Nothing wakes a worker but work, and what it wakes from may last for long."""
FIRST_PAUSE_S = 0.2
LONGER = msgspec.structs.replace(STEADY, lease_ttl_s=777.0, ack_window_s=777.0)


async def test_a_worker_processes_a_failing_task_and_continues(crew: Crew) -> None:
    await crew.start("anna")
    made = await crew.il.submit(errands.fail, "no such page")
    with pytest.raises(JobFailed, match="no such page"):
        await made.result(timeout_s=PROGRAM_S)
    view = await made.view()
    assert view.state == "FAILED"
    assert view.failure is not None
    assert view.failure.failure_class == "user"
    assert "ValueError" in view.failure.exception
    assert "errands.py" in view.failure.details, "where it happened is kept"
    assert len(view.attempts) == 1, "a fault of the program is not tried again"
    assert await (await crew.il.submit(errands.jot, 1)).result(timeout_s=PROGRAM_S) == 1


async def test_a_slot_whose_lease_was_lost_is_used_again(crew: Crew) -> None:
    """A worker that is alive and does nothing is the worst of all."""
    await crew.start("anna", "--slots", "1")
    lost = await crew.il.submit(errands.deaf.options(timeout_s=60.0))
    await crew.noted("deaf began")
    after = await crew.il.submit(errands.jot, 1)
    await crew.pass_time(61.0)
    assert (await crew.ended(lost.id)).state == "FAILED"
    await crew.noted("deaf stopped")
    assert await after.result(timeout_s=PROGRAM_S) == 1


async def test_a_worker_backs_off_further_and_further_on_an_empty_queue_and_is_woken_by_work(
    crew: Crew,
) -> None:
    await crew.open(PATIENT)
    worker = await crew.start("anna")
    # Its first pauses may be ended by its own registration.
    await crew.until(lambda: max(_pauses(worker), default=0.0) >= 4 * FIRST_PAUSE_S, "its pauses grow")
    # The next one is longer than that; work ends it.
    made = await crew.il.submit(errands.jot, 1)
    await made.result(timeout_s=PROGRAM_S)


def _pauses(worker: Worker) -> list[float]:
    """How long it has stayed in `backing_off`, each time."""
    moves = itertools.pairwise(worker.said("worker_state_transition"))
    return [(_at(after) - _at(before)).total_seconds() for before, after in moves if _rests(before)]


def _rests(line: dict[str, str]) -> bool:
    return line["to_state"] == "backing_off"


def _at(line: dict[str, str]) -> datetime:
    return datetime.fromisoformat(line["timestamp"])


async def test_a_subscriber_of_the_store_is_notified_when_a_job_completes(crew: Crew) -> None:
    store = crew.il.services.store
    await crew.ready("anna")
    cursor = await store.latest()
    made = await crew.il.submit(errands.held, "errand")
    await crew.noted("errand began 1")
    woken: list[bool] = []
    unsubscribe = store.subscribe(lambda: woken.append(True))
    crew.open_gate("errand.1")
    await crew.ended(made.id)
    unsubscribe()
    assert woken
    feed = await store.feed(cursor)
    moves = [line for entry in feed.entries if entry.id == made.id for line in entry.note.steps]
    assert [line.target for line in moves if line.machine == "job"] == ["PENDING", "RUNNING", "COMPLETED"]


async def test_a_worker_runs_under_its_instance_name(crew: Crew) -> None:
    await crew.open(LONGER)
    worker = await crew.start("kitchen-7")
    made = await crew.il.submit(errands.jot, 1)
    await made.result(timeout_s=PROGRAM_S)
    (attempt,) = (await made.view()).attempts
    assert attempt.lease is not None
    assert attempt.lease.runner_id.partition("#")[0] == "kitchen-7"
    assert {line["worker_id"] for line in worker.said("worker_state_transition")} == {attempt.lease.runner_id}
    lasts = attempt.lease.expires_at - attempt.lease.granted_at
    assert lasts >= timedelta(seconds=LONGER.lease_ttl_s), "and with the durations of its project file"
