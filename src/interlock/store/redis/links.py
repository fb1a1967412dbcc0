"""Connections, deadlines, and calling a script.

Nothing is sent twice. The driver would repeat a command after a lost connection, and that is turned
off by not using its client: a commit that was done and is repeated meets its own versions and is told
of a conflict with itself, and one that only journals a refusal would journal it twice. Whoever asked
is told that the outcome is unknown, and finds out by reading. The one exception is NOSCRIPT, by which
the server says that it did nothing.

A connection belongs to one call at a time. One on which anything went wrong, a deadline included, is
dropped: an answer could still arrive on it and be taken for that of the next call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from redis.asyncio.connection import AbstractConnection
from redis.exceptions import NoScriptError, RedisError

from interlock.store.redis import faults
from interlock.store.redis.address import Address
from interlock.store.redis.scripts import Script

MAX_LINKS = 16
_FRESH_S = 0.01

Greet = Callable[[AbstractConnection], Awaitable[None]]


class Links:
    """A few connections to one server. `greet` is called on each new one before it is used."""

    def __init__(self, address: Address, tag: str, timeout_s: float, greet: Greet) -> None:
        self._address = address
        self._tag = tag
        self._timeout_s = timeout_s
        self._greet = greet
        self._idle: list[tuple[float, AbstractConnection]] = []
        self._room = asyncio.Semaphore(MAX_LINKS)
        self._open = False

    @property
    def shown(self) -> str:
        """The address, without a password."""
        return self._address.shown

    @property
    def is_open(self) -> bool:
        """Whether calls are let through."""
        return self._open

    def check_open(self) -> None:
        """Raise unless calls are let through."""
        if not self._open:
            raise faults.closed(self.shown)

    def unlock(self) -> None:
        """From now on calls are let through."""
        self._open = True

    async def close(self) -> None:
        """Let go of every connection; those in use go when their call ends."""
        self._open = False
        await self.drop_idle()

    async def drop_idle(self) -> None:
        """Connect anew from here on, wherever the address leads by then."""
        idle, self._idle = self._idle, []
        for _, connection in idle:
            await hang_up(connection)

    def deadline(self) -> float:
        """Until when a call that begins now may take, on the clock of the event loop."""
        return asyncio.get_running_loop().time() + self._timeout_s

    async def call(self, script: Script, *args: str | bytes | int, until: float | None = None) -> Any:
        """What a script answers, before the deadline."""
        self.check_open()
        return await self.use(lambda connection: run(connection, self._tag, script, *args), script, until)

    async def use(
        self,
        work: Callable[[AbstractConnection], Awaitable[Any]],
        script: Script | None = None,
        until: float | None = None,
    ) -> Any:
        """Do some work on a connection, before the deadline."""
        asked = False
        try:
            async with asyncio.timeout_at(self.deadline() if until is None else until), self._room:
                connection = await self._connection()
                try:
                    asked = True
                    answer = await work(connection)
                except RedisError as error:
                    await self._settle(connection, error)
                    raise
                except BaseException:
                    await connection.disconnect(nowait=True)
                    raise
                await self._put_away(connection)
                return answer
        except TimeoutError:
            why = f"has not answered within {self._timeout_s:g} s"
            raise faults.unreachable(self.shown, why, script, asked=asked) from None
        except (RedisError, OSError, EOFError) as error:
            raise faults.told(self.shown, error, script, asked=asked) from None

    async def connect(self) -> AbstractConnection:
        """A new connection that nobody has greeted."""
        connection = self._address.make_connection()
        try:
            await connection.connect()  # type: ignore[no-untyped-call]
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
        return connection

    async def _connection(self) -> AbstractConnection:
        while self._idle:
            since, connection = self._idle.pop()
            if await self._is_sound(connection, since):
                return connection
        connection = await self.connect()
        try:
            await self._greet(connection)
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
        return connection

    async def _is_sound(self, connection: AbstractConnection, since: float) -> bool:
        """Whether an idle connection can be used. If not, or if nobody waits for it any more, it goes."""
        sound = False
        try:
            if asyncio.get_running_loop().time() - since > _FRESH_S:
                # The loop may have been kept from seeing its end: it looks, and then hands on what it saw.
                await asyncio.sleep(0)
                await asyncio.sleep(0)
            # There is nothing to read on a sound connection: this is its end, or somebody's late answer.
            sound = not await connection.can_read()
        finally:
            if not sound:
                await connection.disconnect(nowait=True)
        return sound

    async def _settle(self, connection: AbstractConnection, error: RedisError) -> None:
        await connection.disconnect(nowait=True)
        if faults.lost_its_place(error):
            await self.drop_idle()

    async def _put_away(self, connection: AbstractConnection) -> None:
        if self._open:
            self._idle.append((asyncio.get_running_loop().time(), connection))
        else:
            await hang_up(connection)


async def run(connection: AbstractConnection, tag: str, script: Script, *args: str | bytes | int) -> Any:
    """Call a script by its digest; a server that has not seen it yet is told its text."""
    try:
        return await ask(connection, "EVALSHA", script.sha, 1, tag, *args)
    except NoScriptError:
        await ask(connection, "SCRIPT LOAD", script.text)
        return await ask(connection, "EVALSHA", script.sha, 1, tag, *args)


async def ask(connection: AbstractConnection, *command: str | bytes | int) -> Any:
    """One command and its answer."""
    await connection.send_command(*command, check_health=False)
    return await connection.read_response()


async def hang_up(connection: AbstractConnection) -> None:
    """Close a connection, whatever has become of it."""
    try:
        await connection.disconnect()
    except (RedisError, OSError):
        await connection.disconnect(nowait=True)
