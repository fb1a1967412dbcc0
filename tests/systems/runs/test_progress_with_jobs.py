"""A run progresses in the commit in which its jobs end; the result equals that of their messages."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.effort import pick
from tests.systems.orchestrator.house import done
from tests.systems.runs.any_plans import DIAMOND, planned_jobs
from tests.systems.runs.site import Site, plan, planned
from tests.systems.runs.test_alike_jobs import messages

from interlock.engine.aggregate import rewritten
from interlock.errors import StoreUnavailable
from interlock.store.records import Commit, Committed, Key, Outcome, Work, one_by_one
from interlock.systems.orchestrator.notifications import RUN_JOBS, RUN_JOBS_TOGETHER
from interlock.systems.runs import orders, progress
from interlock.wire.runner import Grant, Heard
from interlock.wire.runs import PlannedJob, RunSpec

LAYERS = (*(planned(f"a{n}") for n in range(3)), *(planned(f"b{n}", "a0", "a1", "a2") for n in range(3)))


async def begun(site: Site, *jobs: PlannedJob) -> tuple[str, list[Grant]]:
    """Return a run of these jobs, and the grants of those that need no other."""
    run_id = await site.begin(*(jobs or LAYERS))
    return run_id, await site.claim(limit=100)


async def report(site: Site, grants: Sequence[Grant]) -> None:
    """Report that these jobs have succeeded."""
    answers = await site.port.report([done(grant) for grant in grants])
    assert [type(answer) for answer in answers] == [Heard] * len(grants)


async def whole_life(jobs: tuple[PlannedJob, ...], portions: Sequence[int], *, at_once: bool) -> list[Any]:
    """Return the states of a run and its jobs after each report, and all of their steps at the end."""
    site = await Site().open()
    if not at_once:
        site.by_messages()
    run_id = await site.begin(*jobs)
    seen: list[Any] = []
    while offered := sorted((await site.offered(run_id)).items()):
        await site.recover()
        grants = [grant for _, grant in offered]
        while grants:
            number = portions[len(seen) % len(portions)]
            await report(site, grants[:number])
            del grants[:number]
            await site.recover()
            seen.append(((await site.look(run_id)).state, await site.standing(run_id)))
    for job_id, name in sorted((await site.names(run_id)).items(), key=lambda each: each[1]):
        if (await site.store.load([Key("job", job_id)]))[0] is not None:
            steps = [step for entry in await site.jobs.history(job_id) for step in entry.note.steps]
            seen.append((name, [(step.event, step.source, step.target) for step in steps]))
    seen.append(await site.path(run_id))
    assert await site.all_faults() == []
    await site.close()
    return seen


@settings(max_examples=pick(25, 150), deadline=None, derandomize=True)
@given(planned_jobs() | st.just(DIAMOND), st.lists(st.integers(1, 8), min_size=1, max_size=4))
def test_a_run_that_progresses_with_its_jobs_takes_the_same_steps_as_one_that_gets_messages(
    jobs: tuple[PlannedJob, ...], portions: list[int]
) -> None:
    jobs = tuple(plain(each) for each in jobs)
    at_once = asyncio.run(whole_life(jobs, portions, at_once=True))
    assert at_once == asyncio.run(whole_life(jobs, portions, at_once=False))


def plain(job: PlannedJob) -> PlannedJob:
    """Return the job without limits, which are not declared here."""
    return PlannedJob(
        name=job.name, task=job.task, needs=job.needs, required=job.required, approval=job.approval
    )


async def test_a_layer_ends_and_the_next_one_is_released_without_a_message(site: Site) -> None:
    run_id, given = await begun(site)
    await report(site, given)
    assert await site.standing(run_id) == {
        **dict.fromkeys(("a0", "a1", "a2"), "COMPLETED"),
        **dict.fromkeys(("b0", "b1", "b2"), "PENDING"),
    }
    assert (await site.look(run_id)).state == "RUNNING"
    await report(site, await site.claim(limit=100))
    assert (await site.look(run_id)).outcome == "SUCCESS"
    assert await messages(site) == [RUN_JOBS], "that it has begun"
    assert await site.all_faults() == []


async def test_a_run_of_which_nothing_is_known_here_is_loaded_and_progresses_with_its_jobs(
    site: Site,
) -> None:
    neighbour = await Site(site.settings, store=lambda: site.store, clock=site.clock).open()
    run_id = await site.begin(*LAYERS)
    await report(neighbour, await neighbour.claim(limit=100))
    assert (await site.look(run_id)).tally == {"COMPLETED": 3, "PENDING": 3}
    assert await messages(site) == [RUN_JOBS]


async def test_jobs_of_a_run_that_changes_meanwhile_send_messages_until_a_second_has_passed(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain = [(f"a{n}", f"b{n}") for n in range(4)]
    needs = [(), *chain[:-1]]
    jobs = [planned(name, *needed) for names, needed in zip(chain, needs, strict=True) for name in names]
    run_id, given = await begun(site, *jobs)
    prepared = progress.JointProgress._prepared

    async def meanwhile(self: progress.JointProgress, *args: Any) -> Any:
        found = await prepared(self, *args)
        (record,) = await site.store.load([Key("run", run_id)])
        assert record is not None
        await site.store.commit([Commit(changes=(rewritten(record),))])
        return found

    with monkeypatch.context() as patch:
        patch.setattr(progress.JointProgress, "_prepared", meanwhile)
        await report(site, given)
    assert await messages(site) == [RUN_JOBS, RUN_JOBS_TOGETHER]
    await site.recover()
    assert (await site.look(run_id)).tally == {"COMPLETED": 2, "PENDING": 2, "WAITING": 4}
    await report(site, await site.claim(limit=100))
    assert len(await messages(site)) == 3, "another process works on it"
    await site.recover()
    site.clock.jump(progress.AVOIDED_FOR + timedelta(seconds=1))
    for _ in range(2):
        await report(site, await site.claim(limit=100))
    assert len(await messages(site)) == 3
    assert (await site.look(run_id)).outcome == "SUCCESS"
    assert await site.all_faults() == []


async def test_two_reports_about_one_run_at_the_same_time_meet_no_conflict(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id, given = await begun(site, *(planned(f"a{n}") for n in range(4)))
    commit, outcomes = site.store.commit, list[Outcome]()

    async def noted(work: Sequence[Work]) -> list[Outcome]:
        await asyncio.sleep(0)
        found = await commit(work)
        outcomes.extend(found)
        return found

    monkeypatch.setattr(site.store, "commit", noted)
    await asyncio.gather(report(site, given[:2]), report(site, given[2:]))
    assert {type(outcome) for outcome in outcomes} == {Committed}
    await site.recover()
    assert (await site.look(run_id)).outcome == "SUCCESS"
    assert await messages(site) == [RUN_JOBS, RUN_JOBS_TOGETHER], "one of them has sent a message"


@pytest.mark.parametrize("is_stored", [True, False])
async def test_a_lost_answer_neither_loses_nor_repeats_the_progress_of_a_run(
    site: Site, monkeypatch: pytest.MonkeyPatch, is_stored: bool
) -> None:
    run_id, given = await begun(site)
    commit, lost = site.store.commit, list[str]()

    async def broken(work: Sequence[Work]) -> list[Outcome]:
        kinds = [change.kind for each in one_by_one(work) for change in each.changes]
        if "run" in kinds and "job" in kinds and not lost:
            lost.append(run_id)
            if is_stored:
                await commit(work)
            raise StoreUnavailable("The connection broke.", todo="Try again.")
        return await commit(work)

    monkeypatch.setattr(site.store, "commit", broken)
    await report(site, given)
    assert lost
    await site.recover()
    assert (await site.look(run_id)).tally == {"COMPLETED": 3, "PENDING": 3}
    await report(site, await site.claim(limit=100))
    await site.recover()
    assert (await site.look(run_id)).outcome == "SUCCESS"
    assert (await site.path(run_id)).count("SUCCESS") == 1
    assert await site.all_faults() == []


async def test_a_waiting_job_that_was_cancelled_meanwhile_is_not_released(site: Site) -> None:
    optional = [planned(f"b{n}", "a0", "a1", required=False) for n in range(3)]
    run_id, given = await begun(site, planned("a0"), planned("a1"), *optional, planned("c", "a0"))
    names = {name: job_id for job_id, name in (await site.names(run_id)).items()}
    neighbour = await Site(site.settings, store=lambda: site.store, clock=site.clock).open()
    await neighbour.jobs.cancel(names["b1"])
    await report(site, given)
    await site.recover()
    assert await site.standing(run_id) == {
        **dict.fromkeys(("a0", "a1"), "COMPLETED"),
        **dict.fromkeys(("b0", "b2", "c"), "PENDING"),
        "b1": "CANCELED",
    }
    assert await site.all_faults() == []


@pytest.mark.parametrize("at_once", [True, False])
async def test_a_held_job_that_another_process_has_written_is_read_before_it_is_released(
    site: Site, at_once: bool
) -> None:
    run_id, given = await begun(site)
    names = {name: job_id for job_id, name in (await site.names(run_id)).items()}
    (record,) = await site.store.load([Key("job", names["b1"])])
    assert record is not None
    await site.store.commit([Commit(changes=(rewritten(record, priority=1),))])
    if not at_once:
        site.by_messages()
    await report(site, given)
    await site.recover()
    assert (await site.look(run_id)).tally == {"COMPLETED": 3, "PENDING": 3}
    assert (await site.record(names["b1"])).priority == 1


async def test_a_step_that_orders_more_than_fits_into_a_commit_is_reported_by_a_message(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id, given = await begun(site)
    monkeypatch.setattr(orders, "MOST_WITHIN", 2)
    await report(site, given)
    assert await messages(site) == [RUN_JOBS, RUN_JOBS_TOGETHER]
    await site.recover()
    assert (await site.look(run_id)).tally == {"COMPLETED": 3, "PENDING": 3}


async def test_a_message_about_a_run_that_is_known_from_before_its_approval_is_not_lost(site: Site) -> None:
    """What a process knows of a run may be so old that it has no jobs: then the run is read again."""
    run_id, given = await begun(site)
    (now,) = await site.store.load([Key("run", run_id)])
    assert now is not None
    old = now.body.replace(b'"states":"qqqwww"', b'"states":""')
    assert old != now.body
    site.runs._known.remember(replace(now, body=old, version=now.version - 1))
    site.by_messages()
    await report(site, given)
    await site.recover()
    assert (await site.look(run_id)).tally == {"COMPLETED": 3, "PENDING": 3}


async def corrupt(site: Site, run_id: str) -> None:
    """Let the record of a run have a body that cannot be decoded."""
    (record,) = await site.store.load([Key("run", run_id)])
    assert record is not None
    await site.store.commit([Commit(changes=(rewritten(record, body=b'{"spec":1}'),))])


async def test_a_run_that_cannot_be_planned_does_not_hold_those_that_are_planned_with_it(site: Site) -> None:
    made = [await site.runs.submit(RunSpec(plan=plan(planned("a")))) for _ in range(3)]
    await corrupt(site, made[1].id)
    await site.recover()
    assert [(await site.look(each.id)).state for each in (made[0], made[2])] == ["QUEUED"] * 2
    assert await site.number_of_jobs() == 2


async def test_a_run_that_cannot_be_reported_does_not_hold_those_that_are_reported_with_it(
    site: Site,
) -> None:
    runs = [await site.begin(planned("a"), planned("b")) for _ in range(3)]
    given = await site.claim(limit=100)
    await site.recover()
    await report(site, given)
    await corrupt(site, runs[1])
    await site.recover()
    assert [(await site.look(run_id)).state for run_id in (runs[0], runs[2])] == ["REPORTED"] * 2


async def test_runs_of_one_round_are_planned_by_one_load_and_one_call_of_the_store(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a run that has changed meanwhile the plan is taken up alone."""
    made = [await site.runs.submit(RunSpec(plan=plan(planned("a"), planned("b", "a")))) for _ in range(4)]
    commit, sizes = site.store.commit, list[int]()

    async def counted(work: Sequence[Work]) -> list[Outcome]:
        if any(change.kind == "job" for each in one_by_one(work) for change in each.changes):
            if not sizes:
                (record,) = await site.store.load([Key("run", made[1].id)])
                assert record is not None
                await commit([Commit(changes=(rewritten(record),))])
            sizes.append(len(work))
        return await commit(work)

    monkeypatch.setattr(site.store, "commit", counted)
    await site.recover()
    assert sizes == [4, 1]
    assert {(await site.look(each.id)).state for each in made} == {"QUEUED"}
    assert await site.number_of_jobs() == 8
    assert await site.all_faults() == []
