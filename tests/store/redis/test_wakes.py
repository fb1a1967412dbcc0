"""Being woken, also across a restart of the server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tests.waiting import PATIENCE_S, until

from interlock.store.records import Commit
from interlock.store.redis import RedisStore
from interlock.testing.servers import RedisServer
from interlock.testing.store_contract import CATALOGUE
from interlock.testing.store_contract.builders import creation

from .conftest import OpenStore

StartServer = Callable[..., RedisServer]


async def woken(bell: asyncio.Event) -> None:
    async with asyncio.timeout(PATIENCE_S):
        await bell.wait()
    bell.clear()


async def test_a_new_subscriber_is_woken_in_case_it_has_missed_a_commit(
    store: RedisStore,
) -> None:
    bell = asyncio.Event()
    store.subscribe(bell.set)
    await woken(bell)


async def test_a_commit_of_another_store_wakes(
    redis: RedisServer, prefix: str, store: RedisStore, open_store: OpenStore
) -> None:
    bell = asyncio.Event()
    store.subscribe(bell.set)
    await woken(bell)
    other = await open_store(redis, prefix)
    await other.commit([Commit(changes=(creation("a"),))])
    await woken(bell)


async def test_a_lost_connection_wakes_when_it_stands_again(
    own_server: StartServer, open_store: OpenStore
) -> None:
    server = own_server()
    store = await open_store(server, "a")
    bell = asyncio.Event()
    stop = store.subscribe(bell.set)
    await woken(bell)
    server.kill()
    server.start()
    await woken(bell)
    await store.commit([Commit(changes=(creation("a"),))])
    await woken(bell)
    stop()


async def test_a_silent_connection_is_noticed_and_made_anew(
    own_server: StartServer, open_store: OpenStore
) -> None:
    server = own_server()
    store = await open_store(server, "a")
    store._wakes._patience_s = 0.2  # of the listener alone; when that is too short, it listens anew
    bell = asyncio.Event()
    store.subscribe(bell.set)
    await woken(bell)
    server.pause()
    await until(lambda: not store._wakes.standing, "the silence is noticed")
    bell.clear()
    server.resume()
    await woken(bell)


async def test_a_subscription_before_opening_counts_from_then_on(redis: RedisServer, prefix: str) -> None:
    store = RedisStore(redis.url, CATALOGUE, prefix=prefix)
    bell = asyncio.Event()
    store.subscribe(bell.set)
    await store.open()
    await woken(bell)
    await store.close()
