"""Many callers, few transactions; and nobody pays for a neighbour's mistake."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import NoReturn

import pytest

from interlock.errors import InvalidRecord
from interlock.store.records import Commit, Committed, Conflict, Key, Note, Record
from interlock.store.sqlite import SqliteStore
from interlock.testing.store_contract import CATALOGUE
from interlock.testing.store_contract.builders import (
    PACKING,
    Sender,
    creation,
    each,
    leave,
    made,
    move,
    see,
    take,
    waiting,
)

UNKEEPABLE = Note(actor="\ud800")
"""Half a character: SQLite finds out only when it is to write it down."""


async def test_sixty_four_callers_share_a_few_transactions(store: SqliteStore) -> None:
    before = store.transactions
    answers = await asyncio.gather(*(store.commit(each(creation(f"p{n}", note=PACKING))) for n in range(64)))
    assert all(isinstance(outcome, Committed) for [outcome] in answers)
    assert store.transactions - before <= 3
    assert len((await store.feed()).entries) == 64


async def test_one_caller_after_the_other_has_a_transaction_each(store: SqliteStore) -> None:
    before = store.transactions
    for n in range(5):
        await made(store, creation(f"p{n}"))
    assert store.transactions - before == 5


async def test_a_claim_without_changes_and_a_conflicting_commit_write_nothing(store: SqliteStore) -> None:
    await waiting(store, "a")
    before = store.transactions
    assert await store.claim(take(), leave) == []
    [outcome] = await store.commit(each(creation("a")))
    assert isinstance(outcome, Conflict)
    assert store.transactions == before


async def test_of_callers_in_one_transaction_each_gets_its_own_outcomes(store: SqliteStore) -> None:
    [record] = await made(store, creation("a"))
    first, second, third = await asyncio.gather(
        store.commit(each(move(record), creation("b"))),
        store.commit(each(move(record), creation("c"))),
        store.commit(each(creation("b"), creation("d"))),
    )
    assert [type(outcome) for outcome in first] == [Committed, Committed]
    assert second == [Conflict(Key("parcel", "a"), 1, 2), second[1]]
    assert third == [Conflict(Key("parcel", "b"), 0, 1), third[1]]


async def test_data_that_cannot_be_kept_fails_its_caller_only(store: SqliteStore) -> None:
    await waiting(store, "ready")
    sender = Sender()
    answers = await asyncio.gather(
        store.commit(each(creation("before"))),
        store.commit(each(creation("half"), creation("bad", note=UNKEEPABLE))),
        store.claim(take(), sender),
        store.commit(each(creation("after"))),
        return_exceptions=True,
    )
    assert [type(answer) for answer in answers] == [list, InvalidRecord, list, list]
    found = await store.load([Key("parcel", name) for name in ("before", "half", "bad", "after")])
    assert [record.id if record else None for record in found] == ["before", None, None, "after"]
    assert (await see(store, "ready")).version == 2


async def test_a_decision_that_raises_among_callers_fails_its_caller_only(store: SqliteStore) -> None:
    await waiting(store, "a")

    def give_up(_records: Sequence[Record], _now: datetime) -> NoReturn:
        raise LookupError("no van today")

    answers = await asyncio.gather(
        store.commit(each(creation("before"))),
        store.claim(take(), give_up),
        store.commit(each(creation("after"))),
        return_exceptions=True,
    )
    assert [type(answer) for answer in answers] == [list, LookupError, list]
    assert (await see(store, "a")).version == 1


async def test_concurrent_claims_in_one_transaction_do_not_claim_the_same_record(store: SqliteStore) -> None:
    await waiting(store, "a")
    first, second = Sender(), Sender()
    await asyncio.gather(store.claim(take(), first), store.claim(take(), second))
    assert first.names + second.names == ["a"]


async def test_a_change_by_another_connection_invalidates_the_cached_version(
    store: SqliteStore, path: Path
) -> None:
    [record] = await made(store, creation("a"))
    other = SqliteStore(str(path), CATALOGUE)
    await other.open()
    await made(other, move(record))
    await other.close()
    [outcome] = await store.commit(each(move(record)))
    assert outcome == Conflict(Key("parcel", "a"), 1, 2)


async def test_a_rolled_back_creation_leaves_no_cached_version(store: SqliteStore) -> None:
    with pytest.raises(InvalidRecord):
        await store.commit([Commit(changes=(creation("a"), creation("b", note=UNKEEPABLE)))])
    [record] = await made(store, creation("a"))
    assert record.version == 1
