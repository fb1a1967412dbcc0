"""Whole lives of runs."""

from __future__ import annotations

from tests.systems.orchestrator.house import done
from tests.systems.runs.site import Site, granted, plan, planned, until

from interlock.engine.outbox import message_in
from interlock.store.records import Key
from interlock.systems.orchestrator.notifications import JobChanged
from interlock.systems.runs.reconciler import ChangedRun
from interlock.wire.runs import RunSpec


async def test_a_run_releases_its_jobs_in_the_order_of_their_needs_and_ends_as_reported(site: Site) -> None:
    run_id = await site.begin(planned("lint"), planned("test", "lint"), planned("ship", "lint", "test"))
    assert (await site.look(run_id)).state == "QUEUED"
    assert await site.standing(run_id) == {"lint": "PENDING", "test": "WAITING", "ship": "WAITING"}
    assert await site.finish(run_id) == ["lint"]
    assert await site.standing(run_id) == {"lint": "COMPLETED", "test": "PENDING", "ship": "WAITING"}
    assert (await site.look(run_id)).state == "RUNNING"
    assert await site.finish(run_id) == ["test"]
    assert await site.finish(run_id) == ["ship"]
    view = await site.look(run_id)
    assert (view.state, view.outcome, view.reason) == ("REPORTED", "SUCCESS", "")
    assert view.tally == {"COMPLETED": 3}
    assert await site.path(run_id) == ["CREATED", "PLANNING", "QUEUED", "RUNNING", "SUCCESS", "REPORTED"]
    assert await site.all_faults() == []


async def test_a_run_advances_without_a_sweep_when_prompt_processing_is_on(site: Site) -> None:
    site.runs.prompt = True
    view = await site.runs.submit(RunSpec(plan=plan(planned("a"), planned("b", "a"))))
    for _ in range(2):
        given = await granted(site)
        await site.heard(done(given))
    await until(site, view.id, "REPORTED")


async def test_job_messages_that_a_slow_keeper_applies_after_another_keeper_are_not_counted_again(
    site: Site,
) -> None:
    """It took them, and was away for so long that they were given to somebody else."""
    run_id = await site.begin(planned("a"), planned("b"), planned("c", "a", "b"))
    await site.finish(run_id, sweep=False)
    (before,) = await site.store.load([Key("run", run_id)])
    taken = await site.claim_messages("run.jobs")
    await site.later(61)
    after = await site.look(run_id)
    assert after.tally == {"COMPLETED": 2, "PENDING": 1}
    changes = [message_in(each.body, JobChanged) for each in taken]
    await site.runs.reconciler.bring([ChangedRun(run_id, changes, before, taken)])
    assert (await site.look(run_id)).version == after.version
