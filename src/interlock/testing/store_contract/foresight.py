"""A claim with foresight leaves the same behind as one without, with any jobs found."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest

from interlock.errors import InvalidRecord
from interlock.store.contract import Store
from interlock.store.records import (
    Batch,
    Change,
    Claim,
    Committed,
    Foresight,
    Guard,
    Key,
    Query,
    Record,
    Work,
)
from interlock.testing.store_contract.builders import (
    PACKED,
    QUEUE,
    SENDING,
    SENT,
    all_found,
    creation,
    ids_of,
    kinds_of,
    made,
    see,
    take,
    waiting,
    whole_feed,
)
from interlock.testing.store_contract.suite import StoreOpener

TEN = tuple(f"p{number:02}" for number in range(10))
TTL = timedelta(seconds=30)


class ForesightSender:
    """Sends all records that it has claimed, with the same change for all of one shape."""

    def __init__(self) -> None:
        self.calls: list[tuple[Record, ...]] = []

    def __call__(self, records: Sequence[Record], now: datetime) -> list[Work]:
        self.calls.append(tuple(records))
        by_shape: dict[tuple[object, ...], list[Record]] = {}
        for record in records:
            by_shape.setdefault((record.body, record.priority, record.labels, record.parent), []).append(
                record
            )
        return [
            Batch(
                change=self.change_of(some[0], now),
                ids=tuple(record.id for record in some),
                expected_at=tuple(record.updated_at for record in some),
            )
            for some in by_shape.values()
        ]

    def change_of(self, like: Record, now: datetime) -> Change:
        """Return the change of all records that are like this one."""
        return Change(
            kind=like.kind,
            id="",
            expected=like.version,
            state=SENT,
            body=b'{"sent":true}',
            parent=like.parent,
            labels=like.labels,
            priority=like.priority,
            deadline_at=now + TTL,
            note=SENDING,
        )

    def claim(self, like: Record, now: datetime, limit: int = len(TEN), **more: Any) -> Claim:
        """Return a claim that foresees records like this one."""
        foresight = Foresight(like, self.change_of(like, now), now)
        return msgspec.structs.replace(take(limit), foresight=foresight, **more)

    @property
    def names(self) -> list[str]:
        """The ids of the last call."""
        return [record.id for record in self.calls[-1]] if self.calls else []


async def test_foreseen_records_are_claimed_in_order_as_decided(store: Store) -> None:
    records = await waiting(store, *TEN, given=b'{"to":"ann"}')
    sender, now = ForesightSender(), await store.now()
    outcomes = await store.claim(sender.claim(records[0], now), sender)
    assert kinds_of(outcomes) == [Committed] * len(TEN)
    assert sender.names == list(TEN)
    assert list(sender.calls[-1]) == records
    for before in records:
        after = await see(store, before.id)
        assert (after.state, after.version, after.body) == (SENT, 2, b'{"sent":true}')
        assert (after.given, after.created_at) == (before.given, before.created_at)
        assert after.ready_at is None
        assert after.deadline_at is not None
        assert after.deadline_at >= now + TTL
    assert ids_of(await whole_feed(store)) == list(TEN)
    assert [entry.note for entry in (await whole_feed(store))] == [SENDING] * len(TEN)


async def test_foreseen_records_are_journalled_in_the_order_of_the_claim(store: Store) -> None:
    names = ("c", "a", "d", "b")
    records = [
        (await waiting(store, name, since=timedelta(minutes=9 - place)))[0]
        for place, name in enumerate(names)
    ]
    sender = ForesightSender()
    await store.claim(sender.claim(records[0], await store.now(), limit=4), sender)
    assert sender.names == list(names)
    assert ids_of(await whole_feed(store)) == list(names)


async def test_fewer_records_than_foreseen_are_claimed_all_the_same(store: Store) -> None:
    records = await waiting(store, *TEN[:4])
    sender = ForesightSender()
    outcomes = await store.claim(sender.claim(records[0], await store.now()), sender)
    assert kinds_of(outcomes) == [Committed] * 4
    assert sender.names == list(TEN[:4])


async def test_nothing_is_claimed_where_nothing_is_ready_as_foreseen(store: Store) -> None:
    records = await waiting(store, "a")
    sender, now = ForesightSender(), await store.now()
    await store.claim(sender.claim(records[0], now), sender)
    assert await store.claim(sender.claim(records[0], now), sender) == []


@pytest.mark.parametrize(
    "other",
    [
        {"body": b'{"weight":4}'},
        {"priority": 1},
        {"labels": ("cold",)},
        {"parent": "other"},
        {"deadline_at": timedelta(hours=1)},
        {"result": b'"kept"'},
    ],
    ids=lambda other: next(iter(other)),
)
async def test_a_record_of_another_shape_is_decided_about_on_its_own(
    store: Store, other: dict[str, Any]
) -> None:
    now = await store.now()
    columns: dict[str, Any] = {"queue": QUEUE, "ready_at": now - timedelta(minutes=1)}
    own: dict[str, Any] = {
        name: now + value if isinstance(value, timedelta) else value for name, value in other.items()
    }
    changes = [creation(name, **{**columns, **(own if name == "p05" else {})}) for name in TEN]
    records = await made(store, *changes)
    sender = ForesightSender()
    claim = msgspec.structs.replace(sender.claim(records[0], now), labels=("cold",))
    outcomes = await store.claim(claim, sender)
    assert kinds_of(outcomes) == [Committed] * len(TEN)
    assert sorted(sender.names) == list(TEN)
    assert {record.id: record for record in sender.calls[-1]} == {record.id: record for record in records}
    after = await see(store, "p05")
    assert (after.state, after.result) == (SENT, own.get("result", b""))
    assert after.priority == other.get("priority", 0)


async def test_an_old_decision_grants_nothing_that_has_ended_already(store: Store) -> None:
    records = await waiting(store, *TEN)
    sender, now = ForesightSender(), await store.now()
    claim = sender.claim(records[0], now - timedelta(minutes=1))
    assert len(await store.claim(claim, sender)) == len(TEN)
    for before in records:
        deadline_at = (await see(store, before.id)).deadline_at
        assert deadline_at is not None
        assert deadline_at >= now + TTL


async def test_a_guard_holds_for_foreseen_records(store: Store) -> None:
    records = await waiting(store, *TEN)
    await made(store, creation("gate"))
    sender, now = ForesightSender(), await store.now()
    closed = Guard(Key("parcel", "gate"), (SENT,))
    assert await store.claim(sender.claim(records[0], now, guard=closed), sender) == []
    open_ = Guard(Key("parcel", "gate"), (PACKED,))
    assert len(await store.claim(sender.claim(records[0], now, guard=open_), sender)) == len(TEN)


async def test_a_record_whose_time_has_come_is_not_forgotten_by_foresight(
    store: Store, opener: StoreOpener
) -> None:
    records = await waiting(store, *TEN)
    now = await store.now()
    soon = now + timedelta(seconds=1)  # due once that second has passed, however slow the machine is
    await made(store, creation("late", queue=QUEUE, ready_at=soon, priority=100))
    await opener.elapse(store, 1.0)
    sender = ForesightSender()
    await store.claim(sender.claim(records[0], now), sender)
    assert sender.names[0] == "late"


async def test_claimers_with_foresight_share_what_is_ready(opener: StoreOpener) -> None:
    stores = [await opener.open() for _ in range(3)]
    names = [f"p{number:03}" for number in range(120)]
    records = await waiting(stores[0], *names)
    now = await stores[0].now()

    async def drain(store: Store) -> list[str]:
        got: list[str] = []
        while True:
            sender = ForesightSender()
            outcomes = await store.claim(sender.claim(records[0], now, limit=7), sender)
            if not outcomes:
                return got
            assert kinds_of(outcomes) == [Committed] * len(outcomes)
            got += sender.names

    shares = await asyncio.gather(*map(drain, stores))
    assert sorted(name for share in shares for name in share) == names
    assert await all_found(stores[0], Query(kind="parcel", states=(PACKED,))) == []
    assert sorted(ids_of(await whole_feed(stores[0]))) == names


async def test_a_foreseen_change_is_checked_like_any_other(store: Store) -> None:
    records = await waiting(store, *TEN)
    sender, now = ForesightSender(), await store.now()
    bad = msgspec.structs.replace(sender.change_of(records[0], now), queue="")
    claim = msgspec.structs.replace(take(len(TEN)), foresight=Foresight(records[0], bad, now))

    def decide(found: Sequence[Record], _: datetime) -> list[Work]:
        return [Batch(change=bad, ids=tuple(record.id for record in found))]

    with pytest.raises(InvalidRecord):
        await store.claim(claim, decide)
    assert (await see(store, "p00")).state == PACKED
