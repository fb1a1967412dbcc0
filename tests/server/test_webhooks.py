"""Webhooks on a real server: only what is signed starts a run, and one event starts one run."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2
import msgspec
import pytest
from tests.server.running import ANY_PORT, Running, any_port, running
from tests.systems.runs.triggers.deliveries import FORK, HERE, pull_request, push

from interlock.server.settings import Rate
from interlock.systems.runs.settings import RunSettings
from interlock.systems.runs.trigger_events import Evaluation, Hook, Rule, TriggerSettings
from interlock.systems.runs.webhook_security import Secret, github_signature, standard_headers
from interlock.systems.runs.workflows.git import WorkflowPlanner
from interlock.systems.settings import Settings
from interlock.wire.runs import Plan, PlannedJob, RunFilter, RunSpec, Source

NEW, OLD = Secret(b"the new secret of github"), Secret(b"the old secret of github")
KEY = Secret(b"k" * 32)
DEPLOY = Evaluation(workflow="deploy", definition="jobs: {go: {steps: [{run: make}]}}")
WORKFLOW = """
name: ci
jobs:
  lint:
    steps:
      - run: "true"
"""
TRIGGERS = TriggerSettings(
    github_secrets=(NEW, OLD),
    rules=(Rule(run=Evaluation(workflow="ci", definition=WORKFLOW), repository="acme/*"),),
    hooks=(
        Hook(name="any", keys=(KEY,), takes="run"),
        Hook(name="deploy", keys=(KEY,), run=DEPLOY, fields={"source.sha": "id"}),
        Hook(name="secretless", takes="run"),
    ),
    max_body_bytes=20_000,
)
SETTINGS = Settings(runs=RunSettings(triggers=TRIGGERS))


@pytest.fixture
async def hooked() -> AsyncIterator[Running]:
    """A server that asks for tokens, and takes webhooks without."""
    guarded = any_port(tokens_required=True)
    async with running(settings=guarded, orchestration=SETTINGS) as one:
        one.parts.runtime.runs.preparation.planners["workflow"] = WorkflowPlanner()
        yield one


async def github(
    client: httpx2.AsyncClient,
    payload: object,
    event: str = "push",
    *,
    secret: Secret = NEW,
    headers: dict[str, str] | None = None,
) -> httpx2.Response:
    body = payload if isinstance(payload, bytes) else json.dumps(payload, indent=1).encode()
    request_headers = {
        "Content-Type": "application/json",
        "X-GitHub-Event": event,
        "X-GitHub-Delivery": "72d3162e-cc78-11e3-81ab-4c9367dc0958",
        "X-Hub-Signature-256": github_signature(secret, body),
        **(headers or {}),
    }
    return await client.post("/api/webhooks/github", content=body, headers=request_headers)


async def hook(
    client: httpx2.AsyncClient,
    name: str,
    body: bytes,
    *,
    key: Secret = KEY,
    message: str = "msg_1",
    late_s: int = 0,
) -> httpx2.Response:
    at = datetime.now(UTC) - timedelta(seconds=late_s)
    headers = {"Content-Type": "application/json", **standard_headers([key], message, at, body)}
    return await client.post(f"/api/webhooks/generic/{name}", content=body, headers=headers)


async def runs(server: Running) -> list[Any]:
    return (await server.parts.runtime.runs.find(RunFilter()))[0]


async def test_a_signed_push_starts_a_run_without_a_token(hooked: Running) -> None:
    answer = await github(hooked.client(), push())
    assert answer.status_code == 202, answer.text
    view = await hooked.parts.runtime.runs.view(answer.json()["run_id"])
    assert (view.workflow, view.planner, view.source.sha) == ("ci", "workflow", "b" * 40)
    assert view.source.changed_paths == ("hats.py", "shop.py")
    history = await hooked.parts.runtime.runs.history(view.id)
    assert history[0].note.actor == "github:ann"


async def test_fifty_deliveries_at_once_make_one_run(hooked: Running) -> None:
    client = hooked.client()
    answers = await asyncio.gather(*[github(client, push()) for _ in range(50)])
    assert {answer.status_code for answer in answers} == {202}
    assert len({answer.json()["run_id"] for answer in answers}) == 1
    assert len(await runs(hooked)) == 1


async def test_a_second_delivery_of_the_same_push_with_another_sender_returns_the_same_run(
    hooked: Running,
) -> None:
    client = hooked.client()
    first = await github(client, push())
    again = await github(
        client, push(sender={"login": "bob"}, commits=[]), headers={"X-GitHub-Delivery": "another"}
    )
    assert first.json() == again.json()
    other = await github(client, push(ref="refs/heads/other"))
    back = await github(client, push(before="c" * 40))
    assert len({first.json()["run_id"], other.json()["run_id"], back.json()["run_id"]}) == 3


async def test_a_pull_request_from_a_fork_is_known_as_one(hooked: Running) -> None:
    for head, foreign in ((HERE, False), (FORK, True)):
        answer = await github(
            hooked.client(), pull_request("opened", head=head, number=foreign + 1), "pull_request"
        )
        view = await hooked.parts.runtime.runs.view(answer.json()["run_id"])
        assert view.source.from_fork is foreign


@pytest.mark.parametrize(
    ("event", "payload", "reason"),
    [
        ("ping", {"zen": "Design for failure."}, "pong"),
        ("star", {"action": "created"}, "star starts no run"),
        ("push", push(deleted=True, after="0" * 40), "deleted"),
        ("push", push(ref="refs/tags/v1"), "no rule fits"),
        ("push", push(repository={"full_name": "other/shop"}), "no rule fits"),
    ],
)
async def test_an_event_that_starts_no_run_gets_202_with_the_reason(
    hooked: Running, event: str, payload: object, reason: str
) -> None:
    answer = await github(hooked.client(), payload, event)
    assert (answer.status_code, answer.json()["accepted"]) == (202, False)
    assert reason in answer.json()["reason"]
    assert await runs(hooked) == []


async def test_the_old_secret_holds_while_there_are_two_and_no_other_does(hooked: Running) -> None:
    client = hooked.client()
    assert (await github(client, push(), secret=OLD)).status_code == 202
    refused = await github(client, push(), secret=Secret(b"somebody else's secret"))
    assert (refused.status_code, refused.json()["code"]) == (401, "not_signed")
    assert refused.headers["www-authenticate"] == 'Signature realm="interlock"'
    assert (await github(client, push(), headers={"X-Hub-Signature-256": ""})).status_code == 401
    assert len(await runs(hooked)) == 1


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", "bad_payload"),
        (b"{", "bad_payload"),
        (b"\xff\xfe", "bad_payload"),
        (b"[]", "bad_payload"),
        (b"null", "bad_payload"),
        (b"[" * 500 + b"]" * 500, "bad_request"),
        (b'{"ref": 1}', "bad_payload"),
        (b'"' + b"x" * 30_000 + b'"', "request_too_large"),
    ],
)
async def test_a_body_that_makes_no_sense_is_refused_and_never_a_fault_of_the_server(
    hooked: Running, body: bytes, code: str
) -> None:
    answer = await github(hooked.client(), body)
    assert (answer.json()["code"], answer.status_code // 100) == (code, 4)


async def test_a_form_encoded_webhook_is_refused_with_415(hooked: Running) -> None:
    answer = await github(
        hooked.client(), b"payload=%7B%7D", headers={"Content-Type": "application/x-www-form-urlencoded"}
    )
    assert (answer.status_code, answer.json()["code"]) == (415, "unsupported_media")


async def test_a_generic_webhook_starts_the_run_of_its_body_once_for_each_message_id(hooked: Running) -> None:
    client = hooked.client()
    plan = Plan(jobs=(PlannedJob(name="a", task="shop.send"),))
    body = msgspec.json.encode(RunSpec(workflow="x", plan=plan, source=Source(sha="1")))
    answers = await asyncio.gather(*[hook(client, "any", body) for _ in range(10)])
    assert {answer.status_code for answer in answers} == {202}
    assert len({answer.json()["run_id"] for answer in answers}) == 1
    other = await hook(client, "any", body, message="msg_2")
    assert other.json()["run_id"] != answers[0].json()["run_id"]
    mapped = await hook(client, "deploy", b'{"id": "abc"}')
    view = await hooked.parts.runtime.runs.view(mapped.json()["run_id"])
    assert (view.workflow, view.source) == ("deploy", Source(sha="abc", event="deploy"))


async def test_a_generic_webhook_with_an_invalid_signature_or_payload_starts_no_run(hooked: Running) -> None:
    client = hooked.client()
    assert (await hook(client, "any", b"{}", key=Secret(b"x" * 32))).json()["code"] == "not_signed"
    assert (await hook(client, "any", b"{}", late_s=400)).json()["code"] == "not_signed"
    assert (await hook(client, "any", b'{"workflw": 1}')).json()["code"] == "bad_payload"
    assert (await hook(client, "any", b'{"planner": "nobody"}')).status_code == 422
    for name in ("secretless", "nobody"):
        assert (await hook(client, name, b"{}")).json()["code"] == "not_signed"
    assert await runs(hooked) == []


async def test_without_a_secret_nothing_is_taken_however_it_is_signed() -> None:
    off = Settings(runs=RunSettings(triggers=TriggerSettings(rules=TRIGGERS.rules), lacking=("a lack",)))
    async with running(settings=ANY_PORT, orchestration=off) as server:
        answer = await github(server.client(), push(), secret=Secret(b""))
        assert (answer.status_code, answer.json()["code"]) == (404, "webhook_off")
        assert "a lack" in server.log.getvalue()


async def test_guessed_signatures_are_rate_limited_and_good_ones_pass() -> None:
    few = any_port(stranger_rate=Rate(0.001, 3))
    async with running(settings=few, orchestration=SETTINGS) as server:
        server.parts.runtime.runs.preparation.planners["workflow"] = WorkflowPlanner()
        client, wrong = server.client(), Secret(b"a wrong guess, really")
        codes = [(await github(client, push(), secret=wrong)).status_code for _ in range(5)]
        assert codes == [401, 401, 401, 429, 429]
        assert (await github(client, push())).status_code == 202


async def test_no_secret_is_in_the_log_of_the_server(hooked: Running) -> None:
    client = hooked.client()
    await github(client, push())
    await github(client, push(), secret=Secret(b"a wrong guess, really"))
    for secret in ("secret of github", "wrong guess", "sha256="):
        assert secret not in hooked.log.getvalue()
