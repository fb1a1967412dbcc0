"""Doors: who is let in without a token, and until when."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.server.running import FOR_EVER_S, Running, any_port, running
from tests.waiting import until

from interlock.cli.server import announcement
from interlock.errors import InvalidSettings, StoreUnavailable
from interlock.server import web
from interlock.server.settings import ServerSettings
from interlock.store.urls import store_for
from interlock.systems.access.tokens import Tokens
from interlock.systems.catalogue import CATALOGUE
from interlock.systems.runtime import Runtime
from interlock.systems.settings import DEFAULT_SETTINGS
from interlock.wire.access import Role

FORWARDED = {
    "Forwarded": "for=203.0.113.9",
    "X-Forwarded-For": "203.0.113.9",
    "X-Forwarded-Host": "ci.example.org",
    "X-Forwarded-Proto": "https",
    "X-Real-IP": "203.0.113.9",
    "Via": "1.1 proxy",
}


async def refuses(server: Running) -> bool:
    return (await server.client().get("/api/jobs")).status_code == 401


async def token_made_elsewhere(url: str, name: str = "late") -> str:
    """A token that another process makes in the same store."""
    store = store_for(url, CATALOGUE)
    await store.open()
    runtime = Runtime(store, DEFAULT_SETTINGS)
    try:
        return (await Tokens(runtime.engine).create(name, Role.ADMIN)).token
    finally:
        await runtime.close()


# The first token


async def test_the_first_token_closes_the_door_of_a_server_that_runs_already(server: Running) -> None:
    assert (await server.client().get("/api/jobs")).status_code == 200
    token = await server.token(Role.VIEWER)
    await until(lambda: refuses(server), "a token is required")
    assert (await server.client(token).get("/api/jobs")).status_code == 200
    for path in ("/api/runner", "/docs", "/openapi.json"):
        assert (await server.client().get(path)).status_code == 401, path


async def test_a_token_that_another_process_makes_closes_the_door(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/interlock.db"
    async with running(url) as server:
        assert (await server.client().get("/api/jobs")).status_code == 200
        token = await token_made_elsewhere(url)
        await until(lambda: refuses(server), "a token is required")
        assert (await server.client(token).get("/api/jobs")).status_code == 200


async def test_a_server_requires_a_token_once_one_exists_even_if_it_misses_the_journal_entry(
    server: Running,
) -> None:
    server.parts.door.believed_s = 0.0
    server.parts.following._readers.clear()
    await server.token(Role.VIEWER)
    assert await refuses(server)


async def test_the_door_stays_closed_when_the_last_token_is_revoked(server: Running) -> None:
    await server.token(Role.VIEWER, "only")
    await until(lambda: refuses(server), "a token is required")
    await server.parts.tokens.revoke("only")
    server.parts.door.believed_s = 0.0
    assert await refuses(server)


async def test_a_store_that_does_not_answer_opens_no_door(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away() -> bool:
        raise StoreUnavailable("The store is away.")

    server.parts.door.believed_s = 0.0
    monkeypatch.setattr(server.parts.tokens, "any", away)
    answer = await server.client().get("/api/machines")
    assert (answer.status_code, answer.json()["code"]) == (503, "store_unavailable")
    assert (await server.client().get("/healthz")).status_code == 200


async def test_concurrent_requests_query_the_store_at_most_once_for_an_existing_token(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    lookups = 0
    real = server.parts.tokens.any

    async def counted() -> bool:
        nonlocal lookups
        lookups += 1
        return await real()

    monkeypatch.setattr(server.parts.tokens, "any", counted)
    server.parts.door.believed_s = FOR_EVER_S
    client = server.client()
    await asyncio.gather(*(client.get("/api/machines") for _ in range(10)))
    assert lookups <= 1


async def test_streams_without_a_token_end_when_the_door_closes(server: Running) -> None:
    async with server.client().stream("GET", "/api/events") as stream:
        assert stream.status_code == 200
        await server.token(Role.VIEWER)
        async for _ in stream.aiter_lines():
            pass  # until the server ends it
    assert await refuses(server)


async def test_a_server_configured_without_tokens_requires_none_after_one_is_created() -> None:
    async with running(settings=any_port(tokens_required=False)) as server:
        await server.token(Role.VIEWER)
        assert (await server.client().get("/api/jobs")).status_code == 200


# Proxies


@pytest.mark.parametrize("name", FORWARDED)
@pytest.mark.parametrize("required", [None, False])
async def test_a_request_with_a_forwarding_header_and_without_a_token_returns_401(
    name: str, required: bool | None
) -> None:
    async with running(settings=any_port(tokens_required=required)) as server:
        client = server.client()
        client.headers[name] = FORWARDED[name]
        for path in ("/api/jobs", "/api/runner", "/nowhere"):
            answer = await client.get(path)
            assert (answer.status_code, answer.json()["code"]) == (401, "not_signed_in"), path
        assert name.lower() in answer.json()["error"].lower()
        assert "--insecure" in answer.json()["todo"]
        assert (await client.get("/healthz")).status_code == 200
        assert (await server.client().get("/api/jobs")).status_code == 200


async def test_a_forwarded_request_is_accepted_with_a_token_or_by_an_insecure_server() -> None:
    async with running(settings=any_port()) as server:
        token = await server.token(Role.VIEWER)
        answer = await server.client(token).get("/api/jobs", headers=FORWARDED)
        assert answer.status_code == 200
    async with running(settings=any_port(insecure=True)) as server:
        assert (await server.client().get("/api/jobs", headers=FORWARDED)).status_code == 200


async def refused_to_start(**settings: Any) -> InvalidSettings:
    with pytest.raises(InvalidSettings) as refused:
        async with running(settings=any_port(**settings)):
            pass
    return refused.value


async def test_a_foreign_name_without_any_token_is_refused_at_the_start() -> None:
    error = await refused_to_start(allowed_hosts=("ci.example.org",))
    assert "ci.example.org" in error.sentence
    assert "interlock token create" in error.todo
    assert "--insecure" in error.todo
    with pytest.raises(InvalidSettings):
        ServerSettings(allowed_hosts=("ci.example.org",), tokens_required=False)


@pytest.mark.parametrize(
    "settings",
    [
        {"allowed_hosts": ("ci.example.org",), "insecure": True},
        {"allowed_hosts": ("ci.example.org",), "tokens_required": True},
        {"allowed_hosts": ("localhost", "127.0.0.2", "::1")},
    ],
)
async def test_a_name_may_be_allowed_with_tokens_insecurely_or_if_it_is_local(
    settings: dict[str, Any],
) -> None:
    async with running(settings=any_port(**settings)) as server:
        assert server.parts.tokens_required is bool(settings.get("tokens_required"))


async def test_a_foreign_name_is_fine_once_there_is_a_token(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/interlock.db"
    token = await token_made_elsewhere(url)
    async with running(url, any_port(allowed_hosts=("ci.example.org",))) as server:
        proxied = {"Host": "ci.example.org", "X-Forwarded-For": "203.0.113.9"}
        assert (await server.client().get("/api/jobs", headers=proxied)).status_code == 401
        assert (await server.client(token).get("/api/jobs", headers=proxied)).status_code == 200


# What is announced


@pytest.mark.parametrize(
    ("settings", "access"),
    [
        ({}, "anyone on this machine, without a token, until one is created"),
        ({"tokens_required": False}, "anyone on this machine, without a token"),
        ({"tokens_required": True}, "with a token"),
        ({"insecure": True}, "ANYONE who can reach it, without a token"),
        (
            {"insecure": True, "allowed_hosts": ("ci.example.org",)},
            "ANYONE who can reach it or a proxy in front of it, without a token",
        ),
    ],
)
async def test_the_startup_message_shows_which_clients_have_access(
    settings: dict[str, Any], access: str
) -> None:
    async with running(settings=any_port(**settings)) as server:
        (line,) = [line for line in announcement(server.url, server.parts) if "access" in line]
        assert line.removeprefix("  access  ").split(":")[0] == access


async def test_the_startup_message_shows_the_dashboard_url_or_how_to_build_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with running() as server:
        for files, expected in (({"/index.html": None}, f"{server.url}/"), ({}, "make dashboard")):
            monkeypatch.setattr(web, "built", lambda files=files: files)
            (line,) = [line for line in announcement(server.url, server.parts) if "dashboard" in line]
            assert line.startswith("  see     ")
            assert expected in line
