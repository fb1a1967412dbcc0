"""The contract suite on all stores: one server per session, one empty database per test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.register_assert_rewrite("interlock.testing.store_contract")

from interlock.testing.servers import PostgresServer, RedisServer, postgres_server, redis_server  # noqa: E402
from interlock.testing.store_contract.fixtures import store  # noqa: E402

__all__ = ["store"]


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """Without fsync, which no test here needs, and in a time zone that nobody may rely on."""
    settings = {"autovacuum": "off", "timezone": "<+0545>-05:45"}
    with postgres_server(durable=False, settings=settings) as server:
        yield server


@pytest.fixture(scope="session")
def redis() -> Iterator[RedisServer]:
    """With everything written at once, as the store asks for."""
    with redis_server(append_only="always") as server:
        yield server
