"""Private servers and files, and what is set on them.

Both contenders use the same server with the same settings, and each has a database of its own. What
is acknowledged is on the disk, everywhere: `fsync`, `synchronous=FULL`, `appendfsync always`.
"""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import Protocol

import asyncpg

from bench.stores.bare.loop import BareLoop
from bench.stores.bare.postgres import BarePostgres
from bench.stores.bare.redis import BareRedis
from bench.stores.bare.sqlite import BareSqlite
from bench.stores.cpu import Used
from bench.stores.errand import CATALOGUE
from interlock.store.catalogue import StoredKind
from interlock.store.contract import Store
from interlock.store.postgres import PostgresStore
from interlock.store.redis import RedisStore
from interlock.store.sqlite import SqliteStore
from interlock.testing.servers import PostgresServer, RedisServer, postgres_server, redis_server

POSTGRES_SETTINGS = {
    # What a server for this work is given; by default the private one keeps so little log that it
    # would copy all its pages every few seconds, in whoever's turn it is.
    "shared_buffers": "512MB",
    "max_wal_size": "8GB",
    "checkpoint_timeout": "1h",
    "autovacuum": "off",  # it is done by hand before each turn: see `settle`
}
WAL_SEGMENT_MB = 16
"""As production has it. Segments of 1 MB, as tests have, charge whoever writes more log for making them."""
REDIS_SETTINGS = {"auto-aof-rewrite-percentage": "0"}  # a rewrite would fall into somebody's turn


class Database(Protocol):
    """One kind of database, with room for several contenders."""

    @property
    def name(self) -> str:
        """What people call it, with its version."""
        ...

    def new_store(self, kinds: Mapping[str, StoredKind] = CATALOGUE) -> Store:
        """Our store in a fresh database; not open yet."""
        ...

    async def new_bare(self) -> BareLoop:
        """The bare loop in a fresh database."""
        ...

    async def settle(self) -> None:
        """Tidy up what the filling has left, so that it falls into nobody's turn."""
        ...

    @property
    def used_s(self) -> Used:
        """Counts the time that this process and the server's spend on a processor."""
        ...


class Postgres:
    """PostgreSQL, on a unix socket."""

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self._urls: list[str] = []
        self.used_s = Used(server.pid)
        [[version]] = server.sql("SELECT split_part(current_setting('server_version'), ' ', 1)")
        self.name = f"PostgreSQL {version}"

    def new_store(self, kinds: Mapping[str, StoredKind] = CATALOGUE) -> Store:
        """See `Database`."""
        return PostgresStore(self._new_url(), kinds, timeout_s=60.0)

    async def new_bare(self) -> BareLoop:
        """See `Database`."""
        return await BarePostgres.made(self._new_url())

    async def settle(self) -> None:
        """Vacuum now, because the server would a little later."""
        for url in self._urls:
            connection: asyncpg.Connection[asyncpg.Record] = await asyncpg.connect(url)
            try:
                await connection.execute("VACUUM (ANALYZE)")
            finally:
                await connection.close()

    def _new_url(self) -> str:
        self._urls.append(self._server.new_database())
        return self._urls[-1]


class Sqlite:
    """Files in one folder."""

    name = f"SQLite {sqlite3.sqlite_version}"

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numbers = count(1)
        self.used_s = Used()

    def new_store(self, kinds: Mapping[str, StoredKind] = CATALOGUE) -> Store:
        """See `Database`."""
        return SqliteStore(f"sqlite:///{self._new_path()}", kinds, timeout_s=60.0)

    async def new_bare(self) -> BareLoop:
        """See `Database`."""
        return BareSqlite(self._new_path())

    async def settle(self) -> None:
        """Each has a log of its own and moves it into its file when it has grown long enough."""

    def _new_path(self) -> Path:
        return self._folder / f"{next(self._numbers)}.db"


class Redis:
    """Redis or Valkey, on a unix socket."""

    def __init__(self, server: RedisServer) -> None:
        self._server = server
        self.used_s = Used(server.pid)
        words = dict(
            line.split(":", 1) for line in str(server.run("INFO", "server")).splitlines() if ":" in line
        )
        valkey = words.get("valkey_version")
        self.name = f"Valkey {valkey}" if valkey else f"Redis {words['redis_version']}"

    def new_store(self, kinds: Mapping[str, StoredKind] = CATALOGUE) -> Store:
        """See `Database`."""
        return RedisStore(self._server.url, kinds, prefix=self._server.new_prefix(), timeout_s=60.0)

    async def new_bare(self) -> BareLoop:
        """See `Database`."""
        return BareRedis(self._server.url)

    async def settle(self) -> None:
        """Nothing is left to do."""


@contextmanager
def databases() -> Iterator[tuple[Database, Database, Database]]:
    """One of each kind, gone at the end."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="interlock-bench-")))
        yield (
            Postgres(
                stack.enter_context(
                    postgres_server(settings=POSTGRES_SETTINGS, wal_segment_mb=WAL_SEGMENT_MB)
                )
            ),
            Sqlite(folder),
            Redis(stack.enter_context(redis_server(append_only="always", settings=REDIS_SETTINGS))),
        )
