"""Answers that are eaten and wires that swallow everything: a short round, and the modes that must fail."""

from __future__ import annotations

import asyncio
import contextlib
import socket

import pytest
from tests.effort import pick
from tests.waiting import PATIENCE_S

from interlock.testing.proxy import Wires, wires_to
from interlock_verification.chaos import black_hole, eaten_reply
from interlock_verification.chaos.verdict import Setup


@pytest.mark.parametrize("store", eaten_reply.STORES)
def test_of_many_steps_each_is_done_once_although_most_answers_are_eaten(store: str) -> None:
    steps = pick(40, 100)
    verdict = eaten_reply.run(Setup(store=store, rounds=steps, seed=1))
    assert verdict.broken_promises == []
    assert verdict.counts["acknowledged"] == verdict.counts["applied"] == steps
    assert verdict.counts["replies_eaten"] > steps // 10
    assert verdict.counts["requests_lost"] > steps // 20


@pytest.mark.parametrize("store", [pytest.param("postgres", marks=pytest.mark.long), "redis"])
def test_a_client_that_just_does_it_again_does_it_twice(store: str) -> None:
    verdict = eaten_reply.run(Setup(store=store, rounds=40, seed=1, broken=True))
    assert verdict.counts["doubled"] > 5
    assert verdict.broken_promises != []


@pytest.mark.parametrize("store", black_hole.STORES)
def test_the_deadline_of_a_caller_holds_in_a_black_hole_and_the_store_works_after_it(store: str) -> None:
    verdict = black_hole.run(Setup(store=store, rounds=1, seed=1))
    assert verdict.broken_promises == []
    assert verdict.counts["calls"] >= 2


@pytest.mark.parametrize(
    "store", ["sqlite", *(pytest.param(store, marks=pytest.mark.long) for store in ("postgres", "redis"))]
)
def test_a_caller_without_a_deadline_is_found_out(store: str) -> None:
    verdict = black_hole.run(Setup(store=store, rounds=1, seed=1, broken=True))
    assert [sentence.partition(" ")[0] for sentence in verdict.broken_promises] == ["committing"]


@pytest.mark.parametrize(
    ("url", "through"),
    [
        ("postgresql://postgres@/name?host=%2Ftmp%2Fx&port=5432", "postgresql://postgres@127.0.0.1:9/name"),
        ("redis://127.0.0.1:6379/0", "redis://127.0.0.1:9/0"),
        ("unix:///tmp/redis.sock?db=0", "redis://127.0.0.1:9/0"),
    ],
)
def test_a_url_leads_through_the_wire(url: str, through: str) -> None:
    wires = Wires(("127.0.0.1", 1))
    wires.port = 9
    assert wires.url(url) == through


async def test_a_marker_that_is_split_between_two_messages_is_still_recognised() -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while word := await reader.read(100):
            writer.write(word)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    async with wires_to(server.sockets[0].getsockname()) as wires:
        wires.losses[b"marker"] = "reply"
        reader, writer = await asyncio.open_connection("127.0.0.1", wires.port)
        writer.write(b"a mar")
        assert await reader.readexactly(5) == b"a mar"
        writer.write(b"ker")
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await reader.readexactly(3)
        writer.close()
        assert wires.counts["replies eaten"] == 1
        assert wires.losses == {}
    server.close()
    await server.wait_closed()


@pytest.mark.parametrize("turns", range(8))
async def test_cutting_a_proxied_connection_that_is_already_closing_closes_its_upstream_side(
    turns: int,
) -> None:
    upstream: list[asyncio.StreamWriter] = []

    class Watched(Wires):
        async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
            reader, writer = await super()._connect()
            upstream.append(writer)
            return reader, writer

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readline())
        await reader.read()
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    wires = Watched(server.sockets[0].getsockname())
    near = await asyncio.start_server(wires.accept, "127.0.0.1", 0)
    async with server, near:
        reader, writer = await asyncio.open_connection(*near.sockets[0].getsockname())
        writer.write(b"one\n")
        assert await reader.readline() == b"one\n"
        writer.close()
        for _ in range(turns):
            await asyncio.sleep(0)
        await wires.cut_all()
        assert [each.is_closing() for each in upstream] == [True]


async def test_a_connection_that_is_left_half_open_is_silent_and_new_ones_work() -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            writer.write(line)
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    async with server, wires_to(server.sockets[0].getsockname()) as wires:
        old_reader, old_writer = await asyncio.open_connection("127.0.0.1", wires.port)
        old_writer.write(b"one\n")
        assert await old_reader.readline() == b"one\n"
        assert wires.halve() == 1
        new_reader, new_writer = await asyncio.open_connection("127.0.0.1", wires.port)
        old_writer.write(b"two\n")
        new_writer.write(b"three\n")
        assert await new_reader.readline() == b"three\n"
        assert not old_reader.at_eof(), "nobody tells it that the far end is gone"
        assert wires.half_open == 1
        await wires.cut_all()
        assert wires.half_open == 0
        assert await old_reader.read() == b"", "now it knows"
        for writer in (old_writer, new_writer):
            writer.close()


@pytest.mark.parametrize("turns", range(7))
async def test_a_connection_that_arrives_while_the_proxy_closes_is_closed_as_well(turns: int) -> None:
    """However far the event loop has come with it: it was accepted, and not yet handed over."""
    upstream = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    async with upstream, wires_to(upstream.sockets[0].getsockname()) as wires:
        near = socket.create_connection(("127.0.0.1", wires.port))
        for _ in range(turns):
            await asyncio.sleep(0)
    near.settimeout(PATIENCE_S)
    with near, contextlib.suppress(ConnectionResetError):
        assert await asyncio.to_thread(near.recv, 1) == b""
