"""A run beside the last green one of its workflow, repository and ref."""

from __future__ import annotations

from typing import Any

from tests.systems.orchestrator.house import done, failed
from tests.systems.runs.site import Site, planned

from interlock.systems.runs.views import LOOKS_BACK
from interlock.wire.runs import Source

MAIN = Source(repository="acme/shop", ref="refs/heads/main", sha="a" * 40)


async def run_of(site: Site, seconds: dict[str, float], *failing: str, **spec: Any) -> str:
    """A run whose jobs follow each other and take so long."""
    names = list(seconds)
    jobs = [planned(name, *names[place - 1 : place] if place else ()) for place, name in enumerate(names)]
    given = {"workflow": "ci", "source": MAIN, "concurrency_group": "", **spec}
    run_id = await site.begin(*jobs, fail_fast=False, **given)
    while offered := await site.offered(run_id):
        ((name, grant),) = offered.items()
        await site.later(seconds[name])
        await site.heard(failed(grant, "compile") if name in failing else done(grant))
        await site.recover()
    return run_id


async def test_a_comparison_with_the_last_green_run_lists_failed_slower_new_and_missing_jobs(
    site: Site,
) -> None:
    await run_of(site, {"build": 1, "old": 1})
    green = await run_of(site, {"build": 10, "old": 3, "quick": 1, "test": 5})
    await run_of(site, {"build": 10}, "build")
    run_id = await run_of(site, {"build": 30, "quick": 1.5, "new": 2, "test": 5}, "test")
    found = await site.runs.compare(run_id)
    assert found.green is not None
    assert (found.green.id, found.looked_at) == (green, 2)
    by_name = {change.name: change for change in found.changes}
    assert {name: change.change for name, change in by_name.items()} == {
        "test": "failed",
        "build": "slower",
        "new": "new",
        "old": "gone",
    }
    assert [change.change for change in found.changes] == ["failed", "slower", "new", "gone"], "worst first"
    assert (by_name["build"].took_s, by_name["build"].before_s) == (30.0, 10.0)
    assert by_name["test"].before_job_id in {job.job_id for job in (await site.look(green)).jobs}


async def test_runs_of_another_ref_workflow_or_repository_are_not_compared_with(site: Site) -> None:
    await run_of(site, {"a": 1}, source=Source(repository="acme/shop", ref="refs/heads/other"))
    await run_of(site, {"a": 1}, source=Source(repository="acme/web", ref="refs/heads/main"))
    await run_of(site, {"a": 1}, workflow="docs")
    run_id = await run_of(site, {"a": 1})
    await run_of(site, {"a": 1})  # a later one is no earlier one
    found = await site.runs.compare(run_id)
    assert (found.green, found.looked_at, found.changes) == (None, 0, ())


async def test_a_run_about_nothing_is_compared_with_runs_of_its_workflow_about_nothing(site: Site) -> None:
    await run_of(site, {"a": 1})
    green = await run_of(site, {"a": 1}, source=Source())
    found = await site.runs.compare(await run_of(site, {"a": 1}, source=Source()))
    assert found.green is not None
    assert found.green.id == green
    nameless = await run_of(site, {"a": 1}, source=Source(), workflow="")
    assert (await site.runs.compare(nameless)).green is None, "nothing says which runs are of its kind"


async def test_a_comparison_searches_at_most_100_earlier_runs_for_a_green_run(site: Site) -> None:
    await run_of(site, {"a": 0})
    for _ in range(LOOKS_BACK):
        await site.later(1)
        run_id = await site.begin(planned("a"), workflow="ci", source=MAIN, concurrency_group="")
        await site.runs.cancel(run_id)
    await site.later(1)
    found = await site.runs.compare(await run_of(site, {"a": 0}))
    assert (found.green, found.looked_at) == (None, LOOKS_BACK)


async def test_a_job_that_is_carried_over_is_not_compared_with_itself(site: Site) -> None:
    green = await run_of(site, {"a": 5, "b": 5})
    again = await site.runs.rerun(green, "from", job="b")
    await site.recover()
    ((_, grant),) = (await site.offered(again.id)).items()
    await site.later(50)
    await site.heard(done(grant))
    await site.recover()
    found = await site.runs.compare(again.id)
    assert [(change.name, change.change) for change in found.changes] == [("b", "slower")]
