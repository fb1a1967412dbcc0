"""Connections to one server: its URL, calls of scripts with deadlines, and errors of the driver.

No command is sent twice. The driver's client would repeat a command after a lost connection, so it is not
used: a repeated commit would conflict with itself, and a repeated refusal would be journalled twice. The
caller gets the error that the outcome is unknown, and finds out by reading. The one exception is NOSCRIPT:
the server did nothing.

A connection belongs to one call at a time. After any error, including a timeout, it is dropped: a late answer
could be taken for that of the next call.

The important property of an error is whether something may have been done. The server refuses a script before
its first write or not at all, so an error in its answer means that nothing was done; without an answer, the
outcome is unknown.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import ParseResult, parse_qsl, urlencode, urlparse

import msgspec
from redis.asyncio.connection import AbstractConnection, Connection, parse_url
from redis.exceptions import (
    AuthenticationError,
    AuthorizationError,
    NoScriptError,
    RedisError,
    ResponseError,
)
from redis.exceptions import (
    ConnectionError as LostConnection,
)
from redis.exceptions import (
    TimeoutError as DriverTimeout,
)

from interlock.errors import BadStoreUrl, StoreError, StoreMisconfigured, StoreUnavailable
from interlock.store.migrations import too_new
from interlock.store.redis.scripts import SCHEMA_VERSION, Script

OPTIONS = ("shown",)
"""Our options of the URL; all others are the driver's (ssl_ca_certs, client_name, …)."""

_SCHEMES = ("redis", "rediss", "unix")
_SECRETS = frozenset({"password", "ssl_password", "username"})
# The store controls these: deadlines are its own, and commands are not repeated.
_OURS = (
    "max_connections",
    "timeout",
    "retry_on_timeout",
    "health_check_interval",
    "protocol",
    "legacy_responses",
)


class Address(msgspec.Struct, frozen=True):
    """The address of a server."""

    shown: str
    """The URL without its password."""
    make_connection: Callable[[], AbstractConnection]
    shown_under: str = ""
    """Prefix of keys of projections for other tools: the option `shown` of the URL."""


def read_address(url: str) -> Address:
    """Return the server of a URL."""
    parsed = _parsed(url)
    shown = _without_secrets(parsed)
    try:
        options: dict[str, Any] = dict(parse_url(url))
    except ValueError as error:
        raise _bad(shown, str(error)) from None
    if parsed.scheme == "unix" and not parsed.path:
        raise _bad(shown, "It names no socket.")
    if parsed.scheme != "unix" and not parsed.path.lstrip("/").isdecimal() and parsed.path.lstrip("/"):
        raise _bad(shown, f"The database {parsed.path.lstrip('/')!r} is not a number.")
    for name in _OURS:
        options.pop(name, None)
    ours = {name: str(options.pop(name)) for name in OPTIONS if name in options}
    options |= {"socket_timeout": None, "socket_connect_timeout": None, "protocol": 2}
    kind: type[AbstractConnection] = options.pop("connection_class", Connection)

    def make_connection() -> AbstractConnection:
        try:
            return kind(**options)
        except TypeError:
            raise _bad(shown, "One of its options is not known.") from None

    return Address(shown, make_connection, ours.get("shown", ""))


def _parsed(url: str) -> ParseResult:
    try:
        parsed = urlparse(url)
        _ = parsed.port
    except ValueError:
        raise _bad("", "Its host or port cannot be read.") from None
    if parsed.scheme not in _SCHEMES:
        raise _bad("", "It begins with none of redis://, rediss:// and unix://.")
    return parsed


def _without_secrets(parsed: ParseResult) -> str:
    place = parsed.netloc.rpartition("@")[2]
    options = [(name, value) for name, value in parse_qsl(parsed.query) if name not in _SECRETS]
    query = f"?{urlencode(options)}" if options else ""
    return f"{parsed.scheme}://{place}{parsed.path}{query}"


def _bad(shown: str, why: str) -> BadStoreUrl:
    named = f" {shown}" if shown else ""
    return BadStoreUrl(
        f"The URL{named} names no Redis server. {why}",
        todo="Write redis://[user:password@]host[:port][/database], rediss://… or unix:///path/to/socket.",
        facts={"url": shown},
    )


_NEWER = re.compile(r"NEWERSCHEMA (\d+)")
NO_ANSWER = (LostConnection, DriverTimeout, OSError, EOFError)
"""Exceptions of the driver for a lost connection."""

_ONLY_FOR_NOW = {
    "READONLY": ("is a read-only replica", "Wait for the fail-over to end, or point the URL at the primary."),
    "LOADING": ("is still loading its data", "Try again when it has loaded."),
    "MASTERDOWN": ("is a replica that has lost its primary", "Point the URL at the primary."),
    "CLUSTERDOWN": ("belongs to a cluster that is down", "Try again when the cluster is whole."),
    "TRYAGAIN": ("is moving the keys of this store to another node", "Try again in a moment."),
    "OOM": ("is out of memory", "Give it more memory (maxmemory), or prune; then try again."),
    "MISCONF": ("cannot write to its disk", "Repair its disk; see its log."),
    "NOREPLICAS": ("has too few replicas to accept writes", "Try again when they are back."),
    "BUSY": ("is busy with a script", "Try again when it has ended (SCRIPT KILL)."),
    "MAXCLIENTS": ("has no room for another client", "Raise its maxclients, or try again."),
}
_SET_UP_WRONG = {
    "NOPERM": "Allow this user all keys that begin with the prefix, the scripting commands and INFO (ACL).",
    "NOAUTH": "Put the user and the password into the URL.",
    "WRONGPASS": "Correct the user and the password in the URL.",
    "MOVED": "Connect to the node that holds the slot of the prefix, or use a server without a cluster.",
    "ASK": "Connect to the node that holds the slot of the prefix, or use a server without a cluster.",
    "CROSSSLOT": "Use a prefix without braces.",
    "WRONGTYPE": "Another program has written under this prefix: choose another one.",
}


def closed_error(shown: str) -> StoreUnavailable:
    """Return the error of a call after `close`, or before `open`."""
    return StoreUnavailable(
        f"The store at {shown} is not open; no command was sent.",
        todo="Open the store first, and do not use it after it was closed.",
        facts={"url": shown, "outcome": "not done"},
    )


def unreachable_error(shown: str, why: str, script: Script | None, *, sent: bool) -> StoreUnavailable:
    """Return the error for a server that did not answer.

    `sent` means that it may have received the request.
    """
    doubtful = sent and script is not None and script.writes
    outcome = "Whether it was done is unknown." if doubtful else "Nothing was done."
    return StoreUnavailable(
        f"The Redis server at {shown} {why}. {outcome}",
        todo="Read the record and decide again." if doubtful else "Try again when it can be reached.",
        facts={"url": shown, "outcome": "unknown" if doubtful else "not done"},
    )


def store_error(shown: str, error: Exception, script: Script | None, *, sent: bool) -> StoreError:
    """Return our error for an error of the driver."""
    if isinstance(error.__cause__, RedisError):  # the driver wraps errors of the server on a new connection
        return store_error(shown, error.__cause__, script, sent=sent)
    words = _words_of(error)
    for word, (what, todo) in _ONLY_FOR_NOW.items():
        if word in words:
            return StoreUnavailable(
                f"The Redis server at {shown} {what}. Nothing was done.",
                todo=todo,
                facts={"url": shown, "outcome": "not done", "answer": word},
            )
    for word, todo in _SET_UP_WRONG.items():
        if word in words:
            return StoreMisconfigured(
                f"The Redis server at {shown} refuses the connection: {_short(error)}.",
                todo=todo,
                facts={"url": shown, "outcome": "not done", "answer": word},
            )
    if isinstance(error, AuthenticationError | AuthorizationError):
        return StoreMisconfigured(
            f"The Redis server at {shown} refuses the connection: {_short(error)}.",
            todo=_SET_UP_WRONG["NOAUTH"],
            facts={"url": shown, "outcome": "not done"},
        )
    if isinstance(error, NO_ANSWER):
        return unreachable_error(shown, f"cannot be reached ({_short(error)})", script, sent=sent)
    if isinstance(error, ResponseError | RedisError):
        return _answered(shown, error)
    raise error


def _answered(shown: str, error: Exception) -> StoreError:
    if newer := _NEWER.search(str(error)):
        return too_new(int(newer[1]), SCHEMA_VERSION, running=True)
    return StoreError(
        f"The Redis server at {shown} answered {_short(error)}.",
        todo="Report this with the version of the server; it should not happen.",
        facts={"url": shown},
    )


def lost_its_place(error: Exception) -> bool:
    """Return whether the server is not the primary any more.

    All connections to it must be dropped then.
    """
    return not _words_of(error).isdisjoint({"READONLY", "MASTERDOWN"})


def _words_of(error: Exception) -> set[str]:
    """Return the error codes of the server.

    They come first, or inside the message while a script was running.
    """
    found = set(re.findall(r"[A-Z]{3,}", f"{getattr(error, 'status_code', None) or ''} {error}"))
    return found | ({"MAXCLIENTS"} if "max number of clients" in str(error) else set())


def _short(error: Exception) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text[:200].rstrip(".")


MAX_CONNECTIONS = 16
_FRESH_S = 0.01

Greet = Callable[[AbstractConnection], Awaitable[None]]


class Connections:
    """A few connections to one server. `greet` is called on each new one before it is used."""

    def __init__(self, address: Address, tag: str, timeout_s: float, greet: Greet) -> None:
        self._address = address
        self._tag = tag
        self._timeout_s = timeout_s
        self._greet = greet
        self._idle: list[tuple[float, AbstractConnection]] = []
        self._room = asyncio.Semaphore(MAX_CONNECTIONS)
        self._open = False

    @property
    def shown(self) -> str:
        """The address, without a password."""
        return self._address.shown

    @property
    def is_open(self) -> bool:
        """Whether calls are accepted."""
        return self._open

    def check_open(self) -> None:
        """Raise unless calls are accepted."""
        if not self._open:
            raise closed_error(self.shown)

    def unlock(self) -> None:
        """Accept calls from now on."""
        self._open = True

    async def close(self) -> None:
        """Close idle connections; those in use are closed when their call ends."""
        self._open = False
        await self.drop_idle()

    async def drop_idle(self) -> None:
        """Close idle connections, so that later calls resolve the address again."""
        idle, self._idle = self._idle, []
        for _, connection in idle:
            await hang_up(connection)

    def deadline(self) -> float:
        """Return the deadline of a call that begins now, in loop time."""
        return asyncio.get_running_loop().time() + self._timeout_s

    async def call(self, script: Script, *args: str | bytes | int, until: float | None = None) -> Any:
        """Return the answer of a script, before the deadline."""
        self.check_open()
        return await self.use(lambda connection: run(connection, self._tag, script, *args), script, until)

    async def use(
        self,
        work: Callable[[AbstractConnection], Awaitable[Any]],
        script: Script | None = None,
        until: float | None = None,
    ) -> Any:
        """Run some work on a connection, before the deadline."""
        sent = False
        try:
            async with asyncio.timeout_at(self.deadline() if until is None else until), self._room:
                connection = await self._connection()
                try:
                    sent = True
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
            raise unreachable_error(self.shown, why, script, sent=sent) from None
        except (RedisError, OSError, EOFError) as error:
            raise store_error(self.shown, error, script, sent=sent) from None

    async def connect(self) -> AbstractConnection:
        """Return a new connection without a handshake."""
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
        """Return whether an idle connection can be used; close it if not.

        It is also closed on cancellation.
        """
        sound = False
        try:
            if asyncio.get_running_loop().time() - since > _FRESH_S:
                # The loop may not have seen its end: it reads, and then passes on the result.
                await asyncio.sleep(0)
                await asyncio.sleep(0)
            # A sound connection has no data to read: this would be its end, or a late answer.
            sound = not await connection.can_read()
        finally:
            if not sound:
                await connection.disconnect(nowait=True)
        return sound

    async def _settle(self, connection: AbstractConnection, error: RedisError) -> None:
        await connection.disconnect(nowait=True)
        if lost_its_place(error):
            await self.drop_idle()

    async def _put_away(self, connection: AbstractConnection) -> None:
        if self._open:
            self._idle.append((asyncio.get_running_loop().time(), connection))
        else:
            await hang_up(connection)


async def run(connection: AbstractConnection, tag: str, script: Script, *args: str | bytes | int) -> Any:
    """Call a script by its digest; load it first if it is unknown."""
    try:
        return await execute_command(connection, "EVALSHA", script.sha, 1, tag, *args)
    except NoScriptError:
        await execute_command(connection, "SCRIPT LOAD", script.text)
        return await execute_command(connection, "EVALSHA", script.sha, 1, tag, *args)


async def execute_command(connection: AbstractConnection, *command: str | bytes | int) -> Any:
    """Send one command and return its answer."""
    await connection.send_command(*command, check_health=False)
    return await connection.read_response()


async def hang_up(connection: AbstractConnection) -> None:
    """Close a connection in any state."""
    try:
        await connection.disconnect()
    except (RedisError, OSError):
        await connection.disconnect(nowait=True)
