"""A worker dies, or seems to: somebody else takes its work over, and whoever comes back late is refused."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing

import msgspec
from tests.journeys import errands
from tests.journeys.crew import Crew, stores
from tests.waiting import PROGRAM_S

from interlock.systems.embedded import EmbeddedOrchestrator
from interlock.wire.runner import ClaimRequest, Complete, Stale, StaleCode, Succeeded

HOLDS = 5
"""How often a process may be met in the middle of a write."""


@stores("postgres")  # test_cancel_and_timeouts.py plays on the others as well
async def test_the_next_worker_continues_from_the_checkpoint_of_a_killed_worker(crew: Crew) -> None:
    anna = await crew.ready("anna")
    made = await crew.il.submit(errands.stepwise, steps=4, stuck_after=2)
    await crew.sees(
        made.id,
        lambda view: bool(view.attempts[0].progress and view.attempts[0].progress.done == 2),
        "its second step is saved",
    )
    ben = await crew.ready("ben")

    await anna.kill()
    await crew.let_leases_run_out()
    view = await crew.ended(made.id)

    # The other one goes on after what was saved.
    assert await made.result() == {"began_after": 2, "attempt": 2}
    lost, done = view.attempts
    assert (lost.state, done.state) == ("STALE", "SUCCEEDED")
    assert lost.lease is not None
    assert lost.lease.state == "EXPIRED"
    assert done.lease is not None
    assert done.lease.runner_id.startswith("ben#")
    # It was a loss of the house and none of the user's tries, of which this job had just one.
    assert view.losses == 1
    assert lost.failure is not None
    assert lost.failure.failure_class == "lost"
    assert view.state == "COMPLETED"
    # The journal tells it: the clock ended the lease, because nobody else could.
    assert await crew.steps(made.id, "lease") == [
        "ack → ACTIVE",
        "expire → EXPIRED",
        "ack → ACTIVE",
        "complete → COMPLETED",
    ]
    (expiry,) = [
        entry
        for entry in await crew.history(made.id)
        if any(line.event == "expire" for line in entry.note.steps)
    ]
    assert expiry.note.actor == "clock"
    assert expiry.at >= lost.lease.expires_at
    assert await crew.faults() == []
    assert ben.exit_code is None


@stores("sqlite")
async def test_work_of_a_killed_worker_continues_when_it_is_started_again_under_its_name(crew: Crew) -> None:
    """Nobody waits for the lease: the new process sees that the old one is gone."""
    anna = await crew.start("anna")
    made = await crew.il.submit(errands.held, "work")
    await crew.noted("work began 1")
    await anna.says("worker_registered")  # a thread of its own does that, perhaps later than the first job
    await anna.kill()
    assert await anna.gone() == -9
    crew.open_gate("work.2")
    again = await crew.start("anna")
    view = await crew.ended(made.id)
    assert [attempt.state for attempt in view.attempts] == ["STALE", "SUCCEEDED"]
    assert view.losses == 1
    await again.says("dead_worker_reported")
    assert len(again.said("dead_worker_reported")) == 1
    assert await crew.faults() == []


async def test_a_job_that_kills_each_of_its_workers_ends_as_lost_and_is_counted(crew: Crew) -> None:
    deadly = errands.kill_the_worker.options(losses=1, retries=5)
    made = await crew.il.submit(deadly)
    for name in ("anna", "ben"):
        worker = await crew.start(name)
        assert await worker.gone() == -9
        await crew.let_leases_run_out()
    carl = await crew.start("carl")

    view = await crew.ended(made.id)

    assert view.state == "FAILED"
    assert view.failure is not None
    assert view.failure.failure_class == "lost"
    assert view.losses == len(view.attempts) == 2
    assert [attempt.state for attempt in view.attempts] == ["STALE", "STALE"]
    assert "lost" in (await crew.il.services.jobs.explain(made.id)).sentence
    # The third worker was never given it, and has time for others.
    assert await (await crew.il.submit(errands.jot, 3)).result(timeout_s=PROGRAM_S) == 3
    assert carl.exit_code is None


@stores("sqlite")
async def test_a_worker_frozen_past_its_lease_changes_no_attempt_or_result_after_the_thaw(crew: Crew) -> None:
    anna = await crew.start("anna")
    made = await crew.il.submit(errands.held, "errand")
    await crew.noted("errand began 1")
    await anna.freeze()
    await crew.let_leases_run_out()
    ben = await crew.start("ben")
    await crew.noted("errand began 2")
    crew.open_gate("errand.2")
    view = await crew.ended(made.id)
    assert await made.result() == f"attempt 2 in {ben.pid}"

    # Anna wakes, and for her no time has passed: her handler goes on, and its gate is open.
    crew.open_gate("errand.1")
    anna.thaw()
    await anna.drops(made.id)

    # The other's result stays, nothing was added, and she has not lost her wits over it.
    again = await crew.il.job(made.id)
    assert again.result == view.result
    assert again.attempts == view.attempts
    assert [attempt.state for attempt in again.attempts] == ["STALE", "SUCCEEDED"]
    ben.ask_to_go()
    assert await ben.gone() == 0
    assert await (await crew.il.submit(errands.jot, 1)).result(timeout_s=PROGRAM_S) == 1
    assert await crew.faults() == []


async def test_a_report_after_the_lease_expired_is_refused_as_stale_and_journaled(crew: Crew) -> None:
    """A runner whose clock stands still does not know that it is late. The store does."""
    made = await crew.il.submit(errands.jot, 7)
    late = EmbeddedOrchestrator(crew.url, settings=crew.il.services.settings)
    await late.connect()
    try:
        (grant,) = await late.claim(ClaimRequest(runner_id="late#1"))
        await crew.let_leases_run_out()
        await crew.start("anna")
        assert await made.result(timeout_s=PROGRAM_S) == 7
        report = Complete(
            token=grant.token, runner_id="late#1", sequence=1, outcome=Succeeded(msgspec.Raw(b"8"))
        )
        (answer,) = await late.report([report])
        (again,) = await late.report([report])
    finally:
        await late.disconnect()

    assert isinstance(answer, Stale)
    assert answer.code is StaleCode.LEASE_EXPIRED
    assert again == answer
    assert await made.result() == 7
    refusals = [entry.note for entry in await crew.history(made.id) if entry.note.refusal]
    assert {note.actor for note in refusals} == {"late#1"}
    assert "LEASE_EXPIRED" in refusals[0].refusal or "EXPIRED" in refusals[0].refusal
    assert grant.token not in str(refusals)
    assert await crew.faults() == []


async def test_a_worker_that_holds_the_gil_past_its_lease_is_fenced(crew: Crew) -> None:
    """Not even its own renewals run then; so the lease ends, another one begins, and nobody is misled."""
    pipes = [str(crew.folder / f"pipe{number}") for number in range(HOLDS)]
    for pipe in pipes:
        os.mkfifo(pipe)
    anna = await crew.ready("anna")
    made = await crew.il.submit(errands.hold_the_gil, pipes=pipes)
    left = await _held_between_writes(crew, pipes)
    await crew.let_leases_run_out()
    await crew.start("ben")

    view = await crew.ended(made.id)

    assert await made.result() == 2
    assert [attempt.state for attempt in view.attempts] == ["STALE", "SUCCEEDED"]
    for pipe in left:
        await crew.noted(f"holds {pipe}")
        _open(pipe)
    await anna.drops(made.id)
    assert (await crew.il.job(made.id)).attempts == view.attempts


async def _held_between_writes(crew: Crew, pipes: list[str]) -> list[str]:
    """Let the process go on while it stands in the middle of a write; the pipes that are left.

    There it would keep the lock of the file, and nobody else could write: see `freezing`.
    """
    for number, pipe in enumerate(pipes):
        await crew.noted(f"holds {pipe}")
        if _can_write(crew.url.removeprefix("sqlite:///")):
            return pipes[number:]
        _open(pipe)
    raise AssertionError(f"It was in the middle of a write each of {HOLDS} times.")


def _can_write(path: str) -> bool:
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        try:
            other.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return False
        other.execute("ROLLBACK")
        return True


def _open(pipe: str) -> None:
    os.close(os.open(pipe, os.O_WRONLY))
