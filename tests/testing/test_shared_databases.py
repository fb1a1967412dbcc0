"""A database that one test leaves to the next is as new, or it is dropped."""

from __future__ import annotations

import pytest
from tests.databases import SharedPostgres
from tests.effort import further

from interlock import Interlock
from interlock.store.postgres import PostgresStore
from interlock.systems.catalogue import CATALOGUE
from interlock.testing.servers import PostgresServer


def renewed(server: SharedPostgres, name: str) -> bool:
    """Return whether the database is lent again after it was taken back."""
    server.take_back()
    return server.new_database_name() == name


async def test_a_database_with_jobs_is_emptied_and_lent_again(
    shared_postgres: SharedPostgres, postgres: PostgresServer
) -> None:
    name = postgres.new_database_name()
    async with Interlock(postgres.url_of(name)) as il:
        await il.submit("shop.send", order=1)
        assert renewed(shared_postgres, name), "also while a connection is open"
    for (table,) in postgres.sql(
        "SELECT tablename FROM pg_tables WHERE schemaname = 'interlock'", database=name
    ):
        now, then = (
            postgres.sql(f"SELECT r::text FROM {schema}.{table} AS r ORDER BY 1", database=name)
            for schema in ("interlock", "as_new")
        )
        assert now == then, table
    store = PostgresStore(postgres.url_of(name), CATALOGUE)
    await store.open()
    assert (await store.status()).records == {}
    await store.close()


@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE interlock.live ADD COLUMN colour text",
        "ALTER FUNCTION interlock.refuse_always() SET work_mem = '1MB'",
        "ALTER TABLE interlock.live DISABLE TRIGGER ALL",
        "ANALYZE interlock.meta",
        *further(
            "DROP INDEX interlock.{index}",
            "CREATE TABLE public.thing (a integer)",
            "CREATE SCHEMA elsewhere",
            "DROP SCHEMA interlock CASCADE",
        ),
    ],
)
def test_a_database_whose_schema_was_changed_is_not_reused(
    shared_postgres: SharedPostgres, postgres: PostgresServer, change: str
) -> None:
    name = postgres.new_database_name()
    found = "SELECT indexname FROM pg_indexes WHERE schemaname = 'interlock' AND indexdef !~ 'UNIQUE' LIMIT 1"
    ((index,),) = postgres.sql(found, database=name)
    postgres.sql(change.format(index=index), database=name)
    assert not renewed(shared_postgres, name)


def test_a_database_with_settings_of_its_own_is_not_lent_again(
    shared_postgres: SharedPostgres, postgres: PostgresServer
) -> None:
    name = postgres.new_database_name()
    postgres.sql(f"ALTER DATABASE {name} SET default_transaction_isolation = serializable")
    assert not renewed(shared_postgres, name)
