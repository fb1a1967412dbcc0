"""The wires of a world carry calls and streams as gRPC does, and break as it does."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import grpc
import pytest
from grpc import aio

from interlock_verification.worlds.actors.grpc_transport import PING_S, WireChannel, WireServer
from interlock_verification.worlds.faults import (
    REPLY_LOST,
    REQUEST_LOST,
    TWICE,
    FaultPlan,
    faults_named,
    resent,
)
from interlock_verification.worlds.judge_fleet import ConnectionFaults
from interlock_verification.worlds.network import ActorNode, ActorProcess, ClaimWatcher, WorldNetwork
from interlock_verification.worlds.worlds import world_named

FOREVER_S = 1_000.0


class Bell:
    """A service that rings every second, and notes when nobody listens any more."""

    def __init__(self, network: WorldNetwork) -> None:
        self._network = network
        self.cut_at: float | None = None
        self.rung = 0

    async def ring(self, _request: bytes, _context: Any) -> AsyncIterator[bytes]:
        try:
            while True:
                self.rung += 1
                yield str(self.rung).encode()
                await asyncio.sleep(1.0)
        finally:
            self.cut_at = self._network.schedule.now

    async def refuse(self, _request: bytes, context: Any) -> bytes:
        await context.abort(grpc.StatusCode.NOT_FOUND, "there is none", (("why-bin", b"because"),))
        raise AssertionError("it was refused")


class Silence:
    """An observer that ignores all calls."""

    def request_received(self, method: str, request: Any) -> None: ...

    def answer_sent(self, method: str, request: Any, message: Any) -> None: ...

    def refuses(self, method: str, request: Any) -> None: ...

    def alone(self, request: Any) -> None: ...


class Role:
    """What a process of a test offers."""

    def __init__(self, server: WireServer) -> None:
        self.server = server


class Ringer:
    """Lives where the bell is."""

    def __init__(self, bell: Bell) -> None:
        self._bell = bell

    async def live(self, process: ActorProcess) -> None:
        server = WireServer(process, Silence())
        methods = {
            "ring": grpc.unary_stream_rpc_method_handler(self._bell.ring, _same, _same),
            "refuse": grpc.unary_unary_rpc_method_handler(self._bell.refuse, _same, _same),
        }
        server.add_registered_method_handlers("bell", methods)
        process.role = Role(server)
        await asyncio.Event().wait()


class Listener:
    """Lives elsewhere, and does what a test says."""

    def __init__(self, act: Callable[[WireChannel], Coroutine[Any, Any, None]]) -> None:
        self._act = act

    async def live(self, process: ActorProcess) -> None:
        await self._act(WireChannel(process, "b", ConnectionFaults()))
        await asyncio.Event().wait()


class Scene:
    """A bell and a listener, and nothing that goes wrong by itself."""

    def __init__(self, act: Callable[[WireChannel], Coroutine[Any, Any, None]]) -> None:
        faults = faults_named("none")
        self.network = WorldNetwork(world_named("fleet"), 1, FaultPlan(1, faults), ClaimWatcher())
        self.bell = Bell(self.network)
        self.network.nodes["b"] = ActorNode(self.network, "b", Ringer(self.bell), 0.0)
        self.network.nodes["l"] = ActorNode(self.network, "l", Listener(act), 0.0)
        for node in self.network.nodes.values():
            node.start()

    def at(self, at_s: float, act: Callable[..., object], *args: Any) -> None:
        self.network.schedule.call_at(at_s, act, *args)

    def play(self, until_s: float = 60.0) -> None:
        self.network.schedule.run(until_s)
        for node in self.network.nodes.values():
            assert node.process is not None
            node.process.end()
        assert self.network.watcher.broken is None


def _same(payload: bytes) -> bytes:
    return payload


def _listening(
    received: list[int], errors: list[aio.AioRpcError]
) -> Callable[..., Coroutine[Any, Any, None]]:
    async def listen(channel: WireChannel) -> None:
        try:
            async for message in channel.unary_stream("/bell/ring", _same, _same)(b""):
                received.append(int(message))  # noqa: PERF401 - what came before an error was heard
        except aio.AioRpcError as error:
            errors.append(error)

    return listen


def test_an_rpc_error_arrives_with_its_status_code_details_and_metadata() -> None:
    found: list[aio.AioRpcError] = []

    async def ask(channel: WireChannel) -> None:
        try:
            await channel.unary_unary("/bell/refuse", _same, _same)(b"", timeout=5.0)
        except aio.AioRpcError as error:
            found.append(error)

    Scene(ask).play()
    (error,) = found
    assert (error.code(), error.details()) == (grpc.StatusCode.NOT_FOUND, "there is none")
    assert list(error.trailing_metadata()) == [("why-bin", b"because")]


def test_a_short_partition_delays_a_stream_and_loses_nothing_of_it() -> None:
    received: list[int] = []
    errors: list[aio.AioRpcError] = []
    scene = Scene(_listening(received, errors))
    scene.at(10.0, lambda: scene.network.part("b", "l", PING_S - 1.0))
    scene.play()
    assert not errors
    assert received == list(range(1, len(received) + 1))
    assert len(received) > 40


def test_both_sides_of_a_long_partition_find_out_within_two_pings() -> None:
    received: list[int] = []
    errors: list[aio.AioRpcError] = []
    scene = Scene(_listening(received, errors))
    scene.at(10.0, lambda: scene.network.part("b", "l", FOREVER_S))
    scene.play(10.0 + 2 * PING_S)
    assert [error.code() for error in errors] == [grpc.StatusCode.UNAVAILABLE]
    assert scene.bell.cut_at is not None
    assert scene.bell.cut_at < 10.0 + 2 * PING_S
    assert scene.bell.rung < 13, "who cannot be reached is not written to"


@pytest.mark.parametrize("seed", range(4))
def test_the_stream_of_a_killed_client_ends_at_the_server_within_two_pings(seed: int) -> None:
    scene = Scene(_listening([], []))
    scene.network.random.seed(seed)
    scene.at(10.0, lambda: scene.network.nodes["l"].kill(FOREVER_S))
    scene.play(10.0 + 2 * PING_S)
    assert scene.bell.cut_at is not None
    assert 10.0 < scene.bell.cut_at < 10.0 + 2 * PING_S


def test_a_client_drops_its_stream_from_a_frozen_server_and_the_server_sees_that_after_the_thaw() -> None:
    received: list[int] = []
    errors: list[aio.AioRpcError] = []
    scene = Scene(_listening(received, errors))
    process = scene.network.nodes["b"].process
    assert process is not None
    scene.at(10.0, lambda: scene.network.freeze(process, 30.0))
    scene.play(55.0)
    assert len(errors) == 1
    assert scene.bell.cut_at is not None
    assert 40.0 <= scene.bell.cut_at < 40.0 + PING_S


def test_a_connection_resends_most_lost_messages_so_that_they_are_only_late() -> None:
    drawn = FaultPlan(1, faults_named("network"))
    found = [drawn.fault_of_call("l", "b", 0.0, repeats=True) for _ in range(20_000)]
    felt = Counter(fault.what for fault in map(resent, found) if fault is not None)
    lost = sum(fault.what in (REQUEST_LOST, REPLY_LOST) for fault in found if fault is not None)
    assert 0 < felt[REQUEST_LOST] + felt[REPLY_LOST] < lost / 10
    assert felt[TWICE] == sum(fault.what is TWICE for fault in found if fault is not None)
    assert felt.total() == sum(fault is not None for fault in found)


def test_closing_a_channel_ends_its_stream_on_the_server() -> None:
    async def listen(channel: WireChannel) -> None:
        stream = channel.unary_stream("/bell/ring", _same, _same)(b"")
        await anext(stream)
        await channel.close()

    scene = Scene(listen)
    scene.play(1.0)
    assert scene.bell.cut_at is not None
    assert scene.bell.rung == 1
