"""One server for all tests that do not hurt it; those that do start their own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, ExitStack
from typing import Any, Protocol

import pytest
from redis import Redis
from tests.waiting import PATIENCE_S

from interlock.store.redis import RedisStore
from interlock.testing.servers import RedisServer, redis_server

pytest.register_assert_rewrite("interlock.testing.store_contract")

from interlock.testing.store_contract import CATALOGUE  # noqa: E402


class OpenStore(Protocol):
    """Opens a store that is closed after the test."""

    async def __call__(self, server: RedisServer, prefix: str, **settings: Any) -> RedisStore: ...


class Shell(Protocol):
    """Runs a command as somebody with redis-cli would."""

    def __call__(self, *words: str) -> Any: ...


@pytest.fixture
def shell(redis: RedisServer) -> Iterator[Shell]:
    with Redis.from_url(redis.url, decode_responses=True) as client:
        yield client.execute_command


@pytest.fixture
def prefix(redis: RedisServer) -> str:
    return redis.new_prefix()


@pytest.fixture
async def open_store() -> AsyncIterator[OpenStore]:
    async with AsyncExitStack() as stack:

        async def opened(server: RedisServer, prefix: str, **settings: Any) -> RedisStore:
            store = RedisStore(server.url, CATALOGUE, prefix=prefix, **{"timeout_s": PATIENCE_S, **settings})
            stack.push_async_callback(store.close)
            await store.open()
            return store

        yield opened


@pytest.fixture
async def store(redis: RedisServer, prefix: str, open_store: OpenStore) -> RedisStore:
    return await open_store(redis, prefix)


@pytest.fixture
def own_server() -> Iterator[Callable[..., RedisServer]]:
    """Starts servers that a test may kill, pause or misconfigure."""
    with ExitStack() as stack:
        yield lambda **settings: stack.enter_context(redis_server(**settings))
