"""What was promised is in force on the connections that are used, not on some other."""

from __future__ import annotations

import sqlite3

import pytest

from interlock.store.sqlite import SqliteStore

FULL = 2


@pytest.mark.parametrize(("name", "value"), [("journal_mode", "wal"), ("synchronous", FULL)])
async def test_the_writer_is_set_up_as_promised(store: SqliteStore, name: str, value: object) -> None:
    found = await store._writer.do(lambda ledger: ledger.connection.execute(f"PRAGMA {name}").fetchone())
    assert found == (value,)


async def test_the_reader_cannot_write(store: SqliteStore) -> None:
    def write(connection: sqlite3.Connection) -> str:
        with pytest.raises(sqlite3.OperationalError) as refused:
            connection.execute("DELETE FROM progress")
        return str(refused.value)

    assert "readonly" in await store._reader.do(write)


async def test_the_durability_names_the_setting_that_gives_it(store: SqliteStore) -> None:
    assert store.capabilities.durable
    assert "synchronous=FULL" in store.capabilities.durability
