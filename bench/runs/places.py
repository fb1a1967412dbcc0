"""Empty stores of each kind, one for every turn."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import TypeAlias

from bench.rounds import Pace
from interlock.testing.servers import postgres_server, redis_server

KINDS = ("memory", "sqlite", "postgresql", "redis")

Fresh: TypeAlias = Callable[[str], AbstractContextManager[str]]
"""From a kind to the address of an empty store, which is gone afterwards where that matters."""


def kinds_of(pace: Pace) -> tuple[str, ...]:
    """Those that were asked for with `--store`; otherwise all."""
    return tuple(kind for kind in KINDS if kind in pace.stores or not pace.stores)


@contextmanager
def places(kinds: Sequence[str]) -> Iterator[Fresh]:
    """Servers for as long as this lasts: durable, as somebody would run them."""
    with ExitStack() as stack:
        postgres = stack.enter_context(postgres_server()) if "postgresql" in kinds else None
        redis = stack.enter_context(redis_server(append_only="always")) if "redis" in kinds else None

        @contextmanager
        def fresh(kind: str) -> Iterator[str]:
            if kind == "memory":
                yield "memory:"
            elif kind == "sqlite":
                with tempfile.TemporaryDirectory() as folder:
                    yield f"sqlite:///{Path(folder) / 'runs.db'}"
            elif kind == "postgresql" and postgres is not None:
                name = postgres.new_database_name()
                yield postgres.url_of(name)
                postgres.drop_database(name)
            else:
                assert redis is not None
                yield redis.url
                redis.run("FLUSHALL")

        yield fresh
