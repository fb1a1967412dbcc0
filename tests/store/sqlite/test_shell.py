"""The database itself refuses what the tables do not allow, and can be read by people."""

from __future__ import annotations

import sqlite3

import pytest

from interlock.store.records import Commit, Committed, Key, Query
from interlock.store.sqlite import SqliteStore
from interlock.testing.store_contract.builders import PACKING, creation, made, move

REPLACE = """
INSERT OR REPLACE INTO records (kind, id, state, version, body, created_us, updated_us)
VALUES ('parcel', 'a', 'sent', 1, x'7b7d', 0, 0)
"""


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
        ("UPDATE journal SET actor = 'somebody else'", "not rewritten"),
        ("DELETE FROM journal WHERE id = 'b'", "goes when the record goes"),
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


async def test_a_shell_may_take_a_legal_step_and_remove_what_has_ended(
    store: SqliteStore, shell: sqlite3.Connection
) -> None:
    await made(store, creation("a", note=PACKING))
    shell.execute("UPDATE records SET state = 'lost' WHERE id = 'a'")
    shell.execute("DELETE FROM records WHERE id = 'a'")
    assert shell.execute("DELETE FROM journal WHERE id = 'a'").rowcount == 1
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
    columns = "kind, id, version, steps, actor, reason, cause, request_id, refusal, chain"
    shell.execute(f"INSERT INTO journal (at_us, {columns}) SELECT at_us, {columns} FROM journal")
    [outcome] = await store.commit([Commit(changes=(move(record, note=PACKING),))])
    assert isinstance(outcome, Committed)
    assert [entry.cursor for entry in (await store.feed()).entries] == ["1", "2", "3"]


async def test_what_a_shell_has_moved_or_made_is_found_by_its_state(
    store: SqliteStore, shell: sqlite3.Connection
) -> None:
    await made(store, creation("a"), creation("b"))
    shell.execute("UPDATE records SET state = 'sent' WHERE id = 'a'")
    shell.execute(REPLACE.replace("'a'", "'c'"))
    sent = await store.find(Query(kind="parcel", states=("sent",), newest_first=False))
    assert [record.id for record in sent.records] == ["a", "c"]
    assert (await store.count(Query(kind="parcel", states=("packed",)))).number == 1


async def test_a_shell_cannot_put_a_record_where_its_state_is_not(
    store: SqliteStore, shell: sqlite3.Connection
) -> None:
    await made(store, creation("a"))
    places = (
        "SELECT place FROM records UNION ALL SELECT place FROM states WHERE name = 'sent' AND kind = 'parcel'"
    )
    (before,), (wrong,) = shell.execute(places)
    shell.execute("UPDATE records SET place = ?", (wrong,))
    shell.execute("UPDATE records SET place = NULL")
    assert shell.execute("SELECT place FROM records").fetchall() == [(before,)]
    with pytest.raises(sqlite3.IntegrityError, match="no such state"):
        shell.execute("UPDATE records SET state = 'melted', place = ?", (wrong,))


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


async def test_what_a_shell_made_with_a_time_of_its_own_does_not_disturb_the_order(
    store: SqliteStore, shell: sqlite3.Connection
) -> None:
    [first] = await made(store, creation("a"))
    shell.execute(REPLACE.replace("'a'", "'b'"))
    [third] = await made(store, creation("c"))
    records = (await store.find(Query(kind="parcel", newest_first=False))).records
    assert [record.id for record in records] == ["a", "b", "c"]
    assert first.created_at <= records[1].created_at < third.created_at


async def test_a_record_is_not_given_the_journal_of_one_that_was_removed_by_hand(
    store: SqliteStore, shell: sqlite3.Connection
) -> None:
    await made(store, creation("a", "delivered", note=PACKING))
    shell.execute("DELETE FROM records WHERE id = 'a'")
    await made(store, creation("b", note=PACKING))
    history = await store.history(Key("parcel", "b"))
    assert [(entry.id, entry.version) for entry in history.entries] == [("b", 1)]
