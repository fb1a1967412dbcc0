"""A loop beside the main loop connects, uses its connection until that fails, and stops when told to."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, cast

import pytest

from interlock.backoff import Backoff
from interlock.errors import StoreUnavailable
from interlock.worker.host import Begins, Join
from interlock.worker.port import OrchestratorPort
from interlock.worker.side_loop import SideLoop


class Port:
    """Counts how often it is connected and disconnected."""

    def __init__(self, *, answers: bool = True) -> None:
        self.answers = answers
        self.calls: list[str] = []

    async def connect(self) -> None:
        self.calls.append("connect")
        if not self.answers:
            raise StoreUnavailable("away")

    async def disconnect(self) -> None:
        self.calls.append("disconnect")


class InLoop:
    """Runs threads as tasks of the test."""

    def __init__(self) -> None:
        self.tasks: list[asyncio.Task[None]] = []

    def serve(
        self, name: str, main: Callable[[], Coroutine[Any, Any, None]], begins: Begins | None = None
    ) -> Join:
        self.tasks.append(asyncio.create_task(main(), name=name))
        if begins is not None:
            begins(asyncio.get_running_loop())
        return lambda _timeout_s: None

    def repeat(self, name: str, every_s: float, body: Callable[[], None]) -> Join:
        raise AssertionError(f"{name} repeats {body} every {every_s} s")


class Side:
    """A side loop over these ports, one after the other, and what became of it."""

    def __init__(self, *ports: Port, use: Callable[[Side], Awaitable[None]] | None = None) -> None:
        self.threads, self.errors, self.ends = InLoop(), list[Exception](), list[object]()
        self._ports, self._body = list(ports), use
        self.used: asyncio.Queue[object] = asyncio.Queue()
        self.loop = SideLoop(
            "side",
            lambda: cast("OrchestratorPort", self._ports.pop(0)),
            self._use,
            failed=self.errors.append,
            finish=self._finish,
            backoff=Backoff(3_600.0, 3_600.0),
            threads=self.threads,
        )

    async def _use(self) -> None:
        await self.used.put(await self.loop.connected())
        if self._body is not None:
            await self._body(self)
        await asyncio.Event().wait()

    async def _finish(self) -> None:
        self.ends.append(self.loop.port)


async def test_after_an_error_the_connection_is_abandoned_and_a_wake_shortens_the_pause() -> None:
    first, second = Port(), Port()

    async def fail_once(side: Side) -> None:
        if not side.errors:
            raise StoreUnavailable("gone")

    side = Side(first, second, use=fail_once)
    side.loop.start()
    assert await side.used.get() is first
    while not first.calls[1:]:
        await asyncio.sleep(0)
    side.loop.wake()
    assert await side.used.get() is second
    assert (first.calls, second.calls) == (["connect", "disconnect"], ["connect"])
    assert [str(error) for error in side.errors] == ["gone"]
    side.loop.stop(1.0)
    await side.threads.tasks[0]


async def test_a_stop_ends_the_use_and_finishes_over_the_connection_before_it_is_closed() -> None:
    port = Port()
    side = Side(port)
    side.loop.start()
    await side.used.get()
    side.loop.stop(1.0)
    await side.threads.tasks[0]
    assert side.ends == [port]
    assert (port.calls, side.errors) == (["connect", "disconnect"], [])


async def test_a_connection_that_cannot_be_opened_is_closed_and_not_kept() -> None:
    side = Side(Port(answers=False))
    closed = side._ports[0]
    with pytest.raises(StoreUnavailable):
        await side.loop.connected()
    assert (closed.calls, side.loop.port) == (["connect", "disconnect"], None)


async def test_two_messages_at_once_share_one_connection() -> None:
    side = Side(Port())
    one, other = await asyncio.gather(side.loop.connected(), side.loop.connected())
    assert one is other is side.loop.port


async def test_nothing_goes_on_when_the_task_of_the_loop_is_cancelled() -> None:
    side = Side(Port())
    side.loop.start()
    await side.used.get()
    before = asyncio.all_tasks()
    side.threads.tasks[0].cancel()
    await asyncio.wait(side.threads.tasks)
    assert asyncio.all_tasks() == {asyncio.current_task()} < before
    assert side.ends == []


async def test_a_loop_that_was_never_started_is_stopped_at_once() -> None:
    side = Side()
    side.loop.wake()
    side.loop.stop(1.0)
    assert not side.loop.started
