"""Secrets and environments are for those runs that the policy names, when planned and when granted."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec.structs import replace
from tests.systems.orchestrator.house import RUNNER, done
from tests.systems.runs.site import Site, plan, planned

from interlock.errors import PlanRefused
from interlock.systems.orchestrator.vault import Environment, SecretPolicy, SecretScope
from interlock.systems.runs.workflows import PlanRequest
from interlock.systems.runs.workflows.git import WorkflowPlanner
from interlock.systems.settings import Settings
from interlock.wire.jobs import JobSpec, RetryRule
from interlock.wire.runs import Plan, PlannedJob, RunSpec, Source

KEY = "correct horse battery"
MAIN = Source(repository="acme/shop", ref="refs/heads/main", sha="a" * 40, event="push", actor="ann")
POLICY = SecretPolicy(
    secrets={
        "DEPLOY_KEY": SecretScope(repositories=("acme/shop",), environments=("production", "staging")),
        "PUBLISH": SecretScope(repositories=("acme/*",), tasks=("shop.publish",)),
    },
    environments={
        "production": Environment(
            repositories=("acme/shop",), refs=("refs/heads/main", "refs/tags/v*"), approval=True
        ),
        "staging": Environment(repositories=("acme/shop",)),
    },
)


@pytest.fixture
async def site(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Site]:
    for name in ("DEPLOY_KEY", "PUBLISH"):
        monkeypatch.setenv(f"INTERLOCK_SECRET_{name}", KEY)
    opened = Site(Settings(secrets=POLICY))
    await opened.open()
    yield opened
    await opened.close()


def deploy(environment: str = "staging", **more: Any) -> PlannedJob:
    return planned("deploy", secrets=("DEPLOY_KEY",), environment=environment, **more)


async def begun(site: Site, *jobs: PlannedJob, source: Source = MAIN, claimed: bool = False) -> str:
    view = await site.runs.submit(RunSpec(plan=plan(*jobs), source=source), claimed=claimed)
    await site.recover()
    return view.id


async def test_a_job_is_given_the_secret_of_its_environment(site: Site) -> None:
    run_id = await begun(site, deploy())
    assert (await site.offered(run_id))["deploy"].secrets == {"DEPLOY_KEY": KEY}


REFUSED: dict[str, tuple[PlannedJob, Source, str]] = {
    "another repository": (
        deploy(),
        replace(MAIN, repository="evil/shop"),
        (
            "deploy: the environment staging is not for this run: it is for the repository acme/shop, "
            "and this is evil/shop"
        ),
    ),
    "another branch": (
        deploy("production"),
        replace(MAIN, ref="refs/heads/topic"),
        (
            "deploy: the environment production is not for this run: it is for the ref refs/heads/main or "
            "refs/tags/v*, and this is refs/heads/topic"
        ),
    ),
    "a pull request": (
        deploy("production"),
        replace(MAIN, ref="refs/pull/7/head", pull_request=7),
        "and this is refs/pull/7/head",
    ),
    "no environment": (
        deploy(""),
        MAIN,
        (
            "deploy: the secret DEPLOY_KEY is not for this job: it is for the environment production "
            "or staging, and this job has no environment"
        ),
    ),
    "another task": (
        planned("deploy", secrets=("PUBLISH",), task="interlock.shell"),
        MAIN,
        "the secret PUBLISH is not for this job: it is for the task shop.publish",
    ),
    "an environment that is none": (
        deploy("prod"),
        MAIN,
        "deploy: there is no environment prod; [environments.prod] in interlock.toml makes it",
    ),
    "no repository": (deploy(), Source(), "and this job has no repository"),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_a_plan_with_a_disallowed_secret_or_environment_fails_with_the_job_and_the_reason(
    site: Site, case: str
) -> None:
    job, source, why = REFUSED[case]
    view = await site.look(await begun(site, planned("lint"), job, source=source))
    assert (view.outcome, view.reason) == ("FAILED", "plan_failed")
    assert why in view.error
    assert await site.number_of_jobs() == 0


async def test_a_name_that_cannot_be_an_environment_is_refused_when_it_is_submitted(site: Site) -> None:
    for name in ("x" * 201, "prod\n"):
        with pytest.raises(PlanRefused, match="deploy: an environment has at most 200 printable characters"):
            await site.runs.submit(RunSpec(plan=plan(deploy(name)), source=MAIN))


async def test_a_repository_that_the_submitter_claims_gives_no_access_to_an_environment(site: Site) -> None:
    view = await site.look(await begun(site, deploy(), claimed=True))
    assert "the repository that a submitter claims does not count" in view.error
    again = await site.runs.rerun(view.id)
    await site.recover()
    assert (await site.look(again.id)).outcome == "FAILED", "nor when it is done again"


async def test_the_environment_policy_is_checked_again_when_a_job_is_granted(site: Site) -> None:
    run_id = await begun(site, deploy(retry={"tooling": RetryRule(retries=0)}))
    narrower = replace(POLICY, environments={"staging": Environment(refs=("refs/tags/*",))})
    store = site.store
    later = Site(Settings(secrets=narrower), store=lambda: store, clock=site.clock)
    await later.open()
    assert await later.offered(run_id) == {}
    (job,) = (await later.look(run_id)).jobs
    assert job.failure is not None
    assert "the environment staging is not for this run: it is for the ref refs/tags/*" in job.failure.error


async def test_a_job_that_is_submitted_directly_has_no_repository(site: Site) -> None:
    job_id = await site.submit("shop.publish", secrets=("PUBLISH",), retry={"tooling": RetryRule(retries=0)})
    assert await site.claim() == []
    failure = (await site.view(job_id)).failure
    assert failure is not None
    assert "it is for the repository acme/*, and this job has no repository" in failure.error


async def test_a_child_has_the_repository_of_its_parent_and_a_task_of_its_own(site: Site) -> None:
    run_id = await begun(site, planned("publish", task="shop.publish", secrets=("PUBLISH",)))
    parent = (await site.offered(run_id))["publish"]
    children = [JobSpec(task=task, secrets=("PUBLISH",), losses=0) for task in ("shop.publish", "shop.steal")]
    await site.port.submit_children(parent.token, RUNNER, "more", children)
    given = await site.claim()
    assert [(grant.task, grant.secrets) for grant in given] == [("shop.publish", {"PUBLISH": KEY})]


async def test_an_input_or_a_label_cannot_forge_the_provenance_of_a_job(site: Site) -> None:
    forged = b'{"origin": {"repository": "acme/shop"}, "source": {"repository": "acme/shop"}}'
    job_id = await site.submit(
        "shop.publish", input=forged, secrets=("PUBLISH",), labels=("repository:acme/shop",)
    )
    assert await site.claim(labels=("repository:acme/shop",)) == []
    assert (await site.body(job_id)).origin is None


# Approval


async def test_an_environment_that_has_to_be_approved_holds_the_run_before_its_jobs(site: Site) -> None:
    run_id = await begun(site, planned("lint"), deploy("production"))
    view = await site.look(run_id)
    assert view.state == "AWAITING_APPROVAL"
    assert view.awaiting is not None
    assert view.awaiting.environments == ("production",)
    assert [job.name for job in view.jobs] == ["lint", "deploy"], "who approves sees what will be done"
    assert await site.number_of_jobs() == 0
    explanation = await site.runs.explain(run_id)
    assert explanation.sentence == (
        "It waits for an operator's approval: its jobs use the environment production, "
        "commit aaaaaaaaaaaa of acme/shop, asked for by ann."
    )
    await site.runs.approve(run_id, actor="olga")
    await site.recover()
    assert (await site.offered(run_id))["deploy"].secrets == {"DEPLOY_KEY": KEY}
    (made,) = (await site.look(run_id)).approvals
    assert (made.by, made.sha, made.environments) == ("olga", "a" * 40, ("production",))
    assert await site.all_faults() == []


class Changing:
    """A planner that answers otherwise each time."""

    def __init__(self, *plans: Plan) -> None:
        self.plans = list(plans)

    async def plan(self, _: PlanRequest) -> Plan:
        return self.plans.pop(0)


async def test_a_run_executes_the_plan_that_was_approved_and_not_a_newer_plan(site: Site) -> None:
    site.runs.preparation.planners["flow"] = Changing(plan(deploy("production")), plan(planned("other")))
    view = await site.runs.submit(RunSpec(planner="flow", source=MAIN))
    await site.recover()
    await site.runs.approve(view.id)
    await site.recover()
    assert list(await site.standing(view.id)) == ["deploy"]


async def test_to_deploy_once_more_is_approved_once_more(site: Site) -> None:
    run_id = await begun(site, deploy("production"))
    await site.runs.approve(run_id)
    await site.recover()
    for grant in (await site.offered(run_id)).values():
        await site.heard(done(grant))
    await site.recover()
    assert (await site.look(run_id)).outcome == "SUCCESS"
    again = await site.runs.rerun(run_id)
    await site.recover()
    assert (await site.look(again.id)).state == "AWAITING_APPROVAL"


async def test_a_deployment_that_is_not_done_again_is_not_approved_again(site: Site) -> None:
    run_id = await begun(site, deploy("production"), planned("smoke", "deploy"))
    await site.runs.approve(run_id)
    await site.recover()
    for failing in ((), ("smoke",)):
        await site.finish(run_id, *failing)
    await site.recover()
    assert (await site.look(run_id)).culprit == "smoke"
    again = await site.runs.rerun(run_id, "failed")
    await site.recover()
    assert (await site.look(again.id)).state == "QUEUED"


async def test_a_job_that_is_done_again_alone_is_given_no_secret_of_an_environment(site: Site) -> None:
    run_id = await begun(site, deploy())
    (grant,) = (await site.offered(run_id)).values()
    await site.heard(done(grant))
    again = await site.jobs.retry(grant.job_id)
    assert await site.claim() == []
    (attempt,) = (await site.view(getattr(again, "id", again))).attempts[:1]
    assert attempt.failure is not None
    assert "this job has no environment" in attempt.failure.error


async def test_a_run_that_waits_takes_nobodys_place_before_it_is_approved(site: Site) -> None:
    site.runs.preparation.planners["workflow"] = WorkflowPlanner()
    text = "jobs: {deploy: {environment: production, secrets: DEPLOY_KEY, steps: [{run: make}]}}"
    spec = RunSpec(workflow="cd", planner="workflow", definition=text, source=MAIN)
    first = await site.runs.submit(spec)
    await site.recover()
    await site.runs.approve(first.id)
    await site.recover()
    site.clock.jump(1)
    second = await site.runs.submit(spec)
    await site.recover()
    assert [(await site.look(one.id)).state for one in (first, second)] == ["QUEUED", "AWAITING_APPROVAL"]
    await site.runs.approve(second.id)
    await site.recover()
    states = [(await site.look(one.id)).state for one in (first, second)]
    assert states == ["REPORTED", "QUEUED"]
    assert (await site.look(first.id)).superseded_by == second.id
