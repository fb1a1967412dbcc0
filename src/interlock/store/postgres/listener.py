"""One connection that listens, for all stores of this process on a database.

A worker has several stores, each in a thread of its own, so that a handler that blocks one event loop does
not hold up the others. They are woken by a thread that does nothing else.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeAlias

from interlock.store.contract import Wake
from interlock.store.postgres.connections import Connection, Connections
from interlock.store.postgres.failures import Trouble
from interlock.store.postgres.target import Target

PROBE_EVERY_S = 15.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 2.0
_END_S = 5.0

Connect: TypeAlias = Callable[[], Awaitable[Connection]]
_Place: TypeAlias = tuple[int, str, str]

_lock = threading.Lock()
_listeners: dict[_Place, _Listener] = {}


def listen(target: Target, timeout_s: float, wake: Wake) -> Callable[[], threading.Thread | None]:
    """Have `wake` called on this event loop when something was committed; return how to stop that.

    It is called at the beginning as well, and whenever something may have been missed. Stopping returns the
    thread that ends with it, if no other store of the process listens there.
    """
    place = (os.getpid(), target.url, target.channel)
    loop, token = asyncio.get_running_loop(), object()
    with _lock:
        listener = _listeners.get(place)
        if listener is None:
            listener = _listeners[place] = _Listener(target, timeout_s)
            listener.thread.start()
        elif listener.listening:
            loop.call_soon(wake)
        listener.members[token] = (loop, wake)

    def stop() -> threading.Thread | None:
        with _lock:
            listener.members.pop(token, None)
            if listener.members or _listeners.get(place) is not listener:
                return None
            del _listeners[place]
        listener.end()
        return listener.thread

    return stop


class _Listener:
    """A thread with an event loop and a connection."""

    def __init__(self, target: Target, timeout_s: float) -> None:
        self.members: dict[object, tuple[asyncio.AbstractEventLoop, Wake]] = {}
        self.listening = False
        self.thread = threading.Thread(target=self._run, name="interlock-listener", daemon=True)
        self._target = target
        self._timeout_s = timeout_s
        self._loop = asyncio.new_event_loop()
        self._task: asyncio.Task[None] | None = None
        self._ended = False

    def end(self) -> None:
        """Stop listening; from any thread."""
        self._ended = True
        with suppress(RuntimeError):  # its loop is closed already
            self._loop.call_soon_threadsafe(self._cancel)

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner, suppress(asyncio.CancelledError):
            runner.run(self._serve())

    async def _serve(self) -> None:
        self._task = asyncio.current_task()
        connections = Connections(self._target, self._timeout_s)
        try:
            if not self._ended:
                await self._listen(connections)
        finally:
            await connections.close()

    async def _listen(self, connections: Connections) -> None:
        pause_s = _FIRST_PAUSE_S
        while True:
            with suppress(*Trouble):
                connection = await connections.connect_to_listen(self._timeout_s)
                pause_s = _FIRST_PAUSE_S
                try:
                    await self._hear(connection)
                finally:
                    self.listening = False
                    # Not politely: it may be the connection that no longer answers.
                    connection.terminate()
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)

    async def _hear(self, connection: Connection) -> None:
        """Pass on what is heard until the connection is lost, which silence alone does not show."""
        lost = asyncio.Event()
        connection.add_termination_listener(lambda _: lost.set())
        await connection.add_listener(self._target.channel, lambda *_: self._wake_all())
        with _lock:
            self.listening = True
        self._wake_all()
        while not lost.is_set():
            try:
                async with asyncio.timeout(PROBE_EVERY_S):
                    await lost.wait()
            except TimeoutError:
                alarm = asyncio.get_running_loop().call_later(self._timeout_s, connection.terminate)
                await connection.execute("SELECT 1")
                alarm.cancel()

    def _wake_all(self) -> None:
        with _lock:
            members = list(self.members.values())
        for loop, wake in members:
            with suppress(RuntimeError):  # its loop is closed: nobody is left to be woken
                loop.call_soon_threadsafe(wake)


async def ended(thread: threading.Thread | None) -> None:
    """Wait for a thread that was told to end."""
    if thread is not None:
        await asyncio.to_thread(thread.join, _END_S)
