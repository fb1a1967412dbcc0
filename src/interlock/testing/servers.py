"""Real PostgreSQL and Redis servers, private to a test, a benchmark or a user's own tests.

    with postgres_server() as server:
        url = server.new_database()

They live on a unix socket in a folder of their own, answer on TCP only when asked to, keep what they
promise (`fsync` is on unless somebody gives that up for speed), and are gone with whoever started
them, also after `kill -9`: a watchdog sees to that.
"""

from __future__ import annotations

import atexit
import functools
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, TypeAlias
from urllib.parse import quote

from interlock.testing.binaries import (
    MissingServer,
    environment,
    postgres_programs,
    redis_program,
)
from interlock.testing.guard import Guard, unprivileged
from interlock.testing.server_process import Around, Server, ServerFailed, running
from interlock.testing.wire import Answer, ServerRefused, ask_postgres, ask_redis

__all__ = [
    "MissingServer",
    "PostgresServer",
    "RedisServer",
    "ServerFailed",
    "ServerRefused",
    "postgres_server",
    "redis_server",
]

AppendOnly: TypeAlias = Literal["always", "everysec", "no", "off"]
"""When Redis syncs what it has written; "off" keeps everything in memory."""

_PORT = 5432


class PostgresServer(Server):
    """A private PostgreSQL; `url` is its database `postgres`."""

    stop_signal = signal.SIGINT

    def __init__(
        self, *, durable: bool, tcp: bool, settings: Mapping[str, str], around: Around | None = None
    ) -> None:
        self._programs = postgres_programs()
        template = _template()
        super().__init__(tcp=tcp, around=around)
        self._settings = {**_postgres_settings(durable), **settings}
        self.data = self.folder / "data"
        subprocess.run(["cp", "-a", str(template), str(self.data)], check=True)

    @property
    def address(self) -> Path | tuple[str, int]:
        """The loopback port if it was asked for, else the unix socket."""
        return ("127.0.0.1", self.port) if self.port else self.folder / f".s.PGSQL.{_PORT}"

    @property
    def url(self) -> str:
        """For the database that is always there."""
        return self.url_of("postgres")

    def url_of(self, database: str) -> str:
        """For one database."""
        if self.port:
            return f"postgresql://postgres@127.0.0.1:{self.port}/{database}"
        return f"postgresql://postgres@/{database}?host={quote(str(self.folder), safe='')}&port={_PORT}"

    def command(self) -> list[str]:
        """All settings are on the command line, so that the folder is nothing but data."""
        settings = {
            **self._settings,
            "unix_socket_directories": str(self.folder),
            "listen_addresses": "127.0.0.1" if self.port else "",
            "port": str(self.port or _PORT),
        }
        flags = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        return [self._programs.path("postgres"), "-D", str(self.data), *flags]

    def environment(self) -> Mapping[str, str]:
        """Where borrowed programs find their libraries."""
        return self._programs.environment

    def ask(self) -> None:
        """A query works."""
        self.sql("SELECT 1")

    def sql(self, statement: str, *, database: str = "postgres") -> list[list[str | None]]:
        """Run a statement as somebody with a bare shell would; raises `ServerRefused`."""
        return ask_postgres(self.address, database, statement)

    def new_database(self, *, template: str = "template1") -> str:
        """Make a database, as a copy of another one that nobody is connected to; its url."""
        return self.url_of(self.new_database_name(template=template))

    def new_database_name(self, *, template: str = "template1") -> str:
        """The same, but its name."""
        name = f"test_{next(self.names)}"
        self.sql(f'CREATE DATABASE "{name}" TEMPLATE "{template}"')
        return name

    def drop_database(self, name: str) -> None:
        """Remove a database, whoever is connected to it."""
        self.sql(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')


class RedisServer(Server):
    """A private Redis (or Valkey)."""

    def __init__(
        self,
        *,
        append_only: AppendOnly,
        tcp: bool,
        settings: Mapping[str, str],
        around: Around | None = None,
    ) -> None:
        self._program = redis_program()
        super().__init__(tcp=tcp, around=around)
        self._settings = {**_redis_settings(append_only), **settings}

    @property
    def address(self) -> Path | tuple[str, int]:
        """The loopback port if it was asked for, else the unix socket."""
        return ("127.0.0.1", self.port) if self.port else self.folder / "redis.sock"

    @property
    def url(self) -> str:
        """For the first database."""
        if self.port:
            return f"redis://127.0.0.1:{self.port}/0"
        return f"unix://{self.folder / 'redis.sock'}?db=0"

    def command(self) -> list[str]:
        """All settings are on the command line."""
        settings = {
            **self._settings,
            "dir": str(self.folder),
            "unixsocket": str(self.folder / "redis.sock"),
            "unixsocketperm": "777",  # the folder is what keeps others out
            "bind": "127.0.0.1",
            "port": str(self.port),
        }
        return [self._program, *(word for name, value in settings.items() for word in (f"--{name}", value))]

    def ask(self) -> None:
        """It answers, and has loaded its data."""
        self.run("PING")

    def run(self, *words: str) -> Answer:
        """Run a command; its answer. Raises `ServerRefused`."""
        return ask_redis(self.address, *words)

    def setting(self, name: str) -> str:
        """The value that a setting has by now."""
        answer = self.run("CONFIG", "GET", name)
        return str(answer[1]) if isinstance(answer, list) else ""

    def new_prefix(self) -> str:
        """A prefix of keys that nobody has used yet: what a fresh database is elsewhere."""
        return f"test{next(self.names)}"


@contextmanager
def postgres_server(
    *,
    durable: bool = True,
    tcp: bool = False,
    settings: Mapping[str, str] | None = None,
    around: Around | None = None,
) -> Iterator[PostgresServer]:
    """A PostgreSQL for as long as the context lasts. `durable=False` turns fsync off, for speed."""
    with running(PostgresServer(durable=durable, tcp=tcp, settings=settings or {}, around=around)) as server:
        yield server


@contextmanager
def redis_server(
    *,
    append_only: AppendOnly = "always",
    tcp: bool = False,
    settings: Mapping[str, str] | None = None,
    around: Around | None = None,
) -> Iterator[RedisServer]:
    """A Redis for as long as the context lasts. `append_only` is when it syncs its file, or "off"."""
    made = RedisServer(append_only=append_only, tcp=tcp, settings=settings or {}, around=around)
    with running(made) as server:
        yield server


def _postgres_settings(durable: bool) -> dict[str, str]:
    promises = {} if durable else {"fsync": "off", "full_page_writes": "off"}
    return {"max_connections": "200", "timezone": "UTC", **promises}


def _redis_settings(append_only: AppendOnly) -> dict[str, str]:
    kept = {"appendonly": "no"} if append_only == "off" else {"appendonly": "yes", "appendfsync": append_only}
    return {"daemonize": "no", "save": "", "maxmemory-policy": "noeviction", **kept}


@functools.cache
def _template() -> Path:
    """An empty cluster, made once per process and copied for each server.

    It sorts text as people do where the programs can, and not by bytes: whoever relies on the order
    of ids has to say so, as on a server that somebody else has set up.
    """
    guard = Guard()
    atexit.register(guard.close)
    for locale in (("--locale-provider=icu", "--icu-locale=en-US", "--locale=C"), ("--locale=C",)):
        made = _make_cluster(guard.folder / "template", locale)
        if made.returncode == 0:
            return guard.folder / "template"
        shutil.rmtree(guard.folder / "template", ignore_errors=True)
    raise ServerFailed(f"initdb fails:\n{made.stdout}{made.stderr}")


def _make_cluster(data: Path, locale: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    programs, owner = postgres_programs(), unprivileged()
    return subprocess.run(
        [
            *(programs.path("initdb"), "-D", str(data), "--username=postgres", "--auth=trust"),
            *("--encoding=UTF8", "--wal-segsize=1", "--no-sync", "--no-instructions", *locale),
        ],
        cwd="/tmp",
        env=environment(programs.environment),
        user=owner.pw_uid if owner else None,
        group=owner.pw_gid if owner else None,
        extra_groups=[] if owner else None,
        capture_output=True,
        text=True,
        check=False,
    )
