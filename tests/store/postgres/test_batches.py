"""A batch is written by a function of its own: it leaves the same behind as the one for all commits."""

from __future__ import annotations

import subprocess
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

import asyncpg
import msgspec
import pytest
from tests.waiting import PROGRAM_S

from interlock.store.postgres import PostgresStore
from interlock.store.postgres.connections import Session
from interlock.store.records import Batch, Commit, Committed, Key, Record, Work
from interlock.testing.binaries import environment, postgres_programs
from interlock.testing.servers import PostgresServer
from interlock.testing.store_contract.builders import (
    DELIVERED,
    LOST,
    PACKED,
    PACKING,
    QUEUE,
    SENDING,
    SENT,
    creation,
    each,
    ids_of,
    kinds_of,
    made,
    move,
    see,
    take,
    whole_feed,
)

OpenStore = Callable[..., Awaitable[PostgresStore]]

NAMES = tuple("gbahcfdei")
RECORDS = """
    SELECT kind, id, state, version, body::text, given::text, result::text, parent, queue, labels, priority,
        ready_at - $1, deadline_at - $1, lane, CASE WHEN rank = 0 THEN 0 ELSE rank - $2 END AS rank, ready
    FROM interlock.record ORDER BY id"""
ENTRIES = "SELECT kind, id, version, note::text FROM interlock.journal ORDER BY xact, entry"
LIVING = "SELECT id FROM interlock.live ORDER BY id"
ENDED = "SELECT id FROM interlock.ended ORDER BY id"


async def everything(url: str, now: datetime) -> list[list[tuple[Any, ...]]]:
    shell: asyncpg.Connection[asyncpg.Record] = await asyncpg.connect(url)
    try:
        us = round(now.timestamp() * 1_000_000)
        rows = [
            await shell.fetch(RECORDS, now, us),
            *[await shell.fetch(q) for q in (ENTRIES, LIVING, ENDED)],
        ]
        return [[tuple(row) for row in part] for part in rows]
    finally:
        await shell.close()


@pytest.mark.parametrize(
    "columns",
    [
        {},
        {"body": b'{"new":1}', "state": DELIVERED},
        {"state": DELIVERED, "deadline_at": timedelta(hours=1)},
        {"queue": "post", "ready_at": timedelta(minutes=-1)},
        {"queue": "post", "ready_at": timedelta(hours=1), "labels": ("cold", "frail"), "handler": "van"},
        {"queue": "post", "ready_at": timedelta(minutes=-1), "priority": 7},
        {"deadline_at": timedelta(seconds=30), "parent": "p"},
        {"labels": ("x",), "priority": -100, "note": None},
    ],
    ids=lambda columns: " ".join(columns) or "nothing",
)
@pytest.mark.parametrize(
    "creating", [False, pytest.param(True, marks=pytest.mark.long)], ids=["changed", "created"]
)
async def test_a_batch_leaves_the_same_rows_as_its_commits_one_by_one(
    server: PostgresServer, open_store: OpenStore, creating: bool, columns: dict[str, Any]
) -> None:
    left = []
    for together in (False, True):
        url = server.new_database()
        store = await open_store(url)
        now = await store.now()
        values = {k: now + v if isinstance(v, timedelta) else v for k, v in columns.items()}
        fresh: dict[str, Any] = {"labels": (), "parent": None, "note": SENDING, **values}
        if creating:
            batch = Batch(
                change=creation("", **fresh), ids=NAMES, given=tuple(b'"%s"' % n.encode() for n in NAMES)
            )
        else:
            await made(store, *(creation(n, note=PACKING, labels=("old",), parent="q") for n in NAMES))
            [first, *_] = records = [await see(store, name) for name in NAMES]
            batch = Batch(
                change=msgspec.structs.replace(move(first, **fresh), id="", expected_at=None),
                ids=NAMES,
                expected_at=tuple(record.updated_at for record in records),
                result=tuple(b"[%d]" % n for n in range(len(NAMES))),
            )
        outcomes = await store.commit([batch] if together else batch.commits())
        assert kinds_of(outcomes) == [Committed] * len(NAMES)
        left.append(await everything(url, now))
        assert ids_of(await whole_feed(store))[-len(NAMES) :] == (
            list(NAMES) if fresh["note"] or creating is False else []
        )
    assert left[0] == left[1]


async def test_an_ended_record_moves_to_the_ended_table_and_its_result_and_history_stay_readable(
    url: str, open_store: OpenStore, shell: Any
) -> None:
    store = await open_store(url)
    records = await made(store, *(creation(name, note=PACKING, given=f'"{name}"'.encode()) for name in "ab"))
    await made(store, move(records[0], DELIVERED, result=b"[1]", note=SENDING))
    assert [row[0] for row in await shell.fetch(LIVING)] == ["b"]
    assert [row[0] for row in await shell.fetch(ENDED)] == ["a"]
    record = await see(store, "a")
    assert (record.state, record.given, record.result) == (DELIVERED, b'"a"', b"[1]")
    await made(store, move(record, DELIVERED, body=b"[2]", note=SENDING))
    assert [row[0] for row in await shell.fetch(ENDED)] == ["a"], "It was changed, and has ended still."
    assert [entry.version for entry in (await store.history(record.key)).entries] == [1, 2, 3]


async def test_a_record_that_can_leave_its_resting_state_stays_in_the_live_table(
    url: str, open_store: OpenStore, shell: Any
) -> None:
    """A parcel that is lost may be returned, and a van that is parked may leave."""
    store = await open_store(url)
    await made(store, creation("a", LOST), creation("v", "parked", kind="van"))
    assert [row[0] for row in await shell.fetch(LIVING)] == ["a", "v"]


async def test_a_result_can_be_removed(url: str, open_store: OpenStore) -> None:
    store = await open_store(url)
    one, two = await made(store, creation("a", result=b"1"), creation("b", result=b"2"))
    [one] = await made(store, move(one, result=b""))
    assert one.result == b""
    one, two = await made(store, move(one, result=b"3"), move(two, DELIVERED, result=b""))
    assert (one.result, two.result) == (b"3", b"")


async def test_a_record_with_a_long_life_has_its_whole_history(
    url: str, open_store: OpenStore, shell: Any
) -> None:
    """It knows its packed rows up to a number; later entries are found by an index."""
    store = await open_store(url)
    records = await made(store, *(creation(name, note=PACKING) for name in "ab"))
    for _ in range(34):
        [record] = await made(store, move(records[0], PACKED, note=SENDING))
        records[0] = record
    assert await shell.fetchval("SELECT count(*) FROM interlock.journal_single") == 3
    assert await shell.fetchval("SELECT max(length(trail)) FROM interlock.live") == 256
    history = await store.history(record.key)
    assert [entry.version for entry in history.entries] == list(range(1, 36))
    later = await store.history(record.key, after_version=30, limit=4)
    assert [entry.version for entry in later.entries] == [31, 32, 33, 34]

    cursor = await store.latest()
    both = [record, msgspec.structs.replace(records[1], version=record.version)]
    await shell.execute(f"UPDATE interlock.live SET version = {record.version} WHERE id = 'b'")
    work: list[Sequence[Work]] = [
        [Batch(change=msgspec.structs.replace(_alike(both[0]), expected=both[0].version), ids=("b", "a"))],
        each(*(msgspec.structs.replace(_alike(r), id=r.id, expected=record.version + 1) for r in both)),
    ]
    for commits in work:
        assert kinds_of(await store.commit(commits)) == [Committed] * 2
    assert ids_of(await whole_feed(store, cursor)) == ["b", "a", "a", "b"], "In the order of the commits."
    assert [entry.version for entry in (await store.history(Key("parcel", "b"))).entries] == [1, 36, 37]
    await made(store, *[move(await see(store, name), DELIVERED, note=SENDING) for name in "ab"])
    pruned = await store.prune(kind="parcel", states=[DELIVERED], older_than=timedelta(0))
    assert (pruned.records, pruned.entries) == (2, 38 + 4)
    assert await shell.fetchval("SELECT count(*) FROM interlock.journal") == 0


def _alike(record: Record) -> Any:
    return msgspec.structs.replace(move(record, PACKED, note=SENDING), id="", expected_at=None)


async def test_the_feed_contains_only_the_remaining_records_while_a_batch_is_pruned_one_by_one(
    url: str, open_store: OpenStore, shell: Any
) -> None:
    store = await open_store(url)
    await store.commit([Batch(change=creation("", DELIVERED, note=PACKING), ids=NAMES)])
    for left in range(len(NAMES) - 1, -1, -1):
        await store.prune(kind="parcel", states=[DELIVERED], older_than=timedelta(0), limit=1)
        assert len(await whole_feed(store)) == left
        assert (await store.status()).entries == left
    assert await shell.fetchval("SELECT count(*) FROM interlock.journal_packed") == 0


class Counting:
    """How many messages were sent to the server."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.number = 0
        for name in ("fetch", "within", "begin", "commit", "rollback"):
            self._count(monkeypatch, name)

    def _count(self, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
        real = getattr(Session, name)

        async def counted(session: Session, *rest: Any, **named: Any) -> Any:
            self.number += 1
            return await real(session, *rest, **named)

        monkeypatch.setattr(Session, name, counted)


async def test_a_batch_of_500_is_one_statement_and_three_index_entries_for_claim_and_completion(
    server: PostgresServer, url: str, open_store: OpenStore, shell: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await open_store(url)
    await shell.execute("ALTER TABLE interlock.live SET (autovacuum_enabled = off)")
    past, later = await store.now() - timedelta(minutes=1), await store.now() + timedelta(hours=1)
    names = tuple(f"p{number:03}" for number in range(500))
    given = tuple(b'{"to":"%s"}' % name.encode() for name in names)
    calls = Counting(monkeypatch)
    new = creation("", queue=QUEUE, ready_at=past, note=PACKING)
    await store.commit([Batch(change=new, ids=names, given=given)])
    assert calls.number == 1

    def decide(records: Any, _now: datetime) -> list[Work]:
        change = move(records[0], SENT, ready_at=None, deadline_at=later, note=SENDING)
        return [
            Batch(
                change=msgspec.structs.replace(change, id="", expected_at=None),
                ids=tuple(record.id for record in records),
                expected_at=tuple(record.updated_at for record in records),
            )
        ]

    before = await shell.fetchval("SELECT pg_current_wal_insert_lsn()::text")
    calls.number = 0
    assert kinds_of(await store.claim(take(500), decide)) == [Committed] * 500
    assert calls.number == 2, "It looks, and writes."
    end = msgspec.structs.replace(new, expected=2, state=DELIVERED, ready_at=None, note=SENDING)
    calls.number = 0
    await store.commit([Batch(change=end, ids=names, result=given)])
    assert calls.number == 1
    after = await shell.fetchval("SELECT pg_current_wal_insert_lsn()::text")
    assert 2.8 < _index_entries(server, before, after) / 500 < 3.2


def _index_entries(server: PostgresServer, start: str, end: str) -> int:
    programs = postgres_programs()
    done = subprocess.run(
        [
            programs.path("pg_waldump"),
            "--stats=record",
            "-p",
            str(server.data / "pg_wal"),
            "-s",
            start,
            "-e",
            end,
        ],
        env=environment(programs.environment),
        capture_output=True,
        text=True,
        timeout=PROGRAM_S,
        check=False,
    )
    lines = [line.split() for line in done.stdout.splitlines()]
    return sum(int(words[1]) for words in lines if words and words[0] == "Btree/INSERT_LEAF")


async def test_commits_and_small_batches_are_written_together(
    url: str, open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await open_store(url)
    calls = Counting(monkeypatch)
    work: list[Work] = [
        Batch(change=creation("", note=PACKING), ids=("a", "b")),
        Commit(changes=(creation("c", note=PACKING),)),
        Batch(change=creation("", DELIVERED, note=PACKING), ids=("d",)),
    ]
    assert kinds_of(await store.commit(work)) == [Committed] * 4
    assert calls.number == 1
    assert ids_of(await whole_feed(store)) == ["a", "b", "c", "d"]


async def test_a_claim_may_be_decided_as_several_batches_all_of_which_are_written_or_none(
    url: str, open_store: OpenStore, shell: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await open_store(url)
    past = await store.now() - timedelta(minutes=1)
    names = tuple(f"p{number:02}" for number in range(40))
    await store.commit([Batch(change=creation("", queue=QUEUE, ready_at=past), ids=names)])
    calls: list[int] = []

    def decide(records: Sequence[Record], _now: datetime) -> list[Work]:
        calls.append(len(records))
        if len(calls) == 1 and outrun:
            server_side = "UPDATE interlock.live SET version = 2 WHERE id = 'p39'"
            subprocess.run([*psql, server_side], env=environ, check=True, timeout=PROGRAM_S)
        sent = move(records[0], SENT, ready_at=None, note=SENDING)
        change = msgspec.structs.replace(sent, id="", expected_at=None)
        late = [record for record in records if record.version == 2]
        early = [record for record in records if record.version == 1]
        split = (early[:20], early[20:], late)
        return [
            Batch(
                change=msgspec.structs.replace(change, expected=part[0].version),
                ids=tuple(record.id for record in part),
                expected_at=tuple(record.updated_at for record in part),
            )
            for part in split
            if part
        ]

    programs = postgres_programs()
    environ = environment(programs.environment)
    psql = [programs.path("psql"), "-qX", url, "-c"]
    outrun = True
    messages = Counting(monkeypatch)
    assert kinds_of(await store.claim(take(40), decide)) == [Committed] * 40
    assert calls == [40, 40], "The second batch met another writer, and the first was undone."
    assert {(await see(store, name)).version for name in names[:39]} == {2}
    assert (await see(store, "p39")).version == 3
    assert len(await whole_feed(store)) == 40
    outrun = False
    await store.commit(
        [Batch(change=creation("", queue=QUEUE, ready_at=past), ids=tuple("q" + n for n in names))]
    )
    store._claiming._other_claimers.met_no_conflict()
    store._claiming._other_claimers._careful = 0
    messages.number = 0
    assert kinds_of(await store.claim(take(40), decide)) == [Committed] * 40
    assert messages.number == 1 + 1 + 2 + 1, "It looks, begins, writes two batches, and commits."
