"""PostgreSQL can reclaim the rows that claims leave behind, and the status of a store reports it."""

from __future__ import annotations

import asyncpg
import pytest
from tests.effort import further

from interlock.store.contract import Store, Vacuum
from interlock.testing.servers import PostgresServer, postgres_server

from .conftest import OpenStore


async def vacuum_of(store: Store) -> Vacuum:
    found = (await store.status()).vacuum
    assert found is not None
    return found


async def test_a_transaction_that_stays_open_is_seen_until_it_ends(
    postgres: PostgresServer, open_store: OpenStore
) -> None:
    url = postgres.new_database()
    store = await open_store(url)
    reader = await asyncpg.connect(url)
    transaction = reader.transaction(isolation="repeatable_read")
    await transaction.start()
    await reader.fetchval("SELECT count(*) FROM pg_class")
    open_for_s: float = await reader.fetchval("SELECT EXTRACT(EPOCH FROM clock_timestamp() - now())::float8")
    seen = await vacuum_of(store)
    assert seen.oldest_transaction_s is not None
    assert seen.oldest_transaction_s >= open_for_s
    await transaction.rollback()
    await reader.close()
    left_s = (await vacuum_of(store)).oldest_transaction_s
    assert left_s is None or left_s < seen.oldest_transaction_s, "at most one of the store itself"


@pytest.mark.parametrize(
    ("settings", "automatic"),
    [
        ({"autovacuum": "on"}, True),
        ({"autovacuum": "off"}, False),
        *further(({"autovacuum": "on", "track_counts": "off"}, False)),
    ],
)
async def test_whether_a_server_vacuums_by_itself_is_seen(
    settings: dict[str, str], automatic: bool, open_store: OpenStore
) -> None:
    with postgres_server(durable=False, settings=settings) as server:
        store = await open_store(server.new_database())
        assert (await vacuum_of(store)).automatic is automatic
        await store.close()
