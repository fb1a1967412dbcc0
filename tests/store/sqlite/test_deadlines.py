"""Nobody waits longer than asked, and what was given up is told apart from what may have been done."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.waiting import PATIENCE_S, until

from interlock.errors import StoreUnavailable
from interlock.store.records import Key
from interlock.store.sqlite import SqliteStore, database, reader
from interlock.store.sqlite.threads import ThreadCall
from interlock.testing.store_contract import CATALOGUE
from interlock.testing.store_contract.builders import creation, each, look, made, see

ENDLESS = "WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) FROM n"


@pytest.fixture
async def hasty(path: Path) -> AsyncIterator[SqliteStore]:
    """A store that waits for 0.3 s; to be opened and closed it has the time that it needs."""
    store = SqliteStore(str(path), CATALOGUE, timeout_s=PATIENCE_S)
    await store.open()
    allow(store, 0.3)
    yield store
    allow(store, PATIENCE_S)
    await store.close()


def allow(store: SqliteStore, timeout_s: float) -> None:
    store._writer.timeout_s = store._reader.timeout_s = timeout_s


async def test_a_commit_waits_for_another_process_and_reads_do_not(
    store: SqliteStore, shell: sqlite3.Connection
) -> None:
    shell.execute("BEGIN IMMEDIATE")
    commit = asyncio.create_task(store.commit(each(creation("a"))))
    assert await look(store, "a") is None
    assert not commit.done()
    shell.execute("COMMIT")
    await commit
    assert (await see(store, "a")).version == 1


async def test_a_commit_that_never_got_its_turn_is_never_done(
    hasty: SqliteStore, store: SqliteStore, shell: sqlite3.Connection
) -> None:
    shell.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable, match="nothing was written") as late:
        await hasty.commit(each(creation("a")))
    assert late.value.todo
    shell.execute("COMMIT")
    allow(hasty, PATIENCE_S)
    await made(hasty, creation("b"))
    assert await look(hasty, "a") is None


async def test_a_commit_that_hangs_has_an_unknown_outcome_and_those_behind_it_have_none(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, begun, release = asyncio.get_running_loop(), asyncio.Event(), threading.Event()
    writer, jobs = store._writer, []
    outcome_of = writer._outcome

    async def noted(job: ThreadCall) -> None:
        jobs.append(job)
        await outcome_of(job)

    monkeypatch.setattr(writer, "_outcome", noted)

    def hang(_ledger: object) -> None:
        loop.call_soon_threadsafe(begun.set)
        release.wait()

    hanging = asyncio.create_task(writer.do(hang))
    await begun.wait()
    behind = asyncio.create_task(store.commit(each(creation("a"))))
    await until(lambda: len(jobs) == 2, "both are under way")
    for job in jobs:
        writer._give_up(job)  # which is what its deadline does
    with pytest.raises(StoreUnavailable, match="unknown"):
        await hanging
    with pytest.raises(StoreUnavailable, match="nothing was written"):
        await behind
    release.set()
    await made(store, creation("b"))
    assert await store.load([Key("parcel", "a")]) == [None]


async def test_a_read_that_is_given_up_is_stopped(hasty: SqliteStore) -> None:
    with pytest.raises(StoreUnavailable, match=r"0\.3 s"):
        await hasty._reader.do(lambda connection: connection.execute(ENDLESS).fetchone())
    allow(hasty, PATIENCE_S)
    assert await hasty.epoch() > 0


async def test_opening_a_store_times_out_while_another_connection_holds_the_write_lock(
    store: SqliteStore, shell: sqlite3.Connection, path: Path
) -> None:
    shell.execute("BEGIN IMMEDIATE")
    late = SqliteStore(str(path), CATALOGUE, timeout_s=0.3)
    with pytest.raises(StoreUnavailable, match="did not answer"):
        await late.open()
    shell.execute("ROLLBACK")
    with pytest.raises(StoreUnavailable, match="not open"):
        await late.now()
    await late.close()


async def test_a_store_is_used_between_open_and_close(path: Path) -> None:
    store = SqliteStore(str(path), CATALOGUE)
    with pytest.raises(StoreUnavailable, match="not open"):
        await store.commit([])
    await store.close()
    others = set(threading.enumerate())
    await store.open()
    threads = set(threading.enumerate()) - others
    assert {thread.name for thread in threads} == {"interlock writer of a.db", "interlock reader of a.db"}
    await store.close()
    await store.close()
    assert not any(thread.is_alive() for thread in threads)


async def test_a_full_disk_is_named_leaves_nothing_behind_and_needs_no_restart(store: SqliteStore) -> None:
    def hold_size(connection: sqlite3.Connection, pages: int) -> None:
        connection.execute(f"PRAGMA max_page_count = {pages}")

    (pages,) = await store._writer.do(
        lambda ledger: ledger.connection.execute("PRAGMA page_count").fetchone()
    )
    await store._writer.do(lambda ledger: hold_size(ledger.connection, pages))
    with pytest.raises(StoreUnavailable, match=r"full; nothing was written"):
        await store.commit(each(creation("a"), creation("b", body=b'"' + b"x" * 100_000 + b'"')))
    assert await store.load([Key("parcel", "a"), Key("parcel", "b")]) == [None, None]
    await store._writer.do(lambda ledger: hold_size(ledger.connection, 1_000_000))
    await made(store, creation("a"))


async def test_a_store_that_was_closed_can_be_opened_again(store: SqliteStore) -> None:
    await made(store, creation("a"))
    await store.close()
    await store.open()
    await store.open()
    assert (await see(store, "a")).version == 1


async def test_a_read_reports_the_original_error_after_sqlite_has_rolled_back_its_transaction(
    store: SqliteStore,
) -> None:
    def fail(connection: sqlite3.Connection) -> None:
        connection.execute("ROLLBACK")  # as SQLite does by itself after some errors of the disk
        raise sqlite3.DatabaseError("the disk is broken")

    with pytest.raises((sqlite3.DatabaseError, StoreUnavailable), match="the disk is broken"):
        await store._reader.do(fail)
    assert await look(store, "a") is None, "the connection can be used"


async def test_a_store_is_opened_while_another_process_recovers_the_log(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection that reads did not wait: of fifty that were opened at once, one was told of a lock."""
    tries: list[Path] = []

    def recovering(path: Path) -> sqlite3.Connection:
        tries.append(path)
        if len(tries) < 3:
            error = sqlite3.OperationalError("database is locked")
            error.sqlite_errorcode = sqlite3.SQLITE_BUSY_RECOVERY
            raise error
        return database.connect(path)

    monkeypatch.setattr(reader, "connect", recovering)
    store = SqliteStore(str(path), CATALOGUE, timeout_s=PATIENCE_S)
    await store.open()
    assert len(tries) == 3
    assert await look(store, "a") is None
    await store.close()
