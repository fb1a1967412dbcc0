"""Acknowledged changes survive a restart; only records that ended long ago can be pruned."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from interlock.errors import (
    InvalidRecord,
    PruneRefused,
    StoreUnavailable,
    UnknownKind,
    UnknownState,
)
from interlock.store.contract import Store, StoreStatus
from interlock.store.records import Commit, Key, Pruned, Query, Repeated
from interlock.testing.store_contract.builders import (
    AWAY,
    DELIVERED,
    LONG_AGO,
    LOST,
    PACKED,
    PACKING,
    PARKED,
    POSTED,
    RETURNED,
    SENDING,
    SENT,
    all_found,
    claimed,
    creation,
    each,
    ids_of,
    kinds_of,
    leave,
    look,
    made,
    move,
    refusal,
    request,
    see,
    swept,
    take,
    waiting,
    whole_feed,
)
from interlock.testing.store_contract.suite import StoreOpener, needs


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
    "prune_by_queue": lambda store: store.prune_by_queue(
        kind="parcel", state="lost", older_than=LONG_AGO, queues={}
    ),
    "status": lambda store: store.status(),
}
"""Every method that queries the database."""


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
    before = await _content_of(store)
    for _ in range(3):
        await (await opener.open()).close()
    assert await _content_of(store) == before


async def _content_of(store: Store) -> StoreStatus:
    """Return the status without memory and connections.

    A server changes these by itself.
    """
    return msgspec.structs.replace(await store.status(), size_bytes=None, connections=None, vacuum=None)


NO_AGE = timedelta(0)
ENDS = ("delivered", "lost", "returned")


async def test_only_what_has_ended_in_these_states_is_removed(store: Store) -> None:
    states = {"a": PACKED, "b": SENT, "c": DELIVERED, "d": LOST, "e": RETURNED}
    await made(store, *(creation(name, state, note=PACKING) for name, state in states.items()))
    await made(store, creation("c", POSTED, kind="letter", note=PACKING))
    assert await store.prune(kind="parcel", states=["delivered", "lost"], older_than=NO_AGE) == Pruned(2, 2)
    assert await all_found(store, Query(kind="parcel", newest_first=False)) == ["a", "b", "e"]
    assert await look(store, "c", "letter") is not None
    assert [(entry.kind, entry.id) for entry in await whole_feed(store)] == [
        ("parcel", "a"),
        ("parcel", "b"),
        ("parcel", "e"),
        ("letter", "c"),
    ]


@pytest.mark.parametrize("states", [["packed"], ["sent"], ["delivered", "packed"]])
async def test_a_state_that_is_no_end_is_refused(store: Store, states: list[str]) -> None:
    await made(store, *(creation(f"p-{state}", state) for state in (PACKED, SENT, DELIVERED)))
    with pytest.raises(PruneRefused) as caught:
        await store.prune(kind="parcel", states=states, older_than=NO_AGE)
    assert caught.value.allowed == ENDS
    assert len(await all_found(store, Query(kind="parcel"))) == 3


async def test_a_resting_record_counts_as_ended_until_it_continues(store: Store) -> None:
    names = ("home", "back", "out")
    [_, back, out] = await made(store, *(creation(name, PARKED, kind="van", note=PACKING) for name in names))
    [back, _] = await made(store, move(back, AWAY, note=SENDING), move(out, AWAY, note=SENDING))
    with pytest.raises(PruneRefused) as caught:
        await store.prune(kind="van", states=["away"], older_than=NO_AGE)
    assert caught.value.allowed == ("parked",)
    assert await store.prune(kind="van", states=["parked"], older_than=NO_AGE) == Pruned(1, 1)
    assert await all_found(store, Query(kind="van", newest_first=False)) == ["back", "out"]
    await made(store, move(back, PARKED, note=SENDING))
    assert await store.prune(kind="van", states=["parked"], older_than=NO_AGE) == Pruned(1, 3)
    assert await all_found(store, Query(kind="van")) == ["out"]


async def test_pruning_refuses_unknown_kinds_and_states_and_negative_ages(store: Store) -> None:
    with pytest.raises(UnknownKind):
        await store.prune(kind="crate", states=["lost"], older_than=NO_AGE)
    with pytest.raises(UnknownState):
        await store.prune(kind="parcel", states=["mislaid"], older_than=NO_AGE)
    with pytest.raises(InvalidRecord):
        await store.prune(kind="parcel", states=["lost"], older_than=timedelta(seconds=-1))


async def test_age_counts_from_the_last_change(store: Store, opener: StoreOpener) -> None:
    apart_s, judged = 0.1, False
    while not judged:
        [old, new] = await made(store, creation("old", LOST), creation("new"))
        await opener.elapse(store, apart_s)
        [changed] = await made(store, move(new, LOST))
        assert (await store.prune(kind="parcel", states=["lost"], older_than=timedelta(days=1))).records == 0
        older_than = await store.now() - old.updated_at - (changed.updated_at - old.updated_at) / 2
        await store.prune(kind="parcel", states=["lost"], older_than=older_than)
        assert await look(store, "old") is None
        # Time passes between reading it and pruning by it. If that took so long that the new record may have
        # become old enough, the outcome is open, and the wait has to be longer.
        judged = await store.now() - older_than < changed.updated_at
        assert not judged or await look(store, "new") is not None
        await store.prune(kind="parcel", states=["lost"], older_than=NO_AGE)
        apart_s *= 2


async def test_a_batch_is_bounded_and_says_whether_there_is_more(store: Store) -> None:
    await made(store, *(creation(f"p{number}", LOST, note=PACKING) for number in range(7)))
    batches = [await store.prune(kind="parcel", states=ENDS, older_than=NO_AGE, limit=3) for _ in range(4)]
    assert [batch.records for batch in batches] == [3, 3, 1, 0]
    assert [batch.entries for batch in batches] == [3, 3, 1, 0]
    assert [batch.more for batch in batches] == [True, True, False, False]


async def test_a_batch_that_is_exactly_full_has_no_more(store: Store) -> None:
    await made(store, *(creation(f"p{number}", LOST) for number in range(3)))
    pruned = await store.prune(kind="parcel", states=ENDS, older_than=NO_AGE, limit=3)
    assert (pruned.records, pruned.more) == (3, False)


async def test_the_whole_journal_of_a_record_goes_with_it(store: Store) -> None:
    [a, b] = await made(store, creation("a", note=PACKING), creation("b", note=PACKING))
    await store.commit([Commit(refusals=(refusal("a"), refusal("b")))])
    await made(store, move(a, LOST, note=SENDING), move(b, SENT, note=SENDING))
    assert await store.prune(kind="parcel", states=["lost"], older_than=NO_AGE) == Pruned(1, 3)
    assert (await store.history(Key("parcel", "a"))).entries == ()
    assert len((await store.history(Key("parcel", "b"))).entries) == 3
    assert set(ids_of(await whole_feed(store))) == {"b"}


async def test_a_pruned_record_can_be_created_again(store: Store) -> None:
    past = await store.now() - timedelta(hours=1)
    columns: dict[str, Any] = {
        "queue": "post",
        "ready_at": past,
        "deadline_at": past,
        "labels": ("x",),
        "parent": "one",
    }
    await made(store, creation("a", LOST, **columns))
    await store.prune(kind="parcel", states=["lost"], older_than=NO_AGE)
    assert await claimed(store, take(5, labels=("x",))) == [], "Nothing of it is left in any index."
    assert await swept(store) == []
    for gone in (Query(kind="parcel", parent="one"), Query(kind="parcel", labels=("x",))):
        assert await all_found(store, gone) == []
    [again] = await made(store, creation("a"))
    assert again.version == 1
    assert (again.parent, again.labels) == (None, ())


async def test_a_reader_that_missed_entries_sees_the_gap_once(store: Store) -> None:
    [a] = await made(store, creation("a", note=PACKING))
    start = await store.latest()
    await made(store, creation("b", note=PACKING), move(a, LOST, note=SENDING))
    end = await store.latest()
    await made(store, creation("c", note=PACKING))
    await store.prune(kind="parcel", states=["lost"], older_than=NO_AGE)
    for cursor in ("", start):
        feed = await store.feed(cursor)
        assert ids_of(feed) == ["b", "c"]
        assert feed.gap, "Some entries after this cursor are gone."
        assert not (await store.feed(feed.cursor)).gap
    feed = await store.feed(end)
    assert (ids_of(feed), feed.gap) == (["c"], False), "A reader that had read them has missed nothing."


async def test_a_reader_that_waits_at_the_end_sees_the_gap_once(store: Store) -> None:
    await made(store, creation("a", note=PACKING))
    cursor = await store.latest()
    await made(store, creation("b", LOST, note=PACKING))
    await store.prune(kind="parcel", states=["lost"], older_than=NO_AGE)
    feed = await store.feed(cursor)
    assert (feed.entries, feed.gap) == ((), True)
    again = await store.feed(feed.cursor)
    assert (again.entries, again.gap) == ((), False)
    await made(store, creation("c", note=PACKING))
    again = await store.feed(feed.cursor)
    assert (ids_of(again), again.gap) == (["c"], False)


async def test_pruning_what_left_no_trace_makes_no_gap(store: Store) -> None:
    await made(store, creation("a", note=PACKING), creation("b", LOST))
    assert await store.prune(kind="parcel", states=["lost"], older_than=NO_AGE) == Pruned(1)
    assert not (await store.feed()).gap


async def test_cursors_stay_good_across_a_prune(store: Store) -> None:
    names = [f"p{number}" for number in range(6)]
    states = [LOST if number % 2 else PACKED for number in range(6)]
    await store.commit(
        each(*(creation(name, state, note=PACKING) for name, state in zip(names, states, strict=True)))
    )
    entries = await whole_feed(store)
    await store.prune(kind="parcel", states=["lost"], older_than=NO_AGE)
    for place, entry in enumerate(entries):
        assert ids_of(await whole_feed(store, entry.cursor)) == [
            name for name in names[place + 1 :] if int(name[1]) % 2 == 0
        ]
    assert await whole_feed(store, await store.latest()) == []


async def test_expired_requests_go_with_every_batch(store: Store, opener: StoreOpener) -> None:
    await store.commit(
        [
            Commit(request=request("short", ttl_s=0.01)),
            Commit(request=request("brief", ttl_s=0.01)),
            Commit(request=request("long")),
        ]
    )
    await opener.elapse(store, 0.02)
    assert (await store.status()).requests >= 1
    pruned = await store.prune(kind="parcel", states=["lost"], older_than=NO_AGE)
    assert (pruned.records, pruned.requests) == (0, 2)
    assert (await store.prune(kind="parcel", states=["lost"], older_than=NO_AGE)).requests == 0
    assert await store.recall("long") is not None
    assert (await store.status()).requests == 1


async def test_the_status_says_what_is_there(store: Store) -> None:
    await made(store, creation("a", note=PACKING), creation("b"), creation("c", SENT, note=PACKING))
    await made(store, creation("a", POSTED, kind="letter"))
    await store.commit([Commit(request=request("r"))])
    status = await store.status()
    assert status.records["parcel"] == {"packed": 2, "sent": 1}
    assert status.records["letter"] == {"posted": 1}
    assert (status.entries, status.requests) == (2, 1)
    assert status.oldest_entry_at == (await see(store, "a")).created_at
    assert status.schema_version == status.wanted_version
    assert status.server
