"""What runs teach about their jobs, and what is said about those that have failed."""

from __future__ import annotations

from typing import Any

from tests.systems.orchestrator.house import failed
from tests.systems.runs.site import Site, plan, planned

from interlock.store.records import Query, Record
from interlock.wire.runs import RunSpec, Source

SOURCE = Source(repository="acme/shop", ref="refs/heads/main", sha="b" * 40)


async def begin(site: Site, *names: str, **spec: Any) -> str:
    given = {"workflow": "ci", "source": SOURCE, "concurrency_group": "", **spec}
    return await site.begin(*(planned(name) for name in names), fail_fast=False, **given)


async def histories(site: Site) -> list[Record]:
    return list((await site.store.find(Query(kind="history", limit=1_000))).records)


async def test_a_job_that_fails_in_one_run_and_passes_in_another_of_the_same_commit_is_flaky(
    site: Site,
) -> None:
    first = await begin(site, "lint", "test")
    await site.finish(first, "test")
    assert (await site.runs.analyser.flaky()).jobs == ()
    second = await begin(site, "lint", "test")
    await site.finish(second)
    (found,) = (await site.runs.analyser.flaky(repository="ACME/shop", workflow="ci")).jobs
    assert (found.repository, found.workflow, found.job) == ("acme/shop", "ci", "test")
    assert (found.commits, found.contradicted, found.latest_sha) == (1, 1, "b" * 40)
    assert (await site.runs.analyser.flaky(repository="acme/other")).jobs == ()
    (finding,) = (await site.runs.analyser.of(first)).findings
    assert (finding.job, finding.failure_class, finding.flaky) == ("test", "flaky", True)
    explanation = await site.runs.explain(first)
    assert explanation.findings[0].startswith("test: flaky, ")
    assert await site.all_faults() == []


async def test_a_repeated_message_about_an_ended_run_does_not_change_the_job_histories(site: Site) -> None:
    run_id = await begin(site, "test")
    await site.finish(run_id)
    before = await histories(site)
    for _ in range(3):
        await site.runs.analyser.learn(run_id)
    assert await histories(site) == before
    await site.runs.analyser.learn("r_000000000000")


async def test_a_job_that_fails_and_then_passes_on_a_retry_is_flaky(site: Site) -> None:
    view = await site.runs.submit(
        RunSpec(workflow="ci", source=SOURCE, plan=plan(planned("test", retries=1)))
    )
    await site.recover()
    (given,) = await site.claim()
    await site.heard(failed(given, error="assert 1 == 2"))
    await site.later(10)
    await site.finish(view.id)
    (found,) = (await site.runs.analyser.flaky()).jobs
    assert found.latest == f"failed first and passed then in {given.job_id}"


async def test_a_failure_classified_as_infra_is_not_added_to_the_history_of_the_job(site: Site) -> None:
    run_id = await begin(site, "test")
    (given,) = await site.claim()
    await site.heard(failed(given, "", error="no space left on device"))
    for _ in range(4):
        await site.later(60)
        for again in await site.claim():
            await site.heard(failed(again, "", error="no space left on device"))
    await site.recover()
    assert (await site.look(run_id)).outcome == "FAILED"
    assert await histories(site) == []
    (finding,) = (await site.runs.analyser.of(run_id)).findings
    assert (finding.failure_class, finding.evidence[0].says) == ("infra", "the disk is full")


async def test_runs_that_are_about_no_commit_pay_nothing(site: Site) -> None:
    run_id = await begin(site, "test", source=Source())
    await site.finish(run_id, "test")
    assert await histories(site) == []
    (finding,) = (await site.runs.analyser.of(run_id)).findings
    assert finding.failure_class == "user"


async def test_the_history_of_a_job_without_runs_for_91_days_is_forgotten(site: Site) -> None:
    run_id = await begin(site, "test")
    await site.finish(run_id)
    await site.later(91 * 86_400)
    assert await site.runs.analyser.sweep() == 1
    (record,) = await histories(site)
    assert record.state == "forgotten"


async def test_a_large_run_teaches_in_portions(site: Site) -> None:
    names = [f"shard {number}" for number in range(450)]
    run_id = await begin(site, *names)
    while await site.finish(run_id):
        pass
    assert len(await histories(site)) == 450


async def test_a_run_that_went_well_names_its_jobs_that_are_flaky(site: Site) -> None:
    first = await begin(site, "lint", "test")
    await site.finish(first, "test")
    second = await begin(site, "lint", "test")
    await site.finish(second)
    for run_id in (first, second):
        (found,) = (await site.runs.analyser.of(run_id)).flaky
        assert (found.job, found.contradicted) == ("test", 1)
    other = await begin(site, "lint")
    await site.finish(other)
    assert (await site.runs.analyser.of(other)).flaky == ()
