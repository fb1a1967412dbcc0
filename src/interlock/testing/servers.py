"""Start real PostgreSQL and Redis servers that are private to a test, a benchmark or a user's own tests.

A server has a directory of its own and ends with the process that started it, also after `kill -9`: a
watchdog ensures this. It can be killed, frozen and restarted. No driver is needed to query it.
"""

from __future__ import annotations

import atexit
import functools
import itertools
import shutil
import signal
import socket
import struct
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Literal, TypeAlias, TypeVar
from urllib.parse import quote

from interlock.testing import watchdog
from interlock.testing.binaries import MissingServer, environment, postgres_programs, redis_program
from interlock.testing.process_control import DirectoryGuard, unprivileged

__all__ = [
    "MissingServer",
    "PostgresServer",
    "RedisServer",
    "ReplyError",
    "ServerFailed",
    "postgres_server",
    "query_postgres",
    "query_redis",
    "redis_server",
]

_TIMEOUT_S = 30.0
_PROTOCOL = 196_608  # 3.0


RedisAnswer: TypeAlias = "str | list[RedisAnswer] | None"
"""An answer of Redis."""


class ReplyError(Exception):
    """The server answered with an error."""


def query_postgres(
    address: Path | tuple[str, int], database: str, statement: str, *, user: str = "postgres"
) -> list[list[str | None]]:
    """Run a statement; return its rows, every value as text."""
    with _connected(address) as connection, connection.makefile("rb") as answers:
        words = ("user", user, "database", database, "client_encoding", "UTF8", "")
        startup = struct.pack("!I", _PROTOCOL) + b"".join(word.encode() + b"\0" for word in words)
        connection.sendall(struct.pack("!I", len(startup) + 4) + startup)
        list(_until_ready(answers))
        query = statement.encode() + b"\0"
        connection.sendall(b"Q" + struct.pack("!I", len(query) + 4) + query)
        rows = [_row(payload) for kind, payload in _until_ready(answers) if kind == b"D"]
        connection.sendall(b"X" + struct.pack("!I", 4))
        return rows


def query_redis(address: Path | tuple[str, int], *words: str) -> RedisAnswer:
    """Run a command; return its answer, every value as text."""
    with _connected(address) as connection, connection.makefile("rb") as answers:
        parts = [f"${len(word.encode())}\r\n{word}\r\n" for word in words]
        connection.sendall(f"*{len(words)}\r\n{''.join(parts)}".encode())
        return _redis_answer(answers)


def _redis_answer(answers: BinaryIO) -> RedisAnswer:
    line = answers.readline().decode().rstrip()
    kind, rest = line[:1], line[1:]
    match kind:
        case "+" | ":":
            return rest
        case "$":
            return None if rest == "-1" else answers.read(int(rest) + 2)[:-2].decode()
        case "*":
            return [_redis_answer(answers) for _ in range(int(rest))]
        case _:
            raise ReplyError(rest or "The server hung up.")


def _connected(address: Path | tuple[str, int]) -> socket.socket:
    if isinstance(address, tuple):
        return socket.create_connection(address, timeout=_TIMEOUT_S)
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.settimeout(_TIMEOUT_S)
        connection.connect(str(address))
    except BaseException:
        connection.close()
        raise
    return connection


def _until_ready(answers: BinaryIO) -> Iterator[tuple[bytes, bytes]]:
    """Yield the messages until the server is ready.

    After that, its error is raised.
    """
    refusal = None
    while head := answers.read(5):
        kind, length = head[:1], struct.unpack("!I", head[1:])[0]
        payload = answers.read(length - 4)
        if kind == b"E":
            fields = {part[:1]: part[1:].decode() for part in payload.split(b"\0") if part}
            refusal = ReplyError(f"{fields.get(b'C')}: {fields.get(b'M')}")
            if fields.get(b"S") == "FATAL":
                raise refusal
        if kind == b"Z":
            if refusal is not None:
                raise refusal
            return
        yield kind, payload
    raise ReplyError("The server hung up.")


def _row(payload: bytes) -> list[str | None]:
    values: list[str | None] = []
    place = 2
    for _ in range(struct.unpack("!H", payload[:2])[0]):
        (length,) = struct.unpack_from("!i", payload, place)
        place += 4
        values.append(None if length < 0 else payload[place : place + length].decode())
        place += max(length, 0)
    return values


_START_S = 120.0
_STOP_S = 120.0

EnvironmentOf: TypeAlias = Callable[[Path], Mapping[str, str]]
"""Function from the directory of a server, which its unprivileged user can read, to its environment."""


class ServerFailed(Exception):
    """A server did not start or stop; the message contains its log."""


class Server(ABC):
    """A server process, with a directory of its own."""

    def __init__(self, *, tcp: bool, around: EnvironmentOf | None = None) -> None:
        self.guard: DirectoryGuard = DirectoryGuard()
        self.folder: Path = self.guard.folder
        self.log: Path = self.folder / "log"
        self.port: int = _free_port() if tcp else 0
        self.names: itertools.count[int] = itertools.count(1)
        self._around = around(self.folder) if around else {}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    @abstractmethod
    def address(self) -> Path | tuple[str, int]:
        """The address on which it listens."""

    @abstractmethod
    def command(self) -> list[str]:
        """Return the command that starts it."""

    @abstractmethod
    def probe(self) -> None:
        """Send a query that succeeds once the server is up; raise until then."""

    @property
    def pid(self) -> int:
        """The process id of the parent of all processes of this server."""
        if self._process is None:
            raise ServerFailed("The server is not running.")
        return self._process.pid

    def start(self) -> None:
        """Start it, and return when it answers."""
        owner = unprivileged()
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self.command(),
                cwd=self.folder,
                env=environment({**self.environment(), **self._around}),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                user=owner.pw_uid if owner else None,
                group=owner.pw_gid if owner else None,
                extra_groups=[] if owner else None,
            )
        self.guard.watch(self._process.pid)
        self._wait_until_up(self._process)

    def environment(self) -> Mapping[str, str]:
        """Return additional environment variables."""
        return {}

    def stop(self) -> None:
        """Stop it as an operator would, with everything written.

        It is safe when it is not running.
        """
        self._end(self.stop_signal)

    stop_signal = signal.SIGTERM

    def kill(self) -> None:
        """Kill it as a crash would: `kill -9`, with all its children at once."""
        if self._process is None:
            return
        family = watchdog.freeze(self.pid)  # otherwise children would see their parent die and clean up
        watchdog.send(family, signal.SIGKILL)
        self._wait(self._process)
        _wait_until_gone(family)

    def restart(self) -> None:
        """Stop it, unless it is down, and start it on the same data and address."""
        self.stop()
        self.start()

    def pause(self) -> None:
        """Freeze it: it keeps its connections and does not answer."""
        watchdog.freeze(self.pid)

    def resume(self) -> None:
        """Continue it after a pause."""
        watchdog.send(watchdog.tree(self.pid), signal.SIGCONT)

    def discard(self) -> None:
        """End it and remove its directory."""
        self.guard.close()
        if self._process is not None:
            self._process.wait(_STOP_S)
            self._process = None

    def _end(self, how: signal.Signals) -> None:
        if self._process is None:
            return
        self.resume()
        self._process.send_signal(how)
        self._wait(self._process)

    def _wait(self, process: subprocess.Popen[bytes]) -> None:
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            raise ServerFailed(f"The server does not stop.\n{self._words()}") from None
        self._process = None
        self.guard.watch(0)

    def _wait_until_up(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + _START_S
        while process.poll() is None and time.monotonic() < deadline:
            try:
                self.probe()
            except (OSError, ReplyError):
                time.sleep(0.005)
            else:
                return
        raise ServerFailed(f"The server does not start: {' '.join(self.command())}\n{self._words()}")

    def _words(self) -> str:
        return self.log.read_text(errors="replace")[-4_000:] if self.log.exists() else ""


AnyServer = TypeVar("AnyServer", bound=Server)


@contextmanager
def running(server: AnyServer) -> Iterator[AnyServer]:
    """Start a server while the context lasts, and discard it at the end."""
    try:
        server.start()
        yield server
    finally:
        server.discard()


def _wait_until_gone(pids: Sequence[int]) -> None:
    deadline = time.monotonic() + _STOP_S
    while any(watchdog.alive(pid) for pid in pids):
        if time.monotonic() > deadline:
            raise ServerFailed(f"The processes {', '.join(map(str, pids))} do not end.")
        time.sleep(0.002)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


AppendOnly: TypeAlias = Literal["always", "everysec", "no", "off"]
"""Sync policy of Redis; "off" keeps everything in memory."""

_PORT = 5432


class PostgresServer(Server):
    """A private PostgreSQL; `url` is its database `postgres`."""

    stop_signal = signal.SIGINT

    def __init__(
        self,
        *,
        durable: bool,
        tcp: bool,
        settings: Mapping[str, str],
        around: EnvironmentOf | None = None,
        wal_segment_mb: int = 1,
    ) -> None:
        self._programs = postgres_programs()
        template = _template(wal_segment_mb)
        super().__init__(tcp=tcp, around=around)
        self._settings = {**_postgres_settings(durable), **settings}
        self.data: Path = self.folder / "data"
        subprocess.run(["cp", "-a", str(template), str(self.data)], check=True)

    @property
    def address(self) -> Path | tuple[str, int]:
        """The loopback port with `tcp`, else the unix socket."""
        return ("127.0.0.1", self.port) if self.port else self.folder / f".s.PGSQL.{_PORT}"

    @property
    def url(self) -> str:
        """The URL of the default database."""
        return self.url_of("postgres")

    def url_of(self, database: str) -> str:
        """Return the URL of a database."""
        if self.port:
            return f"postgresql://postgres@127.0.0.1:{self.port}/{database}"
        return f"postgresql://postgres@/{database}?host={quote(str(self.folder), safe='')}&port={_PORT}"

    def command(self) -> list[str]:
        """Return the command of the server.

        All settings are on the command line, so that the directory contains only data.
        """
        settings = {
            **self._settings,
            "unix_socket_directories": str(self.folder),
            "listen_addresses": "127.0.0.1" if self.port else "",
            "port": str(self.port or _PORT),
        }
        flags = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        return [self._programs.path("postgres"), "-D", str(self.data), *flags]

    def environment(self) -> Mapping[str, str]:
        """Return the library path of bundled programs."""
        return self._programs.environment

    def probe(self) -> None:
        """Run a query."""
        self.sql("SELECT 1")

    def sql(self, statement: str, *, database: str = "postgres") -> list[list[str | None]]:
        """Run a statement as `psql` would; raise `ReplyError`."""
        return query_postgres(self.address, database, statement)

    def new_database(self, *, template: str = "template1") -> str:
        """Create a database as a copy of another one; return its URL.

        The other one has no connections.
        """
        return self.url_of(self.new_database_name(template=template))

    def new_database_name(self, *, template: str = "template1") -> str:
        """Create a database as a copy of another one; return its name.

        The other one has no connections.
        """
        name = f"test_{next(self.names)}"
        self.sql(f'CREATE DATABASE "{name}" TEMPLATE "{template}"')
        return name

    def drop_database(self, name: str) -> None:
        """Drop a database, and close its connections."""
        self.sql(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')


class RedisServer(Server):
    """A private Redis (or Valkey)."""

    def __init__(
        self,
        *,
        append_only: AppendOnly,
        tcp: bool,
        settings: Mapping[str, str],
        around: EnvironmentOf | None = None,
    ) -> None:
        self._program = redis_program()
        super().__init__(tcp=tcp, around=around)
        self._settings = {**_redis_settings(append_only), **settings}

    @property
    def address(self) -> Path | tuple[str, int]:
        """The loopback port with `tcp`, else the unix socket."""
        return ("127.0.0.1", self.port) if self.port else self.folder / "redis.sock"

    @property
    def url(self) -> str:
        """The URL of the first database."""
        if self.port:
            return f"redis://127.0.0.1:{self.port}/0"
        return f"unix://{self.folder / 'redis.sock'}?db=0"

    def command(self) -> list[str]:
        """Return the command, with all settings."""
        settings = {
            **self._settings,
            "dir": str(self.folder),
            "unixsocket": str(self.folder / "redis.sock"),
            "unixsocketperm": "777",  # the directory keeps other users out
            "bind": "127.0.0.1",
            "port": str(self.port),
        }
        return [self._program, *(word for name, value in settings.items() for word in (f"--{name}", value))]

    def probe(self) -> None:
        """Check that it answers and has loaded its data."""
        self.run("PING")

    def run(self, *words: str) -> RedisAnswer:
        """Run a command and return its answer; raise `ReplyError`."""
        return query_redis(self.address, *words)

    def setting(self, name: str) -> str:
        """Return the present value of a setting."""
        answer = self.run("CONFIG", "GET", name)
        return str(answer[1]) if isinstance(answer, list) else ""

    def new_prefix(self) -> str:
        """Return a new prefix of keys, which takes the place of a new database."""
        return f"test{next(self.names)}"


@contextmanager
def postgres_server(
    *,
    durable: bool = True,
    tcp: bool = False,
    settings: Mapping[str, str] | None = None,
    around: EnvironmentOf | None = None,
    wal_segment_mb: int = 1,
) -> Iterator[PostgresServer]:
    """Run a PostgreSQL server while the context lasts.

    `durable=False` turns fsync off, for speed. Its log has small segments, which are quick to create and slow
    to fill: benchmarks use 16 MB.
    """
    made = PostgresServer(
        durable=durable, tcp=tcp, settings=settings or {}, around=around, wal_segment_mb=wal_segment_mb
    )
    with running(made) as server:
        yield server


@contextmanager
def redis_server(
    *,
    append_only: AppendOnly = "always",
    tcp: bool = False,
    settings: Mapping[str, str] | None = None,
    around: EnvironmentOf | None = None,
) -> Iterator[RedisServer]:
    """Run a Redis server while the context lasts.

    `append_only` is its sync policy, or "off".
    """
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
def _template(wal_segment_mb: int) -> Path:
    """Return an empty cluster, which is copied for each server.

    It is created once per process. It sorts text by locale where the programs can, and not by bytes, as
    production servers may: code that relies on the order of ids must declare it.
    """
    guard = DirectoryGuard()
    atexit.register(guard.close)
    for locale in (("--locale-provider=icu", "--icu-locale=en-US", "--locale=C"), ("--locale=C",)):
        made = _make_cluster(guard.folder / "template", (*locale, f"--wal-segsize={wal_segment_mb}"))
        if made.returncode == 0:
            return guard.folder / "template"
        shutil.rmtree(guard.folder / "template", ignore_errors=True)
    raise ServerFailed(f"initdb fails:\n{made.stdout}{made.stderr}")


def _make_cluster(data: Path, options: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    programs, owner = postgres_programs(), unprivileged()
    return subprocess.run(
        [
            *(programs.path("initdb"), "-D", str(data), "--username=postgres", "--auth=trust"),
            *("--encoding=UTF8", "--no-sync", "--no-instructions", *options),
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
