"""Notifications: LISTEN for commits of other processes, and NOTIFY them of ours.

Listening. One connection listens for all stores of this process on a database. A worker has several stores,
each in its own thread, so that a handler that blocks one event loop does not delay the others. They are woken
by a dedicated thread. A subscriber whose connection was lost, or that has just started to listen, may have
missed a notification and is woken once.

Notifying. A NOTIFY takes a lock that all commits of the server share, so it is not part of the commit: a task
sends it a moment later, once for all commits meanwhile. Only a small commit sends it itself, if none was sent
just before: then its subscribers are woken one round trip earlier. Subscribers in this process are woken at
once.

Why: decision 0143.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, TypeAlias

from interlock.backoff import Backoff
from interlock.errors import StoreError
from interlock.store.contract import Wake
from interlock.store.postgres.commits import BatchPart, SinglePart, WritePart
from interlock.store.postgres.connections import AsyncpgConnection, PostgresPool, Session
from interlock.store.postgres.failures import Trouble
from interlock.store.postgres.target import Target
from interlock.store.postgres.waves import Wave
from interlock.store.records import Committed, Outcome

PROBE_EVERY_S = 15.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 2.0
_END_S = 5.0

Connect: TypeAlias = Callable[[], Awaitable[AsyncpgConnection]]
NotifyingPart: TypeAlias = BatchPart | SinglePart
"""A part of a commit that can notify others itself."""
_Place: TypeAlias = tuple[int, str, str]

_lock = threading.Lock()
_listeners: dict[_Place, _Listener] = {}


def listen(target: Target, timeout_s: float, wake: Wake) -> Callable[[], threading.Thread | None]:
    """Call `wake` on this loop after commits; return a function to stop.

    It is also called at the start, and whenever a notification may have been missed. Stopping returns the
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
        with suppress(RuntimeError):  # its loop is closed
            self._loop.call_soon_threadsafe(self._cancel)

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner, suppress(asyncio.CancelledError):
            runner.run(self._serve())

    async def _serve(self) -> None:
        self._task = asyncio.current_task()
        connections = PostgresPool(self._target, self._timeout_s)
        try:
            if not self._ended:
                await self._listen(connections)
        finally:
            await connections.close()

    async def _listen(self, connections: PostgresPool) -> None:
        backoff = Backoff(_FIRST_PAUSE_S, _LONGEST_PAUSE_S)
        while True:
            with suppress(*Trouble):
                connection = await connections.connect_to_listen(self._timeout_s)
                backoff.reset()
                try:
                    await self._receive(connection)
                finally:
                    self.listening = False
                    # Not gracefully: the connection may be unresponsive.
                    connection.terminate()
            await asyncio.sleep(backoff.next_s())

    async def _receive(self, connection: AsyncpgConnection) -> None:
        """Forward notifications until the connection is lost.

        A silent connection is probed.
        """
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
            with suppress(RuntimeError):  # its loop is closed
                loop.call_soon_threadsafe(wake)


async def ended(thread: threading.Thread | None) -> None:
    """Wait for a thread that was stopped."""
    if thread is not None:
        await asyncio.to_thread(thread.join, _END_S)


NOTIFY_EVERY_S = 0.01
SMALL = 4
"""Maximum records of a commit that notifies others itself."""
POLL_EVERY_S = 0.1
_FIRST_LOOK_S, _LAST_LOOK_S = 0.02, 1.0


class PostgresNotifier:
    """The subscribers of one store object."""

    def __init__(self, connections: PostgresPool, latest: Callable[[], Awaitable[str]]) -> None:
        self._connections = connections
        self._target = connections.target
        self._latest = latest
        self._wakes: dict[object, Wake] = {}
        self._news = asyncio.Event()
        self._notifying: asyncio.Task[None] | None = None
        self._polling: asyncio.Task[None] | None = None
        self._stop_listening: Callable[[], threading.Thread | None] | None = None
        self._again: asyncio.TimerHandle | None = None
        self._look_after_s = _FIRST_LOOK_S
        self._notified_at = float("-inf")
        self.notified: int = 0
        """Number of notifications sent."""

    def subscribe(self, wake: Wake) -> Callable[[], None]:
        """Add a subscriber; return a function that removes it."""
        token = object()
        self._wakes[token] = wake
        self._begin()

        def stop() -> None:
            self._wakes.pop(token, None)
            if not self._wakes:
                self._end()

        return stop

    def let_notify(self, parts: Sequence[WritePart]) -> NotifyingPart | None:
        """Let a small commit of one statement notify itself; return its part."""
        if len(parts) != 1 or isinstance(part := parts[0], Wave) or part.number > SMALL:
            return None
        now = asyncio.get_running_loop().time()
        if now < self._notified_at + NOTIFY_EVERY_S:
            return None
        self._notified_at = now
        part.channel = self._target.channel
        return part

    def notify(self, outcomes: list[Outcome], notifying: NotifyingPart | None = None) -> list[Outcome]:
        """Wake subscribers after a commit, and notify other processes.

        If a part of the commit has notified them, this does not.
        """
        if any(isinstance(outcome, Committed) for outcome in outcomes):
            self.committed(notifying is not None and notifying.channel is not None)
        return outcomes

    def committed(self, notified: bool = False) -> None:
        """Wake subscribers of this process, and notify others unless `notified`."""
        self.wake()
        if notified:
            self.notified += 1
            return
        self._news.set()
        if self._notifying is None:
            self._notifying = _start(self._notify_others())

    def held_back(self, waiting: bool) -> None:
        """Read again later if the feed waits for another process's transaction."""
        if not waiting:
            self._look_after_s = _FIRST_LOOK_S
        elif self._wakes and self._again is None:
            self._again = asyncio.get_running_loop().call_later(self._look_after_s, self._look_again)
            self._look_after_s = min(self._look_after_s * 2, _LAST_LOOK_S)

    def wake(self) -> None:
        """Wake all subscribers here; their errors do not reach the committer."""
        if self._wakes:
            loop = asyncio.get_running_loop()
            for wake in self._wakes.values():
                loop.call_soon(wake)

    async def close(self) -> None:
        """Remove all subscribers, and stop."""
        self._wakes.clear()
        if self._again is not None:
            self._again.cancel()
        polling, listener = self._polling, self._end()
        for task in (self._notifying, polling):
            if task is not None:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
        self._notifying = None
        await ended(listener)

    def _begin(self) -> None:
        if not self._target.listen:
            self._polling = self._polling or _start(self._poll())
        elif self._stop_listening is None:
            self._stop_listening = listen(self._target, self._connections.timeout_s, self.wake)

    def _end(self) -> threading.Thread | None:
        """Stop listening or polling; return the thread that ends with it."""
        if self._polling is not None:
            self._polling.cancel()
            self._polling = None
        stop, self._stop_listening = self._stop_listening, None
        return stop() if stop is not None else None

    def _look_again(self) -> None:
        self._again = None
        self.wake()

    async def _notify_others(self) -> None:
        backoff = Backoff(_FIRST_PAUSE_S, _LONGEST_PAUSE_S)
        while True:
            await self._news.wait()
            await asyncio.sleep(self._notified_at + NOTIFY_EVERY_S - asyncio.get_running_loop().time())
            self._news.clear()
            self._notified_at = asyncio.get_running_loop().time()
            try:
                await self._connections.run("Notifying others of a commit", self._notify)
            except StoreError:
                self._news.set()
                await asyncio.sleep(backoff.next_s())
            else:
                self.notified += 1
                backoff.reset()

    async def _notify(self, session: Session) -> None:
        """Send a notification without waiting for the disk.

        The reconnect makes up for one that is lost in a crash. Otherwise waiting workers would wait for
        another flush, and the lock would be held during it.
        """
        await session.script(
            f"BEGIN; SET LOCAL synchronous_commit = off; NOTIFY {self._target.channel}; COMMIT"
        )

    async def _poll(self) -> None:
        """Poll for changes, without LISTEN."""
        seen = ""
        while True:
            with suppress(StoreError):
                latest = await self._latest()
                if latest != seen:
                    seen = latest
                    self.wake()
            await asyncio.sleep(POLL_EVERY_S)


def _start(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    return asyncio.get_running_loop().create_task(work)
