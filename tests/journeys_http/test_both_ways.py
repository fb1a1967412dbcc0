"""One worker program, one client, and two ways to the jobs: whoever uses them cannot tell which."""

from __future__ import annotations

import pytest
from tests.journeys import errands, versions
from tests.journeys.crew import Crew
from tests.journeys_http.serving import Served
from tests.waiting import PROGRAM_S

from interlock import Interlock
from interlock.errors import JobCanceled, JobFailed, UnknownJob


def runner(crew: Crew, name: str) -> str:
    """How the runner id of a worker begins: with a token, the token's name goes before it."""
    return f"runners/{name}#" if isinstance(crew, Served) else f"{name}#"


async def test_one_job_from_submit_to_done(crew: Crew, client: Interlock) -> None:
    made = await client.submit(errands.jot, 7)
    waiting = await made.view()
    await crew.start("anna")

    assert await made.result(timeout_s=PROGRAM_S) == 7

    view = await made.view()
    assert (waiting.state, view.state) == ("PENDING", "COMPLETED")
    (attempt,) = view.attempts
    assert attempt.lease is not None
    assert attempt.lease.runner_id.startswith(runner(crew, "anna"))
    assert await crew.steps(made.id, "lease") == ["ack → ACTIVE", "complete → COMPLETED"]
    # Who did it is known by the token, where there is one.
    actors = [entry.note.actor for entry in await crew.history(made.id)]
    assert (actors[0], set(actors[1:])) == ("somebody", {attempt.lease.runner_id})
    assert crew.count("jot 7") == 1
    assert await crew.faults() == []


async def test_the_next_worker_continues_from_the_checkpoint_of_a_killed_worker(
    crew: Crew, client: Interlock
) -> None:
    anna = await crew.ready("anna")
    made = await client.submit(errands.stepwise, steps=4, stuck_after=2)
    await crew.sees(
        made.id,
        lambda view: bool(view.attempts[0].progress and view.attempts[0].progress.done == 2),
        "its second step is saved",
    )

    await anna.kill()
    await crew.ready("ben")  # by then the server knows that nobody waits for work on anna's connection
    await crew.let_leases_run_out()

    assert await made.result(timeout_s=PROGRAM_S) == {"began_after": 2, "attempt": 2}
    lost, done = (await made.view()).attempts
    assert (lost.state, done.state) == ("STALE", "SUCCEEDED")
    assert lost.lease is not None
    assert done.lease is not None
    assert lost.lease.state == "EXPIRED"
    assert done.lease.runner_id.startswith(runner(crew, "ben"))
    assert await crew.faults() == []


async def test_a_worker_releases_its_job_on_sigterm_without_counting_a_loss(
    crew: Crew, client: Interlock
) -> None:
    anna = await crew.start("anna")
    made = await client.submit(errands.polite)
    await crew.noted("polite began 1")

    anna.ask_to_go()

    assert await anna.gone() == 0
    view = await made.view()
    assert [attempt.state for attempt in view.attempts] == ["STALE", "QUEUED"]
    assert view.losses == 0
    await crew.start("ben")
    await crew.noted("polite began 2")
    await made.cancel()
    assert (await client.wait(made.id, timeout_s=PROGRAM_S)).state == "CANCELED"
    assert await crew.faults() == []


@pytest.mark.long
async def test_an_idle_worker_exits_with_code_0_on_sigterm(crew: Crew, client: Interlock) -> None:
    anna = await crew.ready("anna")
    assert await (await client.submit(errands.jot, 1)).result(timeout_s=PROGRAM_S) == 1

    anna.ask_to_go()

    assert await anna.gone() == 0


async def test_cancelling_a_job_stops_its_handler_and_journals_the_actor_and_the_reason(
    crew: Crew, client: Interlock
) -> None:
    await crew.start("anna")
    made = await client.submit(errands.polite)
    await crew.noted("polite began 1")

    response = await made.cancel(reason="nobody needs it")

    assert response.state == "RUNNING", "it is asked first"
    view = await client.wait(made.id, timeout_s=PROGRAM_S)
    (attempt,) = view.attempts
    assert (view.state, attempt.state, attempt.forced) == ("CANCELED", "CANCELED", False)
    await crew.noted("polite stopped")
    with pytest.raises(JobCanceled):
        await made.result(timeout_s=PROGRAM_S)
    (stop,) = [entry for entry in await crew.history(made.id) if entry.note.reason]
    assert (stop.note.actor, stop.note.reason) == ("somebody", "nobody needs it")


async def test_errors_are_the_same(crew: Crew, client: Interlock) -> None:
    await crew.start("anna")
    failing = await client.submit(errands.fail.options(retries=0), "no paper")
    with pytest.raises(JobFailed, match="no paper"):
        await failing.result(timeout_s=PROGRAM_S)
    with pytest.raises(UnknownJob, match="There is no job j_0123456789ab"):
        await client.job("j_0123456789ab")


async def test_many_jobs_are_done_once_each_by_two_workers(crew: Crew, client: Interlock) -> None:
    await crew.start("anna")
    await crew.start("ben")
    await client.submit_many([errands.jot.spec(number) for number in range(200)])
    await crew.all_completed(200)
    assert sorted(crew.notes) == sorted(f"jot {number}" for number in range(200))
    assert await crew.faults() == []


@pytest.mark.long  # journeys/test_deploys has it on a store
async def test_two_versions_on_one_queue_lose_nothing(crew: Crew, client: Interlock) -> None:
    await versions.each_does_its_own(crew, client, "runners/" if isinstance(crew, Served) else "")
