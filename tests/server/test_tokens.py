"""Tokens over HTTP: admins make, list, rotate and revoke them, and reach no further than themselves."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any

import httpx2
import pytest
from tests.server.running import Running, any_port, running

from interlock.systems.access.tokens import read_secret
from interlock.wire.access import Role


@pytest.fixture
async def guarded() -> AsyncIterator[Running]:
    async with running(settings=any_port(tokens_required=True)) as one:
        yield one


@pytest.fixture
async def admin(guarded: Running) -> httpx2.AsyncClient:
    return guarded.client(await guarded.token(Role.ADMIN, "root"))


async def made(
    client: httpx2.AsyncClient, name: str = "ci", role: str = "viewer", **more: Any
) -> dict[str, Any]:
    answer = await client.post("/api/tokens", json={"name": name, "role": role, **more})
    assert answer.status_code == 201, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def test_a_token_lives_through_the_addresses_of_the_api(
    guarded: Running, admin: httpx2.AsyncClient
) -> None:
    issued = await made(admin, role="submitter", queues=["mail"], lasts_s=3_600)
    assert issued["view"]["queues"] == ["mail"]
    client = guarded.client(issued["token"])
    assert (await client.get("/api/jobs")).status_code == 200
    assert (await client.get("/api/workers")).status_code == 403

    rotated = (await admin.post("/api/tokens/ci/rotate", json={"overlap_s": 3_600})).json()
    assert rotated["view"]["state"] == "rotating"
    assert "old_until" in rotated["view"]
    for token in (issued["token"], rotated["token"]):
        assert (await guarded.client(token).get("/api/jobs")).status_code == 200
    final = (await admin.post("/api/tokens/ci/rotate", json={"overlap_s": 0})).json()
    for token, status in ((issued["token"], 401), (rotated["token"], 401), (final["token"], 200)):
        assert (await guarded.client(token).get("/api/jobs")).status_code == status

    revoked = await admin.post("/api/tokens/ci/revoke", json={"reason": "enough"})
    assert revoked.json()["state"] == "revoked"
    assert (await admin.post("/api/tokens/ci/revoke")).status_code == 409
    assert (await admin.post("/api/tokens/ci/rotate")).status_code == 409
    names = [view["name"] for view in (await admin.get("/api/tokens")).json()["tokens"]]
    assert names == ["root"]
    every = (await admin.get("/api/tokens", params={"ended": "true"})).json()["tokens"]
    assert [view["state"] for view in every] == ["active", "revoked"]
    journal = await admin.get("/api/journal", params={"kind": "token", "id": issued["view"]["id"]})
    assert {entry["actor"] for entry in journal.json()["entries"]} == {"root"}


async def test_the_secret_of_a_token_appears_in_no_later_response_and_not_in_the_log(
    guarded: Running, admin: httpx2.AsyncClient
) -> None:
    issued = [await made(admin), (await admin.post("/api/tokens/ci/rotate")).json()]
    texts = [(await admin.get(path)).text for path in ("/api/tokens", "/api/tokens/ci", "/api/journal")]
    texts.append((await admin.post("/api/tokens/ci/revoke")).text)
    texts.append(guarded.log.getvalue())
    for each in issued:
        secret = read_secret(each["token"])
        assert secret is not None
        assert not any(secret.secret in text or secret.digest in text for text in texts)


async def test_a_repeated_request_is_informed_that_the_secret_was_shown(admin: httpx2.AsyncClient) -> None:
    issued = await made(admin, request_id="make-ci")
    again = await admin.post("/api/tokens", json={"name": "ci", "role": "viewer", "request_id": "make-ci"})
    assert (again.status_code, again.json()["code"]) == (409, "secret_shown_once")
    assert "token rotate ci --overlap 0" in again.json()["todo"]
    assert issued["token"] not in again.text
    other = await admin.post("/api/tokens", json={"name": "di", "role": "viewer", "request_id": "make-ci"})
    assert (other.status_code, other.json()["code"]) == (409, "request_id_reused")
    once, twice = [
        await admin.post("/api/tokens/ci/rotate", headers={"Idempotency-Key": "turn"}) for _ in range(2)
    ]
    assert (once.status_code, twice.status_code) == (200, 409)
    assert twice.json()["code"] == "secret_shown_once"
    stopped = [await admin.post("/api/tokens/ci/revoke", json={"request_id": "end"}) for _ in range(2)]
    assert [answer.status_code for answer in stopped] == [200, 200]


@pytest.mark.parametrize("role", [Role.VIEWER, Role.SUBMITTER, Role.OPERATOR, Role.RUNNER])
async def test_only_an_admin_manages_tokens_so_none_exceeds_the_role_of_its_maker(
    guarded: Running, role: Role
) -> None:
    client = guarded.client(await guarded.token(role))
    for method, path in (
        ("GET", "/api/tokens"),
        ("GET", "/api/tokens/root"),
        ("POST", "/api/tokens"),
        ("POST", "/api/tokens/root/rotate"),
        ("POST", "/api/tokens/root/revoke"),
    ):
        body = {"name": "x", "role": "viewer"} if path == "/api/tokens" and method == "POST" else None
        assert (await client.request(method, path, json=body)).status_code == 403, path
    assert len(await guarded.parts.tokens.list()) == 1


async def test_an_admin_of_some_queues_makes_no_token_that_reaches_further(guarded: Running) -> None:
    confined = guarded.client(await guarded.token(Role.ADMIN, "mail-admin", queues=("mail", "letters")))
    for queues in ([], ["builds"], ["mail", "builds"]):
        body = {"name": "wide", "role": "viewer", "queues": queues}
        refused = await confined.post("/api/tokens", json=body)
        assert (refused.status_code, refused.json()["code"]) == (403, "not_allowed"), queues
        assert refused.json()["allowed"] == ["letters", "mail"]
    issued = await made(confined, "narrow", "operator", queues=["mail"])
    assert (
        await guarded.client(issued["token"]).get("/api/jobs", params={"q": "queue:builds"})
    ).status_code == 403


async def test_an_admin_of_some_queues_does_not_see_tokens_that_reach_further(guarded: Running) -> None:
    await guarded.token(Role.ADMIN, "root")
    await guarded.token(Role.VIEWER, "builds-only", queues=("builds",))
    await guarded.token(Role.VIEWER, "both", queues=("mail", "builds"))
    await guarded.token(Role.VIEWER, "mail-only", queues=("mail",))
    confined = guarded.client(await guarded.token(Role.ADMIN, "mail-admin", queues=("mail",)))
    listed = (await confined.get("/api/tokens")).json()["tokens"]
    assert [view["name"] for view in listed] == ["mail-only", "mail-admin"]
    missing = await confined.get("/api/tokens/nobody")
    for name in ("root", "builds-only", "both"):
        for method, path in (("GET", ""), ("POST", "/rotate"), ("POST", "/revoke")):
            refused = await confined.request(method, f"/api/tokens/{name}{path}")
            assert refused.status_code == 404, (name, path)
            assert refused.json()["error"] == missing.json()["error"].replace("nobody", name)
            assert refused.json()["todo"] == missing.json()["todo"]
    assert {view.state for view in await guarded.parts.tokens.list()} == {"active"}


async def test_the_last_use_is_shown_with_its_address(guarded: Running, admin: httpx2.AsyncClient) -> None:
    issued = await made(admin)
    assert "used_at" not in (await admin.get("/api/tokens/ci")).json()
    assert (await guarded.client(issued["token"]).get("/api/jobs")).status_code == 200
    await guarded.parts.check.store_uses()
    view = (await admin.get("/api/tokens/ci")).json()
    created_at, used_at = (datetime.fromisoformat(view[name]) for name in ("created_at", "used_at"))
    assert view["used_from"] == "127.0.0.1"
    assert used_at >= created_at


async def test_uses_that_cannot_be_stored_fail_no_request(
    guarded: Running, admin: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: object) -> int:
        raise OSError("the disk is full")

    monkeypatch.setattr(guarded.parts.tokens, "note_uses", away)
    assert (await admin.get("/api/jobs")).status_code == 200
    with pytest.raises(OSError, match="full"):
        await guarded.parts.check.store_uses()
    monkeypatch.undo()
    assert await guarded.parts.check.store_uses() == 1, "it is stored the next time"


async def test_a_server_that_ends_stores_when_tokens_were_used_last(tmp_path: object) -> None:
    url = f"sqlite:///{tmp_path}/interlock.db"
    async with running(url, settings=any_port(tokens_required=True)) as first:
        token = await first.token(Role.VIEWER, "ci")
        assert (await first.client(token).get("/api/jobs")).status_code == 200
    async with running(url, settings=any_port(tokens_required=True)) as second:
        assert (await second.parts.tokens.get("ci")).used_from == "127.0.0.1"


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"name": "x", "role": "king"},
        {"name": "a b", "role": "viewer"},
        {"name": "x", "role": "viewer", "lasts_s": 0},
        {"name": "x", "role": "viewer", "queues": [""]},
        {"name": "x", "role": "viewer", "secret": "mine"},
        {"name": "il_x", "role": "viewer"},
    ],
)
async def test_an_invalid_token_request_returns_422_with_a_remedy_and_creates_no_token(
    guarded: Running, admin: httpx2.AsyncClient, wrong: dict[str, Any]
) -> None:
    refused = await admin.post("/api/tokens", json=wrong)
    assert refused.status_code == 422, refused.text
    assert refused.json()["todo"]
    assert len(await guarded.parts.tokens.list()) == 1
