"""What is accepted, under which id, and what a crash after that leaves behind."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from tests.systems.orchestrator.house import done
from tests.systems.runs.site import Site, plan, planned

from interlock.engine.retention import Retention, sweep_ended
from interlock.errors import InvalidRun, PlanRefused, RequestIdReused, UnknownRun
from interlock.systems.catalogue import CATALOGUE
from interlock.systems.runs.workflows import PlanRequest
from interlock.wire.runs import Plan, RunFilter, RunSpec, Source


class Planning:
    """A planner that does as it is told."""

    def __init__(self, *answers: Plan | Exception) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []

    async def plan(self, request: PlanRequest) -> Plan:
        self.asked.append(request.run_id)
        answer = self.answers.pop(0) if self.answers else None
        if answer is None:
            await asyncio.Event().wait()
            raise AssertionError
        if isinstance(answer, Exception):
            raise answer
        return answer


async def test_everything_that_is_wrong_with_a_plan_is_reported_at_once_and_nothing_is_stored(
    site: Site,
) -> None:
    bad = plan(
        planned("a", "b"),
        planned("b", "c"),
        planned("c", "a"),
        planned("d", "nobody"),
        planned("d"),
        planned("e", "e"),
        planned("f", task=""),
        planned("", priority=10_000),
    )
    with pytest.raises(PlanRefused) as caught:
        await site.runs.submit(RunSpec(plan=bad))
    faults = caught.value.facts["faults"]
    assert isinstance(faults, list)
    text = "; ".join(faults)
    for part in (
        "there are 2 jobs called 'd'",
        "d needs 'nobody', which is not in the plan",
        "e needs itself",
        "these jobs wait for each other: a → b → c → a",
        "f: the name of a task",
        "the name of a job has 1 to",
        "the priority is 10000",
    ):
        assert part in text
    assert (await site.store.status()).records.get("run", {}) == {}


async def test_a_plan_of_too_many_jobs_is_refused(site: Site) -> None:
    jobs = [planned(str(number)) for number in range(10_001)]
    with pytest.raises(PlanRefused, match="it has 10001 jobs, at most 10000"):
        await site.runs.submit(RunSpec(plan=plan(*jobs)))


async def test_an_invalid_run_spec_is_refused_with_all_its_faults_in_one_error(site: Site) -> None:
    with pytest.raises(InvalidRun, match=r"no planner 'magic'.*the priority is 101.*9 labels"):
        await site.runs.submit(RunSpec(planner="magic", priority=101, labels=tuple(str(n) for n in range(9))))
    with pytest.raises(InvalidRun, match="it has no plan"):
        await site.runs.submit(RunSpec())
    with pytest.raises(UnknownRun):
        await site.runs.view("r_nobody")


async def test_fifty_concurrent_submissions_with_one_id_make_one_run(site: Site) -> None:
    spec = RunSpec(plan=plan(planned("a")))
    views = await asyncio.gather(*(site.runs.submit(spec, request_id="delivery-1") for _ in range(50)))
    assert len({view.id for view in views}) == 1
    await site.recover()
    assert await site.number_of_jobs() == 1
    with pytest.raises(RequestIdReused):
        await site.runs.submit(RunSpec(plan=plan(planned("b"))), request_id="delivery-1")


async def test_a_request_id_is_remembered_for_the_requested_duration(site: Site) -> None:
    spec = RunSpec(plan=plan(planned("a")))
    first = await site.runs.submit(spec, request_id="push", remember_s=3 * 86_400.0)
    site.clock.jump("2d")
    assert (await site.runs.submit(spec, request_id="push")).id == first.id
    site.clock.jump("2d")
    assert (await site.runs.submit(spec, request_id="push")).id != first.id


async def test_a_run_left_unplanned_by_a_crash_is_planned_by_the_next_process(
    site: Site,
) -> None:
    view = await site.runs.submit(RunSpec(plan=plan(planned("a"))))
    neighbour = await Site(site.settings, store=lambda: site.store, clock=site.clock).open()
    await neighbour.recover()
    assert (await site.look(view.id)).state == "QUEUED"


async def test_a_run_whose_plan_message_was_dropped_is_planned_after_the_planner_timeout(site: Site) -> None:
    """An operator may drop a message; a run must not wait in silence for it."""
    view = await site.runs.submit(RunSpec(plan=plan(planned("a"))))
    taken = await site.claim_messages("run.plan")
    assert len(taken) == 1
    await site.drop(taken[0])
    await site.recover()
    assert (await site.look(view.id)).state == "CREATED"
    await site.later(site.settings.durations.planner_timeout_s)
    assert (await site.look(view.id)).state == "QUEUED"


async def test_a_run_with_a_stored_plan_is_queued_and_does_not_fail_at_the_planner_timeout(
    site: Site,
) -> None:
    """Whoever was about to accept it is gone; a store that hardly answers for a minute must not fail it."""
    view = await site.runs.submit(RunSpec(plan=plan(planned("a"))))
    taken = await site.claim_messages("run.plan")
    await site.drop(taken[0])
    record = await site.runs.preparation._begin(view.id)
    assert record is not None
    assert record.state == "PLANNING"
    await site.later(site.settings.durations.planner_timeout_s)
    assert (await site.look(view.id)).state == "QUEUED"


async def test_a_run_that_its_planner_refuses_fails_with_the_error_of_the_planner(site: Site) -> None:
    site.runs.preparation.planners["flow"] = Planning(PlanRefused("Line 3: no such job.", todo="Mend it."))
    view = await site.runs.submit(RunSpec(planner="flow"))
    await site.recover()
    view = await site.look(view.id)
    assert (view.outcome, view.reason) == ("FAILED", "plan_failed")
    assert view.error == "Line 3: no such job. Mend it."
    assert await site.path(view.id) == ["CREATED", "PLANNING", "PLAN_FAILED", "FAILED", "REPORTED"]


async def test_a_planner_that_breaks_or_returns_nonsense_fails_the_run(site: Site) -> None:
    site.runs.preparation.planners["flow"] = Planning(ZeroDivisionError("oops"), plan(planned("a", "a")))
    for expected in ("ZeroDivisionError: oops", "a needs itself"):
        view = await site.runs.submit(RunSpec(planner="flow"))
        await site.recover()
        assert expected in (await site.look(view.id)).error
    assert await site.number_of_jobs() == 0


async def test_a_run_whose_planner_never_answers_fails_with_planner_timeout(site: Site) -> None:
    """The one that asked has crashed in the middle: another asks again, and the clock has the last word."""
    planner = site.runs.preparation.planners["flow"] = Planning()
    view = await site.runs.submit(RunSpec(planner="flow"))
    asking = asyncio.create_task(site.runs.keep())
    while not planner.asked:
        await asyncio.sleep(0)
    asking.cancel()
    await asyncio.wait([asking])
    assert (await site.look(view.id)).state == "PLANNING"
    site.clock.jump(site.settings.durations.planner_timeout_s)
    await site.recover()
    view = await site.look(view.id)
    assert (view.outcome, view.reason) == ("FAILED", "planner_timeout")
    assert "longer than 60 s" in view.error


async def test_a_plan_of_a_planner_that_crashed_is_made_by_the_next_one(site: Site) -> None:
    planner = site.runs.preparation.planners["flow"] = Planning()
    view = await site.runs.submit(RunSpec(planner="flow"))
    asking = asyncio.create_task(site.runs.keep())
    while not planner.asked:
        await asyncio.sleep(0)
    asking.cancel()
    await asyncio.wait([asking])
    planner.answers.append(plan(planned("a")))
    await site.later(31)
    assert planner.asked == [view.id, view.id]
    assert (await site.look(view.id)).state == "QUEUED"


async def test_a_process_that_reads_a_run_before_it_is_planned_reads_the_plan_afterwards(site: Site) -> None:
    site.runs.preparation.planners["flow"] = Planning(plan(planned("a"), planned("b", "a")))
    neighbour = await Site(site.settings, store=lambda: site.store, clock=site.clock).open()
    view = await site.runs.submit(RunSpec(planner="flow"))
    assert (await neighbour.runs.explain(view.id)).sentence == "It waits to be planned."
    await site.recover()
    for _ in range(2):
        await neighbour.finish(view.id)
    assert (await neighbour.look(view.id)).outcome == "SUCCESS"


async def test_a_plan_stored_in_several_pieces_is_created_listed_and_canceled_as_one_run(site: Site) -> None:
    jobs = [planned(str(n), *([str(n - 300)] if n >= 300 else [])) for n in range(600)]
    run_id = await site.begin(*jobs)
    assert (await site.look(run_id)).tally == {"PENDING": 300, "WAITING": 300}
    assert await site.number_of_jobs() == 600
    some = await site.runs.jobs(run_id, first=248, limit=4)
    assert [(job.name, job.state) for job in some] == [(str(n), "PENDING") for n in range(248, 252)]
    assert await site.runs.jobs(run_id, first=600) == []
    await site.finish(run_id)
    assert (await site.look(run_id)).tally == {"COMPLETED": 300, "PENDING": 300}
    await site.runs.cancel(run_id)
    await site.recover()
    view = await site.look(run_id)
    assert (view.outcome, view.tally) == ("CANCELED", {"COMPLETED": 300, "CANCELED": 300})


async def test_runs_are_found_by_workflow_ref_commit_label_repository_and_state(site: Site) -> None:
    long = "refs/heads/" + "x" * 100
    first = await site.begin(
        planned("a"), workflow="ci", source=Source(ref=long, sha="1" * 40), labels=("nightly",)
    )
    second = await site.begin(planned("a"), workflow="docs", source=Source(repository="a/b", sha="2" * 40))

    async def found(**wanted: object) -> list[str]:
        views, _ = await site.runs.find(RunFilter(**wanted))  # type: ignore[arg-type]
        return [view.id for view in views]

    assert await found() == [second, first]
    assert await found(workflow="ci") == await found(ref=long) == await found(sha="1" * 40) == [first]
    assert await found(labels=("nightly",)) == [first]
    assert await found(repository="a/b") == [second]
    assert await found(states=("QUEUED",), workflow="docs") == [second]
    assert await found(states=("REPORTED",)) == []


async def test_a_run_is_removed_with_its_plan_and_not_before(site: Site) -> None:
    ended = await site.begin(planned("a"))
    await site.finish(ended)
    going = await site.begin(planned("a"))
    site.clock.jump(timedelta(days=31))
    await sweep_ended(site.store, CATALOGUE, Retention())
    records = (await site.store.status()).records
    assert records["plan"] == {"in_use": 1}
    with pytest.raises(UnknownRun):
        await site.look(ended)
    assert (await site.look(going)).jobs[0].name == "a"


async def test_a_job_of_a_run_shows_its_run_id_and_has_no_parent_job(site: Site) -> None:
    run_id = await site.begin(planned("a"))
    grant = (await site.offered(run_id))["a"]
    view = await site.view(grant.job_id)
    assert (view.run_id, view.parent_job_id, grant.parent_job_id) == (run_id, None, None)


async def test_a_run_generates_new_job_ids_if_its_ids_are_already_taken(site: Site) -> None:
    view = await site.runs.submit(RunSpec(plan=plan(planned("a"), planned("b", "a"))))
    taken = [job.job_id for job in view.jobs]
    for name in taken:
        await site.squat(name)
    await site.recover()
    ours = {job.name: job.job_id for job in (await site.look(view.id)).jobs}
    assert not set(ours.values()) & set(taken)
    for name in ("a", "b"):
        (given,) = [each for each in await site.claim(queues=("default",)) if each.job_id == ours[name]]
        await site.heard(done(given))
        await site.recover()
    assert (await site.look(view.id)).outcome == "SUCCESS"
    assert await site.all_faults() == []
