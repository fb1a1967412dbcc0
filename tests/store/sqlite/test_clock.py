"""Time in a database goes forward, whatever the host's clock does."""

from __future__ import annotations

import sqlite3
from datetime import timedelta

from interlock.store.ranking import microseconds
from interlock.store.sqlite import SqliteStore
from interlock.store.sqlite.database import HeldClock
from interlock.testing.store_contract.builders import creation, made

HOUR_US = 3_600_000_000


class Host:
    """A host whose clock somebody sets, and whose ticks nobody can."""

    def __init__(self) -> None:
        self.clock_us = 10 * HOUR_US
        self.ticks_us = 500

    def pass_time(self, us: int) -> None:
        self.clock_us += us
        self.ticks_us += us

    def clock(self) -> HeldClock:
        return HeldClock(lambda: self.clock_us * 1_000, lambda: self.ticks_us * 1_000)


def test_the_clock_is_the_hosts() -> None:
    host = Host()
    clock = host.clock()
    host.pass_time(7)
    assert clock.read() == host.clock_us


def test_time_continues_when_the_hosts_clock_is_set_back() -> None:
    host = Host()
    clock = host.clock()
    before = clock.read()
    host.clock_us -= HOUR_US
    host.pass_time(20)
    assert clock.read() == before + 20


def test_a_clock_that_is_set_forward_is_followed() -> None:
    host = Host()
    clock = host.clock()
    clock.read()
    host.clock_us += HOUR_US
    assert clock.read() == host.clock_us


def test_the_clock_continues_from_a_recorded_time_that_is_ahead_of_the_host_clock() -> None:
    host = Host()
    clock = host.clock()
    ahead = host.clock_us + HOUR_US
    assert clock.read(ahead) == ahead
    host.pass_time(5)
    assert clock.read() == ahead + 5


async def test_a_process_continues_from_the_time_that_another_has_left(
    store: SqliteStore, shell: sqlite3.Connection
) -> None:
    ahead = await store.now() + timedelta(hours=1)
    shell.execute("UPDATE progress SET latest_us = ?", (microseconds(ahead),))
    [record] = await made(store, creation("a"))
    assert record.created_at >= ahead
    assert await store.now() >= record.created_at
