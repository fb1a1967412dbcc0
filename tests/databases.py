"""One PostgreSQL and one Valkey for all tests of a process that do not hurt them; each test has its own part.

Their clocks can be moved (`tests.clocks.move_server`), and are never moved back. A test that stops, kills or
misconfigures a server starts its own.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.clocks import movable

from interlock.testing.servers import PostgresServer, RedisServer, postgres_server, redis_server


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """Without fsync, which no test here needs, and in a time zone that no code may rely on."""
    settings = {"autovacuum": "off", "timezone": "<+0545>-05:45"}
    with postgres_server(durable=False, settings=settings, around=movable) as server:
        yield server


@pytest.fixture(scope="session")
def redis() -> Iterator[RedisServer]:
    """With every write flushed, as the store asks for."""
    with redis_server(append_only="always", settings={"databases": "512"}, around=movable) as server:
        yield server
