"""The runner protocol as somebody speaks it who has only read its page."""

from __future__ import annotations

import asyncio
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.server.runners import Runner, done
from tests.server.running import FOR_EVER_S, Running, running
from tests.waiting import PATIENCE_S, until

from interlock.lifecycles.durations import Durations
from interlock.systems.settings import Settings
from interlock.wire.access import Role

ATTENTIVE = Settings(durations=Durations(sweep_every_s=0.05))


@pytest.fixture
def runner(client: httpx2.AsyncClient) -> Runner:
    return Runner(client)


async def versions(server: Running, job_id: str) -> int:
    """How often a job was changed."""
    return (await server.parts.runtime.jobs.get(job_id)).version


async def test_the_greeting_returns_the_protocol_version_and_the_limits_for_runners(
    client: httpx2.AsyncClient,
) -> None:
    greeting = (await client.get("/api/runner")).json()
    assert greeting["protocol"] == 1
    assert greeting["heartbeat_every_s"] < greeting["lease_ttl_s"]
    assert greeting["max_grants"] == greeting["max_messages"] == 500
    assert greeting["max_wait_s"] == 30.0
    assert greeting["max_body_bytes"] == 1_048_576
    assert greeting["now"].endswith("Z")


async def test_the_life_of_one_attempt(server: Running, runner: Runner) -> None:
    job_id = await server.submit()
    grant = await runner.grant(acknowledge=False)
    assert (grant["job_id"], grant["task"], grant["input"], grant["attempt"]) == (job_id, "shop.send", {}, 1)
    token = grant["token"]

    ack = await runner.say("ack", token, 1)
    beat = await runner.say("heartbeat", token, 2, progress={"done": 1, "total": 2})
    log = await runner.say("log", token, 3, log=[["2026-05-01T12:00:00Z", "info", "hi"]])
    end = await runner.say("complete", token, 4, **done({"sent": True}))

    assert [answer.status_code for answer in (ack, beat, log, end)] == [200] * 4
    assert beat.json()["state"] == "RUNNING"
    assert beat.json()["ttl_s"] > 0
    assert "expires_at" in beat.json()
    assert end.json()["state"] == "SUCCEEDED"
    view = await server.parts.runtime.jobs.get(job_id)
    assert (view.state, bytes(view.result)) == ("COMPLETED", b'{"sent":true}')  # type: ignore[arg-type]


async def test_only_the_runner_of_a_job_receives_the_secrets_that_it_names(
    server: Running,
    runner: Runner,
    client: httpx2.AsyncClient,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    (tmp_path / "secrets.toml").write_text('[secrets]\nNPM_TOKEN = "npm_correct_horse"\n')
    (tmp_path / "secrets.toml").chmod(0o600)
    monkeypatch.setenv("INTERLOCK_SECRETS_FILE", str(tmp_path / "secrets.toml"))
    body = {"task": "shop.send", "secrets": ["NPM_TOKEN"]}
    job_id = (await client.post("/api/jobs", json=body)).json()["id"]
    grant = await runner.grant()
    assert grant["secrets"] == {"NPM_TOKEN": "npm_correct_horse"}
    for path in ("", "/history", "/explain", "/logs"):
        shown = await client.get(f"/api/jobs/{job_id}{path}")
        assert shown.status_code == 200, path
        assert "correct_horse" not in shown.text, path
    assert (await client.get(f"/api/jobs/{job_id}")).json()["secrets"] == ["NPM_TOKEN"]


MESSAGES: dict[str, dict[str, Any]] = {
    "ack": {},
    "heartbeat": {"progress": {"done": 1, "total": 2}, "checkpoint": {"at": 3}},
    "log": {"log": [["2026-05-01T12:00:00Z", "info", "hi"]]},
    "complete": done(1),
    "release": {"reason": "shutdown"},
}


@pytest.mark.parametrize("what", MESSAGES)
async def test_a_message_that_is_sent_twice_is_applied_once_and_returns_the_same_state(
    server: Running, runner: Runner, what: str
) -> None:
    job_id = await server.submit()
    token = (await runner.grant(acknowledge=what != "ack"))["token"]

    first = await runner.say(what, token, 1, **MESSAGES[what])
    version = await versions(server, job_id)
    second = await runner.say(what, token, 1, **MESSAGES[what])

    assert (first.status_code, second.status_code) == (200, 200), second.text
    assert second.json()["state"] == first.json()["state"]
    assert await versions(server, job_id) == version
    chunks = [chunk async for chunk in server.parts.runtime.jobs.logs(job_id)]
    assert len(chunks) == (what == "log")


async def test_a_cancel_is_reported_with_the_next_heartbeat_and_acknowledged_twice_without_harm(
    server: Running, runner: Runner
) -> None:
    job_id = await server.submit()
    token = (await runner.grant())["token"]
    await server.parts.runtime.jobs.cancel(job_id, reason="enough")

    answer = (await runner.say("heartbeat", token, 1)).json()
    first = await runner.say("cancel-ack", token, 2)
    second = await runner.say("cancel-ack", token, 2)

    assert answer["cancel_requested"] is True
    assert answer["cancel_deadline_at"].endswith("Z")
    assert first.json()["state"] == second.json()["state"] == "CANCELED"
    assert (await server.parts.runtime.jobs.get(job_id)).state == "CANCELED"


async def test_an_end_that_contradicts_the_first_is_refused(server: Running, runner: Runner) -> None:
    await server.submit()
    token = (await runner.grant())["token"]
    assert (await runner.say("complete", token, 1, **done(1))).status_code == 200
    other = await runner.say("complete", token, 2, **done(2))
    assert (other.status_code, other.json()["code"]) == (409, "conflicting_completion")


async def test_a_lease_that_has_run_out_is_expired() -> None:
    async with running(orchestration=ATTENTIVE) as server:
        runner = Runner(server.client())
        job_id = await server.submit()
        token = (await runner.grant())["token"]
        seen = asyncio.Event()
        leave = server.parts.following.add(lambda entries, _: seen.set() if _expired(entries) else None)
        server.jump(ATTENTIVE.durations.lease_ttl_s + 1)
        async with asyncio.timeout(PATIENCE_S):
            await seen.wait()
        leave()
        late = await runner.say("complete", token, 1, **done(1))
        assert (late.status_code, late.json()["code"]) == (409, "LEASE_EXPIRED")
        assert (await server.parts.runtime.jobs.get(job_id)).state != "COMPLETED"


def _expired(entries: Any) -> bool:
    return any(step.event == "expire" for entry in entries for step in entry.note.steps)


async def test_a_lease_that_was_given_back_is_revoked(server: Running, runner: Runner) -> None:
    await server.submit()
    token = (await runner.grant())["token"]
    await runner.say("release", token, 1)
    late = await runner.say("heartbeat", token, 2)
    assert (late.status_code, late.json()["code"]) == (409, "LEASE_REVOKED")


@pytest.mark.parametrize("token", ["", "nonsense", "j_0123456789ab.1.1." + "0" * 32])
async def test_a_lease_that_was_never_granted_is_unknown(runner: Runner, token: str) -> None:
    answer = await runner.say("heartbeat", token, 1)
    assert (answer.status_code, answer.json()["code"]) == (409, "UNKNOWN_LEASE")


async def test_only_the_runner_of_a_lease_may_report(server: Running, runner: Runner) -> None:
    job_id = await server.submit()
    token = (await runner.grant())["token"]
    other = await Runner(server.client(), "runner-8").say("complete", token, 1, **done(1))
    assert (other.status_code, other.json()["code"]) == (409, "wrong_runner")
    assert (await server.parts.runtime.jobs.get(job_id)).state == "RUNNING"
    assert (await runner.say("complete", token, 1, **done(1))).status_code == 200


async def test_a_name_is_bound_to_the_token_it_was_used_with(server: Running) -> None:
    mine, yours = [Runner(server.client(await server.token(Role.RUNNER, name))) for name in ("mine", "yours")]
    job_id = await server.submit()
    token = (await mine.grant())["token"]
    stolen = await yours.say("complete", token, 1, **done("not mine"))
    assert stolen.json()["code"] == "wrong_runner"
    await mine.say("complete", token, 1, **done("mine"))
    entries = await server.parts.runtime.jobs.history(job_id)
    assert entries[-1].note.actor == "mine/runner-7"
    secret = token.rpartition(".")[2]
    assert secret not in server.log.getvalue()


async def test_several_messages_have_an_answer_each(server: Running, runner: Runner) -> None:
    for _ in range(3):
        await server.submit()
    first, second, third = [grant["token"] for grant in await runner.grants(limit=3)]
    messages = [
        {"type": "complete", **runner.message(first, 1, **done(1))},
        {"type": "heartbeat", **runner.message("nonsense", 1)},
        {"type": "release", **runner.message(second, 1)},
        {"type": "heartbeat", **runner.message(third, 1), "runner_id": "another"},
    ]
    answer = await runner.client.post("/api/runner/messages", json={"messages": messages})
    assert answer.status_code == 200
    assert [each["answer"] for each in answer.json()["answers"]] == ["heard", "stale", "heard", "refused"]
    assert [each.get("code") for each in answer.json()["answers"]] == [
        None,
        "UNKNOWN_LEASE",
        None,
        "wrong_runner",
    ]


async def test_a_batch_of_messages_of_one_type_needs_no_type_field(server: Running, runner: Runner) -> None:
    for _ in range(2):
        await server.submit()
    tokens = [grant["token"] for grant in await runner.grants(limit=2)]
    messages = [runner.message(token, 1, **done(1)) for token in tokens]
    answer = await runner.client.post("/api/runner/complete", json={"messages": messages})
    assert [each["state"] for each in answer.json()["answers"]] == ["SUCCEEDED"] * 2


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("lease", {"runner_id": "r", "limit": 0}),
        ("lease", {"runner_id": "r", "limit": 501}),
        ("lease", {"runner_id": "r", "queues": []}),
        ("lease", {"runner_id": "r", "tasks": [f"t{number}" for number in range(1_001)]}),
        ("lease", {"runner_id": "r", "tasks": ["t" * 201]}),
        ("lease", {"runner_id": "r", "queues": ["q"] * 101}),
        ("lease", {"runner_id": ""}),
        ("lease", {"runner_id": "a\nb"}),
        ("lease", {"runner_id": "r" * 201}),
        ("lease", {"runner_id": "r", "claim_id": "c" * 201}),
        ("lease", {}),
        ("heartbeat", {"token": "t", "runner_id": ""}),
        ("heartbeat", {"token": "t", "runner_id": "r", "type": "ack"}),
        ("complete", {"token": "t", "runner_id": "r"}),
        ("messages", {"messages": [{"type": "ack", "token": "t", "runner_id": "r"}] * 501}),
        ("messages", {"messages": [{"type": "sing", "token": "t", "runner_id": "r"}]}),
        ("messages", {}),
    ],
)
async def test_an_invalid_runner_request_returns_422_with_a_remedy(
    client: httpx2.AsyncClient, path: str, body: dict[str, Any]
) -> None:
    answer = await client.post(f"/api/runner/{path}", json=body)
    assert answer.status_code == 422, answer.text
    assert answer.json()["code"] == "bad_request"
    assert answer.json()["todo"]


async def test_only_the_role_runner_may_do_any_of_it(server: Running) -> None:
    paths = ("lease", "ack", "heartbeat", "log", "complete", "cancel-ack", "release", "messages")
    for role in (Role.VIEWER, Role.SUBMITTER, Role.OPERATOR, Role.ADMIN):
        client = server.client(await server.token(role))
        for path in paths:
            answer = await client.post(f"/api/runner/{path}", json={"runner_id": "r"})
            assert (answer.status_code, answer.json()["code"]) == (403, "not_allowed"), (role, path)
        assert (await client.get("/api/runner")).status_code == 403
    runner = server.client(await server.token(Role.RUNNER))
    assert (await runner.get("/api/jobs")).status_code == 403


async def test_a_token_for_some_queues_gets_work_of_those_only(server: Running) -> None:
    mail = await server.submit(queue="mail")
    await server.submit(queue="default")
    runner = Runner(server.client(await server.token(Role.RUNNER, queues=["mail"])))
    refused = await runner.lease(queues=["mail", "default"], limit=10)
    assert (refused.status_code, refused.json()["code"]) == (403, "not_allowed")
    assert (await runner.lease(limit=10)).status_code == 403, "default is not one of its queues"
    assert [grant["job_id"] for grant in await runner.grants(queues=["mail"], limit=10)] == [mail]


# Waiting for work


@pytest.mark.usefixtures("waiting_for_ever")
async def test_a_runner_that_waits_is_answered_as_soon_as_there_is_work(
    server: Running, runner: Runner
) -> None:
    waiting = asyncio.create_task(runner.grant(wait_s=FOR_EVER_S))
    await waiters(server, 1)
    job_id = await server.submit()
    async with asyncio.timeout(PATIENCE_S):
        assert (await waiting)["job_id"] == job_id


@pytest.mark.usefixtures("waiting_for_ever")
async def test_a_job_submitted_at_another_server_is_granted_at_once_to_a_waiting_runner(
    tmp_path: Any,
) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    async with running(url) as one, running(url) as other:
        waiting = asyncio.create_task(Runner(one.client()).grant(wait_s=FOR_EVER_S))
        await waiters(one, 1)
        response = await other.client().post("/api/jobs", json={"task": "shop.send"})
        async with asyncio.timeout(PATIENCE_S):
            assert (await waiting)["job_id"] == response.json()["id"]


async def test_a_runner_that_waits_in_vain_is_answered_with_nothing(runner: Runner) -> None:
    assert await runner.grants(wait_s=0.05) == []


@pytest.mark.usefixtures("waiting_for_ever")
async def test_a_server_that_shuts_down_ends_all_polls(server: Running, runner: Runner) -> None:
    waiting = asyncio.create_task(runner.grants(wait_s=FOR_EVER_S))
    await waiters(server, 1)
    server.listener.stop()
    async with asyncio.timeout(PATIENCE_S):
        assert await waiting == []


@pytest.mark.usefixtures("waiting_for_ever")
async def test_a_runner_that_has_gone_is_not_given_anything(server: Running) -> None:
    waiting = asyncio.create_task(Runner(server.client(), "ghost").grants(wait_s=FOR_EVER_S))
    await waiters(server, 1)
    waiting.cancel()
    await waiters(server, 0)
    job_id = await server.submit()
    assert (await server.parts.runtime.jobs.get(job_id)).state == "PENDING"
    assert (await Runner(server.client()).grant())["job_id"] == job_id


async def test_a_claim_under_its_name_is_answered_as_before(server: Running, runner: Runner) -> None:
    for _ in range(2):
        await server.submit()
    (first,) = await runner.grants(claim_id="c1")
    (again,) = await runner.grants(claim_id="c1")
    renewed, granted = (datetime.fromisoformat(grant["expires_at"]) for grant in (again, first))
    assert renewed > granted, "and its lease is renewed"
    assert again == {**first, "expires_at": again["expires_at"]}
    (other,) = await runner.grants(claim_id="c2")
    assert other["job_id"] != first["job_id"]
    changed = await runner.lease(claim_id="c1", limit=2)
    assert (changed.status_code, changed.json()["code"]) == (409, "request_id_reused")


async def test_a_claim_is_repeated_only_for_the_runner_that_made_it(server: Running) -> None:
    mine, yours = [Runner(server.client(await server.token(Role.RUNNER, name))) for name in ("mine", "yours")]
    await server.submit()
    assert len(await mine.grants(claim_id="1")) == 1
    assert await yours.grants(claim_id="1") == []


@pytest.mark.usefixtures("waiting_for_ever")
async def test_a_claim_that_is_repeated_while_it_waits_is_one_claim(server: Running, runner: Runner) -> None:
    first = asyncio.create_task(runner.grants(claim_id="c", wait_s=FOR_EVER_S))
    await waiters(server, 1)
    again = asyncio.create_task(runner.grants(claim_id="c", wait_s=FOR_EVER_S))
    await asked(server, 2)
    for _ in range(2):
        await server.submit()
    async with asyncio.timeout(PATIENCE_S):
        assert await first == await again
    assert len(await first) == 1


@pytest.mark.usefixtures("waiting_for_ever")
async def test_a_repeat_without_patience_ends_the_waiting(server: Running, runner: Runner) -> None:
    first = asyncio.create_task(runner.grants(claim_id="c", wait_s=FOR_EVER_S))
    await waiters(server, 1)
    async with asyncio.timeout(PATIENCE_S):
        assert await runner.grants(claim_id="c", wait_s=0) == []
        assert await first == []


async def waiters(server: Running, number: int) -> None:
    """Until so many wait."""
    await until(lambda: server.parts.long_poll.waiting == number, f"{number} wait for work")


async def asked(server: Running, number: int) -> None:
    """Until so many requests are inside."""
    await until(lambda: server.parts.long_poll.unanswered == number, f"{number} requests are inside")
