"""A private database of each kind, for as long as a harness runs."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from interlock.store.contract import Store
from interlock.store.urls import store_for
from interlock.testing.binaries import environment, postgres_programs
from interlock.testing.servers import PostgresServer, RedisServer, postgres_server, redis_server
from interlock_verification.chaos.counters import CATALOGUE, retry_until_available

SQLITE, POSTGRES, REDIS = "sqlite", "postgres", "redis"
ALL_STORES = (SQLITE, POSTGRES, REDIS)


@contextmanager
def database(store: str) -> Iterator[str]:
    """Yield the URL of an empty, durable database."""
    if store == SQLITE:
        with tempfile.TemporaryDirectory(prefix="interlock-chaos-") as folder:
            yield f"sqlite:///{Path(folder) / 'chaos.db'}"
    else:
        with server_for(store) as server:
            yield server.url


@contextmanager
def server_for(store: str, *, forgetful: bool = False) -> Iterator[PostgresServer | RedisServer]:
    """Yield a durable server.

    A forgetful one is configured to lose the latest writes in a crash.
    """
    if store == POSTGRES:
        with postgres_server(
            settings={"synchronous_commit": "off" if forgetful else "on"} | _quick()
        ) as postgres:
            yield postgres
    elif store == REDIS:
        with redis_server(append_only="off" if forgetful else "always") as redis:
            yield redis
    else:
        raise ValueError(f"There is no server of {store}.")


def _quick() -> dict[str, str]:
    """Return settings that speed up recovery.

    PostgreSQL 14 and newer need not flush every file.
    """
    programs = postgres_programs()
    output = subprocess.run(
        [programs.path("postgres"), "--version"],
        env=environment(programs.environment),
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    [version] = re.findall(r" (\d+)", output)[:1]
    return {"recovery_init_sync_method": "syncfs"} if int(version) >= 14 else {}


@asynccontextmanager
async def opened(url: str, *, timeout_s: float = 60.0) -> AsyncIterator[Store]:
    """Yield a store on a database, closed at the end.

    `timeout_s` may be too short for a busy machine.
    """
    store = await retry_until_available(lambda: _open(url, timeout_s))
    try:
        yield store
    finally:
        await store.close()


async def _open(url: str, timeout_s: float) -> Store:
    """Open a store; close it after a failure."""
    store = store_for(url, CATALOGUE, timeout_s=timeout_s)
    try:
        await store.open()
    except BaseException:
        await store.close()
        raise
    return store
