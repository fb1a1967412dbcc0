"""A server and its database, as somebody runs them: processes of their own on this machine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from interlock.client import Interlock
from interlock.testing.servers import postgres_server, redis_server

NAME = "interlock"
_PROGRAM = """
import asyncio, sys
from interlock.server.sockets import collect_seldom
from interlock.server.sockets import serve
from interlock.server.logs import Log
from interlock.server.settings import ServerSettings
settings = ServerSettings(port=0, max_concurrent=5_000, max_waiting=5_000, streams_each=5_000)
def started(listener, parts):
    collect_seldom()
    print(listener.url, flush=True)
asyncio.run(serve(sys.argv[1], settings, log=Log("warning", "json"), started=started))
"""


class House:
    """Where the server is, and how much it holds."""

    def __init__(self, store: str, url: str, pid: int, store_pid: int | None = None) -> None:
        self.store = store
        self.url = url
        self._pid = pid
        self.store_pid = store_pid
        """The server of the database; none where it is a file."""

    @property
    def address(self) -> tuple[str, int]:
        """For those who speak HTTP by hand."""
        host, _, port = self.url.removeprefix("http://").rpartition(":")
        return host, int(port)

    def memory_mb(self) -> float:
        """What the server process holds."""
        pages = int(Path(f"/proc/{self._pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGESIZE") / 1e6

    def cpu_s(self) -> float:
        """What it has spent on a processor."""
        fields = Path(f"/proc/{self._pid}/stat").read_text().rpartition(") ")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def house(kind: str = "postgresql") -> Iterator[House]:
    """One server on an empty database."""
    with _database(kind) as (store, store_pid), TemporaryDirectory() as folder:
        process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, store], cwd=folder, stdout=subprocess.PIPE, text=True
        )
        try:
            assert process.stdout is not None
            yield House(store, process.stdout.readline().strip(), process.pid, store_pid)
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=60)


@contextmanager
def _database(kind: str) -> Iterator[tuple[str, int | None]]:
    """Where the store is, and the process of its server."""
    if kind == "sqlite":
        with TemporaryDirectory() as folder:
            yield f"sqlite:///{folder}/interlock.db", None
    elif kind == "redis":
        with redis_server(append_only="always") as redis:
            yield redis.url, redis.pid
    else:
        with postgres_server() as postgres:
            yield postgres.new_database(), postgres.pid


@asynccontextmanager
async def door(place: House) -> AsyncIterator[Interlock]:
    """The store itself, to fill it with more than anybody would send over HTTP."""
    async with Interlock(place.store) as il:
        yield il
