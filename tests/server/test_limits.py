"""What is too much: too large, too deep, too slow, too often, too many."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import httpx2
import msgspec
import pytest
from tests.server.dripping import ByHand, by_hand
from tests.server.running import FOR_EVER_S, Running, any_port, running
from tests.waiting import PATIENCE_S, until

from interlock.api.server import Alive
from interlock.errors import BadRequest, TooMany
from interlock.server.limits import Buckets
from interlock.server.requests import check_depth
from interlock.server.routes import Call, Route
from interlock.server.settings import Rate
from interlock.wire.access import Role

SMALL = any_port(max_body_bytes=2_000, max_json_depth=10, max_header_bytes=4_096)
HURRY_S = 0.2
JSON = {"Content-Type": "application/json"}
HEALTH = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
HEALTHY = b'{"status":"ok"}'
ONCE_AN_HOUR = 1 / 3_600
"""A bucket that gets no new drop while a test lasts."""


@pytest.fixture
async def small() -> AsyncIterator[Running]:
    """A server that is soon full, and patient."""
    async with running(settings=SMALL) as one:
        yield one


@pytest.fixture
async def hasty() -> AsyncIterator[Running]:
    """A server that waits for nobody; whoever behaves well may be too slow for it as well."""
    async with running(settings=any_port(header_s=HURRY_S, body_s=HURRY_S)) as one:
        yield one


def let_heads_take(server: Running, seconds: float) -> None:
    """Change how long a head may take from now on."""
    kind = server.listener.config.http_protocol_class
    kind.settings = msgspec.structs.replace(kind.settings, header_s=seconds)  # type: ignore[attr-defined]


async def raw(server: Running, *parts: bytes) -> bytes:
    """Send this by hand, and read until the server hangs up."""
    async with by_hand(server.address) as client:
        client.say(*parts)
        return await client.all()


async def test_a_body_with_a_content_length_over_the_limit_is_refused_before_it_is_received(
    small: Running,
) -> None:
    head = b"POST /api/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    answer = await raw(small, head + b"Content-Length: 100000000\r\n\r\n{")
    assert answer.startswith(b"HTTP/1.1 413")
    assert b'"code":"request_too_large"' in answer
    assert b"connection: close" in answer.lower()


async def test_a_chunked_body_that_exceeds_the_limit_is_refused_before_it_ends(small: Running) -> None:
    head = b"POST /api/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    chunks = [b"3e8\r\n" + b"x" * 1_000 + b"\r\n"] * 3  # and it does not say that this was all
    answer = await raw(small, head + b"Transfer-Encoding: chunked\r\n\r\n", *chunks)
    assert answer.startswith(b"HTTP/1.1 413")
    assert b'"code":"request_too_large"' in answer


async def test_a_client_that_never_stops_sending_is_hung_up_on(small: Running) -> None:
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        while sent < 50_000_000:
            sent += 1_000
            yield b"x" * 1_000

    with suppress(httpx2.TransportError):  # it may be cut off before it comes to listen
        await small.client().post("/api/jobs", content=endless(), headers=JSON)
    assert sent < 50_000_000
    assert (await small.client().get("/api/jobs")).json()["jobs"] == []


async def test_a_body_of_exactly_the_limit_is_taken(small: Running) -> None:
    start = b'{"task":"a.b","description":"'
    body = start + b"x" * (SMALL.max_body_bytes - len(start) - 2) + b'"}'
    assert len(body) == SMALL.max_body_bytes
    assert (await small.client().post("/api/jobs", content=body, headers=JSON)).status_code == 201
    answer = await small.client().post("/api/jobs", content=body + b" ", headers=JSON)
    assert answer.status_code == 413


async def test_json_that_is_too_deep_is_refused(small: Running) -> None:
    deep = b'{"task":"a.b","input":' + b"[" * 10 + b"]" * 10 + b"}"
    answer = await small.client().post("/api/jobs", content=deep, headers=JSON)
    assert (answer.status_code, answer.json()["facts"]) == (422, {"limit": 10})
    flat = b'{"task":"a.b","input":' + b"[" * 9 + b"]" * 9 + b"}"
    assert (await small.client().post("/api/jobs", content=flat, headers=JSON)).status_code == 201


async def test_json_deeper_than_any_stack_is_refused_with_the_limits_that_we_run_with(
    server: Running,
) -> None:
    deep = b'{"task":"a.b","input":' + b"[" * 400_000 + b"]" * 400_000 + b"}"
    answer = await server.client().post("/api/jobs", content=deep, headers=JSON)
    assert (answer.status_code, answer.json()["code"]) == (422, "bad_request")


@pytest.mark.parametrize(
    "body",
    [
        b'{"a":"[[[[[[[[[["}',
        rb'{"a":"\"[[[[[[\\[[[["}',
        b"[],[],[],[],[],[]",
        b'"' + b"[" * 20,
        b'"\\',
    ],
)
def test_brackets_in_json_strings_and_in_sibling_arrays_do_not_count_as_depth(body: bytes) -> None:
    check_depth(body, 3)


def test_depth_after_json_strings_is_detected_and_the_check_takes_linear_time() -> None:
    with pytest.raises(BadRequest):
        check_depth(rb'{"a\"":"[[[\\","b":[[[[]]]]}', 3)
    check_depth(b'"\\"' * 300_000 + b"[" * 3 + b'"', 4)


@pytest.mark.parametrize("limit", [4, 5, 16, 17, 64])
@pytest.mark.parametrize(
    "pair", [(b"[", b"]"), (b'{"a":', b"}"), (b'[{"\\"]":', b"}]")], ids=["[", "{", "[{"]
)
def test_json_within_the_depth_limit_is_accepted_and_deeper_json_is_not(
    limit: int, pair: tuple[bytes, bytes]
) -> None:
    levels = pair[0].count(b"[") + pair[0].count(b"{")
    times = limit // levels
    wide = b"[" + b"[]," * 100 + b"%s]"
    check_depth(wide % (pair[0] * (times - 1) + b"1" + pair[1] * (times - 1)), limit)
    with pytest.raises(BadRequest):
        check_depth(wide % (pair[0] * (times + 1) + b"1" + pair[1] * (times + 1)), limit)


async def test_a_head_that_drips_is_not_waited_for(hasty: Running) -> None:
    async with by_hand(hasty.address) as client:
        client.say(b"GET /api/jobs HTTP/1.1\r\nHost: localhost\r\n")
        answer = await client.drip(b"X-Slow: 1\r\n")
    assert answer.startswith(b"HTTP/1.1 408")
    assert b'"code":"arrived_too_slowly"' in answer


async def test_a_client_that_sends_no_request_gets_a_408_timeout(hasty: Running) -> None:
    assert (await raw(hasty)).startswith(b"HTTP/1.1 408")


async def ask_and_be_answered(client: ByHand) -> None:
    client.say(HEALTH)
    await client.hear(b"HTTP/1.1 200")
    await client.hear(HEALTHY)


async def test_the_second_head_on_a_connection_may_not_drip_either(small: Running) -> None:
    async with by_hand(small.address) as client:
        await ask_and_be_answered(client)
        let_heads_take(small, HURRY_S)
        client.say(b"GET /healthz HT")
        assert (await client.all()).startswith(b"HTTP/1.1 408")


async def test_a_connection_that_is_idle_between_requests_lives_longer_than_a_head_may_take(
    small: Running,
) -> None:
    async with by_hand(small.address) as idle:
        await ask_and_be_answered(idle)
        let_heads_take(small, HURRY_S)
        for _ in range(2):
            await ask_and_be_answered(idle)  # a head that arrives whole takes no time
            await raw(small)  # whose time began later, and is over
        await ask_and_be_answered(idle)


async def test_a_body_that_drips_is_not_waited_for(hasty: Running) -> None:
    head = b"POST /api/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    answer = await raw(hasty, head + b"Content-Length: 20\r\n\r\n", b"{")
    assert answer.startswith(b"HTTP/1.1 408")


async def test_a_head_that_is_too_large_is_refused(small: Running) -> None:
    answer = await raw(small, b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 20_000)
    assert answer.startswith(b"HTTP/1.1 400")
    assert b'"code":"no_http"' in answer


async def test_a_request_that_is_not_http_returns_400_with_a_problem_body(small: Running) -> None:
    answer = await raw(small, b"\x16\x03\x01\x02\x00\x01\x00 hello\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 400")
    assert b"application/problem+json" in answer


async def test_a_client_that_disconnects_during_its_request_body_causes_no_error(small: Running) -> None:
    _, writer = await asyncio.open_connection(*small.address)
    writer.write(b"POST /api/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
    await writer.drain()
    writer.close()
    await writer.wait_closed()
    assert (await small.client().get("/api/jobs")).status_code == 200
    assert '"level":"error"' not in small.log.getvalue()


# Too often, too many


async def test_a_client_over_its_rate_limit_gets_429_with_a_retry_after_header() -> None:
    settings = any_port(tokens_required=True, api_rate=Rate(ONCE_AN_HOUR, 3))
    async with running(settings=settings) as one:
        busy, other = (
            one.client(await one.token(Role.VIEWER, "a")),
            one.client(await one.token(Role.VIEWER, "b")),
        )
        statuses = [(await busy.get("/api/queues")).status_code for _ in range(4)]
        assert statuses == [200, 200, 200, 429]
        answer = await busy.get("/api/queues")
        assert answer.json()["code"] == "too_many_requests"
        assert 1 <= int(answer.headers["retry-after"]) <= 3_600
        assert (await other.get("/api/queues")).status_code == 200
        assert (await busy.get("/healthz")).status_code == 200


async def test_a_client_that_tries_tokens_out_is_slowed_down() -> None:
    settings = any_port(tokens_required=True, stranger_rate=Rate(ONCE_AN_HOUR, 5))
    async with running(settings=settings) as one:
        good = one.client(await one.token(Role.VIEWER))
        bad = one.client("il_" + "0" * 16 + "_" + "0" * 64)
        statuses = [(await bad.get("/api/jobs")).status_code for _ in range(8)]
        assert statuses == [401] * 5 + [429] * 3
        assert (await good.get("/api/jobs")).status_code == 200


def test_a_bucket_fills_with_time_up_to_its_brim() -> None:
    now = 0.0
    buckets = Buckets(Rate(10.0, 2), monotonic=lambda: now)
    for name in ("a", "a", "b"):
        buckets.take(name)
    with pytest.raises(TooMany) as refused:
        buckets.take("a")
    assert refused.value.retry_after_s == pytest.approx(0.1)
    now = 0.1
    buckets.take("a")
    now = 100.0
    buckets.take("a")
    buckets.take("a")
    with pytest.raises(TooMany):
        buckets.take("a")


async def test_a_server_at_its_concurrency_limit_returns_503_at_once() -> None:
    go_on, inside = asyncio.Event(), asyncio.Semaphore(0)

    async def wait(_: Call) -> Alive:
        inside.release()
        await go_on.wait()
        return Alive(status="ok")

    slow = Route(
        request="GET /api/slow",
        name="slow",
        summary="Wait.",
        handler=wait,
        role=Role.VIEWER,
        output=Alive,
    )
    settings = any_port(max_concurrent=2)
    async with running(settings=settings, more=[slow]) as one:
        client = one.client()
        waiting = [asyncio.create_task(client.get("/api/slow")) for _ in range(2)]
        for _ in waiting:
            await asyncio.wait_for(inside.acquire(), PATIENCE_S)
        answer = await client.get("/api/jobs")
        assert (answer.status_code, answer.json()["code"]) == (503, "too_busy")
        assert (await client.get("/healthz")).status_code == 200
        go_on.set()
        assert [answer.status_code for answer in await asyncio.gather(*waiting)] == [200, 200]
        assert (await client.get("/api/jobs")).status_code == 200


async def test_long_polls_and_streams_do_not_keep_others_out_and_have_limits_of_their_own(
    waiting_for_ever: None,
) -> None:
    settings = any_port(max_concurrent=1, max_waiting=2, max_streams=1)
    async with running(settings=settings) as one:
        client = one.client()
        lease = {"runner_id": "r", "queues": ["none"], "wait_s": FOR_EVER_S}
        polls = [asyncio.create_task(client.post("/api/runner/lease", json=lease)) for _ in range(2)]
        async with client.stream("GET", "/api/events") as stream:
            assert stream.status_code == 200
            await until(lambda: one.parts.long_poll.waiting == 2, "two runners wait")
            assert (await client.get("/api/jobs")).status_code == 200, "one at a time is still answered"
            more = await client.post("/api/runner/lease", json={**lease, "wait_s": 0})
            assert (more.status_code, more.json()["code"]) == (503, "too_busy")
            assert "2 long polls" in more.json()["error"]
        for poll in polls:
            poll.cancel()
