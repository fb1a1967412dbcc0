"""A new version is rolled out: for a while two processes have one name, and then the old one goes."""

from __future__ import annotations

from collections import Counter

from tests.journeys import errands
from tests.journeys.crew import Crew

BEFORE, DURING, AFTER = range(100), range(100, 200), range(200, 300)


async def test_the_old_worker_goes_while_the_new_one_of_the_same_name_runs(crew: Crew) -> None:
    old = await crew.start("web-1", "--slots", "4")
    long = await crew.il.submit(errands.stepwise.options(priority=10), steps=3, stuck_after=2)
    await crew.il.submit_many([errands.jot_slowly.spec(number) for number in BEFORE])
    await crew.sees(long.id, lambda view: view.state == "RUNNING", "the old one has the long job")
    await crew.noted("jot", times=10)

    # The new one comes while the old one works.
    new = await crew.start("web-1", "--slots", "4")
    await new.is_in("running")
    await crew.il.submit_many([errands.jot_slowly.spec(number) for number in DURING])
    await crew.noted("jot", times=100)

    old.ask_to_go()
    await crew.il.submit_many([errands.jot_slowly.spec(number) for number in AFTER])
    assert await old.gone() == 0

    # Nothing is lost, nothing was done twice: those that the old one had begun it has finished.
    await crew.all_completed(301)
    everything = [*BEFORE, *DURING, *AFTER]
    jotted = Counter(line for line in crew.notes if line.startswith("jot"))
    assert jotted == Counter(f"jot {number}" for number in everything)
    # The long one was given back with what it had, and the new one has gone on from there.
    assert await long.result() == {"began_after": 2, "attempt": 2}
    view = await long.view()
    assert view.losses == 0
    # Both had one name, and were told apart all the same.
    runners = [attempt.lease.runner_id for attempt in view.attempts if attempt.lease]
    assert [runner.partition("#")[0] for runner in runners] == ["web-1", "web-1"]
    assert runners[0] != runners[1]
    assert new.exit_code is None
    assert await crew.faults() == []


async def test_a_worker_that_restarts_under_its_old_name_is_not_taken_for_the_one_before(crew: Crew) -> None:
    """What the dead one had is missed like anybody's; its name gives the new one no claim to it."""
    first = await crew.start("web-1")
    made = await crew.il.submit(errands.held, "errand")
    await crew.noted("errand began 1")
    first.kill()
    await first.gone()
    crew.open_gate("errand.2")

    second = await crew.start("web-1")

    assert await made.result(timeout_s=60) == f"attempt 2 in {second.pid}"
    view = await made.view()
    assert [attempt.state for attempt in view.attempts] == ["STALE", "SUCCEEDED"]
    assert view.losses == 1
