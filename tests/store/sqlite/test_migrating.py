"""A file of the schema before the three parts opens and goes on; a program of that time is refused.

The old rows are written by the statements of that time: bodies with everything in them, an entry a row.
"""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
import tarfile
import threading
from collections.abc import AsyncIterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest
from tests.waiting import PATIENCE_S, PROGRAM_S

from interlock.store.migrations import Migration
from interlock.store.ranking import moment
from interlock.store.records import Batch, Claim, Commit, Conflict, Key, Query
from interlock.store.sqlite import SqliteStore, database
from interlock.store.sqlite.database import (
    MIGRATIONS,
    apply_migration,
    load_kinds,
    places_of,
)
from interlock.store.sqlite.threads import ThreadCall, Writer
from interlock.testing.store_contract import CATALOGUE
from interlock.testing.store_contract.builders import (
    PACKING,
    SENDING,
    all_found,
    claimed,
    creation,
    ids_of,
    made,
    move,
    request,
    see,
    swept,
    take,
    whole_feed,
)

BEFORE = MIGRATIONS[:4]
LAST_BEFORE = "9d9acfc"
"""The last commit whose code had that schema."""
OLD_US = 1_700_000_000_000_000
STEPS = '[["parcel","self","pack","","packed","sender",true]]'

RECORDS = [
    # number, id, state, version, parent, queue, labels, priority, ready, deadline, handler
    (1, "done", "delivered", 3, "order-9", "post", '["x"]', 2, None, None, ""),
    (2, "lost", "lost", 2, None, None, "[]", 0, None, None, ""),
    (3, "going", "sent", 2, "order-9", "post", "[]", 0, None, OLD_US + 5, ""),
    (4, "ready", "packed", 1, None, "post", '["x"]', 5, OLD_US, None, ""),
    (5, "handled", "packed", 1, None, "post", "[]", 0, OLD_US, None, "van"),
    (6, "later", "packed", 1, None, "post", "[]", 0, 4 * OLD_US, None, ""),
    (7, "plain", "packed", 1, None, None, "[]", 0, None, None, ""),
]
ENTRIES = [
    # sequence, record, id, version, refusal
    *((number, number, name, 1, "") for number, name, *_ in RECORDS),
    (8, 1, "done", 2, ""),
    (9, 0, "nobody", 0, "stale"),
    (10, 99, "removed", 4, ""),  # by hand, when the record was
    (11, 1, "done", 3, ""),
    (13, 2, "lost", 2, ""),
    (14, 3, "going", 2, ""),
    (15, 3, "going", 2, "late"),
]


def make_old(path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as shell:
        for migration in BEFORE:
            apply_migration(shell, migration, OLD_US)
        shell.executemany(
            "INSERT INTO applied_migrations VALUES (?, ?)",
            [(each.number, each.fingerprint) for each in BEFORE],
        )
        load_kinds(shell, CATALOGUE)
        places = places_of(shell)["parcel"]
        for (
            number,
            name,
            state,
            version,
            parent,
            queue,
            labels,
            priority,
            ready,
            deadline,
            handler,
        ) in RECORDS:
            lane = "\x1f".join(("parcel", str(queue), *(["x"] if "x" in labels else []))) if ready else None
            row = (number, name, state, places[state], version, b'{"old":%d}' % number, parent, queue, labels)
            shell.execute(
                "INSERT INTO records (number, kind, id, state, place, version, body, parent, queue, labels,"
                " priority, lane, ready_us, deadline_us, handler, created_us, updated_us)"
                " VALUES (?, 'parcel', ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (*row, priority, lane, ready, deadline, handler, OLD_US + number, OLD_US + 10 * version),
            )
        shell.executemany(
            "INSERT INTO journal (sequence, at_us, record, kind, id, version, steps, actor, refusal)"
            f" VALUES (?, {OLD_US} + ?, ?, 'parcel', ?, ?, '{STEPS}', 'ann', ?)",
            [(entry[0], *entry) for entry in ENTRIES],
        )
        shell.execute(
            "INSERT INTO requests VALUES ('r', 'POST /parcels', 'f', 201, x'31', ?, ?)", (OLD_US, 4 * OLD_US)
        )
        shell.execute("UPDATE progress SET sequence = 15, pruned_up_to = 12, latest_us = ?", (OLD_US + 100,))


@pytest.fixture
async def old(path: Path) -> AsyncIterator[SqliteStore]:
    make_old(path)
    store = SqliteStore(str(path), CATALOGUE, timeout_s=PATIENCE_S)
    await store.open()
    yield store
    await store.close()


async def test_migration_preserves_every_record_and_its_position_in_queries(old: SqliteStore) -> None:
    for number, name, state, version, parent, queue, labels, priority, ready, deadline, _ in RECORDS:
        record = await see(old, name)
        assert (record.state, record.version, record.body) == (state, version, b'{"old":%d}' % number)
        assert (record.given, record.result) == (b"", b"")
        assert (record.parent, record.queue, record.priority) == (parent, queue, priority)
        assert record.labels == (("x",) if "x" in labels else ())
        assert record.ready_at == (moment(ready) if ready else None)
        assert record.deadline_at == (moment(deadline) if deadline else None)
        assert (record.created_at, record.updated_at) == (
            moment(OLD_US + number),
            moment(OLD_US + 10 * version),
        )
    names = [name for _, name, *_ in RECORDS]
    assert await all_found(old, Query(kind="parcel", newest_first=False)) == names
    assert await all_found(old, Query(kind="parcel", states=("packed",))) == names[:2:-1]
    assert await all_found(old, Query(kind="parcel", parent="order-9")) == ["going", "done"]
    assert await all_found(old, Query(kind="parcel", labels=("x",))) == ["ready", "done"]
    assert (await old.status()).records["parcel"] == {"delivered": 1, "lost": 1, "packed": 4, "sent": 1}
    assert (await old.recall("r")) is not None


async def test_migration_preserves_the_journal_and_old_cursors_stay_valid(old: SqliteStore) -> None:
    feed = await old.feed()
    assert feed.gap
    assert [(int(entry.cursor), entry.id, entry.version, entry.note.refusal) for entry in feed.entries] == [
        (sequence, name, version, why) for sequence, _, name, version, why in ENTRIES
    ]
    assert (await old.latest(), (await old.status()).entries) == ("15", len(ENTRIES))
    await made(old, creation("new", note=PACKING), creation("next", note=PACKING))
    for cursor in ("11", "12", "14"):
        expected = [name for sequence, _, name, *_ in ENTRIES if sequence > int(cursor)]
        assert ids_of(await old.feed(cursor)) == [*expected, "new", "next"]
    history = await old.history(Key("parcel", "going"))
    assert [(entry.version, entry.note.refusal) for entry in history.entries] == [
        (1, ""),
        (2, ""),
        (2, "late"),
    ]


async def test_migrated_records_are_claimed_swept_and_changed_together_with_new_records(
    old: SqliteStore,
) -> None:
    fresh = creation("", queue="post", ready_at=moment(OLD_US + 1), note=PACKING)
    await old.commit([Batch(change=fresh, ids=("n1", "n2"), given=(b"1", b"2"))])
    assert await swept(old) == ["going"]
    some = Claim(kind="parcel", queues=("post",), labels=("x",), handlers=("van",), limit=4)
    assert await claimed(old, some) == ["ready", "handled", "n1", "n2"]
    assert await claimed(old, take(5)) == []
    [done] = await made(old, move(await see(old, "ready"), "delivered", result=b"1", note=SENDING))
    assert (done.body, done.result, done.version) == (b'{"old":4}', b"1", 3)
    [outcome] = await old.commit([Commit(changes=(creation("plain"),))])
    assert outcome == Conflict(Key("parcel", "plain"), 0, 1)
    [repeated] = await old.commit([Commit(changes=(creation("z"),), request=request("r", fingerprint="f"))])
    assert type(repeated).__name__ == "Repeated"
    history = await old.history(Key("parcel", "ready"))
    assert [entry.version for entry in history.entries] == [1, 2, 3]


async def test_migrated_records_that_have_ended_are_pruned_with_their_journal_entries(
    old: SqliteStore,
) -> None:
    pruned = await old.prune(kind="parcel", states=["delivered", "lost"], older_than=timedelta(0))
    assert (pruned.records, pruned.entries) == (2, 5)
    assert set(ids_of(await whole_feed(old))).isdisjoint({"done", "lost"})
    assert (await old.feed("11")).gap
    assert not (await old.feed("13")).gap
    assert await all_found(old, Query(kind="parcel", states=("delivered", "lost"))) == []


async def test_no_number_is_given_out_again(old: SqliteStore, path: Path) -> None:
    """The journal may tell of a record that is gone."""
    await made(old, creation("new", note=PACKING))
    with closing(sqlite3.connect(path)) as shell:
        assert shell.execute("SELECT number FROM records WHERE id = 'new'").fetchone() == (100,)


def test_a_file_is_migrated_whole_or_not_at_all(path: Path) -> None:
    make_old(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as shell:
        shell.execute("CREATE TABLE record_state (in_the_way)")
        before = list(shell.iterdump())
        shell.execute("BEGIN IMMEDIATE")
        with pytest.raises(sqlite3.OperationalError, match="already exists"):
            apply_migration(shell, MIGRATIONS[4], OLD_US)
        shell.execute("ROLLBACK")
        assert list(shell.iterdump()) == before


async def test_opening_waits_for_a_migration_that_takes_longer_than_its_deadline(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_old(path)
    loop, begun, release = asyncio.get_running_loop(), asyncio.Event(), threading.Event()
    jobs: list[ThreadCall] = []
    outcome_of = Writer._outcome

    async def noted(writer: Writer, job: ThreadCall) -> None:
        jobs.append(job)
        await outcome_of(writer, job)

    def slow(connection: sqlite3.Connection, migration: Migration, now_us: int) -> None:
        loop.call_soon_threadsafe(begun.set)
        release.wait()
        apply_migration(connection, migration, now_us)

    monkeypatch.setattr(Writer, "_outcome", noted)
    monkeypatch.setattr(database, "apply_migration", slow)
    store = SqliteStore(str(path), CATALOGUE, timeout_s=PATIENCE_S)
    opened = asyncio.create_task(store.open())
    await begun.wait()
    store._writer._give_up(jobs[0])  # which is what its deadline does
    assert not jobs[0].future.done()
    release.set()
    await opened
    assert (await store.status()).schema_version == len(MIGRATIONS)
    await store.close()


OLD_PROGRAM = """
import asyncio, sys
from interlock.errors import StoreError
from interlock.store.sqlite import SqliteStore
from interlock.testing.store_contract import CATALOGUE
from interlock.testing.store_contract.making import creation, each
async def main():
    store = SqliteStore(sys.argv[1], CATALOGUE)
    await store.open()
    await store.commit(each(creation("of the old program")))
    print("open", flush=True)
    sys.stdin.readline()
    try:
        await store.commit(each(creation("too late")))
    except StoreError as error:
        print(error.code, error.sentence)
asyncio.run(main())
"""


@pytest.fixture
def old_source(tmp_path: Path) -> Path:
    """The code of before."""
    repository = Path(__file__).parents[3]
    words = [
        "git",
        "-C",
        str(repository),
        "archive",
        "--output",
        str(tmp_path / "old.tar"),
        f"{LAST_BEFORE}:src",
    ]
    found = subprocess.run(words, capture_output=True, text=True, timeout=PROGRAM_S, check=False)
    if found.returncode:
        pytest.xfail(f"This copy has no history to take the old version from: {found.stderr.strip()}")
    with tarfile.open(tmp_path / "old.tar") as archive:
        archive.extractall(tmp_path / "src", filter="data")
    return tmp_path / "src"


async def test_a_program_of_before_is_informed_that_the_file_was_migrated_under_it(
    path: Path, old_source: Path
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", OLD_PROGRAM, str(path)],
        env={"PYTHONPATH": str(old_source)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "open\n"
        store = SqliteStore(str(path), CATALOGUE, timeout_s=PATIENCE_S)
        await store.open()
        output, _ = program.communicate("go\n", timeout=PROGRAM_S)
        assert output.startswith("schema_too_new The database has schema version 5, this program knows 4")
        assert await all_found(store, Query(kind="parcel")) == ["of the old program"]
        await store.close()
