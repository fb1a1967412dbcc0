"""How a run ends: required and optional jobs, fail-fast, timeouts, and jobs that were stopped alone."""

from __future__ import annotations

import pytest
from tests.systems.orchestrator.house import beat, done, failed
from tests.systems.runs.site import Site, planned

from interlock.errors import TerminalState


async def test_an_empty_plan_succeeds_at_once(site: Site) -> None:
    run_id = await site.begin()
    assert (await site.look(run_id)).outcome == "SUCCESS"
    assert await site.path(run_id) == ["CREATED", "PLANNING", "QUEUED", "RUNNING", "SUCCESS", "REPORTED"]


async def test_a_required_job_that_fails_fails_the_run_and_stops_the_rest(site: Site) -> None:
    run_id = await site.begin(
        planned("a"), planned("b"), planned("c", "a"), planned("d", "c"), planned("e", "b")
    )
    given = await site.offered(run_id)
    await site.heard(failed(given["a"], "compile"))
    await site.recover()
    view = await site.look(run_id)
    assert (view.state, view.outcome, view.reason, view.culprit) == (
        "REPORTED",
        "FAILED",
        "required_job_failed",
        "a",
    )
    stopped = {job.name: (job.state, job.reason) for job in view.jobs}
    assert stopped["c"] == stopped["d"] == ("CANCELED", "upstream")
    assert stopped["e"] == ("CANCELED", "fail_fast")
    assert stopped["b"] == ("RUNNING", "fail_fast"), "it is asked to stop, and has not said so yet"
    assert (await site.heard(beat(given["b"]))).cancel_requested
    assert await site.all_faults() == []


async def test_without_fail_fast_jobs_that_do_not_need_a_failed_job_are_still_executed(site: Site) -> None:
    run_id = await site.begin(
        planned("a"), planned("b"), planned("c", "a"), planned("d", "b"), fail_fast=False
    )
    assert await site.finish(run_id, "a") == ["a", "b"]
    assert (await site.look(run_id)).outcome == "FAILED"
    assert await site.finish(run_id) == ["d"]
    assert await site.standing(run_id) == {"a": "FAILED", "b": "COMPLETED", "c": "CANCELED", "d": "COMPLETED"}
    assert (await site.look(run_id)).tally == {"FAILED": 1, "COMPLETED": 2, "CANCELED": 1}


async def test_an_optional_job_blocks_no_job(site: Site) -> None:
    run_id = await site.begin(planned("a", required=False), planned("b", "a"))
    assert await site.finish(run_id, "a") == ["a"]
    assert await site.finish(run_id) == ["b"]
    view = await site.look(run_id)
    assert (view.outcome, view.tally) == ("SUCCESS", {"FAILED": 1, "COMPLETED": 1})


async def test_a_run_does_not_wait_for_optional_jobs_and_lets_them_finish(site: Site) -> None:
    run_id = await site.begin(planned("a"), planned("b", required=False), planned("c", "b", required=False))
    given = await site.offered(run_id)
    await site.heard(done(given["a"]))
    await site.recover()
    assert (await site.look(run_id)).state == "REPORTED"
    await site.heard(done(given["b"]))
    await site.recover()
    assert await site.finish(run_id) == ["c"]
    assert (await site.look(run_id)).tally == {"COMPLETED": 3}
    assert await site.path(run_id) == ["CREATED", "PLANNING", "QUEUED", "RUNNING", "SUCCESS", "REPORTED"]
    assert await site.all_faults() == []


async def test_a_job_that_needs_an_optional_job_is_released_when_the_optional_job_is_canceled(
    site: Site,
) -> None:
    run_id = await site.begin(
        planned("a"), planned("b", "a", required=False), planned("c", "b"), fail_fast=False
    )
    await site.finish(run_id, "a")
    assert await site.standing(run_id) == {"a": "FAILED", "b": "CANCELED", "c": "PENDING"}


async def test_a_required_job_that_is_stopped_alone_fails_the_run(site: Site) -> None:
    run_id = await site.begin(planned("a"), planned("b", "a"))
    waiting = {job.name: job.job_id for job in (await site.look(run_id)).jobs}
    await site.jobs.cancel(waiting["b"])
    await site.recover()
    view = await site.look(run_id)
    assert (view.outcome, view.reason, view.culprit) == ("FAILED", "job_canceled", "b")
    assert await site.standing(run_id) == {"a": "CANCELED", "b": "CANCELED"}


async def test_a_failure_that_is_retried_does_not_concern_the_run(site: Site) -> None:
    run_id = await site.begin(planned("a", retries=1))
    given = await site.offered(run_id)
    await site.heard(failed(given["a"]))
    await site.later(5)
    assert (await site.look(run_id)).state == "RUNNING"
    assert await site.finish(run_id) == ["a"]
    assert (await site.look(run_id)).outcome == "SUCCESS"


@pytest.mark.parametrize("begun", [False, True])
async def test_a_run_that_lasts_too_long_times_out_and_stops_its_jobs(site: Site, begun: bool) -> None:
    run_id = await site.begin(planned("a"), planned("b", "a"), timeout_s=100.0)
    given = await site.offered(run_id) if begun else {}
    if begun:
        await site.heard(beat(given["a"]))
    await site.later(99)
    assert (await site.look(run_id)).outcome is None
    await site.later(1)
    view = await site.look(run_id)
    assert (view.outcome, view.reason) == ("TIMEOUT", "timeout")
    assert {job.reason for job in view.jobs} == {"timeout"}
    assert await site.standing(run_id) == {"a": "RUNNING" if begun else "CANCELED", "b": "CANCELED"}


async def test_a_job_that_completes_after_the_timeout_of_its_run_does_not_make_the_run_succeed(
    site: Site,
) -> None:
    """Expired but not swept is expired: the word of the last job comes before anybody has looked."""
    run_id = await site.begin(planned("a"), timeout_s=50.0)
    given = await site.offered(run_id)
    site.clock.jump(50)
    await site.heard(done(given["a"]))
    await site.runs.reconciler.apply_changes()
    assert (await site.look(run_id)).outcome == "TIMEOUT"


async def test_a_timeout_without_fail_fast_lets_its_jobs_finish(site: Site) -> None:
    run_id = await site.begin(planned("a"), planned("b", "a"), timeout_s=50.0, fail_fast=False)
    await site.later(50)
    assert (await site.look(run_id)).outcome == "TIMEOUT"
    assert [await site.finish(run_id), await site.finish(run_id)] == [["a"], ["b"]]
    view = await site.look(run_id)
    assert (view.outcome, view.tally) == ("TIMEOUT", {"COMPLETED": 2})


async def test_an_outcome_is_decided_once(site: Site) -> None:
    run_id = await site.begin(planned("a"), planned("b"), fail_fast=False)
    await site.finish(run_id, "a", "b")
    assert (await site.look(run_id)).culprit in ("a", "b")
    with pytest.raises(TerminalState):
        await site.runs.cancel(run_id)
    outcomes = [state for state in await site.path(run_id) if state in ("FAILED", "SUCCESS", "CANCELED")]
    assert outcomes == ["FAILED"]
