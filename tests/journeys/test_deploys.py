"""A new version is rolled out: for a while two processes have one name, and then the old one goes."""

from __future__ import annotations

import msgspec
from tests.effort import pick
from tests.journeys import errands, versions
from tests.journeys.crew import Crew, stores
from tests.waiting import PROGRAM_S

from interlock.store.records import Query
from interlock.wire.jobs import JobSpec

EACH = pick(30, 100)
BEFORE, DURING, AFTER = range(EACH), range(EACH, 2 * EACH), range(2 * EACH, 3 * EACH)


async def test_an_old_worker_shuts_down_without_losing_jobs_while_a_new_one_of_its_name_runs(
    crew: Crew,
) -> None:
    old = await crew.start("web-1", "--slots", "4")
    long = await crew.il.submit(errands.stepwise.options(priority=10), steps=3, stuck_after=2)
    await crew.il.submit_many([errands.jot_slowly.spec(number) for number in BEFORE])
    await crew.noted("stepwise 2")
    await crew.noted("jot", times=10)

    # The new one comes while the old one works.
    new = await crew.start("web-1", "--slots", "4")
    await new.is_in("running")
    await crew.il.submit_many([errands.jot_slowly.spec(number) for number in DURING])
    await crew.noted("jot", times=EACH)

    old.ask_to_go()
    await crew.il.submit_many([errands.jot_slowly.spec(number) for number in AFTER])
    assert await old.gone() == 0

    # Nothing is lost, and nothing was done twice but what the old one could not finish and gave back.
    await crew.all_completed(3 * EACH + 1)
    views, _ = await crew.il.jobs(Query(kind="job", limit=3 * EACH + 1))
    jots = [view for view in views if view.id != long.id]
    assert {view.losses for view in jots} == {0}
    assert {line for line in crew.notes if line.startswith("jot")} == {
        f"jot {number}" for number in (*BEFORE, *DURING, *AFTER)
    }
    assert crew.count("jot") <= sum(len(view.attempts) for view in jots)
    assert {view.attempts[-1].state for view in jots} == {"SUCCEEDED"}
    assert {attempt.state for view in jots for attempt in view.attempts[:-1]} <= {"STALE"}
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
    await first.kill()
    await first.gone()
    await crew.let_leases_run_out()
    crew.open_gate("errand.2")

    second = await crew.start("web-1")

    assert await made.result(timeout_s=PROGRAM_S) == f"attempt 2 in {second.pid}"
    view = await made.view()
    assert [attempt.state for attempt in view.attempts] == ["STALE", "SUCCEEDED"]
    assert view.losses == 1


@stores("sqlite")
async def test_two_versions_on_one_queue_lose_nothing(crew: Crew) -> None:
    await versions.each_does_its_own(crew, crew.il, "")


async def test_a_job_whose_task_no_worker_has_waits_until_a_worker_with_that_task_starts(crew: Crew) -> None:
    """Whoever submits is rolled out before the workers are."""
    await crew.ready("old", module=versions.OLD)
    (early,) = await crew.il.submit_many([versions.spec("app.add", 1)])
    (known,) = await crew.il.submit_many([versions.spec("app.keep", 2)])
    assert (await crew.ended(known.id)).state == "COMPLETED"
    explanation = await crew.il.services.jobs.explain(early.id)
    assert explanation.sentence.endswith("No live worker has the task app.add.")
    assert [attempt.state for attempt in (await early.view()).attempts] == ["QUEUED"]

    await crew.start("new", module=versions.NEW)

    view = await crew.ended(early.id)
    assert (view.state, len(view.attempts)) == ("COMPLETED", 1)


async def test_a_worker_for_shell_steps_leaves_tasks_to_others(crew: Crew) -> None:
    await crew.ready("steps", "--shell")
    task = await crew.il.submit(errands.jot, 1)
    (step,) = await crew.il.submit_many(
        [JobSpec(task="interlock.shell", input=msgspec.Raw(b'{"run":"true"}'))]
    )
    assert (await crew.ended(step.id)).state == "COMPLETED"
    await crew.start("tasks")
    view = await crew.ended(task.id)
    assert (view.state, len(view.attempts)) == ("COMPLETED", 1)
    assert crew.count("jot 1") == 1
