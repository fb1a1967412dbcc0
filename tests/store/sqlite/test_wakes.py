"""Being woken."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.waiting import PATIENCE_S, until

from interlock.store.sqlite import SqliteStore
from interlock.testing.store_contract import CATALOGUE
from interlock.testing.store_contract.builders import creation, made


async def test_a_subscriber_that_raises_does_not_prevent_notification_of_other_subscribers(
    store: SqliteStore,
) -> None:
    loop, woken = asyncio.get_running_loop(), asyncio.Event()

    def fall_over() -> None:
        raise RuntimeError("asleep for good")

    def wake_up() -> None:
        loop.call_soon_threadsafe(woken.set)

    store.subscribe(fall_over)
    store.subscribe(wake_up)
    await made(store, creation("a"))
    await asyncio.wait_for(woken.wait(), PATIENCE_S)


async def test_every_commit_of_another_connection_wakes(store: SqliteStore, path: Path) -> None:
    loop, woken = asyncio.get_running_loop(), asyncio.Event()

    def wake_up() -> None:
        loop.call_soon_threadsafe(woken.set)

    stop = store.subscribe(wake_up)
    other = SqliteStore(str(path), CATALOGUE)
    await other.open()
    for n in range(3):
        await asyncio.wait_for(woken.wait(), PATIENCE_S)
        woken.clear()
        await made(other, creation(f"p{n}"))
    await asyncio.wait_for(woken.wait(), PATIENCE_S)
    stop()
    await other.close()


async def test_a_commit_of_its_own_notifies_a_subscriber_once(store: SqliteStore) -> None:
    wakes: list[str] = []
    store.subscribe(lambda: wakes.append("woken"))
    await until(lambda: bool(wakes), "the subscription notified")
    for n in range(3):
        await store.now()  # the reader has ended its look
        wakes.clear()
        await made(store, creation(f"p{n}"))
        reader, told_us = store._reader, store._subscribers.told_us
        await until(lambda: bool(wakes) and reader._latest_us == told_us, "both have ended")  # noqa: B023
        await store.now()
        assert wakes == ["woken"]
