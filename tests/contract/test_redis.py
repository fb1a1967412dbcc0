"""The contract on Redis."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial

import pytest
from tests.clocks import move_server
from tests.waiting import PATIENCE_S

from interlock.store.contract import Store
from interlock.store.redis import RedisStore
from interlock.testing.servers import RedisServer
from interlock.testing.store_contract import CATALOGUE, DatabaseOpener, StoreOpener, Traits, suite_for

globals().update(suite_for(Traits(shared=True, processes=True, persistent=True)))


class RedisOpener(DatabaseOpener):
    """One prefix of the server per test."""

    server: RedisServer

    async def elapse(self, store: Store, seconds: float) -> None:
        """Move the clock of the server, which counts in whole seconds."""
        if seconds < 1:
            await super().elapse(store, seconds)
        else:
            move_server(self.server, seconds)


@pytest.fixture
async def opener(redis: RedisServer) -> AsyncIterator[StoreOpener]:
    # A machine that stands still makes no call fail, and no claimer loses what it holds.
    settings = {"timeout_s": PATIENCE_S, "hold_s": PATIENCE_S}

    def make() -> partial[RedisStore]:
        return partial(RedisStore, redis.url, CATALOGUE, prefix=redis.new_prefix(), **settings)

    opener = RedisOpener(make(), make)
    opener.server = redis
    yield opener
    await opener.close()
    redis.run("FLUSHALL")
