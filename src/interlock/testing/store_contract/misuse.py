"""Calls that can only be mistakes are told so, and every store says the same."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable

import pytest

from interlock.errors import InvalidRecord, UnknownKind, UnknownState
from interlock.store.contract import Store
from interlock.store.records import Claim, Commit, Feed, Key, Page, Query
from interlock.testing.store_contract.builders import (
    LONG_AGO,
    PACKING,
    creation,
    each,
    leave,
    look,
    refusal,
    request,
    take,
    waiting,
    whole_feed,
)

UNKNOWN_KIND: dict[str, Callable[[Store], Awaitable[object]]] = {
    "load": lambda store: store.load([Key("crate", "a")]),
    "find": lambda store: store.find(Query(kind="crate")),
    "count": lambda store: store.count(Query(kind="crate")),
    "commit": lambda store: store.commit(each(creation("a"), creation("b", kind="crate"))),
    "refusal": lambda store: store.commit([Commit(refusals=(refusal("a", kind="crate"),))]),
    "history": lambda store: store.history(Key("crate", "a")),
    "claim": lambda store: store.claim(Claim(kind="crate", queues=("post",)), leave),
    "due": lambda store: store.due(["parcel", "crate"], 1, leave),
    "prune": lambda store: store.prune(kind="crate", states=["lost"], older_than=LONG_AGO),
}


@pytest.mark.parametrize("method", UNKNOWN_KIND)
async def test_an_unknown_kind_names_the_known_ones(store: Store, method: str) -> None:
    with pytest.raises(UnknownKind) as caught:
        await UNKNOWN_KIND[method](store)
    assert set(caught.value.allowed) == {"parcel", "letter", "van"}
    assert await look(store, "a") is None


async def test_an_unknown_state_names_the_known_ones(store: Store) -> None:
    with pytest.raises(UnknownState) as caught:
        await store.commit(each(creation("a"), creation("b", "snet")))
    assert caught.value.allowed == ("packed", "sent", "delivered", "lost", "returned")
    assert "sent" in caught.value.sentence
    assert await look(store, "a") is None


@pytest.mark.parametrize("ttl_s", [-1.0, float("inf"), float("nan")])
async def test_a_request_is_remembered_for_a_time(store: Store, ttl_s: float) -> None:
    with pytest.raises(InvalidRecord):
        await store.commit([Commit(changes=(creation("a"),), request=request("r", ttl_s=ttl_s))])
    assert await look(store, "a") is None


@pytest.mark.parametrize("name", ["", "x" * 65, "a\x00b"])
async def test_a_refusal_is_about_something_that_could_be_there(store: Store, name: str) -> None:
    with pytest.raises(InvalidRecord):
        await store.commit([Commit(refusals=(refusal(name),))])
    assert await whole_feed(store) == []


@pytest.mark.parametrize("name", ["a\x00b", "a\ud800b", "x" * 5_000])
async def test_looking_for_what_cannot_be_there_finds_nothing_or_says_so(store: Store, name: str) -> None:
    calls: list[Callable[[], Awaitable[object]]] = [
        lambda: store.load([Key("parcel", name)]),
        lambda: store.find(Query(kind="parcel", parent=name)),
        lambda: store.history(Key("parcel", name)),
        lambda: store.claim(take(1, queues=(name,)), leave),
        lambda: store.recall(name),
    ]
    for call in calls:
        with contextlib.suppress(InvalidRecord):
            assert await call() in ([None], Page(()), Feed((), ""), [], None)


LIMITED: dict[str, Callable[[Store, int], Awaitable[object]]] = {
    "claim": lambda store, limit: store.claim(take(limit), leave),
    "due": lambda store, limit: store.due(["parcel"], limit, leave),
    "feed": lambda store, limit: store.feed(limit=limit),
    "history": lambda store, limit: store.history(Key("parcel", "a"), limit=limit),
    "prune": lambda store, limit: store.prune(
        kind="parcel", states=["lost"], older_than=LONG_AGO, limit=limit
    ),
}


@pytest.mark.parametrize("limit", [0, -1])
@pytest.mark.parametrize("method", LIMITED)
async def test_nothing_is_asked_for_less_than_one(store: Store, method: str, limit: int) -> None:
    await waiting(store, "a", note=PACKING)
    with pytest.raises(InvalidRecord):
        await LIMITED[method](store, limit)
