"""Programs of another day: what they have written is found by the tables of today."""

from __future__ import annotations

from datetime import timedelta

from msgspec.structs import replace

from interlock.store.redis import RedisStore
from interlock.testing.servers import RedisServer
from interlock.testing.store_contract import CATALOGUE
from interlock.testing.store_contract.builders import PARKED, creation, made

from .conftest import OpenStore


async def test_a_record_is_pruned_if_its_state_became_an_ended_state_after_it_was_written(
    redis: RedisServer, prefix: str, open_store: OpenStore
) -> None:
    van = CATALOGUE["van"]
    old = RedisStore(redis.url, {"van": replace(van, ended=frozenset())}, prefix=prefix)
    await old.open()
    await made(old, creation("a", PARKED, kind="van"))
    await old.close()
    store = await open_store(redis, prefix)
    assert (await store.prune(kind="van", states=["parked"], older_than=timedelta(days=1))).records == 0
    assert (await store.prune(kind="van", states=["parked"], older_than=timedelta(0))).records == 1
