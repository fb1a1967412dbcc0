"""Where the jobs of one turn are: an empty database on a private server, or an empty file.

All contenders use the same servers with the same settings, over loopback, one at a time: PostgreSQL with
`fsync` and `synchronous_commit` on, Redis with `appendfsync everysec`. What SQLite flushes is each
contender's own setting, and on for all.
"""

from __future__ import annotations

import sqlite3
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import msgspec

from bench.stores.databases import POSTGRES_SETTINGS, REDIS_SETTINGS, WAL_SEGMENT_MB
from interlock.testing.servers import PostgresServer, RedisServer, postgres_server, redis_server


class Place(Protocol):
    """An empty database for one turn."""

    @property
    def url(self) -> str:
        """How a contender finds it."""
        ...

    def settle(self) -> None:
        """Tidy up what submitting has left, so that it falls into nobody's time."""
        ...

    def size_bytes(self) -> int:
        """What is kept there now."""
        ...


class Ground(Protocol):
    """One kind of database, on which there is one place after the other."""

    @property
    def name(self) -> str:
        """What people call it, with its version."""
        ...

    @property
    def pid(self) -> int | None:
        """The server's process, where there is one."""
        ...

    def place(self, folder: Path) -> Place:
        """A fresh place. Whoever had the last one is gone."""
        ...


class PostgresGround:
    """A database each."""

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self._last: str | None = None
        self.pid: int | None = server.pid
        [[version]] = server.sql("SELECT split_part(current_setting('server_version'), ' ', 1)")
        self.name = f"PostgreSQL {version}"

    def place(self, _: Path) -> Place:
        """See `Ground`."""
        if self._last is not None:
            self._server.drop_database(self._last)
        self._last = self._server.new_database_name()
        return PostgresPlace(self._server, self._last)


class PostgresPlace:
    """A database."""

    def __init__(self, server: PostgresServer, name: str) -> None:
        self._server, self._name = server, name
        self.url = server.url_of(name)

    def settle(self) -> None:
        """Vacuum now, because the server would a little later."""
        self._server.sql("VACUUM (ANALYZE)", database=self._name)

    def size_bytes(self) -> int:
        """Tables and indexes, without the log."""
        [[size]] = self._server.sql("SELECT pg_database_size(current_database())", database=self._name)
        return int(size or 0)


class SqliteGround:
    """A file each, in the folder of the turn."""

    name = f"SQLite {sqlite3.sqlite_version}"
    pid: int | None = None

    def place(self, folder: Path) -> Place:
        """See `Ground`."""
        return SqlitePlace(folder / "jobs.db")


class SqlitePlace:
    """A file, with its log."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.url = f"sqlite:///{path}"

    def settle(self) -> None:
        """Each has a log of its own and moves it into its file when it has grown long enough."""

    def size_bytes(self) -> int:
        """Both together."""
        return sum(path.stat().st_size for path in self._path.parent.glob(f"{self._path.name}*"))


class RedisGround:
    """The whole server, emptied for each."""

    def __init__(self, server: RedisServer) -> None:
        self._server = server
        self.pid: int | None = server.pid
        words = _facts(server, "server")
        valkey = words.get("valkey_version")
        self.name = f"Valkey {valkey}" if valkey else f"Redis {words['redis_version']}"

    def place(self, _: Path) -> Place:
        """Its log is written anew as well, for else it would hold every turn's jobs."""
        self._server.run("FLUSHALL")
        self._server.run("BGREWRITEAOF")
        while "1" in (_facts(self._server, "persistence")[f"aof_rewrite_{word}"] for word in _REWRITING):
            time.sleep(0.05)
        return RedisPlace(self._server)


class RedisPlace:
    """A server."""

    def __init__(self, server: RedisServer) -> None:
        self._server = server
        self.url = server.url

    def settle(self) -> None:
        """Nothing is left to do."""

    def size_bytes(self) -> int:
        """All its memory."""
        return int(_facts(self._server, "memory")["used_memory"])


_REWRITING = ("in_progress", "scheduled")


def _facts(server: RedisServer, about: str) -> dict[str, str]:
    lines = (line.partition(":") for line in str(server.run("INFO", about)).splitlines() if ":" in line)
    return {name: value.strip() for name, _, value in lines}


@contextmanager
def ground_of(store: str) -> Iterator[Ground]:
    """A database of this kind, gone at the end."""
    match store:
        case "PostgreSQL":
            with postgres_server(
                tcp=True, settings=POSTGRES_SETTINGS, wal_segment_mb=WAL_SEGMENT_MB
            ) as server:
                yield PostgresGround(server)
        case "SQLite":
            yield SqliteGround()
        case "Redis":
            with redis_server(append_only="everysec", tcp=True, settings=REDIS_SETTINGS) as redis:
                yield RedisGround(redis)


@contextmanager
def turn_folder() -> Iterator[Path]:
    """For the files, sockets and logs of one turn."""
    with tempfile.TemporaryDirectory(prefix="interlock-jobs-") as folder:
        yield Path(folder)


class Sized(msgspec.Struct, frozen=True):
    """What a place held before and after so many jobs were submitted."""

    before: int
    after: int
    jobs: int

    @property
    def mb_per_100k(self) -> float:
        """For as many as are queued when people worry."""
        return (self.after - self.before) / self.jobs * 100_000 / 1e6
