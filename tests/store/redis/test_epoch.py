"""Fail-overs: epochs grow, and cursors stay good."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from interlock.errors import StoreUnavailable
from interlock.store.records import Commit, Committed
from interlock.store.redis import RedisStore
from interlock.testing.servers import RedisServer
from interlock.testing.store_contract.making import PACKING, creation

from .conftest import OpenStore

StartServer = Callable[..., RedisServer]


def noted(name: str) -> Commit:
    return Commit(changes=(creation(name, note=PACKING),))


async def test_the_epoch_stays_while_the_server_does(
    redis: RedisServer, prefix: str, store: RedisStore, open_store: OpenStore
) -> None:
    epoch = await store.epoch()
    await store.commit([noted("a")])
    assert await store.epoch() == epoch
    assert await (await open_store(redis, prefix)).epoch() == epoch


async def test_the_epoch_grows_when_the_server_is_another_one(
    redis: RedisServer, prefix: str, store: RedisStore
) -> None:
    epoch = await store.epoch()
    redis.run("SET", f"{{{prefix}}}:identity", "somebody else")
    assert await store.epoch() > epoch


async def test_the_epoch_grows_even_if_the_stored_one_was_lost(
    redis: RedisServer, prefix: str, store: RedisStore
) -> None:
    epoch = await store.epoch()
    redis.run("DEL", f"{{{prefix}}}:epoch", f"{{{prefix}}}:identity")
    assert await store.epoch() > epoch


async def test_the_epoch_grows_even_if_the_clock_went_back(
    redis: RedisServer, prefix: str, store: RedisStore
) -> None:
    redis.run("SET", f"{{{prefix}}}:epoch", "9000000000000")
    redis.run("SET", f"{{{prefix}}}:identity", "somebody else")
    assert await store.epoch() == 9_000_000_000_001


async def test_a_restart_makes_the_epoch_grow(own_server: StartServer, open_store: OpenStore) -> None:
    server = own_server(append_only="always")
    store = await open_store(server, "a")
    epoch = await store.epoch()
    server.kill()
    server.start()
    assert await store.epoch() > epoch


async def test_a_server_that_forgot_everything_is_set_up_again_by_whoever_connects(
    own_server: StartServer, open_store: OpenStore
) -> None:
    server = own_server(append_only="off")
    store = await open_store(server, "a")
    await store.commit([noted("a"), noted("b"), noted("c")])
    cursor = await store.latest()
    server.kill()
    server.start()
    assert [type(outcome) for outcome in await store.commit([noted("a")])] == [Committed]
    feed = await store.feed(cursor)
    assert [entry.id for entry in feed.entries] == ["a"], "Numbers begin anew, the cursor is still good."


async def test_a_primary_that_becomes_a_replica_is_left_and_found_again(
    own_server: StartServer, open_store: OpenStore
) -> None:
    server, other = own_server(append_only="always"), own_server(tcp=True)
    store = await open_store(server, "a")
    await store.commit([noted("a")])
    server.run("REPLICAOF", "127.0.0.1", str(other.port))
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match="replica") as caught:
            await store.commit([noted("b")])
        assert caught.value.facts["outcome"] == "not done"
    server.run("REPLICAOF", "NO", "ONE")
    [outcome] = await store.commit([noted("b")])
    assert isinstance(outcome, Committed)
