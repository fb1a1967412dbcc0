"""The database itself refuses what the tables do not allow, and can be read by people."""

from __future__ import annotations

import sqlite3

import msgspec
import pytest

from interlock.store.records import Batch, Commit, Committed, Key, Query
from interlock.store.sqlite import SqliteStore
from interlock.testing.store_contract.builders import (
    PACKING,
    QUEUE,
    claimed,
    creation,
    made,
    move,
    refusal,
    see,
    take,
)

REPLACE = """
INSERT OR REPLACE INTO records (kind, id, state, version, body, created_us, updated_us)
VALUES ('parcel', 'a', 'sent', 1, x'7b7d', 0, 0)
"""
PLACE = "(SELECT place FROM states WHERE kind = 'parcel' AND name = '{}') << 40"
BEGIN = "INSERT OR REPLACE INTO record_state (key, version, updated_us, body)"
OF = "WHERE key & 1099511627775 = (SELECT number FROM record_given WHERE id = '{}')"


@pytest.mark.parametrize(
    ("statement", "why"),
    [
        ("UPDATE records SET state = 'melted'", "no such state"),
        ("UPDATE records SET state = 'packed' WHERE id = 'b'", "has ended"),
        ("UPDATE records SET state = 'packed' WHERE id = 'c'", "no path"),
        ("UPDATE OR REPLACE records SET state = 'melted'", "no such state"),
        ("UPDATE records SET id = 'z' WHERE id = 'a'", "keeps its kind and id"),
        ("UPDATE OR REPLACE records SET id = 'b' WHERE id = 'a'", "keeps its kind and id"),
        (REPLACE, "there already"),
        (REPLACE.replace("(kind,", "(number, kind,").replace("'parcel', 'a'", "1, 'parcel', 'z'"), "there"),
        (REPLACE.replace("'a'", "'z'").replace("parcel", "crate"), "no such kind"),
        (REPLACE.replace("'a'", "'z'").replace("sent", "melted"), "no such state"),
        ("DELETE FROM records WHERE id = 'a'", "is alive"),
        ("UPDATE records SET given = x'31' WHERE id = 'a'", "what it was given"),
        ("UPDATE journal_rows SET actor = 'somebody else'", "not rewritten"),
        ("UPDATE journal_rows SET remaining = remaining + 1", "not rewritten"),
        ("DELETE FROM journal_rows", "goes when the record goes"),
        # The tables behind the view
        (f"UPDATE record_state SET key = key + ({PLACE.format('packed')}) {OF.format('b')}", "no path"),
        (f"UPDATE record_state SET key = {PLACE.format('delivered')} {OF.format('a')}", "no path"),
        (f"DELETE FROM record_state {OF.format('a')}", "is alive"),
        (f"{BEGIN} VALUES (({PLACE.format('sent')}) + 1, 1, 0, x'')", "begin so"),
        (f"{BEGIN} VALUES (({PLACE.format('sent')}) + 9, 1, 0, x'')", "begin so"),
        ("UPDATE record_given SET id = 'z' WHERE id = 'a'", "keeps its kind and id"),
        ("UPDATE OR REPLACE record_given SET given = x'31' WHERE id = 'a'", "what it was given"),
        ("DELETE FROM record_given WHERE id = 'b'", "goes with its state"),
        (
            "INSERT OR REPLACE INTO record_given (created_us, kind, id) VALUES (0, 'parcel', 'a')",
            "there already",
        ),
    ],
)
async def test_a_shell_is_refused(
    store: SqliteStore, shell: sqlite3.Connection, statement: str, why: str
) -> None:
    await made(
        store, creation("a", note=PACKING), creation("b", "delivered", note=PACKING), creation("c", "sent")
    )
    before = list(shell.iterdump())
    with pytest.raises(sqlite3.IntegrityError, match=why):
        shell.execute(statement)
    assert list(shell.iterdump()) == before


async def test_direct_sql_may_make_a_legal_transition_and_delete_an_ended_record(
    store: SqliteStore, shell: sqlite3.Connection
) -> None:
    await made(store, creation("a", note=PACKING))
    shell.execute("UPDATE records SET state = 'lost' WHERE id = 'a'")
    shell.execute("DELETE FROM records WHERE id = 'a'")
    assert shell.execute("DELETE FROM journal_rows WHERE record = 1").rowcount == 1
    assert shell.execute("SELECT count(*) FROM record_given").fetchone() == (0,)
    assert await store.load([Key("parcel", "a")]) == [None]


async def test_people_can_read_records_and_journal(store: SqliteStore, shell: sqlite3.Connection) -> None:
    [record] = await made(store, creation("a", note=PACKING, labels=("big", "red")))
    at = record.created_at.strftime("%Y-%m-%d %H:%M:%S.%f")
    columns = "id, state, labels, ready_at, created_at, body"
    found = shell.execute(f"SELECT {columns} FROM records_view").fetchall()
    assert found == [("a", "packed", '["big","red"]', None, at, '{"weight":3}')]
    [(when, actor, steps)] = shell.execute("SELECT at, actor, steps FROM journal_view")
    assert (when, actor) == (at, "ann")
    assert steps == '[["parcel","self","pack","","packed","sender",true]]'


async def test_a_row_that_a_shell_added_to_the_journal_is_not_in_the_way(
    store: SqliteStore, shell: sqlite3.Connection
) -> None:
    [record] = await made(store, creation("a", note=PACKING))
    columns = "kind, version, steps, actor, reason, cause, request_id, refusal"
    shell.execute(
        f"INSERT INTO journal_rows (at_us, id, {columns}) SELECT at_us, 'a', {columns} FROM journal_rows"
    )
    [outcome] = await store.commit([Commit(changes=(move(record, note=PACKING),))])
    assert isinstance(outcome, Committed)
    assert [entry.cursor for entry in (await store.feed()).entries] == ["1", "2", "3"]


async def test_records_updated_or_inserted_with_direct_sql_are_found_by_state(
    store: SqliteStore, shell: sqlite3.Connection
) -> None:
    await made(store, creation("a"), creation("b"))
    shell.execute("UPDATE records SET state = 'sent' WHERE id = 'a'")
    shell.execute(REPLACE.replace("'a'", "'c'"))
    sent = await store.find(Query(kind="parcel", states=("sent",), newest_first=False))
    assert [record.id for record in sent.records] == ["a", "c"]
    assert (await store.count(Query(kind="parcel", states=("packed",)))).number == 1


async def test_records_made_ready_with_direct_sql_are_claimed_in_order(
    store: SqliteStore, shell: sqlite3.Connection
) -> None:
    await made(store, creation("a", queue=QUEUE, labels=("red",)), creation("b"))
    shell.execute("UPDATE records SET ready_us = 1 WHERE id = 'a'")
    shell.execute("UPDATE records SET ready_us = 2, queue = ?, priority = -1 WHERE id = 'b'", (QUEUE,))
    copied = "version, body, queue, labels, ready_us, updated_us"
    columns = f"INSERT INTO records (kind, id, state, {copied})"
    shell.execute(f"{columns} SELECT 'parcel', 'c', 'packed', {copied} FROM records WHERE id = 'a'")
    assert await claimed(store, take(5, labels=("red",))) == ["a", "c", "b"]


async def test_a_shell_reads_each_entry_of_a_batch(store: SqliteStore, shell: sqlite3.Connection) -> None:
    names = ("d", "b", "a", "c")
    await store.commit([Batch(change=creation("", note=PACKING), ids=names)])
    records = [await see(store, name) for name in ("a", "b", "c")]
    change = msgspec.structs.replace(move(records[0], "lost", note=PACKING), id="", expected_at=None)
    await store.commit([Batch(change=change, ids=("a", "b", "c"))])
    await store.commit([Commit(refusals=(refusal("nobody"),))])
    assert shell.execute("SELECT count(*) FROM journal_rows").fetchone() == (3,)
    entries = "SELECT sequence, id, version FROM journal_view ORDER BY sequence"
    expected = [(sequence, name, 1) for sequence, name in enumerate(names, 1)]
    expected += [(5, "a", 2), (6, "b", 2), (7, "c", 2), (8, "nobody", 0)]
    assert shell.execute(entries).fetchall() == expected
    shell.execute("DELETE FROM records WHERE id = 'b'")
    assert shell.execute(entries).fetchall() == [entry for entry in expected if entry[1] != "b"]


async def test_a_shell_with_recursive_triggers_is_answered_alike(
    store: SqliteStore, shell: sqlite3.Connection
) -> None:
    shell.execute("PRAGMA recursive_triggers = ON")
    await made(store, creation("a"))
    shell.execute("UPDATE records SET state = 'sent'")
    shell.execute(REPLACE.replace("'a'", "'c'"))
    assert (await store.count(Query(kind="parcel", states=("sent",)))).number == 2
    with pytest.raises(sqlite3.IntegrityError, match="no path"):
        shell.execute("UPDATE records SET state = 'packed'")


async def test_a_record_inserted_with_direct_sql_and_an_old_timestamp_is_listed_in_creation_order(
    store: SqliteStore, shell: sqlite3.Connection
) -> None:
    [first] = await made(store, creation("a"))
    shell.execute(REPLACE.replace("'a'", "'b'"))
    [third] = await made(store, creation("c"))
    records = (await store.find(Query(kind="parcel", newest_first=False))).records
    assert [record.id for record in records] == ["a", "b", "c"]
    assert first.created_at <= records[1].created_at < third.created_at


async def test_a_new_record_does_not_inherit_the_journal_of_a_record_deleted_with_direct_sql(
    store: SqliteStore, shell: sqlite3.Connection
) -> None:
    await made(store, creation("a", "delivered", note=PACKING))
    shell.execute("DELETE FROM records WHERE id = 'a'")
    await made(store, creation("b", note=PACKING))
    history = await store.history(Key("parcel", "b"))
    assert [(entry.id, entry.version) for entry in history.entries] == [("b", 1)]
