"""A house for each test, in which whoever sweeps looks after runs: so each step can be seen."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
from tests.systems.runs.site import Site

from interlock.testing.servers import PostgresServer, RedisServer, postgres_server, redis_server


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    """In memory, with a clock that jumps."""
    opened = Site()
    await opened.open()
    yield opened
    await opened.close()


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """Without fsync, which no test here needs."""
    with postgres_server(durable=False) as server:
        yield server


@pytest.fixture(scope="session")
def redis() -> Iterator[RedisServer]:
    """With everything written at once, as the store asks for."""
    with redis_server(append_only="always") as server:
        yield server
