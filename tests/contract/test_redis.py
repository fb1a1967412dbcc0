"""The contract on Redis."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial

import pytest

from interlock.store.redis import RedisStore
from interlock.testing.servers import RedisServer
from interlock.testing.store_contract import CATALOGUE, DatabaseOpener, StoreOpener, Traits, suite_for

globals().update(suite_for(Traits(shared=True, processes=True, persistent=True)))


@pytest.fixture
async def opener(redis: RedisServer) -> AsyncIterator[StoreOpener]:
    def make() -> partial[RedisStore]:
        return partial(RedisStore, redis.url, CATALOGUE, prefix=redis.new_prefix())

    opener = DatabaseOpener(make(), make)
    yield opener
    await opener.close()
    redis.run("FLUSHALL")
