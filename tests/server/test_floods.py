"""Floods: whatever strangers and users of the API hold open, runners and health checks are answered."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.effort import pick
from tests.server.dripping import ByHand, by_hand
from tests.server.runners import Runner
from tests.server.running import FOR_EVER_S, Running, any_port, running
from tests.server.test_program import certificate
from tests.server.test_webhooks import NEW, SETTINGS, github, hook
from tests.systems.runs.triggers.deliveries import push
from tests.waiting import until

from interlock.server import limits
from interlock.systems.access.principals import (
    Principal,
)
from interlock.systems.runs.webhook_security import github_signature
from interlock.systems.runs.workflows.git import WorkflowPlanner
from interlock.wire.access import Role

CROWD = pick(100, 1_000)
"""How many requests the server answers at once; by default 1,000."""
FLOOD = CROWD * 13 // 10

SIGNED = f"X-Hub-Signature-256: {github_signature(NEW, b'another body')}\r\n".encode()
STANDARD = b"webhook-id: m\r\nwebhook-timestamp: 1\r\nwebhook-signature: v1,AAAA\r\n"


def post(path: str, *headers: bytes, length: int = 10, body: bytes = b"{") -> bytes:
    """The beginning of a request: its head, and less of its body than it announces."""
    return (
        b"POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n" % path.encode()
        + b"".join(headers)
        + b"Content-Length: %d\r\n\r\n" % length
        + body
    )


def bearer(token: str) -> bytes:
    return f"Authorization: Bearer {token}\r\n".encode()


@asynccontextmanager
async def held(server: Running, requests: Sequence[bytes]) -> AsyncIterator[list[ByHand]]:
    """Connections that have sent this and are not closed."""
    async with AsyncExitStack() as open_ones:
        clients = []
        for each in requests:
            client = await open_ones.enter_async_context(by_hand(server.address))
            client.say(each)
            clients.append(client)
        yield clients


async def beats(server: Running) -> Runner:
    """A runner with a token, at work."""
    await server.submit()
    runner = Runner(server.client(await server.token(Role.RUNNER, "runners")))
    grant = await runner.grant()
    runner.token = grant["token"]  # type: ignore[attr-defined]
    return runner


async def assert_served(server: Running, runner: Runner, sequence: int) -> None:
    beat = await runner.say("heartbeat", runner.token, sequence)  # type: ignore[attr-defined]
    assert beat.status_code == 200, beat.text
    assert (await server.client().get("/healthz")).status_code == 200
    assert (await server.client().get("/readyz")).status_code == 200


@pytest.fixture
async def hooked() -> AsyncIterator[Running]:
    """A server with tokens and webhooks."""
    settings = any_port(tokens_required=True, max_concurrent=CROWD)
    async with running(settings=settings, orchestration=SETTINGS) as one:
        one.parts.runtime.runs.preparation.planners["workflow"] = WorkflowPlanner()
        yield one


# Unfinished posts


async def test_unfinished_posts_to_webhooks_that_are_off_block_no_client() -> None:
    settings = any_port(tokens_required=True, max_concurrent=CROWD, body_s=FOR_EVER_S)
    async with running(settings=settings) as server:
        runner = await beats(server)
        viewer = server.client(await server.token(Role.VIEWER))
        async with held(server, [post("/api/webhooks/github")] * FLOOD) as clients:
            await until(lambda: all(c.heard or c.gone.is_set() for c in clients), "each was answered")
            await assert_served(server, runner, 2)
            assert (await viewer.get("/api/jobs")).status_code == 200


async def test_unfinished_posts_with_a_made_up_signature_block_no_client(hooked: Running) -> None:
    runner = await beats(hooked)
    viewer = hooked.client(await hooked.token(Role.VIEWER))
    async with held(hooked, [post("/api/webhooks/github", SIGNED)] * FLOOD):
        await assert_served(hooked, runner, 2)
        assert (await viewer.get("/api/jobs")).status_code == 200
        assert (await github(hooked.client(), push())).status_code == 202


async def test_unfinished_sign_ins_block_no_client() -> None:
    settings = any_port(tokens_required=True, max_concurrent=CROWD, body_s=FOR_EVER_S)
    async with running(settings=settings) as server:
        runner, token = await beats(server), await server.token(Role.VIEWER)
        async with held(server, [post("/api/sessions", length=100)] * FLOOD):
            await assert_served(server, runner, 2)
            assert (await server.client(token).get("/api/jobs")).status_code == 200
            assert (await server.client().post("/api/sessions", json={"token": token})).status_code == 200
        large = post("/api/sessions", length=1_025)
        async with by_hand(server.address) as client:
            client.say(large)
            await client.hear(b"HTTP/1.1 413")


async def test_unfinished_posts_of_users_of_the_api_keep_no_runner_out() -> None:
    settings = any_port(tokens_required=True, max_concurrent=20, concurrent_each=20)
    async with running(settings=settings) as server:
        runner = await beats(server)
        token = await server.token(Role.SUBMITTER)
        viewer = server.client(await server.token(Role.VIEWER))
        async with held(server, [post("/api/jobs", bearer(token))] * 20):

            async def is_full() -> bool:
                return (await viewer.get("/api/jobs")).status_code == 503

            await until(is_full, "the unfinished ones have every place")
            await assert_served(server, runner, 2)


async def test_one_token_cannot_take_every_place() -> None:
    settings = any_port(tokens_required=True, max_concurrent=20, concurrent_each=10)
    async with running(settings=settings) as server:
        greedy = await server.token(Role.SUBMITTER, "greedy")
        async with held(server, [post("/api/jobs", bearer(greedy))] * 30) as clients:
            await until(lambda: sum(bool(c.heard) for c in clients) == 20, "the others were refused")
            assert all(b"HTTP/1.1 429" in c.heard for c in clients if c.heard)
            other = server.client(await server.token(Role.VIEWER))
            assert (await other.get("/api/jobs")).status_code == 200


# Webhooks are refused before they are read


@pytest.mark.parametrize(
    ("raw_request", "status", "code"),
    [
        (post("/api/webhooks/generic/nobody", STANDARD), 401, "not_signed"),
        (post("/api/webhooks/generic/secretless", STANDARD), 401, "not_signed"),
        (post("/api/webhooks/github"), 401, "not_signed"),
        (post("/api/webhooks/github", b"X-Hub-Signature-256: sha256=tooshort\r\n"), 401, "not_signed"),
        (post("/api/webhooks/generic/any", b"webhook-id: m\r\n"), 401, "not_signed"),
        (post("/api/webhooks/github", SIGNED, length=20_001), 413, "request_too_large"),
        (post("/api/webhooks/generic/any", STANDARD, length=20_001), 413, "request_too_large"),
    ],
)
async def test_a_webhook_that_cannot_be_good_is_refused_before_its_body_is_read(
    hooked: Running, raw_request: bytes, status: int, code: str
) -> None:
    async with by_hand(hooked.address) as client:
        client.say(raw_request)
        await client.hear(b"HTTP/1.1 %d" % status)
        await client.hear(code.encode())


@pytest.mark.parametrize("path", ["/api/webhooks/github", "/api/webhooks/generic/any"])
async def test_a_webhook_is_refused_before_its_body_is_read_where_none_is_configured(path: str) -> None:
    async with running(settings=any_port()) as server, by_hand(server.address) as client:
        client.say(post(path, SIGNED, STANDARD))
        await client.hear(b"HTTP/1.1 404")
        await client.hear(b"webhook_off")


async def test_an_unknown_webhook_is_answered_like_a_bad_signature(hooked: Running) -> None:
    def without_id(answer: httpx2.Response) -> dict[str, Any]:
        return {name: value for name, value in answer.json().items() if name != "request"}

    client = hooked.client()
    known = await hook(client, "any", b"{}", key=NEW)
    for name in ("nobody", "secretless"):
        unknown = await hook(client, name, b"{}", key=NEW)
        assert (unknown.status_code, without_id(unknown)) == (401, without_id(known))
    bare = [await client.post(f"/api/webhooks/generic/{name}", json={}) for name in ("any", "nobody")]
    assert without_id(bare[0]) == without_id(bare[1])


async def test_the_oldest_unfinished_webhook_makes_room_for_a_good_one() -> None:
    settings = any_port(max_signed=2)
    async with running(settings=settings, orchestration=SETTINGS) as server:
        server.parts.runtime.runs.preparation.planners["workflow"] = WorkflowPlanner()
        async with held(server, [post("/api/webhooks/github", SIGNED)] * 3) as (oldest, second, third):
            assert (await oldest.all()).startswith(b"HTTP/1.1 408")
            assert (await github(server.client(), push())).status_code == 202
            assert (await second.all()).startswith(b"HTTP/1.1 408")
            assert third.heard == b""


async def test_where_sign_ins_have_no_room_the_oldest_makes_room() -> None:
    async with running(settings=any_port(tokens_required=True, max_signed=2)) as server:
        token = await server.token(Role.VIEWER)
        async with held(server, [post("/api/sessions", length=100)] * 3) as (oldest, second, third):
            assert (await oldest.all()).startswith(b"HTTP/1.1 408")
            assert (await server.client().post("/api/sessions", json={"token": token})).status_code == 200
            assert (await second.all()).startswith(b"HTTP/1.1 408")
            assert third.heard == b""


async def test_unfinished_webhooks_hold_a_bounded_amount_of_memory() -> None:
    settings = any_port(max_signed_bytes=100_000)
    async with running(settings=settings, orchestration=SETTINGS) as server:
        large = post("/api/webhooks/github", SIGNED, length=20_000, body=b"x" * 19_000)
        async with held(server, [large] * 30) as clients:
            await until(lambda: sum(c.gone.is_set() for c in clients) >= 25, "most were given up on")
            assert sum(c.gone.is_set() for c in clients) == 25, "100 kB are room for five"


# Long polls and streams


def poll(runner_id: str) -> dict[str, Any]:
    return {"runner_id": runner_id, "queues": ["none"], "wait_s": FOR_EVER_S}


async def test_one_token_cannot_take_every_long_poll(waiting_for_ever: None) -> None:
    settings = any_port(tokens_required=True, max_waiting=5, polls_each=2)
    async with running(settings=settings) as server:
        one = server.client(await server.token(Role.RUNNER, "one"))
        two = server.client(await server.token(Role.RUNNER, "two"))
        polls = [asyncio.create_task(one.post("/api/runner/lease", json=poll(f"r{n}"))) for n in range(2)]
        await until(lambda: server.parts.long_poll.waiting == 2, "two runners wait")
        refused = await one.post("/api/runner/lease", json=poll("r3"))
        assert (refused.status_code, refused.json()["code"]) == (429, "too_many_requests")
        assert refused.json()["facts"] == {"principal": "one", "open": 2, "most": 2}
        assert "--polls-each" in refused.json()["todo"]
        assert int(refused.headers["retry-after"]) >= 1
        polls.append(asyncio.create_task(two.post("/api/runner/lease", json=poll("r4"))))
        await until(lambda: server.parts.long_poll.waiting == 3, "the other token's runner waits")
        for each in polls:
            each.cancel()
        await asyncio.wait(polls)
        await until(lambda: server.parts.long_poll.waiting == 0, "none waits any more")
        assert (await one.post("/api/runner/lease", json={**poll("r5"), "wait_s": 0})).status_code == 200


async def test_streams_take_no_long_polls_away_from_runners() -> None:
    async with running(settings=any_port(max_streams=1, max_waiting=1)) as server:
        client = server.client()
        async with client.stream("GET", "/api/events") as stream:
            assert stream.status_code == 200
            full = await client.get("/api/events")
            assert (full.status_code, full.json()["code"]) == (503, "too_busy")
            polled = await client.post("/api/runner/lease", json={**poll("r"), "wait_s": 0})
            assert polled.status_code == 200


# Connections


@pytest.fixture
def no_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Judge connections as soon as there are too many."""
    monkeypatch.setattr(limits, "GRACE_S", 0.0)


async def test_idle_connections_of_one_address_make_room_for_one_another(no_grace: None) -> None:
    settings = any_port(tokens_required=True, connections_each=3)
    async with running(settings=settings) as server:
        viewer = server.client(await server.token(Role.VIEWER))
        assert (await viewer.get("/api/jobs")).status_code == 200
        async with held(server, [b"", b"GET / HT", *[b""] * 6]) as clients:
            await until(lambda: sum(c.gone.is_set() for c in clients) == 5, "the oldest were closed")
            assert not any(c.gone.is_set() for c in clients[-3:])
            assert (await viewer.get("/api/jobs")).status_code == 200, "a known one is not counted"


async def test_a_server_full_of_idle_connections_takes_one_more() -> None:
    settings = any_port(tokens_required=True, max_connections=5)
    async with running(settings=settings) as server:
        token = await server.token(Role.VIEWER)
        async with held(server, [b""] * 20):
            for _ in range(3):
                assert (await server.client(token).get("/api/jobs")).status_code == 200


async def test_idle_connections_of_users_make_room_for_runners_too() -> None:
    settings = any_port(tokens_required=True, max_connections=5)
    async with running(settings=settings) as server:
        token = await server.token(Role.VIEWER)
        for _ in range(8):  # each keeps its connection
            assert (await server.client(token).get("/api/jobs")).status_code == 200
        runner = await beats(server)
        await assert_served(server, runner, 2)


async def test_connections_that_wait_for_an_answer_are_not_closed_for_strangers(
    waiting_for_ever: None, no_grace: None
) -> None:
    settings = any_port(tokens_required=True, max_connections=5, connections_each=2)
    async with running(settings=settings) as server:
        client = server.client(await server.token(Role.RUNNER))
        polls = []
        for number in range(4):
            polls.append(asyncio.create_task(client.post("/api/runner/lease", json=poll(f"r{number}"))))
            await until(lambda: server.parts.long_poll.waiting == len(polls), "one more runner waits")
        async with held(server, [b""] * 10) as clients:
            await until(lambda: sum(c.gone.is_set() for c in clients) == 9, "only one of them is left")
            assert server.parts.long_poll.waiting == 4
            assert not any(each.done() for each in polls)
        for each in polls:
            each.cancel()
        await asyncio.wait(polls)


async def test_a_connection_whose_token_is_being_looked_up_is_not_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "GRACE_S", FOR_EVER_S)
    settings = any_port(tokens_required=True, connections_each=2, max_connections=8)
    async with running(settings=settings) as server:
        lookups, go_on, real = 0, asyncio.Event(), server.parts.check.principal_of

        async def slow(*arguments: Any) -> Principal:
            nonlocal lookups
            lookups += 1
            await go_on.wait()
            return await real(*arguments)

        monkeypatch.setattr(server.parts.check, "principal_of", slow)
        token = await server.token(Role.VIEWER)
        looking = [asyncio.create_task(server.client(token).get("/api/jobs")) for _ in range(6)]
        await until(lambda: lookups == 6, "the store is slow to say who they are")
        monkeypatch.setattr(limits, "GRACE_S", 0.0)
        async with held(server, [b""] * 12) as clients:
            await until(lambda: sum(c.gone.is_set() for c in clients) >= 10, "others were closed")
            go_on.set()
            assert [answer.status_code for answer in await asyncio.gather(*looking)] == [200] * 6


async def test_a_server_whose_connections_are_all_in_use_by_long_polls_returns_503(
    waiting_for_ever: None,
) -> None:
    async with running(settings=any_port(max_connections=2)) as server:
        client = server.client()
        polls = [asyncio.create_task(client.post("/api/runner/lease", json=poll(f"r{n}"))) for n in range(2)]
        await until(lambda: server.parts.long_poll.waiting == 2, "two runners wait")
        async with by_hand(server.address) as one_more:
            answer = await one_more.all()
        assert answer.startswith(b"HTTP/1.1 503")
        assert b'"code":"too_busy"' in answer
        for each in polls:
            each.cancel()
        await asyncio.wait(polls)


async def test_abandoned_handshakes_make_room_too(tmp_path: Path, no_grace: None) -> None:
    cert, key = certificate(tmp_path)
    settings = any_port(
        tokens_required=True, connections_each=3, max_connections=20, tls_cert=str(cert), tls_key=str(key)
    )
    async with running(settings=settings) as server:
        trusting = ssl.create_default_context(cafile=str(cert))
        token = await server.token(Role.VIEWER)
        address = "127.0.0.1", int(server.url.rpartition(":")[2])
        async with AsyncExitStack() as open_ones:
            silent = [await open_ones.enter_async_context(by_hand(address)) for _ in range(8)]
            await until(lambda: sum(c.gone.is_set() for c in silent) == 5, "the oldest were closed")
            assert not any(c.gone.is_set() for c in silent[-3:])
            silent[-1].say(b"this is no TLS at all")
            await silent[-1].all()
            answer = await server.client(token, verify=trusting).get("/api/jobs")
            assert answer.status_code == 200
        await until(lambda: len(server.parts.connections) == 1, "only the connection of the client is left")
