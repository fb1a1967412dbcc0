"""Fail-overs: epochs grow, and cursors stay good."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from interlock.errors import StoreUnavailable
from interlock.store.records import Commit, Committed, Conflict
from interlock.store.redis import RedisStore
from interlock.testing.servers import RedisServer
from interlock.testing.store_contract.builders import (
    DELIVERED,
    PACKING,
    SENDING,
    SENT,
    creation,
    each,
    made,
    move,
    see,
)

from .conftest import OpenStore

StartServer = Callable[..., RedisServer]


def noted(name: str) -> Commit:
    return Commit(changes=(creation(name, note=PACKING),))


async def test_the_epoch_stays_while_the_server_does(
    redis: RedisServer, prefix: str, store: RedisStore, open_store: OpenStore
) -> None:
    epoch = await store.raise_epoch(above=9_000_000_000_000)  # far from what the time makes it grow to
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


async def test_a_server_that_forgot_everything_is_set_up_again_by_the_next_client(
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


async def test_a_change_decided_on_a_write_that_a_failover_lost_is_refused_with_a_conflict(
    own_server: StartServer, open_store: OpenStore, tmp_path: Path
) -> None:
    """Who goes on counts to the same version again; who decided before must not be taken for later."""
    server = own_server(append_only="always")
    store = await open_store(server, "a")
    [first] = await made(store, creation("p", body=b'"first"'))
    before, files = await store.epoch(), server.folder / "appendonlydir"
    server.stop()
    subprocess.run(["cp", "-a", str(files), str(tmp_path / "heard")], check=True)
    server.start()
    [lost] = await made(store, move(first, SENT, body=b'"lost"', note=SENDING))
    server.kill()
    shutil.rmtree(files)
    subprocess.run(["cp", "-a", str(tmp_path / "heard"), str(files)], check=True)
    server.start()
    assert await store.epoch() > before
    assert await see(store, "p") == first, "The write is lost."
    [other] = await made(store, move(first, SENT, body=b'"somebody else"', note=SENDING))
    assert (other.version, other.state) == (lost.version, lost.state)
    late = move(lost, DELIVERED, note=SENDING)
    assert await store.commit(each(late)) == [Conflict(other.key, 2, 2)]
    assert await see(store, "p") == other
    assert (await made(store, move(other, DELIVERED)))[0].state == "delivered"


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
