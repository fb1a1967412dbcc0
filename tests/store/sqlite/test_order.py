"""Records are listed by number: so numbers are in the order of creation, and of the ids within a moment."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from interlock.store.records import Change, Commit, Key, Query, Record
from interlock.store.sqlite import SqliteStore
from interlock.testing.store_contract import CATALOGUE
from interlock.testing.store_contract.builders import PACKING, creation, each, made, move, take, waiting

ALL = Query(kind="parcel", newest_first=False)
Columns = dict[str, Any]
IN_ORDER = "SELECT created_us, id FROM records ORDER BY number"


def change_of(name: str, state: str, expected: int, **columns: Any) -> Change:
    return Change(kind="parcel", id=name, expected=expected, state=state, body=b"{}", **columns)


async def test_records_of_one_moment_are_numbered_by_their_ids(
    store: SqliteStore, shell: sqlite3.Connection
) -> None:
    names = ["d", "b", "e", "a", "c"]
    await made(store, *(creation(name, note=PACKING) for name in names))
    found = shell.execute(IN_ORDER).fetchall()
    assert [name for _, name in found] == sorted(names)
    assert len({created_us for created_us, _ in found}) == 1
    for name in names:
        assert [entry.id for entry in (await store.history(Key("parcel", name))).entries] == [name]


async def test_a_record_that_is_made_and_changed_in_one_batch_keeps_its_number(store: SqliteStore) -> None:
    commits = each(
        creation("b", note=PACKING),
        creation("a", note=PACKING),
        change_of("b", "sent", 1, note=PACKING),
        change_of("b", "delivered", 2, note=PACKING),
    )
    await store.commit(commits)
    records = (await store.find(ALL)).records
    assert [(record.id, record.state, record.version) for record in records] == [
        ("a", "packed", 1),
        ("b", "delivered", 3),
    ]
    assert len((await store.history(Key("parcel", "b"))).entries) == 3


async def test_records_created_by_concurrent_commits_and_claims_are_numbered_by_time_and_id(
    store: SqliteStore, shell: sqlite3.Connection
) -> None:
    await waiting(store, "w1", "w2", "w3")

    def and_make_one(records: Sequence[Record], _now: datetime) -> list[Commit]:
        moved = [move(record, ready_at=None) for record in records]
        return each(*moved, *(creation(f"a-{record.id}") for record in records))

    await asyncio.gather(
        *(store.commit(each(creation(f"z{n}"), creation(f"y{n}"))) for n in range(3)),
        *(store.claim(take(1), and_make_one) for _ in range(3)),
        *(store.commit(each(creation(f"b{n}"))) for n in range(3)),
    )
    found = shell.execute(IN_ORDER).fetchall()
    assert len(found) == 15
    assert found == sorted(found)
    listed = (await store.find(ALL)).records
    assert [record.id for record in listed] == [name for _, name in found]


async def test_two_transactions_of_one_microsecond_have_two_times(path: Path) -> None:
    stores = [SqliteStore(str(path), CATALOGUE) for _ in range(2)]
    for store in stores:
        await store.open()
        store._clock._host_ns = lambda: 1_800_000_000_000_000_000
        store._clock._ticks_ns = lambda: 0
    times = [(await made(store, creation(f"p{n}")))[0].created_at for n, store in enumerate(stores * 3)]
    for store in stores:
        await store.close()
    assert times == sorted(set(times))


async def test_lists_between_two_times_are_cut_by_number(store: SqliteStore) -> None:
    times = [(await made(store, creation(f"p{n}")))[0].created_at for n in range(20)]
    for low in range(20):
        found = (await store.find(Query(kind="parcel", since=times[low], until=times[-1]))).records
        assert [record.id for record in found] == [f"p{n}" for n in range(18, low - 1, -1)]
    later = times[-1] + timedelta(days=1)
    assert (await store.find(Query(kind="parcel", since=later))).records == ()
    assert len((await store.find(Query(kind="parcel", until=later))).records) == 20


async def test_each_way_to_change_a_record_changes_only_that(store: SqliteStore) -> None:
    now = await store.now()
    full: Columns = {"queue": "q", "parent": "p", "labels": ("x", "y"), "priority": 3}
    ways: tuple[Columns, ...] = ({}, {"queue": "q"}, full, {**full, "labels": ()})
    times: tuple[Columns, ...] = (
        {},
        {"ready_at": now},
        {"deadline_at": now},
        {"ready_at": now, "deadline_at": now},
    )
    shapes = [{**way, **time} for way in ways for time in times if "queue" in way or "ready_at" not in time]
    number = 0
    for first in shapes:
        for second in shapes:
            for state in ("packed", "sent"):
                name = f"r{number:04d}"
                number += 1
                await store.commit(each(change_of(name, "packed", 0, **first)))
                assert await seen(store, name) == (1, "packed", {k: v for k, v in first.items() if v})
                await store.commit(each(change_of(name, state, 1, **second)))
                assert await seen(store, name) == (2, state, {k: v for k, v in second.items() if v})


async def seen(store: SqliteStore, name: str) -> tuple[int, str, dict[str, object]]:
    """Its version, its state, and where it is placed, without what is empty."""
    [record] = await store.load([Key("parcel", name)])
    assert record is not None
    names = ("queue", "parent", "labels", "priority", "ready_at", "deadline_at")
    placing = {name: getattr(record, name) for name in names}
    return record.version, record.state, {name: value for name, value in placing.items() if value}
