"""A plan that was made while the tables were empty is still the right one when they are full."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from tests.waiting import PATIENCE_S

from interlock.store.postgres import PostgresStore, claims
from interlock.store.postgres.queries import query
from interlock.store.postgres.rows import Conditions
from interlock.store.records import Query
from interlock.testing.store_contract.builders import (
    MANY_HANDLERS,
    PACKING,
    QUEUE,
    claimed,
    creation,
    each,
    made,
    swept,
    take,
    waiting,
)

OpenStore = Callable[..., Awaitable[PostgresStore]]

MINUTE = timedelta(minutes=1)
USE = "SELECT indexrelname, idx_scan, idx_tup_read FROM pg_stat_user_indexes WHERE schemaname = 'interlock'"


async def test_a_plan_made_on_empty_tables_uses_the_right_index_after_the_tables_have_grown(
    url: str, open_store: OpenStore, shell: Any
) -> None:
    """To a planner that sees no rows all indexes look alike, and the plan stays with the connection."""
    store = await open_store(f"{url}&pool=2")
    [record] = await waiting(store, "first", note=PACKING)
    assert await claimed(store, take(5)) == ["first"]
    assert await swept(store) == []
    moment = await store.now() - timedelta(minutes=1)
    for start in range(0, 2_000, 500):
        names = [f"p{number:05}" for number in range(start, start + 500)]
        columns: dict[str, Any] = {"queue": QUEUE, "ready_at": moment, "deadline_at": moment}
        await store.commit(each(*(creation(name, **columns) for name in names)))
    await claimed(store, take(100))
    await swept(store, 100)
    await store.load([record.key])
    await store.close()

    async with asyncio.timeout(PATIENCE_S):
        while not (use := await usage(shell))["live_pkey"][0]:
            await asyncio.sleep(0)
    assert use["live_by_state"] == (0, 0), "Nobody asked for a list."
    assert use["live_by_lane"][1] < 1_000, "A claim reads about as much as it takes."
    assert use["live_by_deadline"][1] < 1_000
    assert use["live_pkey"][1] < 10_000


@pytest.mark.parametrize("handlers", [("van",), (*MANY_HANDLERS, "van"), None], ids=["few", "many", "all"])
async def test_a_claim_does_not_read_records_of_other_handlers(
    url: str, open_store: OpenStore, shell: Any, handlers: tuple[str, ...] | None
) -> None:
    store = await open_store(f"{url}&pool=2")
    moment = await store.now() - timedelta(minutes=1)
    ahead = "van" if handlers is None else "ship"
    for start in range(0, 2_000, 500):
        names = [f"p{number:05}" for number in range(start, start + 500)]
        await store.commit(
            each(*(creation(name, queue=QUEUE, ready_at=moment - MINUTE, handler=ahead) for name in names))
        )
    await waiting(store, "mine", ready_at=moment, handler="van")
    first = ["p00000"] if handlers is None else ["mine"]
    assert await claimed(store, take(1, handlers=handlers)) == first
    store._claiming._other_claimers.met()
    assert len(await claimed(store, take(1, handlers=handlers))) == (handlers is None)
    await store.close()

    async with asyncio.timeout(PATIENCE_S):
        while not (use := await usage(shell))["live_by_lane"][0]:
            await asyncio.sleep(0)
    assert use["live_by_lane"][1] < 100
    assert use["live_by_state"] == (0, 0)


async def usage(shell: Any) -> dict[str, tuple[int, int]]:
    """What was read through each index; statistics arrive when a connection has ended."""
    return {row[0]: (row[1], row[2]) for row in await shell.fetch(USE)}


async def test_lists_by_state_are_read_from_the_index(url: str, open_store: OpenStore, shell: Any) -> None:
    store = await open_store(url)
    # Of 500 records, on a few pages, sorting those that may match is planned.
    await made(store, *(creation(f"p{number:04}") for number in range(2_000)))
    await shell.execute("ANALYZE interlock.live")
    await shell.execute("SET enable_seqscan = off")
    conditions = Conditions(Query(kind="parcel", states=("lost", "sent")), 10)
    sql = conditions.fill(query("find", "interlock"))
    text = "\n".join(row[0] for row in await shell.fetch(f"EXPLAIN {sql}", *conditions.arguments))
    waiting, timed, ended = text.partition("Append")[2].split("->  Limit")[1:]
    assert "Index Scan Backward using live_by_state" in waiting
    assert "Sort" not in waiting
    assert "Index Scan using live_by_deadline" in timed
    assert "Index Scan Backward using ended_by_state" in ended
    assert "Sort" not in ended
    for part in (waiting, timed, ended):
        assert "{lost,sent}" in part.partition("Index Cond")[2].splitlines()[0]


@pytest.mark.parametrize("rare", [{"queue": "rare"}, {"labels": ("p01999",)}], ids=["queue", "label"])
async def test_a_page_of_rare_records_reads_a_bounded_number_of_index_entries(
    url: str, open_store: OpenStore, shell: Any, rare: dict[str, Any]
) -> None:
    store = await open_store(f"{url}&pool=2")
    for start in range(0, 2_000, 500):
        names = [f"p{number:05}" for number in range(start, start + 500)]
        await store.commit(each(*(creation(name, queue=QUEUE, labels=(name,)) for name in names)))
    await shell.execute("ANALYZE interlock.live")
    page = await store.find(Query(kind="parcel", within=50, newest_first=False, **rare))
    assert page.records == ()
    assert page.cursor != ""
    assert (await store.count(Query(kind="parcel", queue="rare"), within=50)).capped
    await store.close()

    async with asyncio.timeout(PATIENCE_S):
        while not (use := await usage(shell))["live_by_state"][0]:
            await asyncio.sleep(0)
    assert use["live_by_state"][1] < 400
    assert use["live_by_labels"][1] < 2_000


async def test_a_claimer_that_has_taken_many_begins_where_its_last_claim_ended(
    url: str, open_store: OpenStore, shell: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claims, "LOOK_AGAIN_S", 3_600.0)
    monkeypatch.setattr(claims, "MANY_TAKEN", 10)
    store = await open_store(f"{url}&pool=2")
    await shell.execute("ALTER TABLE interlock.live SET (autovacuum_enabled = off)")
    moment = await store.now() - MINUTE
    names = [f"p{number:04}" for number in range(400)]
    await store.commit(each(*(creation(name, queue=QUEUE, ready_at=moment) for name in names)))
    assert await claimed(store, take(10)) == names[:10]
    await waiting(store, "first", ready_at=moment - MINUTE)
    for turn in range(1, claims.LOOKS):
        if turn % 5 == 0:
            store._claiming._other_claimers.met()
        assert await claimed(store, take(10)) == names[10 * turn : 10 * turn + 10]
    assert await claimed(store, take(10)) == ["first", *names[200:209]], (
        "It looks from the start now and then."
    )
    assert await claimed(store, take(500)) == names[209:], "And where it finds less than it asked for."
    await waiting(store, "early", ready_at=moment - MINUTE)
    assert await claimed(store, take(10)) == ["early"]


async def test_a_claim_and_a_page_of_ten_do_not_scan_all_ended_records(
    url: str, open_store: OpenStore, shell: Any
) -> None:
    store = await open_store(f"{url}&pool=2")
    for start in range(0, 2_000, 500):
        names = [f"e{number:05}" for number in range(start, start + 500)]
        await store.commit(each(*(creation(name, state="delivered") for name in names)))
    await waiting(store, "mine", note=PACKING)
    await shell.execute("ANALYZE interlock.ended, interlock.live")
    before = await usage(shell)
    assert await claimed(store, take(5)) == ["mine"]
    assert len((await store.find(Query(kind="parcel", states=("delivered",), limit=10))).records) == 10
    await store.close()
    async with asyncio.timeout(PATIENCE_S):
        while not (use := await usage(shell))["ended_by_state"][1] > before["ended_by_state"][1]:
            await asyncio.sleep(0)
    read = {name: use[name][1] - before.get(name, (0, 0))[1] for name in use if name.startswith("ended")}
    assert sum(read.values()) < 100, read


async def test_pruning_by_queue_with_a_within_limit_does_not_read_all_ended_records(
    url: str, open_store: OpenStore, shell: Any
) -> None:
    store = await open_store(f"{url}&pool=2")
    for start in range(0, 2_000, 500):
        names = [f"e{number:05}" for number in range(start, start + 500)]
        await store.commit(each(*(creation(name, "delivered", queue="post") for name in names)))
    prune = partial(
        store.prune_by_queue, kind="parcel", state="delivered", older_than=None, queues={"mail": timedelta(0)}
    )
    first = await prune(within=1_000)
    before = await usage(shell)
    second = await prune(within=100, cursor=first.cursor)
    assert (first.records, second.records) == (0, 0)
    assert second.cursor not in {"", first.cursor}
    await store.close()
    async with asyncio.timeout(PATIENCE_S):
        while not (use := await usage(shell))["ended_by_state"][1] > before["ended_by_state"][1]:
            await asyncio.sleep(0)
    read = {name: use[name][1] - before.get(name, (0, 0))[1] for name in use if name.startswith("ended")}
    assert sum(read.values()) < 1_500, read
