"""A database file, a store on it, and a shell that knows nothing of the store."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.waiting import PATIENCE_S

from interlock.store.sqlite import SqliteStore


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqliteStore]:
    # Not above: the tests of the contract want to have a word with pytest before this is imported.
    from interlock.testing.store_contract import CATALOGUE

    store = SqliteStore(str(path), CATALOGUE, timeout_s=PATIENCE_S)
    await store.open()
    yield store
    await store.close()


@pytest.fixture
def shell(store: SqliteStore, path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        yield connection
