"""Cancelling in two phases, whether everything is known to be gone, and giving way to a newer run."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.systems.orchestrator.house import CANCEL_DEADLINE_S, beat, done, stopped
from tests.systems.runs.site import Site, plan, planned

from interlock.wire.runs import RunSpec, Source

MAIN = Source(ref="refs/heads/main")


async def test_a_cancel_before_the_plan_is_final_at_once_and_a_late_plan_creates_nothing(site: Site) -> None:
    view = await site.runs.submit(RunSpec(plan=plan(planned("a"))))
    assert view.state == "CREATED"
    view = await site.runs.cancel(view.id, reason="a mistake")
    assert (view.state, view.outcome, view.reason) == ("CANCELED", "CANCELED", "cancel")
    await site.recover()
    assert await site.number_of_jobs() == 0
    assert await site.path(view.id) == ["CREATED", "CANCEL_REQUESTED", "CANCELED", "REPORTED"]
    assert await site.all_faults() == []


async def test_a_canceled_run_ends_only_after_its_active_jobs_have_stopped(site: Site) -> None:
    run_id = await site.begin(planned("a"), planned("b"), planned("c", "a"))
    given = await site.offered(run_id)
    for grant in given.values():
        await site.heard(beat(grant))
    await site.runs.cancel(run_id)
    await site.recover()
    assert (await site.look(run_id)).state == "CANCEL_REQUESTED"
    assert await site.standing(run_id) == {"a": "RUNNING", "b": "RUNNING", "c": "CANCELED"}
    await site.heard(stopped(given["a"]))
    await site.recover()
    assert (await site.look(run_id)).state == "CANCEL_REQUESTED"
    assert (await site.look(run_id)).confirmed_dead is None
    await site.heard(done(given["b"]))
    await site.recover()
    view = await site.look(run_id)
    assert (view.state, view.outcome, view.confirmed_dead) == ("REPORTED", "CANCELED", True)
    assert {job.reason for job in view.jobs} == {"cancel"}


async def test_asking_again_changes_nothing(site: Site) -> None:
    run_id = await site.begin(planned("a"))
    await site.heard(beat((await site.offered(run_id))["a"]))
    first = await site.runs.cancel(run_id, request_id="once")
    assert (await site.runs.cancel(run_id)).version == first.version
    assert (await site.runs.cancel(run_id, request_id="once")).version == first.version


async def test_a_runner_that_does_not_answer_cannot_keep_a_cancel_from_ending(site: Site) -> None:
    run_id = await site.begin(planned("a"))
    grant = (await site.offered(run_id))["a"]
    await site.heard(beat(grant))
    await site.runs.cancel(run_id)
    await site.later(CANCEL_DEADLINE_S)
    view = await site.look(run_id)
    assert (view.outcome, view.confirmed_dead) == ("CANCELED", False)
    (shown,) = (await site.view(grant.job_id)).attempts
    assert (shown.state, shown.forced, shown.confirmed_dead) == ("CANCELED", True, False)
    await site.stale(done(grant))
    assert (await site.look(run_id)).outcome == "CANCELED"
    assert await site.all_faults() == []


@pytest.mark.parametrize("confirmed", [True, False])
async def test_the_confirmed_dead_flag_from_a_runner_is_kept_by_the_attempt_and_the_run(
    site: Site, confirmed: bool
) -> None:
    run_id = await site.begin(planned("a"))
    grant = (await site.offered(run_id))["a"]
    await site.runs.cancel(run_id)
    await site.heard(stopped(grant, confirmed_dead=confirmed))
    await site.recover()
    assert (await site.view(grant.job_id)).attempts[0].confirmed_dead is confirmed
    assert (await site.look(run_id)).confirmed_dead is confirmed


async def test_a_newer_run_of_the_group_supersedes_the_older_one(site: Site) -> None:
    old = await site.begin(planned("a"), workflow="ci", source=MAIN)
    new = await site.begin(planned("a"), workflow="ci", source=MAIN)
    view = await site.look(old)
    assert (view.outcome, view.reason, view.superseded_by) == ("CANCELED", "superseded", new)
    assert {job.reason for job in view.jobs} == {"superseded"}
    assert (await site.look(new)).state == "QUEUED"


async def test_other_refs_workflows_repositories_and_groups_are_left_alone(site: Site) -> None:
    specs: list[dict[str, Any]] = [
        {"workflow": "ci", "source": MAIN},
        {"workflow": "ci", "source": Source(ref="refs/heads/other")},
        {"workflow": "ci", "source": Source(repository="a/b", ref="refs/heads/main")},
        {"workflow": "docs", "source": MAIN},
        {"workflow": "ci", "source": MAIN, "concurrency_group": ""},
        {"workflow": "ci", "source": MAIN, "concurrency_group": "mine"},
        {"workflow": "ci"},
        {"workflow": "ci"},
    ]
    runs = [await site.begin(planned("a"), **spec) for spec in specs]
    assert {(await site.look(run_id)).state for run_id in runs} == {"QUEUED"}


async def test_tags_and_branches_never_supersede_each_other(site: Site) -> None:
    tag = Source(ref="refs/tags/v1")
    branch = await site.begin(planned("a"), source=MAIN, concurrency_group="deploy")
    tagged = await site.begin(planned("a"), source=tag, concurrency_group="deploy")
    again = await site.begin(planned("a"), source=MAIN, concurrency_group="deploy")
    assert (await site.look(tagged)).state == "QUEUED"
    assert (await site.look(branch)).superseded_by == again


async def test_of_many_concurrently_submitted_runs_of_a_group_only_the_newest_is_not_superseded(
    site: Site,
) -> None:
    neighbour = await Site(site.settings, store=lambda: site.store, clock=site.clock).open()
    spec = RunSpec(plan=plan(planned("a")), workflow="ci", source=MAIN)
    views = await asyncio.gather(*(house.runs.submit(spec) for house in (site, neighbour) for _ in range(10)))
    await asyncio.gather(site.recover(), neighbour.recover())
    await site.recover()
    ended = {view.id: (await site.look(view.id)) for view in views}
    newest = max(ended.values(), key=lambda view: (view.created_at, view.id))
    assert {run_id for run_id, view in ended.items() if view.outcome is None} == {newest.id}
    assert {view.reason for view in ended.values() if view.id != newest.id} == {"superseded"}
    assert await site.all_faults() == []


async def test_a_run_that_finds_a_newer_run_of_its_group_cancels_itself_as_superseded(site: Site) -> None:
    """The newer one may have looked around before this one was to be seen."""
    spec = RunSpec(plan=plan(planned("a")), workflow="ci", source=MAIN)
    old, new = [await site.runs.submit(spec) for _ in range(2)]
    await site.runs.preparation.prepare(old.id)
    view = await site.look(old.id)
    assert (view.outcome, view.superseded_by) == ("CANCELED", new.id)


async def begin_file(site: Site, concurrency: str, *, ref: str = "refs/heads/main", **spec: Any) -> str:
    """A run whose file says in which group it is, as one that a webhook has asked for."""
    text = f"{concurrency}\njobs: {{a: {{steps: [{{run: make}}]}}}}\n"
    run_spec = RunSpec(workflow="ci", planner="workflow", definition=text, source=Source(ref=ref), **spec)
    view = await site.runs.submit(run_spec)
    await site.recover()
    return view.id


async def test_the_concurrency_setting_of_a_workflow_file_decides_which_runs_are_superseded(
    site: Site,
) -> None:
    beside = [await begin_file(site, "concurrency: false") for _ in range(2)]
    assert [(await site.look(each)).superseded_by for each in beside] == [None, None]
    assert (await site.look(beside[0])).concurrency_group == ""

    old = await begin_file(site, "concurrency: {group: release}", ref="refs/heads/a")
    new = await begin_file(site, "concurrency: {group: release}", ref="refs/heads/b")
    view = await site.look(old)
    assert (view.concurrency_group, view.superseded_by) == ("release", new)
    assert (await site.look(new)).superseded_by is None

    first, second = [await begin_file(site, "name: ci") for _ in range(2)]
    assert (await site.look(first)).superseded_by == second
    assert [(await site.look(each)).superseded_by for each in beside] == [None, None]
    again = await begin_file(site, "concurrency: false", concurrency_group="mine")
    assert (await site.look(again)).concurrency_group == "mine", "whoever asks goes before the file"
    assert await site.all_faults() == []
