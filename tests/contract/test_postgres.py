"""The contract on PostgreSQL."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from functools import partial

import pytest

from interlock.store.postgres import PostgresStore
from interlock.testing.servers import PostgresServer
from interlock.testing.store_contract import (
    CATALOGUE,
    DatabaseOpener,
    RecordTable,
    StoreOpener,
    Traits,
    suite_for,
)

globals().update(suite_for(Traits(shared=True, processes=True, persistent=True, sql=True)))


class PostgresOpener(DatabaseOpener):
    """One database of the server per test."""

    server: PostgresServer
    name: str

    async def sql(self, statement: str) -> Sequence[Sequence[object]]:
        """What anybody with a shell can do."""
        return self.server.sql(statement, database=self.name)

    def record_table(self) -> RecordTable:
        """As the migrations make it."""
        return RecordTable("interlock.record", ("version", "body"))


@pytest.fixture(scope="session")
def migrated(postgres: PostgresServer) -> str:
    """A database that has been opened once; copies of it are opened faster."""
    name = postgres.new_database_name()

    async def migrate() -> None:
        store = PostgresStore(postgres.url_of(name), CATALOGUE)
        await store.open()
        await store.close()

    asyncio.run(migrate())
    return name


@pytest.fixture
async def opener(postgres: PostgresServer, migrated: str) -> AsyncIterator[StoreOpener]:
    names = [postgres.new_database_name(template=migrated)]

    def make() -> partial[PostgresStore]:
        return partial(PostgresStore, postgres.url_of(names[-1]), CATALOGUE)

    def make_elsewhere() -> partial[PostgresStore]:
        names.append(postgres.new_database_name())
        return make()

    opener = PostgresOpener(make(), make_elsewhere)
    opener.server, opener.name = postgres, names[0]
    yield opener
    await opener.close()
    for name in names:
        postgres.drop_database(name)
