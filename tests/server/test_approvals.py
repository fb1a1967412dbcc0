"""Forks on a real server: the webhook makes a run that waits, and only an operator lets it go on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from msgspec.structs import replace
from tests import waiting
from tests.server.running import Running, any_port, running
from tests.server.test_runs import until
from tests.server.test_webhooks import NEW, github
from tests.systems.runs.triggers.deliveries import FORK, pull_request
from tests.systems.runs.workflows.test_repositories import CI_FILE, Repository
from tests.worker.git_server import git_server

from interlock.systems.orchestrator.vault import SecretPolicy, SecretScope
from interlock.systems.runs.settings import RunSettings
from interlock.systems.runs.trigger_events import Evaluation, Rule, TriggerSettings
from interlock.systems.runs.workflows.git import WorkflowPlanner
from interlock.systems.settings import Settings
from interlock.wire.access import Role
from interlock.wire.runner import ClaimRequest

CI = """
name: ci
jobs:
  lint:
    queue: prod
    runs-on: [prod-box]
    secrets: DEPLOY
    steps:
      - run: "true"
"""
EVIL = "jobs: {deploy: {task: shop.deploy, queue: prod, input: {target: 'https://attacker.example'}}}"
RULE = Rule(run=Evaluation(workflow="ci", definition=CI), repository="acme/*", trusted=("Ann", "octocat"))


def settings(*rules: Rule) -> Settings:
    edges = RunSettings(triggers=TriggerSettings(github_secrets=(NEW,), rules=rules))
    policy = SecretPolicy(secrets={"DEPLOY": SecretScope(repositories=("acme/shop",))})
    return Settings(runs=edges, secrets=policy)


@pytest.fixture
async def hooked() -> AsyncIterator[Running]:
    rules = (
        replace(
            RULE, run=Evaluation(workflow="evil", definition=EVIL), repository="acme/evil", forks="trust"
        ),
        RULE,
    )
    async with running(settings=any_port(tokens_required=True), orchestration=settings(*rules)) as one:
        one.parts.runtime.runs.preparation.planners["workflow"] = WorkflowPlanner()
        yield one


async def opened(server: Running, *, author: str = "mallory", sender: str = "mallory", **fields: Any) -> str:
    payload = pull_request("opened", head=FORK, sender={"login": sender}, **fields)
    payload["pull_request"]["user"] = {"login": author}
    answer = await github(server.client(), payload, "pull_request")
    assert answer.status_code == 202, answer.text
    run_id: str = answer.json()["run_id"]
    return run_id


async def as_(server: Running, role: Role) -> httpx2.AsyncClient:
    return server.client(await server.token(role))


async def test_a_pull_request_from_a_fork_waits_until_an_operator_approves_it(hooked: Running) -> None:
    run_id = await opened(hooked)
    operator = await as_(hooked, Role.OPERATOR)
    view = await until(operator, run_id, "AWAITING_APPROVAL")
    assert view.awaiting is not None
    assert (view.awaiting.reason, view.source.actor, view.jobs) == ("fork", "mallory", ())
    listed = (await operator.get("/api/runs", params={"q": "state:awaiting_approval"})).json()
    assert [run["id"] for run in listed["runs"]] == [run_id]
    explained = (await operator.get(f"/api/runs/{run_id}/explain")).json()
    assert explained["todo"] == f"interlock run approve {run_id}"

    answer = await operator.post(f"/api/runs/{run_id}/approve", json={"comment": "read it"})
    assert answer.status_code == 200, answer.text
    (made,) = answer.json()["approvals"]
    assert (made["by"], made["sha"], made["comment"]) == ("a-operator", "b" * 40, "read it")
    view = await until(operator, run_id, "QUEUED")
    assert "from a fork: queue untrusted, without secrets" in view.jobs[0].why
    orchestrator = hooked.parts.runtime.orchestrator
    assert await orchestrator.claim(ClaimRequest(runner_id="r", queues=("prod",), labels=("prod-box",))) == []
    (grant,) = await orchestrator.claim(ClaimRequest(runner_id="r", queues=("untrusted",)))
    assert (grant.secrets, grant.secrets_withheld) == ({}, True)
    again = await operator.post(f"/api/runs/{run_id}/approve")
    assert (again.status_code, again.json()["code"]) == (409, "transition_not_allowed")


@pytest.mark.parametrize("what", ["approve", "decline"])
@pytest.mark.parametrize("role", [Role.VIEWER, Role.SUBMITTER, Role.RUNNER])
async def test_only_an_operator_approves_or_declines(hooked: Running, what: str, role: Role) -> None:
    run_id = await opened(hooked)
    answer = await (await as_(hooked, role)).post(f"/api/runs/{run_id}/{what}")
    assert (answer.status_code, answer.json()["code"]) == (403, "not_allowed")
    assert (await hooked.client().post(f"/api/runs/{run_id}/{what}")).status_code == 401


async def test_a_run_that_is_declined_never_has_jobs(hooked: Running) -> None:
    run_id = await opened(hooked)
    operator = await as_(hooked, Role.OPERATOR)
    await until(operator, run_id, "AWAITING_APPROVAL")
    answer = await operator.post(f"/api/runs/{run_id}/decline", json={"reason": "it mines coins"})
    assert answer.status_code == 200, answer.text
    view = await until(operator, run_id, "REPORTED")
    assert (view.outcome, view.reason, view.jobs) == ("CANCELED", "declined", ())


@pytest.mark.parametrize(
    ("author", "sender", "state"),
    [
        ("octocat", "OCTOCAT", "QUEUED"),
        ("ann", "octocat", "QUEUED"),
        ("mallory", "ann", "AWAITING_APPROVAL"),  # who reopens it has not written it
        ("ann", "mallory", "AWAITING_APPROVAL"),
        ("", "ann", "AWAITING_APPROVAL"),
    ],
)
async def test_a_change_needs_no_approval_where_author_and_sender_are_trusted(
    hooked: Running, author: str, sender: str, state: str
) -> None:
    run_id = await opened(hooked, author=author, sender=sender)
    viewer = await as_(hooked, Role.VIEWER)
    assert (await until(viewer, run_id, "QUEUED", "AWAITING_APPROVAL")).state == state


async def test_even_where_forks_are_trusted_none_chooses_a_task(hooked: Running) -> None:
    repository = {"id": 3, "full_name": "acme/evil"}
    run_id = await opened(hooked, repository=repository)
    view = await until(await as_(hooked, Role.VIEWER), run_id, "REPORTED")
    assert view.outcome == "FAILED"
    assert (
        "deploy (line 1): a change from a fork runs interlock.shell only, not the task shop.deploy"
        in view.error
    )


@pytest.mark.parametrize(("role", "given"), [(Role.SUBMITTER, False), (Role.OPERATOR, True)])
async def test_a_repository_claimed_by_a_submitter_grants_no_secret(
    hooked: Running, monkeypatch: pytest.MonkeyPatch, role: Role, given: bool
) -> None:
    monkeypatch.setenv("INTERLOCK_SECRET_DEPLOY", "correct horse battery")
    plan = {"jobs": [{"name": "a", "task": "interlock.shell", "secrets": ["DEPLOY"]}]}
    source = {"repository": "acme/shop", "ref": "refs/heads/main"}
    client = await as_(hooked, role)
    run_id = (await client.post("/api/runs", json={"plan": plan, "source": source})).json()["id"]
    view = await until(client, run_id, "QUEUED", "REPORTED")
    if given:
        (grant,) = await hooked.parts.runtime.orchestrator.claim(ClaimRequest(runner_id="r"))
        assert grant.secrets == {"DEPLOY": "correct horse battery"}
    else:
        assert "the repository that a submitter claims does not count" in view.error


async def test_a_server_logs_at_startup_which_secrets_no_policy_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("INTERLOCK_SECRET_FORGOTTEN", "correct horse battery")
    async with running() as one:
        await waiting.until(
            lambda: "INTERLOCK_SECRET_FORGOTTEN is given to no job" in one.log.getvalue(), "it is told"
        )
        assert "correct horse" not in one.log.getvalue()


SHOP_TOKEN = "correct-horse-battery-staple"
FETCHED = """
jobs:
  fetch: {steps: [{run: make}]}
  steal: {if: "inputs.how == 'steal'", checkout: false, secrets: SHOP_TOKEN, steps: [{run: env}]}
inputs: {how: {default: fetch}}
"""


@pytest.mark.parametrize("how", ["", "steal"])
async def test_the_secret_of_a_private_repository_fetches_it_and_is_given_to_no_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setenv("INTERLOCK_SECRET_SHOP_TOKEN", SHOP_TOKEN)
    sha = Repository(tmp_path / "shop").commit(**{CI_FILE: FETCHED})
    with git_server(tmp_path, "x-access-token", SHOP_TOKEN) as private:
        known = any_port(
            repositories={"shop/web": f"{private.url}/shop/.git"},
            repository_secrets={"shop/web": "SHOP_TOKEN"},
        )
        async with running(settings=known) as one:
            source = {"repository": "shop/web", "sha": sha, "event": "push", "ref": "refs/heads/main"}
            request = {"planner": "workflow", "source": source, "inputs": {"how": how} if how else {}}
            run_id = (await one.client().post("/api/runs", json=request)).json()["id"]
            view = await until(one.client(), run_id, "QUEUED", "REPORTED")
            claimed = await one.parts.runtime.orchestrator.claim(ClaimRequest(runner_id="r"))
    if how:
        assert "steal (line 4): the secret SHOP_TOKEN is not for this job" in view.error
        assert "it is for fetching the repository" in view.error
    else:
        assert [grant.secrets for grant in claimed] == [{"SHOP_TOKEN": SHOP_TOKEN}], view.error
