"""A crew on an empty store, of whichever kind a test asks for; SQLite where it does not matter."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.journeys.crew import Crew

from interlock.testing.servers import PostgresServer, RedisServer, postgres_server, redis_server

Server = PostgresServer | RedisServer


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    with postgres_server(durable=False, settings={"autovacuum": "off"}) as server:
        yield server


@pytest.fixture(scope="session")
def redis() -> Iterator[RedisServer]:
    with redis_server(append_only="always", settings={"databases": "64"}) as server:
        yield server


@pytest.fixture
def own_server() -> Iterator[Callable[[str], Server]]:
    """Starts servers that a test may kill."""
    with ExitStack() as stack:

        def start(kind: str) -> Server:
            if kind == "postgres":
                return stack.enter_context(postgres_server())
            return stack.enter_context(redis_server(append_only="always"))

        yield start


@pytest.fixture
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database; `every_store` asks for one of each kind."""
    match getattr(request, "param", "sqlite"):
        case "postgres":
            postgres: PostgresServer = request.getfixturevalue("postgres")
            return postgres.new_database()
        case "redis":
            redis: RedisServer = request.getfixturevalue("redis")
            return f"unix://{redis.folder / 'redis.sock'}?db={next(redis.names)}"
        case _:
            return f"sqlite:///{tmp_path}/jobs.db"


@pytest.fixture
async def crew(tmp_path: Path, store_url: str) -> AsyncIterator[Crew]:
    made = Crew(tmp_path, store_url)
    await made.open()
    yield made
    print(made.story())  # shown only where a test has failed
    await made.close()
