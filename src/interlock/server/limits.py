"""Limits: requests at once, requests a second, connections, and how long things may take.

A timer for each request would be made and cancelled thousands of times a second and hardly ever fire.
Things that may take equally long end in the order in which they began, so one timer watches the first of
them.

Why: decisions 0152 and 0295.
"""

from __future__ import annotations

import asyncio
import ipaddress
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from functools import lru_cache
from itertools import islice
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeAlias, TypeVar

from interlock.errors import TooBusy, TooMany
from interlock.server.settings import Rate, ServerSettings
from interlock.systems.access.principals import Principal


class Within:
    """A stretch of one task that has to end in time; like `asyncio.timeout`, and to be used once."""

    __slots__ = ("_cancelling", "_deadlines", "_task", "_until", "expired", "origin", "size")

    def __init__(self, deadlines: Deadlines[Any], origin: str = "") -> None:
        self._deadlines = deadlines
        self.origin: str = origin
        """The address of the client, if there is a limit for it."""
        self.size: int = 0
        """Number of bytes held."""
        self.expired: bool = False
        """Whether the deadline passed before the end."""

    def __enter__(self) -> Self:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("only a task can run out of time")
        self._task: asyncio.Task[Any] = task
        self._cancelling = self._task.cancelling()
        self._until = self._deadlines.begin(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        if not self.expired:
            self._deadlines.end(self)
        elif self._task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise TimeoutError from error

    def is_over(self, now: float) -> bool:
        """Return whether the deadline has passed; in that case expire."""
        if now < self._until:
            return False
        self.give_up()
        return True

    def give_up(self) -> None:
        """Expire before the deadline."""
        self.expired = True
        self._task.cancel()

    def grow(self, size: int) -> None:
        """Count bytes that arrived."""
        self.size += size
        self._deadlines.grown(self, size)

    @property
    def until(self) -> float:
        """The deadline, by the clock of the loop."""
        return self._until


class TimedStretch(Protocol):
    """A stretch that has to end in time."""

    @property
    def until(self) -> float:
        """The deadline, by the clock of the loop."""
        ...

    def is_over(self, now: float) -> bool:
        """Return whether the deadline has passed; in that case expire."""
        ...


S = TypeVar("S", bound=TimedStretch)


class Deadlines(Generic[S]):
    """All stretches with the same time limit."""

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        self._running: dict[S, None] = {}
        self._timer: asyncio.TimerHandle | None = None

    def __call__(self, origin: str = "") -> Within:
        """Return a new stretch, whose time begins when it is entered."""
        return Within(self, origin)

    def begin(self, stretch: S) -> float:
        """Watch a stretch; return its deadline."""
        loop = asyncio.get_running_loop()
        until = loop.time() + self.limit_s
        self._running[stretch] = None
        if self._timer is None:
            self._timer = loop.call_at(until, self._look, loop)
        return until

    def end(self, stretch: S) -> None:
        """Stop watching a stretch. The timer is kept for the next one."""
        del self._running[stretch]

    def grown(self, stretch: S, size: int) -> None:
        """Do nothing: bytes are not limited here."""

    def close(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        """Expire stretches whose deadline has passed, and set the next timer."""
        self._timer = None
        for stretch in list(self._running):
            if not stretch.is_over(loop.time()):
                self._timer = loop.call_at(stretch.until, self._look, loop)
                return
            self.end(stretch)


class Places(Deadlines[Within]):
    """A limited number of stretches that hold a limited number of bytes.

    When the limit is reached, the oldest stretch of the address with the most stretches is expired: a fast
    request is accepted, however many slow ones there are.
    """

    def __init__(self, limit_s: float, most: int, most_bytes: int) -> None:
        super().__init__(limit_s)
        self._most = most
        self._most_bytes = most_bytes
        self._bytes = 0

    def begin(self, stretch: Within) -> float:
        """Watch a stretch, and expire another one if the limit is reached."""
        if len(self._running) >= self._most:
            self._make_room(stretch)
        return super().begin(stretch)

    def grown(self, stretch: Within, size: int) -> None:
        """Count received bytes, and expire other stretches above the limit."""
        self._bytes += size
        while self._bytes > self._most_bytes and len(self._running) > 1:
            self._make_room(stretch)

    def end(self, stretch: Within) -> None:
        """Stop watching a stretch, and release its bytes."""
        super().end(stretch)
        self._bytes -= stretch.size

    def _make_room(self, wanted: Within) -> None:
        others = [stretch for stretch in self._running if stretch is not wanted]
        numbers = Counter(stretch.origin for stretch in others)
        most = max(numbers.values())
        oldest = next(stretch for stretch in others if numbers[stretch.origin] == most)
        self.end(oldest)
        oldest.give_up()


MAX_REMEMBERED = 10_000

GRACE_S = 1.0
"""Time for a new connection to send a request before it can be closed for another one."""

LOOK_AGAIN_S = 1.0
"""Delay before an address is checked again if all of its connections are busy."""

MAX_TRIED = 100
"""Maximum number of connections to try to close for another one."""

ClientAddress: TypeAlias = tuple[str, int]
"""The address and the port at the other end of a connection."""

NOWHERE: ClientAddress = ("unknown", 0)
"""The client of a request without a network address."""


class Crowd:
    """Concurrency limit for requests of one kind: in all, and for each token."""

    def __init__(self, most: int, each: int, *, what: str, todo: str) -> None:
        self._most = most
        self._each = each
        self._what = what
        self._todo = todo
        self._inside = 0
        self._by_name: dict[str, int] = {}

    def enter(self, principal: Principal) -> None:
        """Take a place.

        Raise if the token has its share already, or if all are taken.
        """
        name = principal.name if principal.token_id else ""
        held = self._by_name.get(name, 0)
        if name and held >= self._each:
            raise TooMany(
                f"{name} has {held} {self._what}, and one token may have {self._each}.",
                retry_after_s=1.0,
                facts={"principal": name, "open": held, "most": self._each},
                todo=self._todo,
            )
        if self._inside >= self._most:
            raise TooBusy(
                f"The server has reached its limit of {self._most} {self._what}.",
                todo="Retry in a moment, or use another server.",
                facts={"most": self._most},
            )
        self._by_name[name] = held + 1
        self._inside += 1

    def leave(self, principal: Principal) -> None:
        """Release the place."""
        name = principal.name if principal.token_id else ""
        self._inside -= 1
        if self._by_name[name] > 1:
            self._by_name[name] -= 1
        else:
            del self._by_name[name]


class Buckets:
    """Token buckets by name: each request takes one token, and an empty bucket gives a retry time."""

    def __init__(self, rate: Rate, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.rate = rate
        self._monotonic = monotonic
        self._filled: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, name: str) -> None:
        """Take one token; raise `TooMany` if there is none."""
        level, now = self._level(name)
        if level < 1.0:
            raise TooMany(
                f"{name} sends more than {self.rate.per_s:g} requests a second.",
                retry_after_s=(1.0 - level) / self.rate.per_s,
                facts={"per_s": self.rate.per_s, "burst": self.rate.burst},
            )
        self._filled[name] = level - 1.0, now
        self._filled.move_to_end(name)
        if len(self._filled) > MAX_REMEMBERED:
            self._filled.popitem(last=False)  # the name that was idle longest has a full bucket again

    def _level(self, name: str) -> tuple[float, float]:
        now = self._monotonic()
        level, at = self._filled.get(name, (float(self.rate.burst), now))
        return min(level + (now - at) * self.rate.per_s, float(self.rate.burst)), now


class OpenConnection:
    """One open connection."""

    __slots__ = ("close", "known", "origin", "since")

    def __init__(self, close: Callable[[], bool], origin: str, since: float) -> None:
        self.close: Callable[[], bool] = close
        """Closes the connection and returns True; returns False if a request is being answered."""
        self.origin: str = origin
        self.since: float = since
        """Time of opening, or of the last answer."""
        self.known: bool = False
        """Whether a request on it was authenticated."""


class ConnectionTable:
    """All open connections, and which of them may be closed to make room for another.

    A connection on which a request is being answered or authenticated is never closed. Of the others the one
    that has been idle longest is closed when there are too many: a client that sends its request at once is
    served, however many connections others hold. Connections without an authenticated request are also
    limited for each address. A new connection has a moment to send its request before it is judged, because
    many clients may connect at once.
    """

    def __init__(self, settings: ServerSettings) -> None:
        self.most: int = settings.max_connections
        self._each = settings.connections_each
        self._open: dict[ClientAddress, OpenConnection] = {}
        self._idle: OrderedDict[ClientAddress, OpenConnection] = OrderedDict()
        self._strangers: dict[str, dict[ClientAddress, OpenConnection]] = {}
        self._judging: set[str] = set()

    def __len__(self) -> int:
        return len(self._open)

    def opened(self, client: ClientAddress, close: Callable[[], bool]) -> bool:
        """Register a connection.

        Return False if the limit is reached and none can be closed.
        """
        if len(self._open) >= self.most and not any(map(self._close, islice(self._idle, MAX_TRIED))):
            return False
        loop = asyncio.get_running_loop()
        connection = self._open[client] = OpenConnection(close, origin_of(client[0]), loop.time())
        self._is_idle(client, connection)
        return True

    def closed(self, client: ClientAddress) -> None:
        """Unregister a connection."""
        connection = self._open.pop(client, None)
        if connection is not None:
            self._is_busy(client, connection)

    def busy(self, client: ClientAddress, *, known: bool) -> None:
        """Mark a connection as busy with a request."""
        connection = self._idle.get(client)
        if connection is None:
            return
        if connection.known:
            del self._idle[client]
        else:
            self._is_busy(client, connection)
            connection.known = known

    def idle(self, client: ClientAddress) -> None:
        """Mark a connection as idle."""
        connection = self._open.get(client)
        if connection is None or client in self._idle:
            return
        if connection.known:
            self._idle[client] = connection
        else:
            connection.since = asyncio.get_running_loop().time()
            self._is_idle(client, connection)

    def _is_busy(self, client: ClientAddress, connection: OpenConnection) -> None:
        self._idle.pop(client, None)
        if not connection.known:
            strangers = self._strangers.get(connection.origin)
            if strangers is not None:
                strangers.pop(client, None)
                if not strangers:
                    del self._strangers[connection.origin]

    def _is_idle(self, client: ClientAddress, connection: OpenConnection) -> None:
        self._idle[client] = connection
        if not connection.known:
            strangers = self._strangers.setdefault(connection.origin, {})
            strangers[client] = connection
            if len(strangers) > self._each:
                self._judge_later(connection.origin, GRACE_S)

    def _judge_later(self, origin: str, seconds: float) -> None:
        if origin not in self._judging:
            self._judging.add(origin)
            asyncio.get_running_loop().call_later(seconds, self._judge, origin)

    def _judge(self, origin: str) -> None:
        """Close the oldest connections of an address that has too many."""
        self._judging.discard(origin)
        now = asyncio.get_running_loop().time()
        strangers = self._strangers.get(origin, {})
        for client, connection in tuple(strangers.items()):
            if len(strangers) <= self._each:
                return
            if (wait_s := connection.since + GRACE_S - now) > 0:
                self._judge_later(origin, wait_s)
                return
            self._close(client)
        if len(strangers) > self._each:
            self._judge_later(origin, LOOK_AGAIN_S)

    def _close(self, client: ClientAddress) -> bool:
        if not self._open[client].close():
            return False
        self.closed(client)
        return True


@lru_cache(maxsize=1_024)
def origin_of(host: str) -> str:
    """Return the key of per-address limits: a /64 network for IPv6 clients."""
    if ":" not in host:
        return host
    try:
        address = ipaddress.IPv6Address(host.partition("%")[0])
    except ValueError:
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.IPv6Network((address, 64), strict=False))
