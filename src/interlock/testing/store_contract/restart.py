"""What was acknowledged is there after closing and opening again, and a closed store says so."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest

from interlock.errors import StoreUnavailable
from interlock.store.contract import Store
from interlock.store.records import Commit, Key, Query, Repeated
from interlock.testing.store_contract.builders import (
    LONG_AGO,
    PACKING,
    claimed,
    creation,
    each,
    ids_of,
    kinds_of,
    leave,
    made,
    refusal,
    request,
    swept,
    take,
    waiting,
    whole_feed,
)
from interlock.testing.store_contract.catalogue import DELIVERED, LOST
from interlock.testing.store_contract.opener import StoreOpener, needs


async def test_a_store_can_be_closed_twice(store: Store) -> None:
    await store.close()
    await store.close()


CALLS: dict[str, Callable[[Store], Awaitable[object]]] = {
    "now": lambda store: store.now(),
    "epoch": lambda store: store.epoch(),
    "load": lambda store: store.load([Key("parcel", "a")]),
    "find": lambda store: store.find(Query(kind="parcel")),
    "count": lambda store: store.count(Query(kind="parcel")),
    "commit": lambda store: store.commit(each(creation("b"))),
    "claim": lambda store: store.claim(take(1), leave),
    "due": lambda store: store.due(["parcel"], 1, leave),
    "recall": lambda store: store.recall("r"),
    "feed": lambda store: store.feed(),
    "latest": lambda store: store.latest(),
    "history": lambda store: store.history(Key("parcel", "a")),
    "prune": lambda store: store.prune(kind="parcel", states=["lost"], older_than=LONG_AGO),
    "status": lambda store: store.status(),
}
"""Every method that asks the database something."""


@pytest.mark.parametrize("method", CALLS)
async def test_a_closed_store_answers_nothing(store: Store, method: str) -> None:
    await waiting(store, "a")
    await store.close()
    with pytest.raises(StoreUnavailable) as caught:
        await CALLS[method](store)
    assert caught.value.todo


@needs("persistent")
async def test_everything_is_there_after_closing_and_opening_again(store: Store, opener: StoreOpener) -> None:
    past = await store.now() - LONG_AGO
    changes = [
        creation("a", queue="post", ready_at=past, labels=("x",), note=PACKING, body='"ü"'.encode()),
        creation("b", deadline_at=past, note=PACKING),
        creation("c", DELIVERED, parent="p", note=PACKING),
    ]
    records = await made(store, *changes)
    await store.commit([Commit(request=request("r"), refusals=(refusal("c"),))])
    entries = await whole_feed(store)
    recorded, latest, epoch, now = (
        await store.recall("r"),
        await store.latest(),
        await store.epoch(),
        await store.now(),
    )
    await store.close()

    again = await opener.open()
    assert await again.load([change.key for change in changes]) == records
    assert await whole_feed(again) == entries
    assert await whole_feed(again, entries[1].cursor) == entries[2:]
    assert await again.recall("r") == recorded
    assert kinds_of(await again.commit([Commit(request=request("r"))])) == [Repeated]
    assert await again.epoch() >= epoch
    assert await again.now() >= now
    assert await claimed(again, take(5, labels=("x",))) == ["a"]
    assert await swept(again) == ["b"]
    assert ids_of(await again.feed(latest)) == ["a", "b"]


@needs("persistent")
async def test_a_gap_is_still_known_after_opening_again(store: Store, opener: StoreOpener) -> None:
    await made(store, creation("a", LOST, note=PACKING), creation("b", note=PACKING))
    await store.prune(kind="parcel", states=["lost"], older_than=timedelta(0))
    await store.close()
    feed = await (await opener.open()).feed()
    assert (ids_of(feed), feed.gap) == (["b"], True)


@needs("persistent")
async def test_the_journal_never_uses_a_place_twice(store: Store, opener: StoreOpener) -> None:
    await made(store, creation("a", note=PACKING), creation("b", LOST, note=PACKING))
    cursor = await store.latest()
    await store.prune(kind="parcel", states=["lost"], older_than=timedelta(0))
    await store.close()
    again = await opener.open()
    await made(again, creation("c", note=PACKING))
    assert ids_of(await again.feed(cursor)) == ["c"]


@needs("shared")
async def test_a_shared_store_says_that_it_is_shared(store: Store) -> None:
    assert store.capabilities.shared


@needs("persistent")
async def test_opening_changes_nothing(store: Store, opener: StoreOpener) -> None:
    await made(store, creation("a", note=PACKING))
    before = await store.status()
    for _ in range(3):
        await (await opener.open()).close()
    assert await store.status() == before
