"""Doing a run again: all, what has failed, or from a job on."""

from __future__ import annotations

import pytest
from tests.systems.runs.site import Site, planned

from interlock.errors import InvalidRun, TransitionNotAllowed
from interlock.wire.runs import Plan, RunSpec, RunView, Which

JOBS = (planned("a"), planned("b", "a"), planned("c", "a"), planned("d", "b", "c"), planned("e"))


async def first(site: Site, *failing: str) -> str:
    run_id = await site.begin(*JOBS, fail_fast=False)
    while await site.finish(run_id, *failing):
        pass
    return run_id


async def redone(site: Site, view: RunView) -> list[str]:
    await site.recover()
    done: list[str] = []
    while some := await site.finish(view.id):
        done += some
    return sorted(done)


async def test_a_rerun_of_failed_jobs_repeats_unsuccessful_jobs_and_carries_over_successful_ones(
    site: Site,
) -> None:
    origin = await first(site, "b")
    before = {job.name: job.job_id for job in (await site.look(origin)).jobs}
    again = await site.runs.rerun(origin, "failed", actor="ada")
    assert await redone(site, again) == ["b", "d"]
    view = await site.look(again.id)
    assert (view.outcome, view.origin_run_id, view.tally) == ("SUCCESS", origin, {"COMPLETED": 5})
    carried = {job.name: job.job_id for job in view.jobs if job.reason == "carried_over"}
    assert carried == {name: before[name] for name in ("a", "c", "e")}
    assert (await site.look(origin)).outcome == "FAILED"
    assert await site.all_faults() == []


async def test_a_rerun_from_a_job_repeats_the_job_and_its_dependents(site: Site) -> None:
    origin = await first(site)
    again = await site.runs.rerun(origin, "from", job="b")
    assert await redone(site, again) == ["b", "d"]


async def test_a_rerun_from_a_job_also_repeats_every_job_that_has_not_succeeded(site: Site) -> None:
    origin = await first(site, "e")
    again = await site.runs.rerun(origin, "from", job="d")
    assert await redone(site, again) == ["d", "e"]


async def test_a_full_rerun_repeats_every_job_including_jobs_that_were_carried_over(site: Site) -> None:
    origin = await first(site, "b")
    second = await site.runs.rerun(origin, "failed")
    await redone(site, second)
    third = await site.runs.rerun(second.id)
    assert third.origin_run_id == second.id
    assert await redone(site, third) == ["a", "b", "c", "d", "e"]


async def test_under_one_id_a_run_is_done_again_once(site: Site) -> None:
    origin = await first(site, "b")
    again = [await site.runs.rerun(origin, "failed", request_id="again") for _ in range(3)]
    assert len({view.id for view in again}) == 1


async def test_a_rerun_that_is_not_possible_is_refused_with_a_reason(site: Site) -> None:
    going = await site.begin(*JOBS)
    with pytest.raises(TransitionNotAllowed, match="only a run whose outcome is decided"):
        await site.runs.rerun(going)
    await site.runs.cancel(going)
    origin = await first(site)
    with pytest.raises(InvalidRun, match="nothing to rerun"):
        await site.runs.rerun(origin, "failed")
    with pytest.raises(InvalidRun, match="has no job 'z'"):
        await site.runs.rerun(origin, "from", job="z")


async def test_a_run_that_was_canceled_before_its_plan_is_done_again_as_a_whole(site: Site) -> None:
    view = await site.runs.submit(RunSpec(plan=Plan(jobs=JOBS)))
    await site.runs.cancel(view.id)
    again = await site.runs.rerun(view.id, "failed")
    assert await redone(site, again) == ["a", "b", "c", "d", "e"]


async def test_a_preview_names_exactly_the_jobs_that_are_done_again(site: Site) -> None:
    origin = await first(site, "e")
    cases: tuple[tuple[Which, str], ...]
    cases = (("all", ""), ("failed", ""), ("from", "b"), ("from", "a"), ("from", "e"))
    for which, job in cases:
        preview = await site.runs.preview(origin, which, job=job)
        assert sorted((*preview.again, *preview.kept)) == ["a", "b", "c", "d", "e"]
        again = await site.runs.rerun(origin, which, job=job)
        assert await redone(site, again) == sorted(preview.again), (which, job)


async def test_a_preview_is_refused_where_doing_it_again_would_be(site: Site) -> None:
    going = await site.begin(*JOBS)
    with pytest.raises(TransitionNotAllowed, match="only a run whose outcome is decided"):
        await site.runs.preview(going)
    await site.runs.cancel(going)
    with pytest.raises(InvalidRun, match="has no job 'z'"):
        await site.runs.preview(await first(site), "from", job="z")
