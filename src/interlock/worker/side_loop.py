"""A loop beside the main loop of a worker: a thread, an event loop and a connection of its own.

The leases of a worker, its registration and its simulations each have one, so that neither a handler that
blocks the event loop of the worker nor a poll that waits at the server delays their heartbeats.

The connection is opened when it is needed. After an error it is abandoned, and after a pause the next one is
used. Any thread may wake the loop or stop it.

Why: decision 0516.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from interlock.backoff import Backoff
from interlock.worker.host import MACHINE, Join, Threads, call_in_loop
from interlock.worker.port import OrchestratorPort

T = TypeVar("T")
_LASTING_S = 5.0
"""A connection that was used for this long was no failure."""
_DISCONNECT_S = 0.5


class SideLoop:
    """Uses connections, one after the other, in a thread of its own until it is stopped."""

    def __init__(
        self,
        name: str,
        connect: Callable[[], OrchestratorPort],
        use: Callable[[], Awaitable[object]] | None = None,
        *,
        failed: Callable[[Exception], None] | None = None,
        finish: Callable[[], Awaitable[None]] | None = None,
        backoff: Backoff,
        threads: Threads = MACHINE,
    ) -> None:
        """Prepare the loop: `use` runs until its connection fails.

        `failed` is called with the error, and `finish` at the end, before the connection is closed.
        """
        self._name = name
        self._connect = connect
        self._use = use
        self._failed = failed
        self._finish = finish
        self._backoff = backoff
        self._threads = threads
        self._woken, self._stopped = asyncio.Event(), asyncio.Event()
        self._connecting = asyncio.Lock()
        self._port: OrchestratorPort | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._join: Join | None = None

    # From any thread

    @property
    def started(self) -> bool:
        """Whether the thread was started."""
        return self._join is not None

    def start(self) -> None:
        """Start the thread."""
        self._join = self._threads.serve(self._name, self._serve, self._begins)

    def stop(self, timeout_s: float) -> None:
        """Stop the thread, if it was started; a hanging one is abandoned."""
        if self._loop is not None and self._join is not None:
            call_in_loop(self._loop, self._stopped.set)
            self._join(timeout_s)

    def wake(self) -> None:
        """End the current wait, or the next one."""
        if self._loop is not None:
            call_in_loop(self._loop, self._woken.set)

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine in the thread."""
        assert self._loop is not None, "it was started"
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    # In the thread

    @property
    def port(self) -> OrchestratorPort | None:
        """The connected port, if there is one."""
        return self._port

    async def connected(self) -> OrchestratorPort:
        """Return the connected port; connect first if there is none."""
        async with self._connecting:
            if self._port is None:
                port = self._connect()
                try:
                    await port.connect()
                except BaseException:
                    await _disconnect(port)
                    raise
                self._port = port
            return self._port

    async def abandon(self) -> None:
        """Give up the connection; closing it must not delay the next one."""
        port, self._port = self._port, None
        if port is not None:
            await _disconnect(port)

    def forget_wakes(self) -> None:
        """Ignore all wakes of the loop so far: their causes are handled next."""
        self._woken.clear()

    async def wait(self, seconds: float | None = None) -> None:
        """Wait until woken, at most this long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._woken.wait()
        self._woken.clear()

    def _begins(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    async def _serve(self) -> None:
        using = [] if self._use is None else [asyncio.create_task(self._use_connections(self._use))]
        try:
            await self._stopped.wait()
        finally:  # also where the loop is a task that is cancelled
            for task in using:
                task.cancel()
            await asyncio.gather(*using, return_exceptions=True)
        if self._finish is not None:
            await self._finish()
        await self.abandon()

    async def _use_connections(self, use: Callable[[], Awaitable[object]]) -> None:
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            try:
                await use()
            except Exception as error:  # noqa: BLE001 - a loop survives any error of its body
                if self._failed is not None:
                    self._failed(error)
            await self.abandon()
            if loop.time() - began > _LASTING_S:
                self._backoff.reset()
            self.forget_wakes()  # the next connection is for everything so far
            await self.wait(self._backoff.next_s())


async def _disconnect(port: OrchestratorPort) -> None:
    with contextlib.suppress(Exception):
        async with asyncio.timeout(_DISCONNECT_S):
            await port.disconnect()
