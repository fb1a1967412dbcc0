"""What a claim costs does not depend on what it does not take. Counted in steps of SQLite's machine."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from interlock.store.records import Query
from interlock.store.sqlite import SqliteStore
from interlock.testing.store_contract.builders import QUEUE, creation, leave, made, take

NO_AGE = timedelta(0)


class Steps:
    """Counts while it is in force."""

    def __init__(self) -> None:
        self.number = 0

    def count(self) -> int:
        self.number += 1
        return 0


async def steps_of_a_claim(store: SqliteStore) -> int:
    """Count them three times: with newer versions of SQLite the first claim after a write takes more."""
    return min([await _steps_of_a_claim(store) for _ in range(3)])


async def _steps_of_a_claim(store: SqliteStore) -> int:
    steps = Steps()
    await store._writer.do(lambda ledger: ledger.connection.set_progress_handler(steps.count, 1))
    await store.claim(take(10, labels=("red",), handlers=("van", "bike")), leave)
    await store._writer.do(lambda ledger: ledger.connection.set_progress_handler(None, 1))
    return steps.number


async def steps_of_a_page(store: SqliteStore, query: Query) -> int:
    """Count them three times: meanwhile the store may look for news on the same connection."""
    return min([await _steps_of_a_page(store, query) for _ in range(3)])


async def _steps_of_a_page(store: SqliteStore, query: Query) -> int:
    steps = Steps()
    await store._reader.do(lambda connection: connection.set_progress_handler(steps.count, 1))
    await store.find(query)
    await store._reader.do(lambda connection: connection.set_progress_handler(None, 1))
    return steps.number


async def fill(store: SqliteStore, name: str, number: int, **columns: Any) -> None:
    await made(store, *(creation(f"{name}{n}", **{"queue": QUEUE, **columns}) for n in range(number)))


async def test_a_claim_costs_the_same_however_long_the_queue(store: SqliteStore) -> None:
    now = await store.now()
    past, future = now - timedelta(minutes=1), now + timedelta(hours=1)
    await fill(store, "a", 20, ready_at=past)
    few = await steps_of_a_claim(store)
    await fill(store, "b", 900, ready_at=past)
    await fill(store, "c", 900, ready_at=future)
    await fill(store, "d", 900, ready_at=past, queue="other")
    await fill(store, "e", 900)
    assert await steps_of_a_claim(store) == few


async def test_a_lane_that_is_not_for_the_claimer_costs_one_look(store: SqliteStore) -> None:
    past = await store.now() - timedelta(minutes=1)
    await fill(store, "a", 20, ready_at=past)
    await fill(store, "b", 20, ready_at=past, labels=("blue",))
    few = await steps_of_a_claim(store)
    await fill(store, "c", 900, ready_at=past, labels=("blue",))
    assert await steps_of_a_claim(store) == few


async def test_the_cost_of_a_claim_does_not_grow_with_records_for_other_handlers(store: SqliteStore) -> None:
    now = await store.now()
    await fill(store, "a", 20, ready_at=now - timedelta(minutes=1), handler="van")
    await fill(store, "b", 20, ready_at=now - timedelta(minutes=2), handler="ship")
    few = await steps_of_a_claim(store)
    for part in "cde":
        await fill(store, part, 900, ready_at=now - timedelta(minutes=3), handler="ship")
    assert await steps_of_a_claim(store) == few


async def test_the_cost_of_a_page_does_not_depend_on_its_position(store: SqliteStore) -> None:
    await fill(store, "a", 900)
    await fill(store, "b", 300, state="sent")

    near, far = [(await store.find(Query(kind="parcel", limit=place))).cursor for place in (310, 1_000)]
    here, there = [
        await steps_of_a_page(store, Query(kind="parcel", limit=20, cursor=cursor)) for cursor in (near, far)
    ]
    assert here == there


@pytest.mark.parametrize("rare", [{"queue": "rare"}, {"labels": ("rare",)}], ids=["queue", "label"])
async def test_the_cost_of_a_page_of_rare_records_is_bounded_by_the_within_limit(
    store: SqliteStore, rare: dict[str, Any]
) -> None:
    query = Query(kind="parcel", within=100, **rare)
    await fill(store, "a", 200)
    few = await steps_of_a_page(store, query)
    await fill(store, "b", 900)
    await fill(store, "c", 900, state="sent")
    assert await steps_of_a_page(store, query) <= 2 * few
    assert (await store.find(query)).cursor != ""


async def test_the_cost_of_a_claim_or_a_page_does_not_grow_with_ended_records(store: SqliteStore) -> None:
    past = await store.now() - timedelta(minutes=1)
    await fill(store, "a", 20, ready_at=past)
    pages = [Query(kind="parcel", states=states, limit=20) for states in (("packed",), ("delivered",), ())]
    await fill(store, "b", 100, state="delivered")
    few = [await steps_of_a_claim(store), *[await steps_of_a_page(store, query) for query in pages]]
    await fill(store, "c", 2_000, state="delivered")
    assert [await steps_of_a_claim(store), *[await steps_of_a_page(store, query) for query in pages]] == few


async def test_the_cost_of_pruning_by_queue_does_not_grow_with_the_position_of_its_cursor(
    store: SqliteStore,
) -> None:
    async def steps_of_a_walk(cursor: str) -> tuple[int, str]:
        steps = Steps()
        await store._writer.do(lambda ledger: ledger.connection.set_progress_handler(steps.count, 1))
        pruned = await store.prune_by_queue(
            kind="parcel", state="lost", older_than=None, queues={"rare": NO_AGE}, cursor=cursor, within=50
        )
        await store._writer.do(lambda ledger: ledger.connection.set_progress_handler(None, 1))
        assert pruned.records == 0
        return steps.number, pruned.cursor

    await fill(store, "a", 900, state="lost")
    first, cursor = await steps_of_a_walk("")
    for _ in range(10):
        later, cursor = await steps_of_a_walk(cursor)
    assert later < first * 1.2
    await fill(store, "b", 900, state="lost")
    longer, _ = await steps_of_a_walk(cursor)
    assert longer < first * 1.5, "but for finding the newest that is old enough"
