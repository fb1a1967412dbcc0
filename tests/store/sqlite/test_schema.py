"""The schema is the sum of its migrations, for everybody and at once.

`schema.sql` is what they add up to. It is written by

    .venv/bin/python tests/store/sqlite/test_schema.py > tests/store/sqlite/schema.sql
"""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Iterable
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.waiting import PROGRAM_S

from interlock.errors import ForeignSchema, SchemaTooNew, StoreTooOld
from interlock.store.catalogue import StoredKind
from interlock.store.migrations import Migration
from interlock.store.records import Change, Query
from interlock.store.sqlite import SqliteStore
from interlock.store.sqlite.database import (
    APPLICATION_ID,
    MIGRATIONS,
    applied_version,
    apply_migration,
    check_version,
    with_lock,
)
from interlock.testing.store_contract import CATALOGUE
from interlock.testing.store_contract.builders import PARKED, creation, made, see

PINNED = Path(__file__).with_name("schema.sql")
OPEN = """
import asyncio, sys
from interlock.store.sqlite import SqliteStore
from interlock.testing.store_contract import CATALOGUE
async def main():
    store = SqliteStore(sys.argv[1], CATALOGUE)
    await store.open()
    print((await store.status()).schema_version)
    await store.close()
sys.stdin.readline()
asyncio.run(main())
"""


def sum_of(migrations: Iterable[Migration]) -> str:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        for migration in migrations:
            apply_migration(connection, migration, 0)
        return schema_of(connection)


def schema_of(connection: sqlite3.Connection) -> str:
    """Return all declarations as one text."""
    rows = connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY type, name")
    return "".join(f"{sql};\n" for (sql,) in rows)


def schema_in(path: Path) -> str:
    with closing(sqlite3.connect(path)) as connection:
        return schema_of(connection)


async def open_and_close(path: Path) -> None:
    store = SqliteStore(str(path), CATALOGUE)
    await store.open()
    await store.close()


def run_shell(path: Path, script: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(script)


def test_the_schema_is_the_sum_of_the_migrations() -> None:
    assert sum_of(MIGRATIONS) == PINNED.read_text()


async def test_a_database_that_is_opened_has_that_schema(store: SqliteStore, path: Path) -> None:
    assert schema_in(path) == PINNED.read_text()


async def test_opening_a_database_again_changes_nothing(path: Path) -> None:
    await open_and_close(path)
    before = path.read_bytes()
    await open_and_close(path)
    assert path.read_bytes() == before


@pytest.mark.long  # the contract has four processes
async def test_many_processes_may_open_a_new_database_at_once(path: Path) -> None:
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", OPEN, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(6)
    ]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    answers = [process.communicate(timeout=PROGRAM_S)[0].strip() for process in processes]
    assert answers == [str(MIGRATIONS[-1].number)] * 6
    with closing(sqlite3.connect(path)) as connection:
        applied = connection.execute("SELECT number FROM interlock_schema").fetchall()
    assert applied == [(migration.number,) for migration in MIGRATIONS]


def test_a_migration_that_fails_leaves_nothing_behind(path: Path) -> None:
    bad = Migration(1, "bad", "CREATE TABLE a (b);\nCREATE TABLE a (b);\n")
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        with pytest.raises(sqlite3.OperationalError):
            with_lock(connection, lambda: apply_migration(connection, bad, 0))
        assert schema_of(connection) == ""
        assert applied_version(connection) == 0


async def test_a_database_of_a_newer_program_is_refused_and_left_as_it_is(path: Path) -> None:
    await open_and_close(path)
    run_shell(path, "INSERT INTO interlock_schema VALUES (99, 'of tomorrow', 0);")
    before = path.read_bytes()
    with pytest.raises(SchemaTooNew, match="99"):
        await open_and_close(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "script",
    [
        "CREATE TABLE songs (title TEXT);",
        "CREATE TABLE interlock_schema (doors INTEGER);",
        "PRAGMA application_id = 42; CREATE VIEW doors AS SELECT 1;",
    ],
    ids=["other tables", "another table of our name", "the number of another program"],
)
async def test_a_database_of_another_program_is_refused_and_left_as_it_is(path: Path, script: str) -> None:
    run_shell(path, script)
    before = path.read_bytes()
    with pytest.raises(ForeignSchema, match="another program"):
        await open_and_close(path)
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == [path.name]


async def test_a_copy_that_was_made_by_a_dump_is_ours(store: SqliteStore, path: Path) -> None:
    await made(store, creation("a"))
    copy = path.with_name("copy.db")
    with closing(sqlite3.connect(path)) as old, closing(sqlite3.connect(copy)) as new:
        new.executescript("\n".join(old.iterdump()))
    again = SqliteStore(str(copy), CATALOGUE)
    await again.open()
    assert (await see(again, "a")).version == 1
    await again.close()
    with closing(sqlite3.connect(copy)) as connection:
        assert connection.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)


async def test_opening_a_database_with_fewer_kinds_keeps_the_kinds_of_other_programs(
    store: SqliteStore, path: Path
) -> None:
    few = SqliteStore(str(path), {"letter": CATALOGUE["letter"]})
    await few.open()
    await few.close()
    [record] = await made(store, creation("a"))
    assert record.state == "packed"


async def test_records_are_found_by_their_state_after_the_tables_have_changed_and_changed_back(
    path: Path,
) -> None:
    parcel = CATALOGUE["parcel"]
    fewer = replace(
        parcel,
        states=tuple(state for state in parcel.states if state != "lost")[::-1],
        ended=parcel.ended - {"lost"},
        paths=frozenset(path for path in parcel.paths if "lost" not in path),
        fingerprint="of another day",
    )
    await with_tables(path, parcel, creation("a", "lost"), creation("b"))
    assert await with_tables(path, fewer, creation("c", "sent")) == {"packed": ["b"], "sent": ["c"]}
    assert await with_tables(path, parcel) == {"lost": ["a"], "packed": ["b"], "sent": ["c"]}


async def test_a_record_is_pruned_if_its_state_became_an_ended_state_after_it_was_written(path: Path) -> None:
    van = CATALOGUE["van"]
    before = replace(van, ended=frozenset(), fingerprint="of another day")
    old = SqliteStore(str(path), {"van": before})
    await old.open()
    await made(old, creation("a", PARKED, kind="van"))
    await old.close()
    store = SqliteStore(str(path), {"van": van})
    await store.open()
    try:
        assert (await store.prune(kind="van", states=["parked"], older_than=timedelta(0))).records == 1
    finally:
        await store.close()


async def with_tables(path: Path, parcel: StoredKind, *creations: Change) -> dict[str, list[str]]:
    """Open a database with these tables, create something, and list what there is by state."""
    store = SqliteStore(str(path), {"parcel": parcel})
    await store.open()
    try:
        if creations:
            await made(store, *creations)
        pages = {state: await store.find(Query(kind="parcel", states=(state,))) for state in parcel.states}
    finally:
        await store.close()
    return {state: [record.id for record in page.records] for state, page in pages.items() if page.records}


def test_a_library_that_is_too_old_is_named() -> None:
    with pytest.raises(StoreTooOld, match=r"3\.34\.1"):
        check_version((3, 34, 1))
    check_version((3, 35, 0))


if __name__ == "__main__":
    print(sum_of(MIGRATIONS), end="")
