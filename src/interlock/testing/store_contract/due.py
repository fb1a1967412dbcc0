"""What has a deadline that has passed is swept once, the oldest first, from however many hosts."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta

import pytest

from interlock.store.contract import Store
from interlock.store.records import Commit, Committed, Record
from interlock.testing.store_contract.builders import (
    LONG_AGO,
    Sender,
    creation,
    each,
    kinds_of,
    leave,
    made,
    move,
    see,
    swept,
)
from interlock.testing.store_contract.catalogue import LOST, PACKED, POSTED, SENT, WRITTEN
from interlock.testing.store_contract.opener import StoreOpener


class Trouble(Exception):
    """Something that a decision may run into."""


async def test_what_is_overdue_is_swept_the_oldest_first(store: Store) -> None:
    now = await store.now()
    for name, age in {"a": 5, "b": 50, "c": 20, "d": 21}.items():
        await made(store, creation(name, deadline_at=now - timedelta(seconds=age)))
    assert await swept(store, 3) == ["b", "d", "c"]
    assert await swept(store, 3) == ["a"]
    assert await swept(store, 3) == []


async def test_a_sweep_is_one_decision_by_the_clock_of_the_store(store: Store) -> None:
    past = await store.now() - LONG_AGO
    records = await made(store, *(creation(name, deadline_at=past) for name in "ab"))
    sender = Sender()
    before = await store.now()
    assert kinds_of(await store.due(["parcel"], 5, sender)) == [Committed, Committed]
    assert [set(call) for call in sender.calls] == [set(records)]
    assert before <= sender.times[0] <= await store.now()


async def test_what_has_no_deadline_or_a_later_one_is_left_alone(store: Store) -> None:
    future = await store.now() + LONG_AGO
    await made(store, creation("idle"), creation("later", deadline_at=future))
    sender = Sender()
    assert await store.due(["parcel"], 5, sender) == []
    assert sender.calls == []


async def test_a_deadline_that_is_past_when_it_is_set_is_due_at_once(store: Store) -> None:
    [record] = await made(store, creation("a"))
    assert await swept(store) == []
    await made(store, move(record, PACKED, deadline_at=await store.now() - timedelta(days=400)))
    assert await swept(store) == ["a"]


async def test_a_deadline_passes_by_itself(store: Store, opener: StoreOpener) -> None:
    await made(store, creation("a", deadline_at=await store.now() + timedelta(milliseconds=20)))
    await opener.elapse(store, 0.03)
    assert await swept(store) == ["a"]


async def test_a_deadline_that_was_moved_or_lifted_is_not_due(store: Store) -> None:
    now = await store.now()
    past, future = now - LONG_AGO, now + LONG_AGO
    [a, b, _c] = await made(store, *(creation(name, deadline_at=past) for name in "abc"))
    await made(store, move(a, PACKED, deadline_at=future), move(b, SENT, deadline_at=None))
    assert await swept(store) == ["c"]


async def test_only_the_kinds_that_were_asked_for_are_swept_all_in_one_order(store: Store) -> None:
    now = await store.now()
    for seconds, name in enumerate(["p1", "l2", "p3", "l4"], 1):
        deadline_at = now - timedelta(seconds=60 - seconds)
        kind, state = ("parcel", PACKED) if name.startswith("p") else ("letter", WRITTEN)
        await made(store, creation(name, state, kind=kind, deadline_at=deadline_at))
    given: list[str] = []

    def post(records: Sequence[Record], _now: datetime) -> list[Commit]:
        given.extend(record.id for record in records)
        ends = {"parcel": SENT, "letter": POSTED}
        return each(*(move(record, ends[record.kind], deadline_at=None) for record in records))

    await store.due(["letter"], 1, post)
    assert given == ["l2"]
    await store.due(["letter", "parcel"], 10, post)
    assert given == ["l2", "p1", "p3", "l4"]
    assert await store.due([], 10, post) == []


async def test_what_is_due_and_not_decided_on_stays_due(store: Store) -> None:
    past = await store.now() - LONG_AGO
    [record] = await made(store, creation("a", deadline_at=past))
    assert await store.due(["parcel"], 5, leave) == []
    assert await see(store, "a") == record
    assert await swept(store) == ["a"]


async def test_a_sweep_that_raises_changes_nothing_and_lets_go_of_everything(store: Store) -> None:
    past = await store.now() - LONG_AGO
    await made(store, creation("a", deadline_at=past))

    def raising(_records: Sequence[Record], _now: datetime) -> list[Commit]:
        raise Trouble("No light.")

    with pytest.raises(Trouble, match=r"No light\."):
        await store.due(["parcel"], 5, raising)
    assert await swept(store) == ["a"]


async def test_a_record_can_be_ready_and_due_at_once(store: Store) -> None:
    past = await store.now() - LONG_AGO
    await made(store, creation("a", queue="post", ready_at=past, deadline_at=past))
    assert await swept(store) == ["a"]
    assert (await see(store, "a")).version == 2


async def test_a_sweep_twice_over_does_nothing_the_second_time(store: Store) -> None:
    past = await store.now() - LONG_AGO
    records = await made(store, *(creation(f"p{number}", deadline_at=past) for number in range(5)))
    late = each(*(move(record, LOST, deadline_at=None) for record in records))
    assert len(await swept(store)) == 5
    assert Committed not in kinds_of(await store.commit(late)), "What a stale timer decided is refused."


async def test_two_sweepers_sweep_each_record_once(store: Store, opener: StoreOpener) -> None:
    past = await store.now() - LONG_AGO
    names = [f"p{number:03}" for number in range(120)]
    await made(store, *(creation(name, deadline_at=past) for name in names))
    stores = [await opener.open(), await opener.open()]

    async def sweep(mine: Store) -> list[str]:
        got: list[str] = []
        while some := await swept(mine, 7):
            got += some
        return got

    shares = await asyncio.gather(*(sweep(mine) for mine in stores))
    assert sorted(name for share in shares for name in share) == names
