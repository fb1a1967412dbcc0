"""One connection: what an application may say, in which order requests are answered, and what one costs."""

from __future__ import annotations

import asyncio
import cProfile
import pstats
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import msgspec
import pytest
import uvicorn
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from tests.server.dripping import ByHand, by_hand
from tests.server.running import ANY_PORT, Running, any_port, running
from tests.waiting import until
from uvicorn.server import ServerState

from interlock.server.connections import connection_for
from interlock.server.limits import ConnectionTable
from interlock.server.settings import ServerSettings

GET = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
PLAIN = (b"content-type", b"text/plain")
WHOLE = (b"content-length", b"2")


def start(*headers: tuple[bytes, bytes], status: int = 200) -> Message:
    return {"type": "http.response.start", "status": status, "headers": [PLAIN, *headers]}


def part(body: bytes, *, more: bool = False) -> Message:
    return {"type": "http.response.body", "body": body, "more_body": more}


@asynccontextmanager
async def serving(
    app: ASGIApp, settings: ServerSettings = ANY_PORT, connections: set[Any] | None = None
) -> AsyncIterator[tuple[str, int]]:
    """The address at which an application is served by our connections."""
    config, state = uvicorn.Config(app, lifespan="off", log_config=None), ServerState()
    config.load()
    if connections is not None:
        state.connections = connections
    kind: Any = connection_for(settings, ConnectionTable(settings), lambda _: None)
    make = partial(kind, config=config, server_state=state)
    async with await asyncio.get_running_loop().create_server(make, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()[:2]
        yield host, port


def saying(*messages: Message) -> ASGIApp:
    async def app(_: Scope, __: Receive, send: Send) -> None:
        for message in messages:
            await send(message)

    return app


# What an application may say


async def test_a_response_in_parts_is_sent_in_chunks_and_the_connection_stays() -> None:
    app = saying(start(), part(b"one", more=True), part(b"", more=True), part(b"two"))
    async with serving(app) as address, by_hand(address) as client:
        for _ in range(2):
            client.say(GET)
            await client.hear(b"transfer-encoding: chunked\r\n\r\n3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n")


async def test_the_response_to_head_has_the_headers_and_no_body() -> None:
    async with serving(saying(start(WHOLE), part(b"ok"))) as address, by_hand(address) as client:
        client.say(GET.replace(b"GET", b"HEAD"), GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        first, second = (await client.all()).split(b"HTTP/1.1 200 OK\r\n")[1:]
        assert b"content-length: 2\r\n" in first
        assert first.endswith(b"\r\n\r\n")
        assert second.endswith(b"connection: close\r\n\r\nok")


@pytest.mark.parametrize(
    "messages",
    [
        (),
        (part(b"ok"),),
        (start((b"x-name", b"a\r\nx-other: b")),),
        (start((b"x name", b"a")),),
    ],
    ids=["nothing", "a body first", "two lines in a header", "a name that is none"],
)
async def test_an_application_that_does_not_begin_a_response_is_answered_for(
    messages: tuple[Message, ...],
) -> None:
    async with serving(saying(*messages)) as address, by_hand(address) as client:
        client.say(GET)
        reply = await client.all()
    assert b"x-other" not in reply
    assert not reply or reply.startswith(b"HTTP/1.1 500 Internal Server Error\r\n")
    assert reply or messages, "only a response that has begun is cut off"


@pytest.mark.parametrize("body", [b"o", b"okay"], ids=["shorter", "longer"])
async def test_a_response_of_another_length_than_announced_ends_the_connection(body: bytes) -> None:
    async with serving(saying(start(WHOLE), part(body))) as address, by_hand(address) as client:
        client.say(GET + GET)
        assert (await client.all()).count(b"HTTP/1.1") == 1


async def test_a_client_that_expects_100_continue_receives_it_before_its_body() -> None:
    async def app(_: Scope, receive: Receive, send: Send) -> None:
        body = b""
        while (message := await receive())["more_body"]:
            body += message["body"]
        await send(start(WHOLE))
        await send(part(body + message["body"]))

    head = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n"
    async with serving(app) as address, by_hand(address) as client:
        client.say(head)
        await client.hear(b"HTTP/1.1 100 Continue\r\n\r\n")
        client.say(b"o")
        client.say(b"k")
        await client.hear(b"\r\n\r\nok")


# Several requests on one connection


def lease(**more: Any) -> bytes:
    return post(b"/api/runner/lease", {"runner_id": "r", **more})


def post(path: bytes, body: Any) -> bytes:
    content = msgspec.json.encode(body)
    head = (
        b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    )
    return head % (path, len(content)) + content


async def test_a_long_poll_ends_with_its_connection_although_another_request_waits_behind_it(
    waiting_for_ever: None,
) -> None:
    async with running() as server:
        async with by_hand(server.address) as client:
            client.say(lease(wait_s=3_600) + b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            await until(lambda: server.parts.long_poll.waiting == 1, "the runner waits")
        await until(lambda: server.parts.long_poll.waiting == 0, "no claim waits for it any more")


async def test_a_connection_is_closed_when_idle_and_not_while_a_request_is_answered() -> None:
    gate = asyncio.Event()

    async def app(scope: Scope, _: Receive, send: Send) -> None:
        if scope["path"] == "/slow":
            await gate.wait()
        await send(start(WHOLE))
        await send(part(b"ok"))

    connections: set[Any] = set()
    settings = any_port(keep_alive_s=1)
    async with serving(app, settings, connections) as address, by_hand(address) as client:
        client.say(GET)
        await client.hear(b"\r\n\r\nok")
        client.say(GET.replace(b"/ ", b"/slow "))
        (connection,) = connections
        await until(lambda: connection._idle_timer is None, "the time of the idle connection is over")
        assert not client.gone.is_set()
        gate.set()
        await client.hear(b"\r\n\r\nok")
        assert await client.all() == b""


# What a request costs

OURS = ("app", "connections", "cycle", "endpoint", "limits", "middleware", "requests")
LAYERS = ("uvicorn/", "starlette/", *(f"interlock/server/{name}.py" for name in OURS))
REQUESTS = 60


async def ask(client: ByHand, request: bytes) -> None:
    client.say(request)
    await client.hear(b"\r\n\r\n")


async def calls(server: Running, request: bytes) -> float:
    """Return how many functions of the layers around a handler are called for each such request."""
    async with by_hand(server.address) as client:
        await ask(client, request)
        profile = cProfile.Profile()
        profile.enable()
        for _ in range(REQUESTS):
            await ask(client, request)
        profile.disable()
    stats: Any = pstats.Stats(profile)
    counted = sum(
        found[1] for (file, _, _), found in stats.stats.items() if any(each in file for each in LAYERS)
    )
    return float(counted) / REQUESTS


async def test_a_request_of_a_runner_passes_few_functions_on_its_way_to_the_handler() -> None:
    """They were 87 and 96 with the connections of uvicorn and ASGI messages; C functions are not counted.

    They are 65 and 65. On a slow machine timers of the server fall between the requests.
    """
    async with running() as server:
        message = {"token": "j_0123456789ab.1.1." + "0" * 32, "runner_id": "r", "sequence": 1}
        assert await calls(server, post(b"/api/runner/lease", {"runner_id": "r"})) <= 72
        assert (
            await calls(server, post(b"/api/runner/messages", {"messages": [{"type": "ack", **message}]}))
            <= 72
        )
