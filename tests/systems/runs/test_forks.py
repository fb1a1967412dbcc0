"""A change from a fork waits for an operator, and even then chooses nothing but its shell steps."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.systems.orchestrator.house import RUNNER, done
from tests.systems.runs.caching.test_caches import fetch, files, save
from tests.systems.runs.site import Site, plan, planned

from interlock.errors import CacheRefused, InvalidJob, InvalidRun, TransitionRefused
from interlock.systems.blobs import BlobSettings
from interlock.systems.orchestrator.vault import SecretPolicy, SecretScope
from interlock.systems.runs.workflows.git import WorkflowPlanner
from interlock.systems.settings import Settings
from interlock.wire.jobs import SHELL, JobSpec
from interlock.wire.runner import Grant
from interlock.wire.runs import ForkTerms, PlannedJob, RunSpec, Source

SHA = "5f" * 20
FORK = Source(
    repository="acme/shop",
    ref="refs/pull/7/head",
    sha=SHA,
    event="pull_request",
    pull_request=7,
    from_fork=True,
    actor="mallory",
)
HERE = Source(repository="acme/shop", ref="refs/heads/main", sha=SHA, event="push")
TRUSTED = ForkTerms(approval=False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "blobs"


@pytest.fixture
async def site(folder: Path) -> AsyncIterator[Site]:
    blobs = BlobSettings(directory=str(folder), max_cache_bytes=100, max_blob_bytes=80)
    secrets = SecretPolicy(secrets={"TOKEN": SecretScope()})
    opened = Site(Settings(blobs=blobs, secrets=secrets))
    await opened.open()
    yield opened
    await opened.close()


def shell(name: str, *needs: str, **more: Any) -> PlannedJob:
    return planned(name, *needs, task=SHELL, **more)


async def fork(site: Site, *jobs: PlannedJob, terms: ForkTerms | None = None, **spec: Any) -> str:
    run_spec = RunSpec(plan=plan(*(jobs or (shell("a"),))), source=spec.pop("source", FORK), **spec)
    view = await site.runs.submit(run_spec, terms=terms)
    await site.recover()
    return view.id


async def forks_grant(site: Site, **spec: Any) -> Grant:
    """A job of a fork that a runner of its queue has been given."""
    run_id = await fork(site, terms=TRUSTED, **spec)
    names = await site.names(run_id)
    (grant,) = [one for one in await site.claim(queues=("untrusted",), limit=100) if one.job_id in names]
    return grant


async def test_a_fork_does_not_choose_task_queue_labels_or_input_of_a_deployment(site: Site) -> None:
    await site.begin(
        planned("deploy", task="shop.deploy", queue="prod", labels=("prod-box",)), source=FORK, workflow="ci"
    )
    assert await site.claim(queues=("prod",), labels=("prod-box",)) == []


# Approval


async def test_a_run_from_a_fork_waits_for_the_approval_of_an_operator_and_then_continues(site: Site) -> None:
    run_id = await fork(site)
    view = await site.look(run_id)
    assert view.state == "AWAITING_APPROVAL"
    assert view.awaiting is not None
    assert view.awaiting.reason == "fork"
    assert await site.number_of_jobs() == 0
    explanation = await site.runs.explain(run_id)
    assert explanation.sentence == (
        "It waits for an operator's approval: the change comes from a fork, "
        "commit 5f5f5f5f5f5f of acme/shop, asked for by mallory."
    )
    assert (explanation.todo, explanation.lines[0].turn) == (f"interlock run approve {run_id}", "user")

    await site.runs.approve(run_id, comment="read it", actor="olga")
    await site.recover()
    view = await site.look(run_id)
    assert (view.state, view.awaiting) == ("QUEUED", None)
    (made,) = view.approvals
    assert (made.by, made.sha, made.reason, made.comment) == ("olga", SHA, "fork", "read it")
    given = await site.claim(queues=("untrusted",))
    assert len(given) == 1
    await site.heard(done(given[0]))
    await site.recover()
    assert (await site.look(run_id)).outcome == "SUCCESS"
    assert await site.path(run_id) == [
        *("CREATED", "AWAITING_APPROVAL", "CREATED", "PLANNING", "QUEUED", "RUNNING", "SUCCESS", "REPORTED")
    ]
    history = await site.run_history(run_id)
    assert [(e.note.actor, e.note.reason) for e in history if e.note.actor == "olga"] == [("olga", "read it")]
    assert await site.all_faults() == []


async def test_a_run_that_is_declined_is_canceled_and_nothing_of_it_was_done(site: Site) -> None:
    run_id = await fork(site)
    await site.runs.decline(run_id, reason="no", actor="olga")
    await site.recover()
    view = await site.look(run_id)
    assert (view.state, view.outcome, view.reason) == ("REPORTED", "CANCELED", "declined")
    assert await site.number_of_jobs() == 0
    assert "an operator has declined it" in (await site.runs.explain(run_id)).sentence
    with pytest.raises(TransitionRefused):
        await site.runs.approve(run_id)
    assert await site.all_faults() == []


async def test_a_run_that_waits_for_an_approval_can_be_canceled(site: Site) -> None:
    run_id = await fork(site)
    await site.runs.cancel(run_id)
    await site.recover()
    view = await site.look(run_id)
    assert (view.outcome, view.reason) == ("CANCELED", "cancel")


async def test_a_run_from_a_fork_fails_if_no_operator_approves_it_in_time(site: Site) -> None:
    run_id = await fork(site)
    await site.later(site.settings.durations.approval_timeout_s - 1)
    assert (await site.look(run_id)).state == "AWAITING_APPROVAL"
    site.clock.jump(1)
    with pytest.raises(TransitionRefused):
        await site.runs.approve(run_id)  # late is late, swept or not
    await site.recover()
    view = await site.look(run_id)
    assert (view.outcome, view.reason) == ("FAILED", "not_approved")
    assert "no operator has approved it in time" in (await site.runs.explain(run_id)).sentence


async def test_only_a_run_that_waits_can_be_approved_and_once(site: Site) -> None:
    trusted = await site.begin(planned("a"), source=HERE)
    with pytest.raises(TransitionRefused, match="does not wait for an approval"):
        await site.runs.approve(trusted)
    run_id = await fork(site)
    for _ in range(2):
        view = await site.runs.approve(run_id, request_id="once", actor="olga")
    assert len(view.approvals) == 1
    with pytest.raises(TransitionRefused):
        await site.runs.approve(run_id)


async def test_a_sweep_plans_an_approved_run_whose_plan_message_was_dropped(site: Site) -> None:
    run_id = await fork(site)
    await site.runs.approve(run_id)
    (message,) = await site.claim_messages("run.plan")
    await site.drop(message)
    await site.later(site.settings.durations.planner_timeout_s)
    assert (await site.look(run_id)).state == "QUEUED"


async def test_an_approval_is_for_one_commit_and_the_next_push_waits_again(site: Site) -> None:
    first = await fork(site, workflow="ci")
    await site.runs.approve(first)
    await site.recover()
    second = await fork(site, workflow="ci", source=replace(FORK, sha="6a" * 20))
    assert (await site.look(second)).state == "AWAITING_APPROVAL"
    assert (await site.look(first)).superseded_by == second


async def test_of_two_that_wait_only_the_newer_one_can_be_approved(site: Site) -> None:
    site.runs.preparation.planners["workflow"] = WorkflowPlanner()
    text = "on: [pull_request]\njobs: {a: {steps: [{run: make}]}}"
    spec = RunSpec(workflow="ci", planner="workflow", definition=text, source=FORK)
    old = await site.runs.submit(spec)
    await site.recover()
    site.clock.jump(1)
    new = await site.runs.submit(spec)
    await site.recover()
    assert [(await site.look(one.id)).outcome for one in (old, new)] == ["CANCELED", None]


@pytest.mark.parametrize(("approve", "state"), [(True, "QUEUED"), (False, "AWAITING_APPROVAL")])
async def test_a_run_is_done_again_without_asking_only_where_it_was_approved(
    site: Site, approve: bool, state: str
) -> None:
    run_id = await fork(site, workflow="")
    if approve:
        await site.runs.approve(run_id, actor="olga")
        await site.recover()
    await site.runs.cancel(run_id)
    await site.recover()
    again = await site.runs.rerun(run_id)
    await site.recover()
    view = await site.look(again.id)
    assert view.state == state
    assert [made.by for made in view.approvals] == (["olga"] if approve else [])


async def test_trusted_by_the_trigger_it_does_not_wait_and_is_confined_all_the_same(site: Site) -> None:
    terms = ForkTerms(approval=False, queue="strangers", labels=("isolated",))
    job = shell("a", queue="prod", labels=("prod-box",), secrets=("TOKEN",), why="push")
    run_id = await fork(site, job, terms=terms)
    assert await site.claim(queues=("prod", "untrusted"), labels=("prod-box", "isolated")) == []
    (grant,) = await site.claim(queues=("strangers",), labels=("isolated",))
    assert (grant.queue, grant.secrets, grant.secrets_withheld) == ("strangers", {}, True)
    (view,) = (await site.look(run_id)).jobs
    assert view.why == (
        "push; from a fork: queue strangers with isolated, without secrets, regardless of its file"
    )


async def test_a_fork_that_is_read_from_a_repository_names_its_commit(site: Site) -> None:
    site.runs.preparation.planners["workflow"] = WorkflowPlanner()
    with pytest.raises(InvalidRun, match="approved for one commit"):
        await site.runs.submit(RunSpec(planner="workflow", source=Source(repository="a/b", from_fork=True)))


# Confinement


@pytest.mark.parametrize("task", ["shop.deploy", "interlock.workload"])
async def test_a_plan_of_a_fork_with_another_task_than_shell_is_refused(site: Site, task: str) -> None:
    run_id = await fork(site, shell("lint"), planned("deploy", task=task, queue="prod"), terms=TRUSTED)
    view = await site.look(run_id)
    assert (view.outcome, view.reason) == ("FAILED", "plan_failed")
    assert f"deploy: a change from a fork runs interlock.shell only, not the task {task}" in view.error
    assert await site.number_of_jobs() == 0


async def test_a_workflow_file_of_a_fork_is_refused_with_job_task_and_line(site: Site) -> None:
    site.runs.preparation.planners["workflow"] = WorkflowPlanner()
    text = (
        "jobs:\n  lint:\n    steps: [{run: make}]\n"
        "  publish:\n    if: branch == 'main'\n    task: shop.publish\n"
        "  deploy:\n    task: shop.deploy\n    queue: prod\n    environment: production\n"
    )
    spec = RunSpec(planner="workflow", definition=text, source=FORK)
    run_id = (await site.runs.submit(spec, terms=TRUSTED)).id
    await site.recover()
    error = (await site.look(run_id)).error
    assert (
        "deploy (line 8): a change from a fork runs interlock.shell only, not the task shop.deploy" in error
    )
    assert "deploy (line 8): a change from a fork uses no environment" in error
    assert "publish" not in error, "what is left out of the plan does not matter"


async def test_a_run_from_a_fork_does_not_supersede_a_run_of_the_repository_with_the_same_group(
    site: Site,
) -> None:
    site.runs.preparation.planners["workflow"] = WorkflowPlanner()
    ours = await site.begin(planned("a"), source=HERE, workflow="ci", concurrency_group="deploy")
    site.clock.jump(1)
    text = "concurrency: {group: deploy}\njobs: {a: {steps: [{run: make}]}}"
    spec = RunSpec(workflow="ci", planner="workflow", definition=text, source=FORK)
    await site.runs.submit(spec, terms=TRUSTED)
    await site.recover()
    await fork(site, terms=TRUSTED, concurrency_group="deploy")
    assert (await site.look(ours)).state == "QUEUED"


async def test_a_child_of_a_job_without_secrets_is_without_secrets(site: Site) -> None:
    parent = await site.started(queue="untrusted", secrets_withheld=True)
    (child_id,) = await site.port.submit_children(parent.token, RUNNER, "more", [JobSpec(task="build")])
    assert (await site.body(child_id)).secrets_withheld


async def test_a_child_of_a_fork_job_has_the_queue_label_secret_and_task_restrictions_of_its_parent(
    site: Site,
) -> None:
    parent = await forks_grant(site)
    spec = JobSpec(task=SHELL, queue="prod", labels=("prod-box",))
    (child_id,) = await site.port.submit_children(parent.token, RUNNER, "more", [spec])
    record, body = await site.record(child_id), await site.body(child_id)
    assert (record.queue, record.labels, body.secrets_withheld) == ("untrusted", (), True)
    assert body.origin == (await site.body(parent.job_id)).origin
    with pytest.raises(InvalidJob, match=r"submits only interlock\.shell, not shop\.deploy"):
        await site.port.submit_children(parent.token, RUNNER, "other", [JobSpec(task="shop.deploy")])


async def test_a_forks_job_that_is_done_again_alone_stays_a_forks_job(site: Site) -> None:
    grant = await forks_grant(site)
    await site.heard(done(grant))
    again = await site.jobs.retry(grant.job_id)
    body = await site.body(getattr(again, "id", again))
    assert body.origin is not None
    assert (body.origin.from_fork, body.secrets_withheld) == (True, True)


# Caches


async def ours(site: Site) -> Grant:
    run_id = await site.begin(planned("a"), source=HERE)
    names = await site.names(run_id)
    (grant,) = [one for one in await site.claim(limit=100) if one.job_id in names]
    return grant


async def test_a_fork_finds_no_cache_of_others_and_others_find_none_of_it(site: Site) -> None:
    await save(site, await ours(site), "k", b"trusted")
    grant = await forks_grant(site)
    assert await fetch(site, grant, "k", "k") is None
    assert await save(site, grant, "k", b"poisoned") == "k"
    assert await save(site, grant, "new", b"poisoned as well") == "new"
    assert await fetch(site, await ours(site), "k", "k") == ("k", b"trusted")
    assert await fetch(site, await ours(site), "new", "n") is None
    assert await fetch(site, await forks_grant(site), "k") == ("k", b"poisoned"), "its own next push finds it"
    other = replace(FORK, pull_request=8, ref="refs/pull/8/head")
    assert await fetch(site, await forks_grant(site, source=other), "k", "k") is None


async def test_a_child_of_a_forks_job_shares_its_caches_and_no_others(site: Site) -> None:
    await save(site, await site.started(queue="untrusted"), "k", b"of the queue")
    parent = await forks_grant(site)
    await site.port.submit_children(parent.token, RUNNER, "more", [JobSpec(task=SHELL)])
    (child,) = await site.claim(queues=("untrusted",))
    assert await fetch(site, child, "k", "k") is None
    await save(site, child, "k", b"evil")
    assert await fetch(site, await site.started(queue="untrusted"), "k") == ("k", b"of the queue")
    assert await fetch(site, parent, "k") == ("k", b"evil")


async def test_a_fork_displaces_no_cache_of_others(site: Site, folder: Path) -> None:
    await save(site, await ours(site), "ours", b"o" * 60)
    grant = await forks_grant(site)
    await save(site, grant, "small", b"s" * 30)
    before = files(folder)
    with pytest.raises(CacheRefused, match="no room"):
        await save(site, grant, "large", b"l" * 50)
    assert files(folder) == before
    await save(site, grant, "small2", b"t" * 35)
    assert await fetch(site, grant, "small") is None, "forks make room for each other"
    await save(site, await ours(site), "ours2", b"p" * 35)
    assert await fetch(site, grant, "small2") is None, "and for others"
    assert await fetch(site, await ours(site), "ours") == ("ours", b"o" * 60)


async def test_a_blob_shared_by_two_caches_is_kept_when_one_of_the_caches_is_evicted(site: Site) -> None:
    await save(site, await ours(site), "k", b"x" * 40)
    grant = await forks_grant(site)
    await save(site, grant, "same", b"x" * 40)
    await save(site, await ours(site), "more", b"y" * 40)
    assert await fetch(site, grant, "same") is None
    assert await fetch(site, await ours(site), "k") == ("k", b"x" * 40)


async def test_a_run_with_a_claimed_repository_shares_no_cache_with_that_repository(site: Site) -> None:
    await save(site, await ours(site), "k", b"trusted")
    view = await site.runs.submit(RunSpec(plan=plan(planned("a")), source=HERE), claimed=True)
    await site.recover()
    names = await site.names(view.id)
    (grant,) = [one for one in await site.claim(limit=100) if one.job_id in names]
    assert await fetch(site, grant, "k") is None
    await save(site, grant, "new", b"poisoned")
    assert await fetch(site, await ours(site), "new") is None


async def test_a_child_shares_with_the_repository_of_its_parent_and_not_with_its_queue(site: Site) -> None:
    parent = await ours(site)
    await save(site, parent, "k", b"of the repository")
    await save(site, await site.started(), "other", b"of somebody in the queue")
    await site.port.submit_children(parent.token, RUNNER, "more", [JobSpec(task="build", queue="children")])
    (child,) = await site.claim(queues=("children",))
    assert await fetch(site, child, "k") == ("k", b"of the repository")
    assert await fetch(site, child, "other") is None
