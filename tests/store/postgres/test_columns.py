"""A wave is sent by columns, and what all its changes share is sent once: nobody may notice."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest

from interlock.errors import InvalidRecord
from interlock.store.postgres import PostgresStore
from interlock.store.postgres.columns import joined
from interlock.store.records import Change, Commit, Committed, Query, Record
from interlock.testing.store_contract import CATALOGUE
from interlock.testing.store_contract.builders import (
    PACKING,
    SENDING,
    creation,
    each,
    ids_of,
    kinds_of,
    look,
    made,
    move,
    refusal,
    take,
    there,
    waiting,
    whole_feed,
)

OpenStore = Callable[..., Awaitable[PostgresStore]]

Columns = dict[str, Any]


def motley(now: datetime) -> list[Columns]:
    """Columns of which each is there for some and missing for others."""
    return [
        {"queue": "post", "ready_at": now, "priority": 3, "note": PACKING},
        {"parent": "p", "labels": ("cold", "frail"), "body": b'{"text":"\\u001e\\n \xc3\xa4"}'},
        {"queue": "rail", "deadline_at": now + timedelta(microseconds=1), "note": PACKING},
        {"body": b" [1,\n\t2 ] ", "priority": -100, "labels": ("x",)},
        {"queue": "post", "ready_at": now + timedelta(hours=1), "parent": "q"},
    ]


def columns_of(record: Record | Change) -> dict[str, object]:
    """What a change says and a record shows."""
    names = ("state", "body", "parent", "queue", "labels", "priority", "ready_at", "deadline_at")
    return {name: getattr(record, name) for name in names}


async def test_records_that_have_nothing_in_common_are_created_and_changed_in_one_wave(
    url: str, open_store: OpenStore
) -> None:
    store = await open_store(url)
    now = await store.now()
    first = [creation(f"m{n}", **columns) for n, columns in enumerate(motley(now))]
    records = await made(store, *first)
    assert [columns_of(record) for record in records] == [columns_of(change) for change in first]

    letters = [
        creation(f"m{n}", "written", kind="letter", **columns) for n, columns in enumerate(motley(now))
    ]
    turned = list(reversed(motley(now)))
    moved = [move(r, "sent", **{"note": SENDING, **c}) for r, c in zip(records, turned, strict=True)]
    mixed = [change for pair in zip(reversed(moved), letters, strict=True) for change in pair]
    assert kinds_of(await store.commit(each(*mixed))) == [Committed] * len(mixed)
    assert [columns_of(r) for r in await there(store, *mixed)] == [columns_of(change) for change in mixed]


async def test_journal_entries_follow_the_order_of_the_commits_and_not_of_the_keys(
    url: str, open_store: OpenStore
) -> None:
    store = await open_store(url)
    commits = [
        Commit(changes=(creation("z", note=PACKING), creation("m", note=PACKING))),
        Commit(changes=(creation("y"),)),
        Commit(changes=(creation("a", note=PACKING),), refusals=(refusal("nobody"),)),
        Commit(changes=(creation("x", note=PACKING), creation("b"), creation("c", note=PACKING))),
    ]
    assert kinds_of(await store.commit(commits)) == [Committed] * len(commits)
    assert ids_of(await whole_feed(store)) == ["z", "m", "a", "nobody", "x", "c"]


@pytest.mark.parametrize("together", [1, 3])
@pytest.mark.parametrize(
    "columns",
    [{"queue": "\x1e"}, {"parent": "\x1e"}, {"labels": ("\x1e",)}, {"handler": "\x1e"}, {"body": b'"\x1e"'}],
    ids=" ".join,
)
async def test_a_value_that_would_come_apart_is_refused(
    url: str, open_store: OpenStore, together: int, columns: Columns
) -> None:
    store = await open_store(url)
    changes = [creation("a", **columns), creation("b"), creation("c")]
    with pytest.raises(InvalidRecord):
        await store.commit(each(*changes[:together]))
    assert await look(store, "a") is None


@pytest.mark.parametrize("values", [["\x1e"], ["x", "\x1e", ""]])
def test_values_that_would_come_apart_are_never_joined(values: list[str]) -> None:
    with pytest.raises(InvalidRecord, match=r"U\+001E"):
        joined(values)


async def test_a_record_in_a_state_that_was_removed_from_its_table_is_still_listed_and_counted(
    url: str, open_store: OpenStore
) -> None:
    await made(await open_store(url), creation("a"), creation("b", "lost"), creation("c", "sent"))
    parcel = CATALOGUE["parcel"]
    remaining = msgspec.structs.replace(
        parcel,
        states=tuple(state for state in parcel.states if state != "lost"),
        ended=parcel.ended - {"lost"},
        paths=frozenset(path for path in parcel.paths if "lost" not in path),
    )
    store = PostgresStore(url, {**CATALOGUE, "parcel": remaining})
    try:
        await store.open()
        page = await store.find(Query(kind="parcel", newest_first=False))
        assert [record.id for record in page.records] == ["a", "b", "c"]
        assert (await store.count(Query(kind="parcel"))).number == len("abc")
        assert (await store.status()).records["parcel"] == {"packed": 1, "lost": 1, "sent": 1}
    finally:
        await store.close()


@pytest.mark.parametrize("year", [1970, 2026, 2041, 2042, 2070, 2105, 2107, 2199])
async def test_a_record_created_in_any_year_is_claimed_with_its_exact_creation_time(
    url: str, open_store: OpenStore, shell: Any, year: int
) -> None:
    """What was never changed is known by when it was made: a microsecond more, and nobody would get it."""
    store = await open_store(url)
    await waiting(store, *(f"w{number:03}" for number in range(200)))
    await shell.execute(
        "UPDATE interlock.record SET (created_at, updated_at) = (at, at) FROM ("
        " SELECT id AS name, make_timestamptz($1, 3, 7, 5, 41, 7.123457, 'UTC')"
        "   + row_number() OVER () * interval '1 hour 7.654321 s' AS at FROM interlock.record"
        ") AS moments WHERE id = name",
        year,
    )
    rows = await shell.fetch("SELECT id, created_at FROM interlock.record")
    found: dict[str, datetime] = {}

    def decide(records: Sequence[Record], _now: datetime) -> list[Commit]:
        found.update({record.id: record.created_at for record in records})
        return each(*(move(record, ready_at=None, note=SENDING) for record in records))

    assert kinds_of(await store.claim(take(200), decide)) == [Committed] * 200
    assert found == {row["id"]: row["created_at"] for row in rows}
