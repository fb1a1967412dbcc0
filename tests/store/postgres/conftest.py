"""One server for all tests that do not hurt it; those that do start their own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from typing import Any, Protocol

import asyncpg
import pytest
from tests.waiting import PATIENCE_S

# As the conftest of the contract does: whoever is collected first must not spoil it for the other.
pytest.register_assert_rewrite("interlock.testing.store_contract")

from interlock.store.postgres import PostgresStore  # noqa: E402
from interlock.testing.servers import PostgresServer  # noqa: E402
from interlock.testing.store_contract import CATALOGUE  # noqa: E402


class OpenStore(Protocol):
    """Opens a store that is closed after the test."""

    async def __call__(self, url: str, **settings: Any) -> PostgresStore: ...


@pytest.fixture
def server(postgres: PostgresServer) -> PostgresServer:
    return postgres


@pytest.fixture
def url(server: PostgresServer) -> str:
    """A database with the schema and nothing else."""
    return server.new_database()


@pytest.fixture
async def open_store() -> AsyncIterator[OpenStore]:
    async with AsyncExitStack() as stack:

        async def open_store(url: str, **settings: Any) -> PostgresStore:
            store = PostgresStore(url, CATALOGUE, **{"timeout_s": PATIENCE_S, **settings})
            stack.push_async_callback(store.close)
            await store.open()
            return store

        yield open_store


@pytest.fixture
async def shell(url: str) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
    """A bare connection to the database, as psql has one."""
    connection: asyncpg.Connection[asyncpg.Record] = await asyncpg.connect(url)
    yield connection
    with suppress(OSError, asyncpg.PostgresConnectionError):  # A test may have made the server hang up.
        await connection.close()
