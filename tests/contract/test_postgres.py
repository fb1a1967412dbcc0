"""The contract on PostgreSQL."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from functools import partial

import pytest
from tests.contract.patience import PATIENT_BEGIN, patient_postgres

from interlock.store.postgres import PostgresStore, connections
from interlock.testing.servers import PostgresServer
from interlock.testing.store_contract import (
    DatabaseOpener,
    RecordTable,
    StoreOpener,
    Traits,
    suite_for,
)
from interlock.testing.store_contract.suite import MakeStore

globals().update(suite_for(Traits(shared=True, processes=True, persistent=True, sql=True)))


EMPTY = """
SET session_replication_role = replica;  -- the schema refuses to be emptied
TRUNCATE interlock.spec, interlock.live, interlock.ended, interlock.journal_single,
    interlock.journal_packed, interlock.request RESTART IDENTITY;
UPDATE interlock.meta SET pruned_xact = 0, pruned_entry = 0;
"""


class PostgresOpener(DatabaseOpener):
    """One empty database of the server per test."""

    server: PostgresServer
    name: str
    is_ours: bool = True
    """Whether only stores of this process have used the database, so that emptying it leaves nothing."""

    async def sql(self, statement: str) -> Sequence[Sequence[object]]:
        """What anybody with a shell can do."""
        self.is_ours = False
        return self.server.sql(statement, database=self.name)

    def make_store(self) -> MakeStore:
        """For another process, which may be killed and leave a connection behind."""
        self.is_ours = False
        return super().make_store()

    def record_table(self) -> RecordTable:
        """As the migrations make it."""
        return RecordTable("interlock.record", ("version", "body"))


@pytest.fixture(scope="session")
def migrated(postgres: PostgresServer) -> str:
    """A database that has been opened once; copies of it are opened faster."""
    name = postgres.new_database_name()

    async def migrate() -> None:
        store = patient_postgres(postgres.url_of(name))
        await store.open()
        await store.close()

    asyncio.run(migrate())
    return name


@pytest.fixture(scope="session")
def emptied() -> list[str]:
    """Databases that tests have left and that are as new: making one costs more than most tests."""
    return []


@pytest.fixture
async def opener(
    postgres: PostgresServer, migrated: str, emptied: list[str], monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[StoreOpener]:
    monkeypatch.setattr(connections, "BEGIN", PATIENT_BEGIN)  # and not for the tests after this one
    names = [emptied.pop() if emptied else postgres.new_database_name(template=migrated)]

    def make() -> partial[PostgresStore]:
        return partial(patient_postgres, postgres.url_of(names[-1]))

    def make_elsewhere() -> partial[PostgresStore]:
        names.append(postgres.new_database_name())
        return make()

    opener = PostgresOpener(make(), make_elsewhere)
    opener.server, opener.name = postgres, names[0]
    yield opener
    await opener.close()
    if opener.is_ours:
        postgres.sql(EMPTY, database=names[0])
        emptied.append(names.pop(0))
    for name in names:
        postgres.drop_database(name)
