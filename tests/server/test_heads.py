"""Heads of requests and answers: how large, whose, and what browsers are told."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.server.dripping import by_hand
from tests.server.running import Running, any_port, running
from tests.server.test_program import certificate

from interlock.wire.access import Role

GOOD = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
HEALTHY = b'{"status":"ok"}'
LIMIT = 16_384


def head(*lines: bytes, path: bytes = b"/healthz", host: bytes = b"Host: localhost\r\n") -> bytes:
    return b"GET %s HTTP/1.1\r\n%s" % (path, host) + b"".join(line + b"\r\n" for line in lines) + b"\r\n"


LARGE = head(b"X: " + b"x" * 60_000)
MANY = head(*(b"X-%d: x" % number for number in range(10_000)))
LONG = head(path=b"/healthz?" + b"x" * LIMIT)


async def answered(server: Running, *parts: bytes) -> bytes:
    """What the server says before it hangs up."""
    async with by_hand(server.address) as client:
        client.say(*parts)
        return await client.all()


@pytest.mark.parametrize("large", [LARGE, MANY, LONG], ids=["one header", "many headers", "address"])
async def test_a_head_over_the_limit_is_refused_in_one_piece(server: Running, large: bytes) -> None:
    reply = await answered(server, large)
    assert reply.startswith(b"HTTP/1.1 400"), reply[:200]
    assert b'"code":"no_http"' in reply
    assert b"16384 bytes" in reply
    assert HEALTHY not in reply


async def test_a_head_over_the_limit_is_refused_in_many_pieces(server: Running) -> None:
    async with by_hand(server.address) as client:
        for start in range(0, len(LARGE), 1_000):
            client.say(LARGE[start : start + 1_000])
        assert (await client.all()).startswith(b"HTTP/1.1 400")


async def test_a_head_over_the_limit_is_refused_after_good_ones_on_the_same_connection(
    server: Running,
) -> None:
    async with by_hand(server.address) as client:
        client.say(GOOD)
        await client.hear(HEALTHY)
        client.say(LARGE)
        assert (await client.all()).startswith(b"HTTP/1.1 400")


async def test_a_head_over_the_limit_is_refused_behind_a_good_one_in_the_same_piece(server: Running) -> None:
    reply = await answered(server, GOOD, GOOD, LARGE)
    assert (reply.count(HEALTHY), reply.count(b"HTTP/1.1 400")) == (2, 1)


async def test_a_head_that_arrives_while_another_request_is_answered_is_counted(
    server: Running, waiting_for_ever: None
) -> None:
    body = b'{"runner_id":"r","queues":["none"],"wait_s":3600}'
    lease = (
        b"POST /api/runner/lease HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Content-Length: %d\r\n\r\n" % len(body)
    )
    async with by_hand(server.address) as client:
        client.say(lease + body)
        client.say(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: ")
        for _ in range(100):
            client.say(b"x" * 10_000)
        assert await client.all() == b"", "anything else would be the answer to the first request"


async def test_a_head_just_under_the_limit_is_fine_however_it_arrives(server: Running) -> None:
    fitting = head(b"X: " + b"x" * (LIMIT - len(head(b"X: "))))
    assert len(fitting) == LIMIT
    async with by_hand(server.address) as client:
        client.say(fitting)
        await client.hear(HEALTHY)
        client.say(fitting + fitting)
        await client.hear(HEALTHY)
        await client.hear(HEALTHY)
        client.say(fitting[:9_000])
        client.say(fitting[9_000:])
        await client.hear(HEALTHY)


async def test_a_large_body_does_not_count_as_a_head(server: Running) -> None:
    body = b'{"task":"a.b","input":"' + b"x" * 100_000 + b'"}'
    request_head = (
        b"POST /api/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Content-Length: %d\r\n\r\n" % len(body)
    )
    async with by_hand(server.address) as client:
        client.say(request_head + body + GOOD + request_head + body + GOOD[:10])
        await client.hear(b"HTTP/1.1 201")
        await client.hear(HEALTHY)
        await client.hear(b"HTTP/1.1 201")
        client.say(GOOD[10:])
        await client.hear(HEALTHY)


# Whose


@pytest.mark.parametrize(
    "host",
    [
        b"Host: localhost\r\nHost: evil.example\r\n",
        b"Host: evil.example\r\nHost: localhost\r\n",
        b"Host: localhost\r\nHost: localhost\r\n",
        b"",
        b"Host: [::1]evil.example\r\n",
        b"Host: localhost:x@evil.example\r\n",
        b"Host: evil.example@localhost\r\n",
        b"Host: localhost:80:80\r\n",
        b"Host: localhost:\xb2\r\n",
        b"Host: local host\r\n",
        b"Host: localhost/evil.example\r\n",
        b"Host: [::1\r\n",
        b"Host: [evil.example]\r\n",
        b"Host: localhost, evil.example\r\n",
    ],
)
async def test_a_host_that_is_none_or_several_is_refused(server: Running, host: bytes) -> None:
    for path in (b"/api/jobs", b"/healthz"):
        reply = await answered(server, head(path=path, host=host))
        assert reply.startswith(b"HTTP/1.1 400"), reply[:200]
        assert b'"code":"no_http"' in reply


@pytest.mark.parametrize(
    "twice",
    [
        (b"Authorization: Bearer %s", b"Authorization: Bearer il_other"),
        (b"Authorization: Bearer %s", b"Content-Type: application/json", b"Content-Type: text/plain"),
        (b"Authorization: Bearer %s", b"Content-Length: 0", b"Content-Length: 0"),
        (b"Authorization: Bearer %s", b"Content-Length: 0", b"Content-Length: 5"),
        (b"Authorization: Bearer %s", b"Content-Length: 2", b"Transfer-Encoding: chunked"),
        (b"Authorization: Bearer %s", b"Idempotency-Key: a", b"Idempotency-Key: b"),
        (b"Authorization: Bearer %s", b"Origin: http://localhost", b"Origin: http://evil.example"),
        (b"Authorization: Bearer %s", b"X-Hub-Signature-256: a", b"X-Hub-Signature-256: b"),
    ],
)
async def test_a_header_that_means_one_thing_may_not_come_twice(
    server: Running, twice: Sequence[bytes]
) -> None:
    token = (await server.token(Role.ADMIN)).encode()
    reply = await answered(server, head(*(line.replace(b"%s", token) for line in twice), path=b"/api/jobs"))
    assert reply.startswith(b"HTTP/1.1 400"), reply[:200]
    assert b'"code":"no_http"' in reply


async def test_a_header_that_is_a_list_may_come_twice(server: Running) -> None:
    async with by_hand(server.address) as client:
        client.say(head(b"Accept: text/html", b"Accept: application/json"))
        await client.hear(HEALTHY)


# What browsers are told


async def test_pages_for_people_may_not_be_framed(server: Running) -> None:
    policy = (await server.client().get("/docs")).headers["content-security-policy"]
    assert "frame-ancestors 'none'" in policy
    assert "default-src 'none'" in policy


async def test_a_server_with_tls_sends_an_hsts_header_except_for_localhost(tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    settings = any_port(
        tls_cert=str(cert), tls_key=str(key), allowed_hosts=("ci.example.org",), tokens_required=True
    )
    async with running(settings=settings) as server:
        client = server.client(verify=ssl.create_default_context(cafile=str(cert)))
        for path in ("/healthz", "/api/jobs"):
            answer = await client.get(path, headers={"Host": "ci.example.org"})
            assert answer.headers["strict-transport-security"] == "max-age=31536000"
            local = await client.get(path, headers={"Host": "localhost"})
            assert "strict-transport-security" not in local.headers, "it would hold for every port"


async def test_a_server_without_tls_sends_no_hsts_header(server: Running) -> None:
    assert "strict-transport-security" not in (await server.client().get("/healthz")).headers
