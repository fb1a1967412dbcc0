"""Who is let in: tokens, names of the server, pages of browsers. Routes: tests/server/test_matrix.py."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from tests.server.running import ANY_PORT, Running, any_port, running

from interlock.server.settings import ServerSettings
from interlock.systems.access.authentication import TokenCheck
from interlock.systems.access.tokens import read_secret
from interlock.wire.access import Role


@pytest.fixture
async def guarded() -> AsyncIterator[Running]:
    """A server that asks for tokens."""
    async with running(settings=any_port(tokens_required=True)) as one:
        yield one


async def test_an_unknown_path_returns_404_only_to_authenticated_clients(guarded: Running) -> None:
    assert (await guarded.client().get("/nowhere")).status_code == 401
    assert (await guarded.client(await guarded.token(Role.VIEWER)).get("/nowhere")).status_code == 404


async def test_roles_of_people_are_ranked_and_a_runner_is_apart() -> None:
    people = [Role.VIEWER, Role.SUBMITTER, Role.OPERATOR, Role.ADMIN]
    for place, role in enumerate(people):
        assert [role.includes(other) for other in people] == [n <= place for n in range(4)]
        assert not role.includes(Role.RUNNER)
        assert not Role.RUNNER.includes(role)


@pytest.mark.parametrize(
    "sent",
    ["", "Bearer", "Basic YTpi", "Bearer il_", "Bearer il_0000000000000000_" + "0" * 64],
)
async def test_a_missing_malformed_or_unknown_token_returns_401(guarded: Running, sent: str) -> None:
    answer = await guarded.client().get("/api/jobs", headers={"Authorization": sent})
    assert answer.status_code == 401


@pytest.mark.parametrize(
    "headers",
    [
        {"X-Forwarded-For": "127.0.0.1", "X-Real-IP": "127.0.0.1"},
        {"Forwarded": "for=127.0.0.1;host=localhost"},
        {"X-Forwarded-User": "root", "X-Remote-User": "root", "Remote-User": "root"},
        {"X-Forwarded-Host": "localhost", "X-Original-URL": "/healthz", "X-Rewrite-URL": "/healthz"},
        {"X-HTTP-Method-Override": "GET", "Cookie": "token=il_" + "0" * 16},
    ],
)
async def test_no_header_of_a_proxy_authenticates_a_caller(guarded: Running, headers: dict[str, str]) -> None:
    await guarded.token(Role.ADMIN, "root")
    for method, path in (("GET", "/api/jobs"), ("POST", "/api/jobs"), ("GET", "/api/runner")):
        answer = await guarded.client().request(method, path, headers=headers)
        assert answer.status_code == 401, path


async def test_the_right_name_with_another_secret_grants_no_access(guarded: Running) -> None:
    token = await guarded.token(Role.ADMIN)
    other = token[:-1] + ("0" if token[-1] != "0" else "1")
    assert (await guarded.client(other).get("/api/jobs")).status_code == 401
    assert (await guarded.client(token).get("/api/jobs")).status_code == 200


async def test_journal_entries_have_the_name_of_the_token_as_their_actor(guarded: Running) -> None:
    client = guarded.client(await guarded.token(Role.OPERATOR, "ann@example"))
    job_id = (await client.post("/api/jobs", json={"task": "shop.send"})).json()["id"]
    await client.post(f"/api/jobs/{job_id}/cancel")
    entries = (await client.get(f"/api/jobs/{job_id}/history")).json()["entries"]
    assert {entry["actor"] for entry in entries} == {"ann@example"}


async def test_a_revoked_token_works_for_seconds_at_most(guarded: Running) -> None:
    now = 0.0
    parts = guarded.parts
    parts.check = TokenCheck(parts.tokens, parts.runtime.engine.clock, monotonic=lambda: now)
    client = guarded.client(await guarded.token(Role.VIEWER, "ann"))
    assert (await client.get("/api/jobs")).status_code == 200
    await parts.tokens.revoke("ann")
    assert (await client.get("/api/jobs")).status_code == 200  # believed, for as long as it is said
    now = 3.1
    assert (await client.get("/api/jobs")).status_code == 401


async def test_an_expired_token_grants_no_access_even_before_the_sweep(guarded: Running) -> None:
    issued = await guarded.parts.tokens.create("brief", Role.VIEWER, lasts=timedelta(microseconds=1))
    assert (await guarded.client(issued.token).get("/api/jobs")).status_code == 401


async def test_no_token_and_no_authorization_is_ever_logged_or_answered(guarded: Running) -> None:
    token = await guarded.token(Role.VIEWER, "ann")
    secret = read_secret(token)
    assert secret is not None
    client = guarded.client(token)
    answers = [await client.get(path) for path in ("/api/jobs", "/nowhere", f"/api/jobs/{token}")]
    answers.append(await client.get("/api/jobs", params={"q": token}))
    log_text = guarded.log.getvalue()
    assert "ann" in log_text
    assert secret.secret not in log_text
    assert not [answer.text for answer in answers if secret.secret in answer.text]
    assert "uthorization" not in log_text
    listed = json.dumps([repr(view) for view in await guarded.parts.tokens.list()])
    assert secret.secret not in listed + repr(secret) + str(secret)


async def test_for_a_token_that_is_confined_to_queues_the_others_do_not_exist(guarded: Running) -> None:
    mine, theirs = await guarded.submit(queue="mail"), await guarded.submit(queue="builds")
    client = guarded.client(await guarded.token(Role.ADMIN, "mailer", queues=("mail", "letters")))
    assert (await client.get(f"/api/jobs/{mine}")).status_code == 200
    for method, path in (
        ("GET", f"/api/jobs/{theirs}"),
        ("GET", f"/api/jobs/{theirs}/history"),
        ("GET", f"/api/jobs/{theirs}/explain"),
        ("GET", f"/api/jobs/{theirs}/logs"),
        ("POST", f"/api/jobs/{theirs}/cancel"),
        ("POST", f"/api/jobs/{theirs}/retry"),
        ("GET", f"/api/attempts?job={theirs}"),
        ("GET", f"/api/attempts/{theirs}.1.1"),
    ):
        assert (await client.request(method, path)).status_code == 404, path
    listed = (await client.get("/api/jobs")).json()["jobs"]
    assert [job["id"] for job in listed] == [mine]
    assert [queue["name"] for queue in (await client.get("/api/queues")).json()["queues"]] == ["mail"]
    for path in ("/api/jobs?q=queue:builds", "/api/journal", "/metrics"):
        assert (await client.get(path)).status_code == 403, path
    for body in (
        {"task": "a.b", "queue": "builds"},
        {"jobs": [{"task": "a.b", "queue": "mail"}, {"task": "a.b"}]},
    ):
        assert (await client.post("/api/jobs", json=body)).json()["code"] == "not_allowed"
    child = {"task": "a.b", "queue": "mail", "parent_job_id": theirs}
    assert (await client.post("/api/jobs", json=child)).status_code == 404
    swept = await client.post("/api/jobs/actions", json={"filter": "", "action": "cancel"})
    assert [each["id"] for each in swept.json()["done"]] == [mine]
    assert (await guarded.parts.runtime.jobs.get(theirs)).state == "PENDING"


async def test_a_server_on_loopback_requires_a_token_once_one_exists(tmp_path: object) -> None:
    url = f"sqlite:///{tmp_path}/interlock.db"
    async with running(url) as first:
        assert (await first.client().get("/api/jobs")).status_code == 200
        token = await first.token(Role.VIEWER)
    async with running(url) as second:
        assert (await second.client().get("/api/jobs")).status_code == 401
        assert (await second.client(token).get("/api/jobs")).status_code == 200


async def test_an_invalid_token_is_refused_even_if_no_token_is_required(server: Running) -> None:
    assert (await server.client("il_nonsense").get("/api/jobs")).status_code == 401


# Browsers


@pytest.mark.parametrize("name", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", ""])
async def test_a_request_with_a_foreign_host_header_is_refused_with_421(server: Running, name: str) -> None:
    for path in ("/api/jobs", "/healthz"):
        answer = await server.client().get(path, headers={"Host": name})
        assert (answer.status_code, answer.json()["code"]) == (421, "wrong_host")


@pytest.mark.parametrize("name", ["localhost", "LOCALHOST:80", "127.0.0.1:1", "[::1]:9", "[::1]"])
async def test_the_names_of_this_machine_are_fine(server: Running, name: str) -> None:
    assert (await server.client().get("/api/jobs", headers={"Host": name})).status_code == 200


async def test_a_name_that_was_allowed_is_fine() -> None:
    async with running(settings=any_port(allowed_hosts=("ci.example",), insecure=True)) as one:
        assert (await one.client().get("/api/jobs", headers={"Host": "ci.example"})).status_code == 200
        assert (await one.client().get("/api/jobs", headers={"Host": "di.example"})).status_code == 421


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
async def test_a_page_of_another_site_changes_nothing(server: Running, headers: dict[str, str]) -> None:
    client = server.client()
    answer = await client.post("/api/jobs", json={"task": "a.b"}, headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (403, "foreign_origin")
    assert (await client.get("/api/jobs", headers=headers)).json()["jobs"] == []


async def test_requests_from_the_server_origin_and_from_an_allowed_origin_may_submit_jobs() -> None:
    settings = any_port(allowed_origins=("https://tools.example",))
    async with running(settings=settings) as one:
        for origin in (one.url, "https://tools.example"):
            answer = await one.client().post("/api/jobs", json={"task": "a.b"}, headers={"Origin": origin})
            assert answer.status_code == 201


async def test_tokens_are_checked_by_many_at_once_with_one_look_at_the_store(guarded: Running) -> None:
    token = await guarded.token(Role.VIEWER)
    clients = [guarded.client(token) for _ in range(8)]
    answers = await asyncio.gather(*(client.get("/api/jobs") for client in clients))
    assert {answer.status_code for answer in answers} == {200}


async def test_settings_that_would_disable_authentication_by_accident_are_refused() -> None:
    from interlock.errors import InvalidSettings

    for wrong in (
        {"host": "0.0.0.0", "tokens_required": False},
        {"insecure": True, "tokens_required": True},
        {"tls_cert": "cert.pem"},
        {"port": 70_000},
        {"max_body_bytes": 0},
    ):
        with pytest.raises(InvalidSettings):
            ServerSettings(**wrong)
    assert ANY_PORT.loopback
    assert not ServerSettings(host="0.0.0.0").loopback
