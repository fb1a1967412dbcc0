"""The contract on PostgreSQL."""

from __future__ import annotations

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

globals().update(suite_for(Traits(shared=True, processes=True, persistent=True, sql=True)))


class PostgresOpener(DatabaseOpener):
    """One empty database of the server per test."""

    server: PostgresServer
    name: str

    async def sql(self, statement: str) -> Sequence[Sequence[object]]:
        """What anybody with a shell can do."""
        return self.server.sql(statement, database=self.name)

    def record_table(self) -> RecordTable:
        """As the migrations make it."""
        return RecordTable("interlock.record", ("version", "body"))


@pytest.fixture
async def opener(postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[StoreOpener]:
    monkeypatch.setattr(connections, "BEGIN", PATIENT_BEGIN)  # and not for the tests after this one
    names = [postgres.new_database_name()]

    def make() -> partial[PostgresStore]:
        return partial(patient_postgres, postgres.url_of(names[-1]))

    def make_elsewhere() -> partial[PostgresStore]:
        names.append(postgres.new_database_name())
        return make()

    opener = PostgresOpener(make(), make_elsewhere)
    opener.server, opener.name = postgres, names[0]
    yield opener
    await opener.close()
