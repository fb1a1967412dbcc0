"""Who is woken, by whom, and how seldom the server has to be bothered with that."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.waiting import PATIENCE_S

from interlock.store.postgres import PostgresStore
from interlock.store.postgres.notifier import NOTIFY_EVERY_S, SMALL
from interlock.store.records import Batch
from interlock.testing.store_contract.builders import (
    PACKING,
    Sender,
    claimed,
    creation,
    ids_of,
    made,
    swept,
    take,
    waiting,
    whole_feed,
)

OpenStore = Callable[..., Awaitable[PostgresStore]]
POOLED = "&listen=off"


async def next_wake(woken: asyncio.Event) -> None:
    async with asyncio.timeout(PATIENCE_S):
        await woken.wait()
    woken.clear()


async def quiet(store: PostgresStore, woken: asyncio.Event) -> None:
    """Wait for the wake with which every subscription begins."""
    await next_wake(woken)
    await store.now()
    woken.clear()


@pytest.mark.parametrize("options", ["", POOLED])
async def test_a_commit_elsewhere_wakes(url: str, open_store: OpenStore, options: str) -> None:
    here, elsewhere = await open_store(url + options), await open_store(url)
    woken = asyncio.Event()
    stop = here.subscribe(woken.set)
    await quiet(here, woken)
    await made(elsewhere, creation("a"))
    await next_wake(woken)
    stop()


async def test_a_commit_here_wakes_at_once(url: str, open_store: OpenStore) -> None:
    store = await open_store(url)
    woken = asyncio.Event()
    store.subscribe(woken.set)
    await made(store, creation("a"))
    assert woken.is_set()


async def test_notifications_of_many_concurrent_commits_are_rate_limited(
    url: str, open_store: OpenStore, shell: Any
) -> None:
    store = await open_store(url)
    payloads: list[str] = []
    await shell.add_listener("interlock_journal", lambda *words: payloads.append(str(words[2])))
    before = time.monotonic()
    await asyncio.gather(*(made(store, creation(f"p{number}")) for number in range(200)))
    async with asyncio.timeout(PATIENCE_S):
        while not payloads:
            await asyncio.sleep(0)
    elapsed_s = time.monotonic() - before
    assert 1 <= len(payloads) <= elapsed_s / NOTIFY_EVERY_S + 2


async def test_a_small_commit_notifies_other_stores_itself_and_a_large_one_defers_the_notification(
    url: str, open_store: OpenStore, shell: Any
) -> None:
    store = await open_store(url)
    wakeup = asyncio.Event()
    await shell.add_listener("interlock_journal", lambda *_: wakeup.set())
    await made(store, creation("a"))
    assert (store._notifier.notified, store._notifier._notifying) == (1, None)
    await next_wake(wakeup)
    many = Batch(change=creation(""), ids=tuple(f"p{number}" for number in range(SMALL + 1)))
    await store.commit([many])
    assert store._notifier._notifying is not None
    await next_wake(wakeup)


async def test_an_unsubscribed_callback_is_not_notified_while_other_subscribers_are(
    url: str, open_store: OpenStore
) -> None:
    store = await open_store(url)
    first: list[int] = []
    woken = asyncio.Event()
    stop = store.subscribe(lambda: first.append(1))
    store.subscribe(woken.set)
    stop()
    stop()
    await made(store, creation("a"))
    await next_wake(woken)
    assert first == []


async def test_a_listener_that_was_cut_off_listens_again(url: str, open_store: OpenStore, shell: Any) -> None:
    here, elsewhere = await open_store(url), await open_store(url)
    woken = asyncio.Event()
    here.subscribe(woken.set)
    await quiet(here, woken)
    ended = await shell.fetchval(
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
        " WHERE query LIKE 'LISTEN%' AND datname = current_database()"
    )
    assert ended == 1
    await next_wake(woken)  # it listens again, and may have missed something
    await made(elsewhere, creation("a"))
    await next_wake(woken)


async def test_a_subscriber_that_raises_does_not_affect_other_subscribers(
    url: str, open_store: OpenStore
) -> None:
    store = await open_store(url)
    complaints: list[Any] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _loop, context: complaints.append(context["exception"]))
    woken = asyncio.Event()

    def stumble() -> None:
        raise ValueError("Not now.")

    store.subscribe(stumble)
    store.subscribe(woken.set)
    await made(store, creation("a"))
    await next_wake(woken)
    assert isinstance(complaints[0], ValueError)


async def test_behind_a_pool_everything_works_without_prepared_statements(
    url: str, open_store: OpenStore, shell: Any
) -> None:
    store = await open_store(url + POOLED)
    await waiting(store, "a", "b", note=PACKING)
    later = await store.now()
    assert await claimed(store, take(1)) == ["a"]
    await made(store, creation("late", deadline_at=later))
    assert await swept(store) == ["late"]
    sender = Sender()
    await store.claim(take(5), sender)
    assert sender.names == ["b"]
    assert ids_of(await whole_feed(store)) == ["a", "b", "a", "late", "b"]
    prepared = "SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%'"
    assert await shell.fetchval(prepared) == 0
