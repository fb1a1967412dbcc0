"""Numbers from a sequence and transactions come in different orders; the feed has one, for good."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from tests.waiting import PATIENCE_S

from interlock.store.postgres import PostgresStore
from interlock.testing.store_contract.builders import PACKING, creation, ids_of, made, whole_feed

OpenStore = Callable[..., Awaitable[PostgresStore]]

JOT = """
    INSERT INTO interlock.journal_single (xact, at, kind, id, version, note)
    VALUES (pg_current_xact_id()::text::bigint, now(), 'parcel', 'slow', 1, '{}')
"""


async def test_the_feed_holds_back_entries_that_follow_an_open_transaction(
    url: str, open_store: OpenStore, shell: Any
) -> None:
    store = await open_store(url)
    await made(store, creation("first", note=PACKING))
    slow = shell.transaction()
    await slow.start()
    await shell.execute(JOT)
    await made(store, creation("second", note=PACKING))
    seen = await store.feed()
    assert ids_of(seen) == ["first"], "What is behind the open transaction has no place yet."
    await slow.commit()
    assert ids_of(await store.feed(seen.cursor)) == ["slow", "second"]
    assert ids_of(await whole_feed(store)) == ["first", "slow", "second"]


async def test_the_latest_cursor_skips_committed_entries_and_includes_those_of_open_transactions(
    url: str, open_store: OpenStore, shell: Any
) -> None:
    store = await open_store(url)
    slow = shell.transaction()
    await slow.start()
    await shell.execute(JOT)
    await made(store, creation("before", note=PACKING))
    latest = await store.latest()
    await made(store, creation("after", note=PACKING))
    assert ids_of(await store.feed(latest)) == []
    await slow.commit()
    assert ids_of(await store.feed(latest)) == ["slow", "after"], "`before` was there already."
    assert ids_of(await whole_feed(store, latest, limit=1)) == ["slow", "after"]
    end = (await store.feed(latest)).cursor
    await made(store, creation("later", note=PACKING))
    assert ids_of(await store.feed(end)) == ["later"]


async def test_a_subscriber_is_notified_when_an_unrelated_transaction_no_longer_delays_the_feed(
    url: str, open_store: OpenStore, shell: Any
) -> None:
    store = await open_store(url)
    slow = shell.transaction()
    await slow.start()
    await shell.execute("CREATE TABLE public.strange ()")
    woken = asyncio.Event()
    store.subscribe(woken.set)
    await made(store, creation("a", note=PACKING))
    assert ids_of(await store.feed()) == []
    await slow.commit()
    async with asyncio.timeout(PATIENCE_S):
        while not ids_of(await store.feed()):
            woken.clear()
            await woken.wait()


async def test_a_dump_restored_on_another_server_appends_to_its_journal_in_a_higher_epoch(
    url: str, open_store: OpenStore, shell: Any
) -> None:
    store = await open_store(url)
    await made(store, creation("old", note=PACKING))
    epoch = await store.epoch()
    # As if it came from a server that has seen many more transactions than this one.
    await shell.execute(
        "SET interlock.vouched = 'on'; UPDATE interlock.journal_packed SET xact = xact + 1000000000"
    )
    await shell.execute("UPDATE interlock.meta SET server = 'another/1'")
    restored = await open_store(url)
    await made(restored, creation("new", note=PACKING))
    assert ids_of(await whole_feed(restored)) == ["old", "new"]
    assert await restored.epoch() > epoch


async def test_the_epoch_grows_with_another_server_and_no_less_than_its_timeline(
    url: str, open_store: OpenStore, shell: Any
) -> None:
    store = await open_store(url)
    first = await store.raise_epoch(above=10_000_000)  # which is far from what the time makes it grow to
    assert (first, await store.epoch()) == (10_000_001, first)
    await shell.execute("UPDATE interlock.meta SET server = 'what it was before the fail-over'")
    assert await store.epoch() == first + 1
    assert await store.epoch() == first + 1
