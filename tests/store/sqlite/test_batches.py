"""A batch is written with a few statements, and leaves what its commits would leave one by one."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.effort import pick

from interlock.store.contract import Store
from interlock.store.memory import MemoryStore
from interlock.store.records import (
    Batch,
    Change,
    Claim,
    Commit,
    Committed,
    Key,
    Query,
    Record,
    Work,
    one_by_one,
)
from interlock.store.sqlite import SqliteStore, writes
from interlock.testing.store_contract import CATALOGUE
from interlock.testing.store_contract.builders import (
    PACKING,
    QUEUE,
    SENDING,
    creation,
    kinds_of,
    made,
    move,
    refusal,
    request,
    see,
    step_note,
    whole_feed,
)

NAMES = [f"p{number:02}" for number in range(24)]
LOSING = step_note("lose", "sent", "lost", actor="bob")


def alike(change: Change, names: Sequence[str], **columns: Any) -> Batch:
    """The same change of all of these."""
    plain = msgspec.structs.replace(change, id="", expected_at=None, given=None, result=None)
    return Batch(change=plain, ids=tuple(names), **columns)


# The same as one by one


def script(seed: int) -> list[list[Work]]:
    """What is committed, one call after the other: batches that fit, that partly fit, and commits between."""
    chance = random.Random(seed)
    names = chance.sample(NAMES, len(NAMES))
    pasts: dict[str, tuple[int, ...]] = dict.fromkeys(names, ())
    """By name the numbers of its steps: those with the same stand alike."""
    calls: list[list[Work]] = []
    for number in range(9):
        call: list[Work] = []
        for part in range(chance.randrange(1, 4)):
            past = pasts[chance.choice(names)]
            some = [name for name in names if pasts[name] == past or chance.random() < 0.05]
            some = chance.sample(some, chance.randrange(1 + len(some) // 2, len(some) + 1))
            if chance.random() < 0.4:
                some.sort()
            call.append(step(chance, some, len(past)))
            pasts |= {name: (*past, 3 * number + part) for name in some if len(pasts[name]) == len(past)}
        if chance.random() < 0.3:
            name = chance.choice(names)
            call.insert(chance.randrange(len(call) + 1), single(name, len(pasts[name])))
            pasts[name] = (*pasts[name], 99)
        calls.append(call)
    return calls


def step(chance: random.Random, names: Sequence[str], expected: int) -> Batch:
    """The same of all of these, with odd things in it."""
    columns: dict[str, Any] = {
        "state": chance.choice(["packed", "sent"] if expected < 3 else ["sent", "lost"]),
        "body": b'{"b":%d}' % chance.randrange(2),
        "queue": chance.choice([None, QUEUE, "rail"]),
        "parent": chance.choice([None, None, "q"]),
        "labels": chance.choice([(), (), ("cold",)]),
        "priority": chance.choice([0, 0, 5]),
        "note": chance.choice([None, PACKING, SENDING, LOSING]),
    }
    change = Change(kind="parcel", id="", expected=expected, **columns)
    given = tuple(b'"%s"' % name.encode() for name in names) if not expected else ()
    results = {
        0: (),
        1: tuple(b'["%s"]' % name.encode() for name in names),
        2: (b"1",) * len(names),
    }[chance.randrange(3)]
    return Batch(change=change, ids=tuple(names), given=given, result=results)


def single(name: str, expected: int) -> Commit:
    """A commit of its own, as they come between batches."""
    change = Change(
        kind="parcel", id=name, expected=expected, state="sent", body=b"[]", note=SENDING, result=b"2"
    )
    return Commit(changes=(change,), refusals=(refusal(name), refusal("nobody")), request=request(name))


async def left_behind(store: Store, calls: Sequence[Sequence[Work]]) -> tuple[Any, ...]:
    """Outcomes, and all that can be read, without the times."""
    await store.open()
    try:
        outcomes = [kinds_of(await store.commit(call)) for call in calls]
        records = (await store.find(Query(kind="parcel", newest_first=False))).records
        histories = [
            [
                (entry.cursor, entry.version, entry.note)
                for entry in (await store.history(Key("parcel", name))).entries
            ]
            for name in NAMES
        ]
        feed = [(entry.cursor, entry.id, entry.version, entry.note) for entry in await whole_feed(store)]
        pruned = await store.prune(kind="parcel", states=["lost"], older_than=timedelta(0))
        rest = [(entry.cursor, entry.id) for entry in await whole_feed(store)]
        entries = (await store.status()).entries
    finally:
        await store.close()
    timeless = [msgspec.structs.replace(record, created_at=None, updated_at=None) for record in records]
    shown = sorted(timeless, key=lambda record: record.id)
    return outcomes, shown, histories, feed, pruned, rest, entries


@pytest.mark.parametrize("seed", range(pick(8, 24)))
async def test_batches_leave_the_same_records_and_journal_as_the_same_commits_one_by_one(
    tmp_path: Path, seed: int
) -> None:
    calls = script(seed)
    together = await left_behind(SqliteStore(str(tmp_path / "together.db"), CATALOGUE), calls)
    apart = [one_by_one(call) for call in calls]
    assert together == await left_behind(SqliteStore(str(tmp_path / "apart.db"), CATALOGUE), apart)
    assert together == await left_behind(MemoryStore(CATALOGUE), apart)
    outcomes, _, _, feed, _, rest, entries = together
    assert Committed in {kind for call in outcomes for kind in call}
    assert len(rest) == entries <= len(feed)


# How many statements it takes


class Statements:
    """Counts what the writer is asked to do, without what begins and ends each transaction."""

    def __init__(self, store: SqliteStore) -> None:
        self._store = store
        self._said: list[str] = []
        self._last = ""

    async def __aenter__(self) -> list[str]:
        await self._trace(self._hear)
        self._said.clear()
        return self._said

    async def __aexit__(self, *_: object) -> None:
        await self._trace(None)

    async def _trace(self, hear: Any) -> None:
        await self._store._writer.do(lambda ledger: ledger.connection.set_trace_callback(hear))

    def _hear(self, statement: str) -> None:
        # A statement is told once more for each row that its triggers look at.
        if statement != self._last and not statement.startswith(("BEGIN", "COMMIT", "PRAGMA")):
            self._said.append(statement.split(maxsplit=1)[0])
        self._last = statement


async def submit_claim_and_end(store: SqliteStore, names: Sequence[str]) -> dict[str, list[str]]:
    """Return the statements of each."""
    past = await store.now() - timedelta(minutes=1)
    new = creation("", queue=QUEUE, ready_at=past, note=PACKING)
    async with Statements(store) as submitted:
        await store.commit([alike(new, names, given=tuple(b'"%s"' % name.encode() for name in names))])
    taken: list[Record] = []

    def decide(records: Sequence[Record], now: Any) -> list[Work]:
        taken.extend(records)
        sent = move(records[0], note=SENDING, ready_at=None, deadline_at=now + timedelta(hours=1))
        return [alike(sent, [r.id for r in records], expected_at=tuple(r.updated_at for r in records))]

    async with Statements(store) as claimed:
        await store.claim(Claim(kind="parcel", queues=(QUEUE,), limit=len(names)), decide)
    [first] = await store.load([taken[0].key])
    assert first is not None
    results = tuple(b'["%s"]' % record.id.encode() for record in taken)
    end = move(first, "delivered", note=LOSING, deadline_at=None)
    async with Statements(store) as ended:
        await store.commit([alike(end, [record.id for record in taken], result=results)])
    assert (await store.count(Query(kind="parcel", states=("delivered",)))).number == len(names)
    return {"submit": list(submitted), "claim": list(claimed), "end": list(ended)}


async def test_a_batch_takes_as_many_statements_however_large_it_is(tmp_path: Path) -> None:
    counted = []
    for number in (10, 500):
        store = SqliteStore(str(tmp_path / f"{number}.db"), CATALOGUE)
        await store.open()
        counted.append(await submit_claim_and_end(store, [f"p{n:03}" for n in range(number)]))
        await store.close()
    assert counted[0] == counted[1]
    assert {name: len(queries) for name, queries in counted[1].items()} == {"submit": 5, "claim": 5, "end": 3}


# The journal


async def test_a_batch_has_one_row_of_the_journal_and_none_of_its_index(
    store: SqliteStore, shell: sqlite3.Connection
) -> None:
    await submit_claim_and_end(store, NAMES)
    rows = shell.execute("SELECT sequence, size, remaining, record, members FROM journal_rows").fetchall()
    assert rows == [(24, 24, 24, 1, None), (48, 24, 24, 1, None), (72, 24, 24, 1, None)]
    of_index = (
        "SELECT count(*) FROM journal_rows INDEXED BY journal_rows_by_record WHERE size = 1 AND record > 0"
    )
    assert shell.execute(of_index).fetchone() == (0,)
    assert [entry.cursor for entry in (await store.history(Key("parcel", "p03"))).entries] == [
        "4",
        "28",
        "52",
    ]


async def test_commits_of_one_call_with_the_same_note_share_a_row(
    store: SqliteStore, shell: sqlite3.Connection
) -> None:
    await made(store, *(creation(name, body=b'"%s"' % name.encode(), note=PACKING) for name in NAMES[::-1]))
    [(size, members)] = shell.execute("SELECT size, members FROM journal_rows")
    assert (size, members) == (24, str(list(range(24, 0, -1))).replace(" ", ""))
    assert [entry.id for entry in await whole_feed(store)] == NAMES[::-1]


async def test_a_journal_row_of_a_batch_is_deleted_when_its_last_record_is_pruned(
    store: SqliteStore, shell: sqlite3.Connection
) -> None:
    await store.commit([alike(creation("", "lost", note=PACKING), NAMES)])
    remaining = "SELECT remaining FROM journal_rows"
    for left in (14, 4):
        await store.prune(kind="parcel", states=["lost"], older_than=timedelta(0), limit=10)
        assert shell.execute(remaining).fetchall() == [(left,)]
        assert (await store.status()).entries == left
    pruned = await store.prune(kind="parcel", states=["lost"], older_than=timedelta(0), limit=10)
    assert (pruned.entries, shell.execute(remaining).fetchall()) == (4, [])


async def test_a_record_that_changes_often_does_not_carry_its_whole_journal(
    store: SqliteStore, shell: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writes, "LONGEST_TRAIL", 3)
    await store.commit([alike(creation("", note=PACKING), NAMES[:2])])
    for _ in range(5):
        record = await see(store, NAMES[0])
        await store.commit([alike(move(record, record.state, note=PACKING), NAMES[:2])])
    assert shell.execute("SELECT DISTINCT trail FROM record_state").fetchall() == [(" 2 4 6",)]
    history = await store.history(Key("parcel", NAMES[1]))
    assert [(entry.version, entry.cursor) for entry in history.entries] == [
        (version, str(2 * version)) for version in range(1, 7)
    ]
    later = await store.history(Key("parcel", NAMES[1]), after_version=2, limit=2)
    assert [entry.version for entry in later.entries] == [3, 4]


@pytest.mark.parametrize("names", [["a", "c"], ["d", "b", "a", "c", "e"]], ids=["few", "many"])
async def test_large_data_of_a_batch_are_kept_apart(
    store: SqliteStore, names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("interlock.store.sqlite.writes.MOST_JOINED", 10)
    data = tuple(b'"%s"' % (name.encode() * 20) for name in names)
    await store.commit([alike(creation(""), names, given=data, result=data)])
    for name, each in zip(names, data, strict=True):
        record = await see(store, name)
        assert (record.given, record.result) == (each, each)
    other = tuple(b'["%s"]' % name.encode() for name in names)
    await store.commit([alike(move(await see(store, "a")), names, result=other)])
    assert [(await see(store, name)).result for name in names] == list(other)
