"""Ended records are removed at the age of their queue, a bounded number of looks at a time."""

from __future__ import annotations

from datetime import timedelta

import pytest

from interlock.errors import InvalidRecord, PruneRefused, UnknownState
from interlock.store.contract import Store
from interlock.store.records import Key, Pruned, Query
from interlock.testing.store_contract.builders import (
    AWAY,
    DELIVERED,
    LONG_AGO,
    LOST,
    PACKING,
    PARKED,
    SENDING,
    SENT,
    all_found,
    creation,
    ids_of,
    look,
    made,
    move,
    whole_feed,
)
from interlock.testing.store_contract.suite import StoreOpener

NO_AGE = timedelta(0)


async def _left(store: Store, kind: str = "parcel") -> list[str]:
    return sorted(await all_found(store, Query(kind=kind)))


async def test_a_queue_of_its_own_age_is_pruned_by_it(store: Store) -> None:
    await made(
        store,
        creation("mail", LOST, queue="mail", note=PACKING),
        creation("post", LOST, queue="post", note=PACKING),
        creation("none", LOST, note=PACKING),
        creation("found", DELIVERED, queue="mail", note=PACKING),
        creation("going", SENT, queue="mail", note=PACKING),
    )
    pruned = await store.prune_by_queue(
        kind="parcel", state="lost", older_than=LONG_AGO, queues={"mail": NO_AGE}
    )
    assert pruned == Pruned(1, 1)
    assert await _left(store) == ["found", "going", "none", "post"]
    assert sorted(ids_of(await whole_feed(store))) == ["found", "going", "none", "post"]
    assert (await store.history(Key("parcel", "mail"))).entries == ()


async def test_a_queue_that_is_kept_longer_outlasts_the_others(store: Store) -> None:
    queues = {"a": "mail", "b": "post", "c": "bulk", "d": None}
    await made(store, *(creation(name, LOST, queue=queue) for name, queue in queues.items()))
    ages = {"mail": LONG_AGO, "bulk": NO_AGE}
    pruned = await store.prune_by_queue(kind="parcel", state="lost", older_than=NO_AGE, queues=ages)
    assert pruned.records == 3
    assert await _left(store) == ["a"]


async def test_without_an_age_only_the_named_queues_are_pruned(store: Store) -> None:
    queues = {"a": "mail", "b": "post", "c": None}
    await made(store, *(creation(name, LOST, queue=queue) for name, queue in queues.items()))
    pruned = await store.prune_by_queue(kind="parcel", state="lost", older_than=None, queues={"mail": NO_AGE})
    assert pruned.records == 1
    assert await _left(store) == ["b", "c"]
    assert (await store.prune_by_queue(kind="parcel", state="lost", older_than=None, queues={})) == Pruned()


async def test_a_walk_looks_at_a_bounded_number_and_continues(store: Store) -> None:
    names = [f"p{number:02}" for number in range(12)]
    for number, name in enumerate(names):
        await made(store, creation(name, LOST, queue="mail" if number % 4 == 3 else "post", note=PACKING))
    cursor, removed = "", []
    for _ in names:
        pruned = await store.prune_by_queue(
            kind="parcel", state="lost", older_than=LONG_AGO, queues={"mail": NO_AGE}, cursor=cursor, within=5
        )
        removed.append(pruned.records)
        cursor = pruned.cursor
        assert pruned.more is bool(cursor)
        if not cursor:
            break
    assert removed == [1, 1, 1]
    assert await _left(store) == [name for number, name in enumerate(names) if number % 4 != 3]


async def test_a_walk_ends_a_batch_at_its_limit_and_skips_nothing(store: Store) -> None:
    names = [f"p{number:02}" for number in range(7)]
    await made(store, *(creation(name, LOST, queue="mail", note=PACKING) for name in names))
    await made(store, creation("other", LOST, queue="post"))
    cursor, removed, first = "", [], True
    while cursor or first:
        pruned = await store.prune_by_queue(
            kind="parcel", state="lost", older_than=LONG_AGO, queues={"mail": NO_AGE}, cursor=cursor, limit=3
        )
        first, cursor = False, pruned.cursor
        removed.append(pruned.records)
    assert removed == [3, 3, 1]
    assert await _left(store) == ["other"]


async def test_the_age_of_a_queue_counts_from_the_last_change(store: Store, opener: StoreOpener) -> None:
    apart_s, judged = 0.1, False
    while not judged:
        [old, new] = await made(
            store, creation("old", LOST, queue="mail"), creation("new", SENT, queue="mail", note=PACKING)
        )
        await opener.elapse(store, apart_s)
        [changed] = await made(store, move(new, LOST))
        age = await store.now() - old.updated_at - (changed.updated_at - old.updated_at) / 2
        await store.prune_by_queue(kind="parcel", state="lost", older_than=None, queues={"mail": age})
        assert await look(store, "old") is None
        # Time passes between reading it and pruning by it: see `test_age_counts_from_the_last_change`.
        judged = await store.now() - age < changed.updated_at
        assert not judged or await look(store, "new") is not None
        await store.prune_by_queue(kind="parcel", state="lost", older_than=NO_AGE, queues={})
        apart_s *= 2


async def test_a_resting_record_is_pruned_by_queue_until_it_continues(store: Store) -> None:
    names = ("home", "out", "kept")
    [_, out, _] = await made(
        store,
        *(creation(name, PARKED, kind="van", queue="x" if name != "kept" else "y") for name in names),
    )
    await made(store, move(out, AWAY, note=SENDING))
    pruned = await store.prune_by_queue(kind="van", state="parked", older_than=None, queues={"x": NO_AGE})
    assert pruned.records == 1
    assert await _left(store, "van") == ["kept", "out"]


async def test_an_ended_record_that_still_has_a_deadline_is_pruned_by_queue(store: Store) -> None:
    past = await store.now() - LONG_AGO
    await made(
        store,
        creation("a", LOST, queue="mail", deadline_at=past, ready_at=past),
        creation("b", LOST, queue="post", deadline_at=past),
    )
    pruned = await store.prune_by_queue(kind="parcel", state="lost", older_than=None, queues={"mail": NO_AGE})
    assert pruned.records == 1
    assert await _left(store) == ["b"]


async def test_only_ends_and_ages_of_the_past_can_be_pruned_by_queue(store: Store) -> None:
    with pytest.raises(PruneRefused):
        await store.prune_by_queue(kind="parcel", state="sent", older_than=NO_AGE, queues={})
    with pytest.raises(UnknownState):
        await store.prune_by_queue(kind="parcel", state="mislaid", older_than=NO_AGE, queues={})
    with pytest.raises(InvalidRecord):
        await store.prune_by_queue(kind="parcel", state="lost", older_than=None, queues={"mail": -LONG_AGO})
    with pytest.raises(InvalidRecord):
        await store.prune_by_queue(
            kind="parcel", state="lost", older_than=NO_AGE, queues={}, cursor="elsewhere"
        )
