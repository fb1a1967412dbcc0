"""The database goes away under load, and workers die with their hands full.

Nothing that was accepted is lost, nothing is done twice to completion, and nobody has to restart a
worker. A handler may have been executed twice: whoever could not report in time is not believed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from tests.effort import pick
from tests.journeys import errands
from tests.journeys.conftest import Server
from tests.journeys.crew import Crew, Place, Worker, stores

JOBS = pick(100, 300)
PAUSES_IN_TWO_SECONDS = 12
"""Of 0.2 s each."""


@pytest.fixture(params=[pytest.param("postgres", marks=pytest.mark.long), "redis"])
def server(request: pytest.FixtureRequest, own_server: Callable[[str], Server]) -> Server:
    return own_server(request.param)


@pytest.fixture
async def crew_there(tmp_path: Path, server: Server) -> AsyncIterator[Crew]:
    """A crew on a server that may be killed."""
    crew = Crew(tmp_path, Place(server.url, server))
    await crew.open()
    yield crew
    print(crew.story())
    await crew.close()


async def test_workers_complete_every_job_without_a_restart_after_a_kill_of_the_database_server(
    crew_there: Crew, server: Server
) -> None:
    crew = crew_there
    workers = [await crew.start(name, "--slots", "4") for name in ("anna", "ben")]
    before = JOBS // 5
    made = await crew.il.submit_many(
        [(errands.jot if number < before else errands.jot_later).spec(number) for number in range(JOBS)]
    )
    await crew.noted("jot", times=before)

    server.kill()
    crew.open_gate("jot_later")
    server.start()

    await crew.noted("jot", times=before + 1)
    # Whoever has claimed something and was not told so holds it until the lease ends.
    await crew.let_leases_run_out()
    await crew.all_completed(JOBS)
    # Nothing is lost: every number was written down, and most of them after the server was back.
    assert {line.split()[1] for line in crew.notes} == {str(number) for number in range(JOBS)}
    # Nothing is done twice to completion: of each job one attempt has succeeded.
    for handle in made:
        view = await crew.il.job(handle.id)
        states = [attempt.state for attempt in view.attempts]
        assert states.count("SUCCEEDED") == 1
        assert states[-1] == "SUCCEEDED"
        assert (await crew.steps(handle.id, "job")).count("success → COMPLETED") == 1
    assert await crew.faults() == []
    # And nobody had to help them.
    assert [worker.exit_code for worker in workers] == [None, None]


def asked_in_vain(worker: Worker) -> int:
    return len(worker.said("claim_failed")) + len(worker.said("recovery_failed"))


@pytest.mark.parametrize("server", ["redis"], indirect=True)  # whose absence is known at once
async def test_a_handler_continues_while_its_database_is_killed_and_started_again(
    crew_there: Crew, server: Server
) -> None:
    """Its worker gave it up after two seconds, although its lease lived on: a long job began anew."""
    crew = crew_there
    anna = await crew.start("anna")
    made = await crew.il.submit(errands.held, "errand")
    await crew.noted("errand began 1")

    server.kill()
    await crew.until(lambda: asked_in_vain(anna) > PAUSES_IN_TWO_SECONDS, "she asks in vain")
    server.start()
    crew.open_gate("errand.1")

    view = await crew.ended(made.id)
    assert [attempt.state for attempt in view.attempts] == ["SUCCEEDED"]
    assert anna.said("connection_lost") == []


@pytest.mark.long  # the contract has two sweeping processes
@stores("postgres")
async def test_of_two_workers_that_look_for_expired_leases_one_requeues_each(crew: Crew) -> None:
    held = 12
    anna = await crew.start("anna", "--slots", str(held))
    made = await crew.il.submit_many([errands.held.spec(f"errand{number}") for number in range(held)])
    await crew.noted("errand", times=held)
    for number in range(held):
        crew.open_gate(f"errand{number}.2")
    await asyncio.gather(crew.ready("ben"), crew.ready("carl"))

    await anna.kill()
    await crew.let_leases_run_out()

    await crew.all_completed(held)
    for handle in made:
        view = await crew.il.job(handle.id)
        assert [attempt.state for attempt in view.attempts] == ["STALE", "SUCCEEDED"]
        assert view.losses == 1
        assert (await crew.steps(handle.id, "lease")).count("expire → EXPIRED") == 1
    assert sum(" began 2" in line for line in crew.notes) == held, "each was begun once more"
    assert await crew.faults() == []
