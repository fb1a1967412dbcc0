"""The faults of the fleet, with their times by the store's clock.

kill         `kill -9` of a server or a worker; it is restarted at once
freeze       SIGSTOP for longer than a lease, then SIGCONT: the process does not notice the time
deploy       all workers have to shut down, three times each, while their successors of the same
             names start; then one server after the other
black_hole   a proxy accepts everything and returns nothing, for longer than a lease
half_open    the far ends of all connections of a proxy are gone, without a notification
database     its server is killed and restarted; for SQLite, another program holds the lock
"""

from __future__ import annotations

import asyncio
import random
import signal
import sqlite3
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import closing
from datetime import datetime

import msgspec

from interlock.store.contract import Store
from interlock_verification.chaos.counters import retry_until_available
from interlock_verification.chaos.system.fleet import DURATIONS, Fleet
from interlock_verification.chaos.system.lag import Lag
from interlock_verification.chaos.system.members import ChaosMember, ProcessLife

TOO_LONG_S = 1.25 * DURATIONS.lease_ttl_s
STALLS = "stalls_of_the_machine"
GAVE_UP = "gave_up_and_said_why"
TOLD, CRASHED = "Error: ", "Traceback"
YOUNG = 1 / 8
"""Share of members that are killed while they start."""
UP_S = 20.0
ABREAST = 3
"""Number of members at the head of the line, from which the seed chooses."""
AHEAD = 3
"""Maximum lead in kills of a member that is not up yet."""
LAST_WORDS = 300
STORM = 3
"""Number of times that a member has to shut down."""
_LOCKED_S = 1.5
_AWAY_S = 0.5


class KillWindow(msgspec.Struct, frozen=True, kw_only=True):
    """A kill between these two times."""

    name: str
    runner_id: str
    """The runner id of a worker, if it was logged; else empty."""
    serves: bool
    before: datetime
    after: datetime


class FaultLog(msgspec.Struct):
    """The injected faults."""

    deaths: list[KillWindow] = []
    disturbances: list[tuple[datetime, datetime]] = []
    """Periods in which another fault would have delayed recovery."""
    over_at: datetime | None = None
    """Time of the last fault."""
    counts: Counter[str] = msgspec.field(default_factory=Counter)
    fallen: list[str] = []
    """Members that ended before they were killed, without a reason."""
    lag: Lag = msgspec.field(default_factory=Lag)
    """The scheduling delays of the members."""

    def disturb(self, begin: datetime, end: datetime) -> None:
        """Record a period, merged with the previous one if they overlap."""
        if self.disturbances and begin <= self.disturbances[-1][1]:
            before, until = self.disturbances.pop()
            begin, end = min(begin, before), max(end, until)
        self.disturbances.append((begin, end))


class SystemFaultInjector:
    """Injects one fault after the other, chosen by a seed."""

    def __init__(self, fleet: Fleet, store: Store, seed: int) -> None:
        self.fault_log = FaultLog()
        self._fleet = fleet
        self._store = store
        self._dice = random.Random(seed)
        self._line: list[ChaosMember] = []
        """All members, the one killed longest ago first."""
        self._deaths: Counter[str] = Counter()
        self.other_faults: dict[str, Callable[[], Awaitable[None]]] = {
            "freezes": self._freeze,
            "deploys": self._deploy,
            "black_holes": self._black_hole,
            "left_half_open": self._half_open,
            "database_restarts" if fleet.database else "database_locks": self._database,
        }

    @property
    def kinds(self) -> tuple[str, ...]:
        """The counted faults, in the order of the report."""
        return ("kills", "of_workers", "of_servers", *self.other_faults, STALLS, GAVE_UP)

    async def kill(self) -> None:
        """Kill the next member of the fleet, each in turn."""
        member = await self._next()
        life = member.life
        self._look_after(member)
        before = await self._now()
        await asyncio.to_thread(life.kill)
        after = await self._now()
        member.start_again()
        serves = member in self._fleet.servers
        runner_id = "" if serves else life.runner_id
        self.fault_log.deaths.append(
            KillWindow(name=member.name, runner_id=runner_id, serves=serves, before=before, after=after)
        )
        self.fault_log.counts["kills"] += 1
        self.fault_log.counts["of_servers" if serves else "of_workers"] += 1

    async def inject(self, name: str) -> None:
        """Inject another fault, by its name."""
        before = await self._now()
        await self.other_faults[name]()
        self.fault_log.disturb(before, await self._now())
        self.fault_log.counts[name] += 1

    async def is_over(self) -> None:
        """Mark the end of the faults."""
        for member in self._fleet.members.values():
            self._look_after(member)
        self.fault_log.over_at = await self._now()

    async def pause(self, longest_s: float) -> None:
        """Let the fleet work for a moment."""
        await asyncio.sleep(longest_s * self._dice.random())

    def _look_after(self, member: ChaosMember) -> None:
        """Check for a member that has ended.

        It may give up while the database is away, but not crash.
        """
        if not member.life.is_gone(0.0):
            return
        output = member.life.output()[-LAST_WORDS:]
        if TOLD in output and CRASHED not in output:
            self.fault_log.counts[GAVE_UP] += 1
        else:
            self.fault_log.fallen.append(
                f"{member.name} had ended by itself, and its last output was: {output}"
            )

    async def _next(self) -> ChaosMember:
        """Return one of the first members in line.

        Most have come far enough that their death matters, even on a busy machine. A member that is delayed
        (by a half-open connection, say) does not delay the others at first, and is not spared: no member is
        killed much more often than the others.
        """
        self._line = self._line or list(self._fleet.members.values())
        least = min(self._deaths[one.name] for one in self._line)
        due = [one for one in self._line if self._deaths[one.name] < least + AHEAD]
        until = time.monotonic() + UP_S
        young = self._dice.random() < YOUNG
        while not (up := [one for one in due if young or one.life.is_up]) and time.monotonic() < until:
            await asyncio.sleep(0.05)
        chosen = self._dice.choice((up or due)[:ABREAST])
        self._deaths[chosen.name] += 1
        self._line.remove(chosen)
        self._line.append(chosen)
        return chosen

    async def _now(self) -> datetime:
        return await retry_until_available(self._store.now)

    async def _freeze(self) -> None:
        life = self._dice.choice(list(self._fleet.members.values())).life
        life.send(signal.SIGSTOP)
        try:
            await asyncio.sleep(TOO_LONG_S)
        finally:
            life.send(signal.SIGCONT)

    async def _deploy(self) -> None:
        leaving = []
        for member in self._fleet.workers:
            _storm(member.life)
            leaving.append(member.start_again())
        for life in leaving:
            await asyncio.to_thread(life.gone)
        for server in self._fleet.servers:
            _storm(server.life)
            await asyncio.to_thread(server.life.gone)
            server.start_again()

    async def _black_hole(self) -> None:
        wires = self._dice.choice(list(self._fleet.wires.values()))
        wires.swallowing = True
        try:
            await asyncio.sleep(TOO_LONG_S)
        finally:
            wires.swallowing = False
            await wires.cut_all()

    async def _half_open(self) -> None:
        for wires in self._fleet.wires.values():
            wires.halve()
        await asyncio.sleep(TOO_LONG_S)

    async def _database(self) -> None:
        database = self._fleet.database
        if database is None:
            await asyncio.to_thread(_hold_lock, self._fleet.url)
            return
        await asyncio.to_thread(database.kill)
        await self.pause(_AWAY_S)
        await asyncio.to_thread(database.start)


def _storm(life: ProcessLife) -> None:
    for _ in range(STORM):
        life.send(signal.SIGTERM)


def _hold_lock(url: str) -> None:
    """Hold the write lock, like a slow program."""
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None, timeout=30)) as other:
        other.execute("BEGIN IMMEDIATE")
        time.sleep(_LOCKED_S)
