"""A crew on an empty store, of whichever kind a test asks for; SQLite where it does not matter."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.clocks import movable
from tests.journeys.crew import Crew, Place

from interlock.testing.servers import PostgresServer, RedisServer, postgres_server, redis_server

Server = PostgresServer | RedisServer
_NUMBERS = itertools.count(1)
"""Of databases of the one Redis of this process, each used by one test."""


@pytest.fixture
def own_server() -> Iterator[Callable[[str], Server]]:
    """Starts servers that a test may kill."""
    with ExitStack() as stack:

        def start(kind: str) -> Server:
            if kind == "postgres":
                return stack.enter_context(postgres_server(around=movable))
            return stack.enter_context(redis_server(append_only="always", around=movable))

        yield start


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """An empty store; the mark `stores` asks for one of each kind."""
    match getattr(request, "param", "sqlite"):
        case "postgres":
            postgres: PostgresServer = request.getfixturevalue("postgres")
            return Place(postgres.new_database(), postgres)
        case "redis":
            redis: RedisServer = request.getfixturevalue("redis")
            return Place(f"unix://{redis.folder / 'redis.sock'}?db={next(_NUMBERS)}", redis)
        case _:
            return Place(f"sqlite:///{tmp_path}/jobs.db")


@pytest.fixture
async def crew(tmp_path: Path, place: Place) -> AsyncIterator[Crew]:
    made = Crew(tmp_path, place)
    await made.open()
    yield made
    print(made.story())  # shown only where a test has failed
    await made.close()
