"""Work that is stopped: because somebody asks, or because it takes too long. What is stopped is gone."""

from __future__ import annotations

import msgspec
import pytest
from tests.journeys import errands
from tests.journeys.crew import STEADY, Crew, alive, stores
from tests.waiting import PROGRAM_S

from interlock import JobSpec
from interlock.errors import JobCanceled
from interlock.worker.codec import encode

TREE = (
    'echo "shell began 1 in $$" > $JOURNEY_NOTES; '
    f"sleep {errands.LONG_S} & "
    f"setsid sleep {errands.LONG_S} & "
    'echo "shell children $! $$" > $JOURNEY_NOTES; wait'
)
STOPS_SOON = msgspec.structs.replace(STEADY, cancel_deadline_s=4.0, abort_kill_s=2.0, abort_warning_s=1.0)
"""A handler that does not listen is made to stop after a second."""
TOO_LONG_S = 60.0
SELDOM_HEARD = msgspec.structs.replace(
    STEADY, lease_ttl_s=3_600.0, heartbeat_every_s=1_000.0, worker_beat_every_s=1_000.0
)
"""A worker hears of nothing for as long as a test may take, unless it is told."""

SHELL = JobSpec(task="interlock.shell", input=encode({"run": TREE}, "arguments"))


async def test_a_handler_that_cooperates_with_a_cancel_stops_without_being_forced(crew: Crew) -> None:
    await crew.start("anna")
    made = [await crew.il.submit(handler) for handler in (errands.polite, errands.polite_thread)]
    await crew.noted("polite began")
    await crew.noted("polite_thread began")
    for handle in made:
        response = await handle.cancel(reason="nobody needs it")
        assert response.state == "RUNNING", "it is asked first"
        view = await crew.ended(handle.id)
        assert view.state == "CANCELED"
        (attempt,) = view.attempts
        assert attempt.state == "CANCELED"
        assert not attempt.forced
        assert attempt.lease is not None
        assert attempt.lease.state == "CANCELED"
        with pytest.raises(JobCanceled):
            await handle.result()
    await crew.noted("polite stopped")
    await crew.noted("polite_thread stopped")
    assert await (await crew.il.submit(errands.jot, 1)).result(timeout_s=PROGRAM_S) == 1


@stores("sqlite", "postgres", "redis")
async def test_a_cancel_reaches_a_handler_before_its_next_heartbeat(crew: Crew) -> None:
    """It took 24 s by default: nothing told the worker, and its heartbeats come every 20 s."""
    await crew.open(SELDOM_HEARD)
    anna = await crew.start("anna")
    made = await crew.il.submit(errands.quiet)
    await crew.noted("quiet began")
    await anna.says("worker_registered")
    await made.cancel()
    await crew.noted("quiet stopped")
    assert (await crew.ended(made.id)).state == "CANCELED"
    assert await crew.faults() == []


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param(errands.family.spec(), id="process"),
        pytest.param(SHELL, id="shell", marks=pytest.mark.long),
    ],
)
async def test_of_a_cancelled_process_nothing_is_left(crew: Crew, spec: JobSpec) -> None:
    await crew.open(STOPS_SOON)
    await crew.start("anna")
    made = await crew.il.submit(spec)
    if spec is SHELL:
        pids = [int((await crew.noted("shell began")).split()[-1])]
        pids += [int(word) for word in (await crew.noted("shell children")).split()[2:]]
    else:
        pids = [int(word) for word in (await crew.noted("family began")).partition(" in ")[2].split()]
    assert all(map(alive, pids))

    await made.cancel()

    assert (await crew.ended(made.id)).state == "CANCELED"
    await crew.until(lambda: not any(map(alive, pids)), f"the processes {pids} are gone")


async def test_a_coroutine_that_does_not_listen_is_cancelled(crew: Crew) -> None:
    await crew.open(STOPS_SOON)
    await crew.start("anna")
    made = await crew.il.submit(errands.deaf)
    await crew.noted("deaf began")
    await made.cancel()
    assert (await crew.ended(made.id)).state == "CANCELED"
    await crew.noted("deaf stopped")


async def test_a_thread_that_does_not_listen_is_taken_for_stopped_at_the_deadline(crew: Crew) -> None:
    worker = await crew.start("anna")
    made = await crew.il.submit(errands.deaf_thread, "stubborn")
    await crew.noted("stubborn began")
    await made.cancel()
    await worker.says("handler_cannot_be_stopped")
    assert (await made.view()).state == "RUNNING", "nobody knows that it has stopped"
    await crew.pass_time(crew.durations.cancel_deadline_s + 1)
    view = await crew.ended(made.id)
    assert view.state == "CANCELED"
    assert view.attempts[0].forced
    assert view.attempts[0].lease is not None
    assert view.attempts[0].lease.state == "REVOKED"

    # It comes to its end after all, with a result that nobody takes.
    await worker.drops(made.id)
    crew.open_gate("stubborn")
    await crew.noted("stubborn ended")
    assert await (await crew.il.submit(errands.jot, 1)).result(timeout_s=PROGRAM_S) == 1
    again = await made.view()
    assert again.attempts == view.attempts
    assert again.state == "CANCELED"
    assert await crew.faults() == []


async def test_a_job_that_has_not_begun_is_cancelled_at_once(crew: Crew) -> None:
    made = await crew.il.submit(errands.jot, 1)
    assert (await made.cancel()).state == "CANCELED"
    await crew.start("anna")
    assert await (await crew.il.submit(errands.jot, 2)).result(timeout_s=PROGRAM_S) == 2
    assert crew.notes == ["jot 2"]


async def test_an_attempt_that_takes_too_long_is_stopped_and_tried_again(crew: Crew) -> None:
    await crew.start("anna")
    impatient = errands.polite.options(timeout_s=TOO_LONG_S, retries=1)
    made = await crew.il.submit(impatient)
    for attempt in (1, 2):
        await crew.noted(f"polite began {attempt}")
        await crew.pass_time(TOO_LONG_S + 1)
        await crew.noted("polite stopped", times=attempt)
    view = await crew.ended(made.id)
    assert view.state == "FAILED"
    assert view.failure is not None
    assert view.failure.failure_class == "timeout"
    assert [attempt.state for attempt in view.attempts] == ["TIMED_OUT", "TIMED_OUT"]
    assert {attempt.lease.state for attempt in view.attempts if attempt.lease} == {"REVOKED"}


async def test_a_job_that_exceeds_its_job_timeout_is_canceled_despite_remaining_retries(crew: Crew) -> None:
    await crew.start("anna")
    made = await crew.il.submit(errands.polite.options(job_timeout_s=TOO_LONG_S, retries=5))
    await crew.noted("polite began 1")
    await crew.pass_time(TOO_LONG_S + 1)
    view = await crew.ended(made.id)
    assert view.state == "CANCELED"
    assert view.stop_reason == "timeout"
    assert len(view.attempts) == 1
    await crew.noted("polite stopped")


async def test_a_tree_is_stopped_as_a_tree(crew: Crew) -> None:
    await crew.start("anna", "--slots", "3")
    root = await crew.il.submit(errands.held, "root")
    done = await crew.il.submit(errands.jot.options(parent_job_id=root.id), 1)
    await crew.ended(done.id)
    child = await crew.il.submit(errands.polite.options(parent_job_id=root.id))
    await crew.noted("polite began")
    later = await crew.il.submit(errands.jot.options(parent_job_id=child.id, delay_s=3_600), 2)
    deepest = await crew.il.submit(errands.jot.options(parent_job_id=later.id, delay_s=3_600), 3)

    await root.cancel(reason="the whole of it")
    crew.open_gate("root.1")

    for handle, reason in ((root, "cancel"), (child, "parent"), (later, "parent"), (deepest, "parent")):
        view = await crew.ended(handle.id)
        assert (view.state, view.stop_reason) == ("CANCELED", reason)
    await crew.noted("polite stopped")
    assert (await done.view()).state == "COMPLETED", "what had ended before stays as it was"
    assert await crew.faults() == []
