"""A small pool of connections in which every call has a deadline.

The driver's pool waits: when a call times out it asks the server to cancel, through one more connection, and
waits for an answer. With an unresponsive network that takes forever. Here a connection past its deadline is
terminated, even in use, and so are the others when the server has gone, is shutting down or has
become a stand-by: the next call reconnects.

The pool keeps few idle connections. Calls of an idle program take turns; only calls that have waited for a
while add a connection, and only sustained use keeps it.

Why: decisions 0145 and 0306.
"""

from __future__ import annotations

import asyncio
import logging
import math
import select
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias, TypeVar

import asyncpg
from asyncpg.connect_utils import SessionAttribute

from interlock.backoff import Backoff
from interlock.errors import ForeignSchema, StoreUnavailable
from interlock.store.contract import ServerConnections
from interlock.store.postgres.driver import ArrayAwareConnection
from interlock.store.postgres.failures import (
    Again,
    NotSent,
    Trouble,
    invalidates_pool,
    translate,
    unavailable,
)
from interlock.store.postgres.target import Target

GROW_AFTER_S = 0.05
"""Time with a line of waiting calls, within a window, after which a connection is added."""
LINE_WINDOW_S = 0.25
"""Window in which the time with a line is counted: many short waits are as bad as a long one."""
MEASURE_S = 10.0
"""Period over which usage is measured."""
SPARE = 2
"""Factor of the limit over the average usage."""


class PoolLimit:
    """A limit of concurrent calls. `on_fewer` is called with the new limit when it has decreased."""

    def __init__(self, most: int, on_fewer: Callable[[int], None]) -> None:
        self.allowed: int = 1
        self._most = most
        self._on_fewer = on_fewer
        self._taken = 0
        self._waiting: deque[tuple[asyncio.Future[None], float]] = deque()
        self._growing: asyncio.TimerHandle | None = None
        self._measuring: asyncio.TimerHandle | None = None
        self._used_s = self._changed_at = 0.0
        self._line_at = self._window_at = self._lined_s = 0.0
        """Start of the line, start of the window, and time with a line in it."""

    async def enter(self, deadline: float) -> None:
        """Take a place; raise TimeoutError if there is none by the deadline."""
        if self._taken < self.allowed and not self._waiting:
            self._take(1)
            return
        loop = asyncio.get_running_loop()
        waiter = loop.create_future()
        if not self._waiting:
            self._line_at = loop.time()
        self._waiting.append((waiter, loop.time()))
        if self._growing is None and self.allowed < self._most:
            self._growing = loop.call_later(GROW_AFTER_S, self._grow)
        try:
            async with asyncio.timeout_at(deadline):
                await waiter
        except BaseException:
            if waiter.done() and not waiter.cancelled():
                self.leave()  # it was given a place at the same time
            raise

    def leave(self) -> None:
        """Give the place to the next in line."""
        self._take(-1)
        self._hand_over()

    def close(self) -> None:
        """Stop measuring."""
        for timer in (self._growing, self._measuring):
            if timer is not None:
                timer.cancel()

    def _take(self, number: int) -> None:
        now = asyncio.get_running_loop().time()
        self._used_s += self._taken * (now - self._changed_at)
        self._changed_at = now
        self._taken += number

    def _hand_over(self) -> None:
        there_was_a_line = bool(self._waiting)
        while self._waiting and self._taken < self.allowed:
            waiter, _ = self._waiting.popleft()
            if not waiter.done():
                self._take(1)
                waiter.set_result(None)
        if there_was_a_line and not self._waiting:
            self._note_line(asyncio.get_running_loop())

    def _note_line(self, loop: asyncio.AbstractEventLoop) -> None:
        """Count how long a line lasted; add a connection if there mostly is one."""
        now = loop.time()
        if now >= self._window_at + LINE_WINDOW_S:
            self._window_at, self._lined_s = now, 0.0
        self._lined_s += now - self._line_at
        if self._lined_s >= GROW_AFTER_S:
            self._lined_s = 0.0
            self._add_one(loop)

    def _add_one(self, loop: asyncio.AbstractEventLoop) -> None:
        if self.allowed < self._most:
            self.allowed += 1
            if self._measuring is None:
                self._begin_measuring(loop)

    def _grow(self) -> None:
        loop = asyncio.get_running_loop()
        self._growing = None
        while self._waiting and self._waiting[0][0].done():
            self._waiting.popleft()
        if not self._waiting or self.allowed >= self._most:
            return
        due = self._waiting[0][1] + GROW_AFTER_S
        if due <= loop.time():
            self._add_one(loop)
            due = loop.time() + GROW_AFTER_S
            self._hand_over()
        self._growing = loop.call_at(due, self._grow)

    def _begin_measuring(self, loop: asyncio.AbstractEventLoop) -> None:
        self._take(0)
        self._used_s = 0.0
        self._measuring = loop.call_later(MEASURE_S, self._measure, loop.time())

    def _measure(self, since: float) -> None:
        loop = asyncio.get_running_loop()
        self._measuring = None
        self._take(0)
        wanted = max(1, math.ceil(SPARE * self._used_s / (loop.time() - since)))
        if wanted < self.allowed:
            self.allowed = wanted
            self._on_fewer(wanted)
        if self.allowed > 1:
            self._begin_measuring(loop)


AsyncpgConnection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

T = TypeVar("T")

log: logging.Logger = logging.getLogger("interlock.store")

_ATTEMPTS = 5
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 1.0
_LONG_IDLE_S = 0.02
_LOOPS = 8
"""Iterations of the event loop to read a last message, then the end, and to be notified."""
APPLICATION = "interlock"
"""The name of our connections on the server (`pg_stat_activity`)."""
_SAY_EVERY_S, _LEAVE_S = 60.0, 2.0
IDLE_IN_TRANSACTION_S = 5
"""Maximum time that a dead claimer holds its locks."""

BEGIN = (
    "BEGIN ISOLATION LEVEL READ COMMITTED;"
    f"SET LOCAL idle_in_transaction_session_timeout = '{IDLE_IN_TRANSACTION_S}s'"
)


class TimedConnection:
    """A connection with the deadline of its current call.

    A timer for each call would be created and cancelled thousands of times for each that fires. So there is
    one, which checks when it fires whether a call is late, and is set again for the current call.
    """

    __slots__ = ("_deadline", "_timer", "connection", "idle_since")

    def __init__(self, connection: AsyncpgConnection) -> None:
        self.connection: AsyncpgConnection = connection
        self.idle_since: float = 0.0
        self._deadline: float | None = None
        self._timer: asyncio.TimerHandle | None = None

    def lend(self, loop: asyncio.AbstractEventLoop, deadline: float) -> None:
        """Terminate the connection at the deadline, unless it is returned before."""
        self._deadline = deadline
        if self._timer is None or self._timer.when() > deadline:
            self._set(loop, deadline)

    def give_back(self, now: float) -> None:
        """Mark the connection as idle."""
        self._deadline = None
        self.idle_since = now

    def terminate(self) -> None:
        """Terminate the connection."""
        self.let_go()
        self.connection.terminate()

    def let_go(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set(self, loop: asyncio.AbstractEventLoop, deadline: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = loop.call_at(deadline, self._expire, loop)

    def _expire(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        if self._deadline is not None and not self.connection.is_closed():
            if loop.time() >= self._deadline:
                self.connection.terminate()
            else:
                self._set(loop, self._deadline)


class Session:
    """A connection for the duration of one call."""

    __slots__ = ("_connection", "_failed", "_wrapped", "attempt", "hung_up", "link")

    def __init__(
        self, link: TimedConnection, wrapped: bool, failed: Callable[[Exception, bool], Exception]
    ) -> None:
        self.link: TimedConnection = link
        self._connection = link.connection
        self._wrapped = wrapped
        self._failed = failed
        self.attempt: int = 1
        """Number of the current attempt."""
        self.hung_up: bool = False
        """Whether the server had closed the connection before the last statement, so that nothing was
        done.
        """

    async def fetch(self, sql: str, *arguments: object, writes: bool = False) -> list[asyncpg.Record]:
        """Run one statement as a transaction.

        Without prepared statements the driver still needs two messages for one, and a pooler might send them
        to two servers: inside a transaction it may not.
        """
        if not self._wrapped:
            return await self._answered(self._connection.fetch(sql, *arguments), at_risk=writes)
        await self.begin()
        try:
            rows = await self.within(sql, *arguments)
        except Again:
            await self.rollback()  # the connection itself is fine
            raise
        await self.commit()
        return rows

    async def begin(self) -> None:
        """Begin a transaction for several calls of `within`."""
        await self._answered(self._connection.execute(BEGIN))

    async def within(self, sql: str, *arguments: object) -> list[asyncpg.Record]:
        """Run one statement inside the transaction."""
        return await self._answered(self._connection.fetch(sql, *arguments))

    async def script(self, sql: str) -> None:
        """Run statements without arguments."""
        await self._answered(self._connection.execute(sql))

    async def commit(self) -> None:
        """Commit. From here on a missing answer may mean success."""
        await self._answered(self._connection.execute("COMMIT"), at_risk=True)

    async def rollback(self) -> None:
        """Roll back."""
        await self._answered(self._connection.execute("ROLLBACK"))

    @property
    def server_version(self) -> tuple[int, int]:
        """The version of the server, such as (15, 4)."""
        version = self._connection.get_server_version()
        return version.major, version.minor

    async def _answered(self, answer: Awaitable[T], *, at_risk: bool = False) -> T:
        """Wait for an answer; `at_risk`, its loss leaves the outcome unknown."""
        try:
            return await answer
        except Again:
            raise
        except Trouble as error:
            self.hung_up = isinstance(error, NotSent) and invalidates_pool(error)
            raise self._failed(error, at_risk) from None


class PostgresPool:
    """Connections to one database, opened on demand."""

    def __init__(
        self,
        target: Target,
        timeout_s: float,
        when_foreign: Callable[[Session], Awaitable[None]] | None = None,
    ) -> None:
        """Prepare the pool.

        `when_foreign` is called when a statement does not fit the schema, and raises the reason.
        """
        self.target = target
        self.timeout_s = timeout_s
        self._when_foreign = when_foreign
        self._room = PoolLimit(target.pool, self._fewer)
        self._idle: list[TimedConnection] = []
        self._lent: set[TimedConnection] = set()
        self._closed = False
        self._backoff = Backoff(_FIRST_PAUSE_S, _LONGEST_PAUSE_S)
        self._next_attempt = 0.0
        self._said_at = float("-inf")
        self._leaving: set[asyncio.Future[Any]] = set()
        """Tasks that close connections, or connect for an abandoned call."""

    async def run(
        self, doing: str, work: Callable[[Session], Awaitable[T]], timeout_s: float | None = None
    ) -> T:
        """Run work on a connection, before the deadline.

        `doing` begins the sentence of errors.

        Work that the server has rolled back, as after a deadlock, is retried; so is, on another connection,
        work on a connection that the server had closed, if the driver has read its last message but not yet
        the end.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + (self.timeout_s if timeout_s is None else timeout_s)
        for attempt in range(1, _ATTEMPTS + 1):
            session = await self._lend(doing, loop, deadline)
            session.attempt = attempt
            try:
                return await work(session)
            except Again:
                continue
            except StoreUnavailable:
                if not session.hung_up or attempt == _ATTEMPTS or loop.time() >= deadline:
                    raise
            except ForeignSchema:
                self._take_back(session)
                await self._look_for_newer(doing, loop, deadline)
                raise
            except asyncio.CancelledError:
                session.link.terminate()  # a request is open, to which an answer may still come
                raise
            finally:
                self._take_back(session)
        raise unavailable(
            f"concurrent transactions conflicted {_ATTEMPTS} times in a row", doing, self.target
        )

    async def _look_for_newer(self, doing: str, loop: asyncio.AbstractEventLoop, deadline: float) -> None:
        """Raise the reason why a statement does not fit the schema, if known."""
        if self._when_foreign is None:
            return
        session = await self._lend(doing, loop, deadline)
        try:
            await self._when_foreign(session)
        except asyncio.CancelledError:
            session.link.terminate()
            raise
        finally:
            self._take_back(session)

    async def fetch(
        self, doing: str, sql: str, *arguments: object, writes: bool = False
    ) -> list[asyncpg.Record]:
        """Run one statement as a transaction."""
        return await self.run(doing, lambda session: session.fetch(sql, *arguments, writes=writes))

    async def connect(self, timeout_s: float) -> AsyncpgConnection:
        """Return a connection of its own, which the caller closes."""
        return await self._connected(timeout_s, self.target.pooled)

    async def connect_to_listen(self, timeout_s: float) -> AsyncpgConnection:
        """Return a separate connection to the server itself, for LISTEN."""
        if self.target.listen_at is None:
            return await self.connect(timeout_s)
        host, port = self.target.listen_at
        return await self._connected(timeout_s, False, host=host, port=port)

    async def _connected(self, timeout_s: float, pooled: bool, **place: Any) -> AsyncpgConnection:
        settings = {"application_name": APPLICATION}
        writable = SessionAttribute.any
        if not pooled:  # a pooler does not accept such settings
            writable = SessionAttribute.read_write
            settings["statement_timeout"] = f"{max(1, int(self.timeout_s * 1_000))}"
            settings["default_transaction_isolation"] = "read committed"
            # A statement planned for an empty table must not keep that plan.
            settings |= {"plan_cache_mode": "force_custom_plan", "jit": "off"}
        connecting: asyncio.Future[AsyncpgConnection] = asyncio.ensure_future(
            asyncpg.connect(
                self.target.url,
                timeout=timeout_s,
                connection_class=ArrayAwareConnection,
                statement_cache_size=100 if self.target.prepared else 0,
                server_settings=settings,
                target_session_attrs=writable,
                **place,
            )
        )
        try:
            return await asyncio.shield(connecting)
        except asyncio.CancelledError:
            # A driver that is cancelled while connecting leaves an unretrieved error, which the loop would
            # report.
            connecting.add_done_callback(self._not_wanted)
            self._leaving.add(connecting)
            raise

    def _not_wanted(self, connecting: asyncio.Future[AsyncpgConnection]) -> None:
        self._leaving.discard(connecting)
        if not connecting.cancelled() and connecting.exception() is None:
            connecting.result().terminate()

    async def close(self) -> None:
        """Close all connections, terminating those in use; safe to call twice."""
        self._closed = True
        self._room.close()
        for link in self._lent:
            link.terminate()
        idle, self._idle = self._idle, []
        for link in idle:
            self._close_gracefully(link)
        if self._leaving:
            _, late = await asyncio.wait(self._leaving, timeout=_LEAVE_S)
            for task in late:  # a server that is slow to accept or to say goodbye
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    def described(self, ours: int, all_: int, most: int) -> ServerConnections:
        """Return the connection counts for `interlock db status`."""
        # One for orders and one to listen; with jobs, another one renews leases.
        at_rest = 2 + self.target.listen
        return ServerConnections(
            ours=ours, all=all_, most=most, at_rest=at_rest, busy=self.target.pool + at_rest
        )

    def drop_idle(self) -> None:
        """Terminate idle connections, which cannot be trusted any more."""
        idle, self._idle = self._idle, []
        for link in idle:
            link.terminate()

    async def _lend(self, doing: str, loop: asyncio.AbstractEventLoop, deadline: float) -> Session:
        """Lend a connection until the deadline, at which it is terminated."""
        link: TimedConnection | None = None

        def failed(error: Exception, at_risk: bool) -> Exception:
            late = loop.time() >= deadline
            if late or invalidates_pool(error):
                self.drop_idle()
                if link is not None:
                    link.terminate()
            unknown = at_risk and (late or not isinstance(error, NotSent))
            return translate(TimeoutError() if late else error, doing, self.target, unknown=unknown)

        try:
            await self._room.enter(deadline)
        except TimeoutError:
            raise unavailable(f"all {self.target.pool} connections are busy", doing, self.target) from None
        try:
            link = await self._link(loop, deadline)
        except BaseException as error:
            self._room.leave()
            if isinstance(error, Trouble):
                raise failed(error, False) from None
            raise
        self._lent.add(link)
        link.lend(loop, deadline)
        return Session(link, not self.target.prepared, failed)

    def _take_back(self, session: Session) -> None:
        """Take back a connection; safe to call twice."""
        link = session.link
        if link not in self._lent:
            return
        self._room.leave()
        self._lent.discard(link)
        link.give_back(asyncio.get_running_loop().time())
        if link.connection.is_closed():
            link.let_go()
        elif self._closed or link.connection.is_in_transaction():
            link.terminate()
        else:
            self._idle.append(link)
            self._fewer(self._room.allowed)

    async def _link(self, loop: asyncio.AbstractEventLoop, deadline: float) -> TimedConnection:
        if self._closed:
            raise asyncpg.InterfaceError("the store has been closed")
        long_ago = loop.time() - _LONG_IDLE_S
        for idle in self._idle:
            if idle.idle_since < long_ago and _has_data(idle.connection):
                # The server may have closed it meanwhile, unnoticed by the loop. Checking now is cheap; after
                # a commit was sent, its outcome would be unknown.
                for _ in range(_LOOPS):
                    await asyncio.sleep(0)
                break
        return self._spare() or await self._new_link(deadline)

    def _spare(self) -> TimedConnection | None:
        while self._idle:
            link = self._idle.pop()
            if not link.connection.is_closed():
                return link
            link.let_go()
        return None

    async def _new_link(self, deadline: float) -> TimedConnection:
        """Connect, with a backoff; wait for a server that is starting or full.

        While waiting for a full server, another call may return its connection.
        """
        loop = asyncio.get_running_loop()
        while True:
            async with asyncio.timeout_at(deadline):
                await asyncio.sleep(self._next_attempt - loop.time())
            try:
                connection = await self.connect(max(0.001, deadline - loop.time()))
            except Trouble as error:
                self._next_attempt = loop.time() + self._backoff.next_s()
                full = isinstance(error, asyncpg.TooManyConnectionsError)
                if full:
                    self._warn_of_full_server(error)
                if not full and not isinstance(error, asyncpg.CannotConnectNowError):
                    raise
                if self._next_attempt >= deadline:
                    raise
                if (spare := self._spare()) is not None:
                    return spare
            else:
                self._backoff.reset()
                self._next_attempt = 0.0
                return TimedConnection(connection)

    def _warn_of_full_server(self, error: BaseException) -> None:
        now = asyncio.get_running_loop().time()
        if now >= self._said_at + _SAY_EVERY_S:
            self._said_at = now
            log.warning("waiting for a connection to %s: %s", self.target.shown, error)

    def _fewer(self, allowed: int) -> None:
        """Close connections above the limit, the least recently used first."""
        while self._idle and len(self._idle) + len(self._lent) > allowed:
            self._close_gracefully(self._idle.pop(0))

    def _close_gracefully(self, link: TimedConnection) -> None:
        """Close a connection in a task, which lives on if its caller is cancelled."""
        link.let_go()
        leaving = asyncio.ensure_future(close_or_terminate(link.connection))
        self._leaving.add(leaving)
        leaving.add_done_callback(self._leaving.discard)


def _has_data(connection: AsyncpgConnection) -> bool:
    """Return whether there is data to read, such as the end."""
    transport: asyncio.Transport = getattr(connection, "_transport")  # noqa: B009 - not public elsewhere
    socket = transport.get_extra_info("socket")
    if socket is None or socket.fileno() < 0:
        return True
    poll = select.poll()
    poll.register(socket.fileno(), select.POLLIN)
    return bool(poll.poll(0))


async def close_or_terminate(connection: AsyncpgConnection) -> None:
    """Close a connection gracefully, without waiting long."""
    try:
        await connection.close(timeout=1.0)
    except Trouble:
        connection.terminate()
