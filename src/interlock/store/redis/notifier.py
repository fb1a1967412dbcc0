"""Notifications: a subscription to the channel on which commits are announced.

One connection listens for all subscribers. A connection that starts to listen may have missed notifications,
after a lost connection as well as at the very beginning, so all subscribers are woken once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from redis.asyncio.connection import AbstractConnection
from redis.exceptions import RedisError

from interlock.errors import StoreError
from interlock.store.contract import Wake
from interlock.store.redis.connections import Connections, hang_up

_LOST = (RedisError, StoreError, OSError, EOFError, TimeoutError)
_LONGEST_PAUSE_S = 5.0


class RedisNotifier:
    """The subscribers of one store, and the task that listens for them while there are any."""

    def __init__(self, links: Connections, channel: str, patience_s: float) -> None:
        self._links = links
        self._channel = channel
        self._patience_s = patience_s
        self._wakes: dict[object, Wake] = {}
        self._task: asyncio.Task[None] | None = None
        self.standing = False
        """Whether the subscription is active."""

    def subscribe(self, wake: Wake) -> Callable[[], None]:
        """Call `wake` after commits; return a function that unsubscribes."""
        token = object()
        self._wakes[token] = wake
        self.listen()

        def stop() -> None:
            self._wakes.pop(token, None)

        return stop

    def listen(self) -> None:
        """Start listening if there are subscribers and no listener."""
        if self._wakes and self._links.is_open and self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._listen(), name="interlock-redis-wakes")

    async def close(self) -> None:
        """Stop listening and forget the subscribers."""
        self._wakes.clear()
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _listen(self) -> None:
        pause_s = 0.05
        while True:
            try:
                async with asyncio.timeout(self._patience_s):
                    connection = await self._links.connect()
                try:
                    await self._receive(connection)
                finally:
                    was_standing, self.standing = self.standing, False
                    await hang_up(connection)
                    pause_s = 0.05 if was_standing else pause_s
            except _LOST:
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    async def _receive(self, connection: AbstractConnection) -> None:
        """Wake subscribers on every message, including the confirmation of the subscription.

        A silent connection is pinged, so that a dead one is noticed.
        """
        await connection.send_command("SUBSCRIBE", self._channel, check_health=False)
        silent = False
        while True:
            answer = await connection.read_response(timeout=self._patience_s)
            if answer is None and silent:
                raise TimeoutError
            if answer is None:
                silent = True
                await connection.send_command("PING", check_health=False)
                continue
            silent, self.standing = False, True
            if answer[0] != b"pong":
                self._wake()

    def _wake(self) -> None:
        """Wake subscribers through the loop, so that an exception of one does not affect the others."""
        loop = asyncio.get_running_loop()
        for wake in self._wakes.values():
            loop.call_soon(wake)
