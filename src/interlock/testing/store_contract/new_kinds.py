"""Kinds that an open store learns are as those that it was made with."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import StrEnum

import pytest

from interlock.errors import UnknownKind
from interlock.machine import Event, Machine, command, end, on, state
from interlock.store.catalogue import Catalogue, catalogue_of
from interlock.store.contract import Store
from interlock.store.records import Claim, Commit, Committed, Illegal, Query, Record
from interlock.testing.store_contract.builders import (
    CATALOGUE,
    PACKED,
    QUEUE,
    claimed,
    creation,
    each,
    ids_of,
    kinds_of,
    leave,
    look,
    made,
    move,
    see,
    step_note,
    take,
    waiting,
    whole_feed,
)
from interlock.testing.store_contract.suite import StoreOpener, needs


class DoorState(StrEnum):
    """States of a door."""

    SHUT = "shut"
    AJAR = "ajar"
    GONE = "gone"
    BURNT = "burnt"


SHUT, AJAR, GONE = DoorState.SHUT, DoorState.AJAR, DoorState.GONE
push: Event = command("push", "Open it.", by="guest")
remove: Event = command("remove", "Take it away.", by="carpenter")
burn: Event = command("burn", "Set it on fire.", by="fate")

DOORS: Catalogue = catalogue_of(
    [
        Machine[DoorState, None](
            name="door",
            doc="Something to go through.",
            initial=SHUT,
            states=[
                state(SHUT, "Closed.", turn="guest"),
                state(AJAR, "Open.", turn="carpenter"),
                end(GONE, "No longer here."),
                end(DoorState.BURNT, "Ashes."),
            ],
            rows=[
                on(push, SHUT, AJAR, owner="guest", why="A guest comes."),
                on(remove, AJAR, GONE, owner="carpenter", why="It is replaced."),
                on(burn, (SHUT, AJAR), DoorState.BURNT, owner="fate", why="Fire."),
            ],
            stop=[burn],
        )
    ]
)


async def test_a_kind_is_unknown_until_it_is_learned(store: Store) -> None:
    new = creation("front", SHUT, kind="door")
    with pytest.raises(UnknownKind):
        await store.commit(each(new))
    with pytest.raises(UnknownKind):
        await store.find(Query(kind="door"))
    await store.learn(DOORS)
    [record] = await made(store, new)
    assert (record.kind, record.state, record.version) == ("door", SHUT, 1)
    assert (await store.find(Query(kind="door", states=(SHUT,)))).records == (record,)


async def test_the_table_of_a_learned_kind_is_enforced(store: Store) -> None:
    await store.learn(DOORS)
    [record] = await made(store, creation("front", SHUT, kind="door"))
    [gone] = await made(store, move(record, GONE))
    assert await store.commit(each(move(gone, AJAR))) == [Illegal(gone.key, GONE, AJAR)]
    assert await see(store, "front", "door") == gone


def _pushed(records: Sequence[Record], now: datetime) -> list[Commit]:
    return each(*(move(record, AJAR, ready_at=None, deadline_at=now) for record in records))


def _removed(records: Sequence[Record], _: datetime) -> list[Commit]:
    return each(*(move(record, GONE, deadline_at=None) for record in records))


async def test_a_learned_kind_is_claimed_swept_journalled_and_pruned(
    store: Store, opener: StoreOpener
) -> None:
    await store.learn(DOORS)
    now = await store.now()
    note = step_note("push", SHUT, AJAR)
    ready = creation("front", SHUT, kind="door", queue=QUEUE, ready_at=now - timedelta(minutes=1), note=note)
    await made(store, ready)
    claim = Claim(kind="door", queues=(QUEUE,))
    assert kinds_of(await store.claim(claim, _pushed)) == [Committed]
    await opener.elapse(store, 0.001)
    assert kinds_of(await store.due(["door"], 10, _removed)) == [Committed]
    assert ids_of(await whole_feed(store)) == ["front"]
    await opener.elapse(store, 0.001)
    pruned = await store.prune(kind="door", states=[GONE], older_than=timedelta(0), limit=10)
    assert pruned.records == 1
    assert await look(store, "front", "door") is None


async def test_records_of_known_kinds_stay_as_they_were(store: Store) -> None:
    await waiting(store, "a", "b")
    await store.learn(DOORS)
    await store.learn(DOORS)
    await store.learn(CATALOGUE)
    await made(store, creation("front", SHUT, kind="door"))
    assert (await see(store, "a")).state == PACKED
    assert await claimed(store, take(2)) == ["a", "b"]
    assert await store.claim(Claim(kind="door", queues=(QUEUE,)), leave) == []


async def test_records_of_both_kinds_are_one_commit(store: Store) -> None:
    await store.learn(DOORS)
    both = Commit(changes=(creation("a"), creation("front", GONE, kind="door")))
    assert kinds_of(await store.commit([both])) == [Committed]
    door = await see(store, "front", "door")
    assert door.updated_at == (await see(store, "a")).updated_at
    illegal = Commit(changes=(creation("b"), move(door, SHUT)))
    assert kinds_of(await store.commit([illegal])) == [Illegal]
    assert await look(store, "b") is None


@needs("shared")
async def test_a_client_that_has_not_learned_the_kind_goes_on_and_one_that_has_sees_its_records(
    opener: StoreOpener,
) -> None:
    knowing, ignorant, later = [await opener.open() for _ in range(3)]
    await knowing.learn(DOORS)
    await made(
        knowing,
        creation("front", SHUT, kind="door", note=step_note("push", SHUT, AJAR)),
        creation("a", note=step_note("pack", "", PACKED)),
    )
    assert ids_of(await whole_feed(ignorant)) == ["front", "a"]
    await made(ignorant, creation("b"))
    with pytest.raises(UnknownKind):
        await ignorant.find(Query(kind="door"))
    await later.learn(DOORS)
    assert (await see(later, "front", "door")).state == SHUT
