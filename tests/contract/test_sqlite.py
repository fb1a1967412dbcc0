"""The contract on SQLite."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import closing
from functools import partial
from itertools import count
from pathlib import Path

import pytest
from tests.waiting import PATIENCE_S

from interlock.store.sqlite import SqliteStore
from interlock.testing.store_contract import (
    CATALOGUE,
    DatabaseOpener,
    RecordTable,
    StoreOpener,
    Traits,
    suite_for,
)

globals().update(suite_for(Traits(processes=True, persistent=True, sql=True)))


class SqliteOpener(DatabaseOpener):
    """One file per database."""

    path: Path

    async def sql(self, statement: str) -> Sequence[Sequence[object]]:
        """What anybody with the file can do."""
        with closing(sqlite3.connect(self.path, isolation_level=None)) as shell:
            return shell.execute(statement).fetchall()

    def record_table(self) -> RecordTable:
        """As the migrations make it."""
        return RecordTable("records", ("version", "body", "created_us", "updated_us"))


@pytest.fixture(scope="session")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database that has been opened once; copies of it are opened faster."""
    path = tmp_path_factory.mktemp("contract") / "migrated.db"

    async def migrate() -> None:
        store = SqliteStore(str(path), CATALOGUE, timeout_s=PATIENCE_S)
        await store.open()
        await store.close()

    asyncio.run(migrate())
    return path


@pytest.fixture
async def opener(tmp_path: Path, migrated: Path) -> AsyncIterator[StoreOpener]:
    numbers = count(1)
    shutil.copy(migrated, tmp_path / "1.db")

    def make() -> partial[SqliteStore]:
        return partial(SqliteStore, str(tmp_path / f"{next(numbers)}.db"), CATALOGUE, timeout_s=PATIENCE_S)

    opener = SqliteOpener(make(), make)
    opener.path = tmp_path / "1.db"
    yield opener
    await opener.close()
