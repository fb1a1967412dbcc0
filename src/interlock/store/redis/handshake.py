"""The checks of a server: at opening, and again on every new connection.

A new connection may lead to another server: a promoted replica, or one that was restarted and has lost its
latest writes. So each of them is checked, its epoch is updated, and the schema and the tables are loaded
again if they are gone.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any

import msgspec
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import ResponseError

from interlock.errors import (
    ForeignSchema,
    InvalidSettings,
    StoreMisconfigured,
    StoreTooOld,
    StoreUnavailable,
)
from interlock.store.catalogue import Catalogue, StoredKind
from interlock.store.migrations import check_fingerprints, too_new
from interlock.store.redis import scripts
from interlock.store.redis.codec import pack
from interlock.store.redis.connections import execute_command, run

OLDEST = (6, 2)
_NUMBERS = re.compile(r"(\d+)\.(\d+)")


class RedisFacts(msgspec.Struct, frozen=True):
    """The facts that guarantees depend on."""

    name: str
    version: str
    identity: str
    """Identifies this run of the server, and the history of its data."""
    replica: bool
    policy: str
    appends: bool


def read_info(text: str) -> RedisFacts:
    """Parse the answer to INFO."""
    lines = (line.partition(":") for line in text.splitlines() if ":" in line and not line.startswith("#"))
    facts = {name: value.strip() for name, _, value in lines}
    valkey = facts.get("server_name") == "valkey" or "valkey_version" in facts
    version = facts.get("redis_version", "")
    return RedisFacts(
        name=f"Valkey {facts.get('valkey_version', version)}" if valkey else f"Redis {version}",
        version=version,
        identity=f"{facts.get('run_id', '')} {facts.get('master_replid', '')}",
        replica=facts.get("role", "master") != "master",
        policy=facts.get("maxmemory_policy", ""),
        appends=facts.get("aof_enabled") == "1",
    )


_STRETCH = 65_536


def used_memory(text: str) -> int | None:
    """Return the memory use of a server, from its answer to INFO.

    Rounded: each command and connection changes the number by some bytes.
    """
    found = re.search(r"^used_memory:(\d+)\s*$", text, re.MULTILINE)
    return int(found[1]) // _STRETCH * _STRETCH if found else None


def check_server(server: RedisFacts, shown: str) -> None:
    """Raise unless this server can keep the guarantees of the store."""
    numbers = _NUMBERS.match(server.version)
    if numbers is None or (int(numbers[1]), int(numbers[2])) < OLDEST:
        raise StoreTooOld(
            f"The server at {shown} is {server.name}; Redis {OLDEST[0]}.{OLDEST[1]} or any Valkey is needed.",
            todo="Upgrade the server.",
            facts={"url": shown, "version": server.version},
        )
    if server.replica:
        raise StoreMisconfigured(
            f"The server at {shown} is a replica, which takes no writes.",
            todo="Point the URL at the primary.",
            facts={"url": shown, "role": "replica"},
        )
    if server.policy != "noeviction":
        raise StoreMisconfigured(
            f"The server at {shown} has maxmemory-policy {server.policy or 'unknown'}: "
            "when its memory is full it would evict records.",
            allowed=("noeviction",),
            todo="Set `maxmemory-policy noeviction` (CONFIG SET, and in redis.conf), or use another server.",
            facts={"url": shown, "maxmemory_policy": server.policy},
        )


def durability_of(server: RedisFacts, settings: Mapping[str, str] | None) -> tuple[bool, str]:
    """Return whether acknowledged commits survive a crash, and why.

    It is a crash of the machine.

    `settings` is the answer to CONFIG GET; None if that is forbidden, as on managed servers.
    """
    if not server.appends:
        return False, "appendonly no: a crash loses all writes after the last snapshot"
    if settings is None:
        return (
            False,
            "appendonly yes, appendfsync unknown (CONFIG is forbidden): a crash may lose the latest writes",
        )
    every = settings.get("appendfsync", "unknown")
    if every == "always" and settings.get("no-appendfsync-on-rewrite") == "yes":
        return False, "appendfsync always, but no-appendfsync-on-rewrite yes: not while the file is rewritten"
    if every == "always":
        return True, "appendonly yes, appendfsync always: on disk before it is acknowledged"
    if every == "everysec":
        return False, "appendonly yes, appendfsync everysec: a crash of the machine may lose the last second"
    return False, f"appendonly yes, appendfsync {every}: a crash of the machine may lose the latest"


_TODO = "Export what you need with the version that made it, and start with another prefix or database."
_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
_SETTINGS = ("appendfsync", "no-appendfsync-on-rewrite")
_SCAN_STEP, _SCAN_STEPS = 10_000, 100
_STEPS_AT_ONCE = 20
"""Steps of a migration within one deadline."""


class Handshake:
    """The handshake of one store with its servers; remembers the latest answers."""

    def __init__(self, tag: str, shown: str, catalogue: Catalogue) -> None:
        self._tag = tag
        self._shown = shown
        self.learn(catalogue)
        self._opened = False
        self.server_name: str = ""
        self.durability: tuple[bool, str] = (False, "unknown until the store is open")

    def learn(self, catalogue: Catalogue) -> None:
        """Set the tables to load."""
        self._tables = pack([_table_of(kind) for kind in catalogue.values()])

    async def loading(self, connection: AbstractConnection) -> None:
        """Load the tables into a known server, replacing older ones."""
        await self._agree(connection, await self._look(connection), "", running=False)

    async def first(self, connection: AbstractConnection) -> bool:
        """Check a server at opening, also for a foreign prefix and for durability.

        Returns whether the store is open; False while it is being migrated and has to be called again.
        """
        server = await self._look(connection)
        check_server(server, self._shown)
        foreign = await self._foreign_key(connection)
        if await self._agree(connection, server, foreign, most=_STEPS_AT_ONCE) is None:
            return False
        self.durability = durability_of(server, await _settings(connection))
        self.server_name = server.name
        self._opened = True
        return True

    async def size_bytes(self, connection: AbstractConnection) -> int | None:
        """Return the memory use of the server, which it knows without counting.

        It is that of the whole server: Redis has no number for a database or a prefix.
        """
        text: bytes = await execute_command(connection, "INFO", "memory")
        return used_memory(text.decode(errors="replace"))

    async def again(self, connection: AbstractConnection) -> int:
        """Return the updated epoch."""
        server = await self._look(connection)
        if server.replica:
            raise StoreUnavailable(
                f"The Redis server at {self._shown} has become a replica. Nothing was done.",
                todo="Wait for the fail-over to end, or point the URL at the primary.",
                facts={"url": self._shown, "outcome": "not done"},
            )
        check_server(server, self._shown)
        return await self._agree(connection, server, "") or 0

    async def __call__(self, connection: AbstractConnection) -> None:
        """Check every new connection of an open store."""
        if self._opened:
            await self.again(connection)

    async def _look(self, connection: AbstractConnection) -> RedisFacts:
        text: bytes = await execute_command(connection, "INFO")
        return read_info(text.decode(errors="replace"))

    async def _agree(
        self,
        connection: AbstractConnection,
        server: RedisFacts,
        foreign: str,
        *,
        running: bool | None = None,
        most: int | None = None,
    ) -> int | None:
        """Return the epoch, or None if a migration exceeds `most` steps."""
        fingerprints = pack([migration.fingerprint for migration in scripts.MIGRATIONS])
        runs = "running" if (self._opened if running is None else running) else ""
        arguments = (scripts.SCHEMA_VERSION, server.identity, foreign, self._tables, fingerprints, runs)
        answer = await run(connection, self._tag, scripts.OPEN, *arguments)
        if answer[0] == b"older":
            if not await self._migrate(connection, int(answer[1]), most):
                return None
            answer = await run(connection, self._tag, scripts.OPEN, *arguments)
        verdict, about, *more = (part.decode(errors="replace") for part in answer)
        if verdict == "newer":
            raise too_new(int(about), scripts.SCHEMA_VERSION, running=self._opened)
        if verdict == "changed":
            check_fingerprints(scripts.MIGRATIONS, {int(about): more[0]}, self._shown, todo=_TODO)
        if verdict == "foreign":
            raise ForeignSchema(
                f"The key {about} at {self._shown} belongs to another program.",
                todo="Choose another prefix or another database number.",
                facts={"url": self._shown, "key": about},
            )
        return int(about)

    async def _migrate(self, connection: AbstractConnection, version: int, most: int | None) -> bool:
        """Migrate the store in short steps, because each blocks the server."""
        steps = 0
        for migration in scripts.MIGRATIONS[version:]:
            script = scripts.migrating(migration)
            while await run(connection, self._tag, script) == b"more":
                steps += 1
                if steps == most:
                    return False
        return True

    async def _foreign_key(self, connection: AbstractConnection) -> str:
        """Return a key under our prefix in a database without our schema.

        The search is bounded in large databases.
        """
        if await execute_command(connection, "EXISTS", f"{self._tag}:schema"):
            return ""
        place: Any = b"0"
        for _ in range(_SCAN_STEPS):
            pattern = f"{self._tag}:*"
            place, found = await execute_command(
                connection, "SCAN", place, "MATCH", pattern, "COUNT", _SCAN_STEP
            )
            if found:
                return str(found[0].decode(errors="replace"))
            if place == b"0":
                break
        return ""


def check_names(prefix: str, catalogue: Catalogue) -> None:
    """Raise for names that would make keys ambiguous."""
    if not _NAME.fullmatch(prefix):
        raise InvalidSettings(
            f"The prefix {prefix[:80]!r} is invalid.",
            todo="Use 1 to 64 letters, digits, dots, dashes and underscores.",
            facts={"prefix": prefix[:80]},
        )
    for name, kind in catalogue.items():
        if ":" in name:
            raise InvalidSettings(
                f"The kind {name!r} cannot be stored in Redis.",
                todo="Choose a name without a colon.",
                facts={"kind": name},
            )
        for state in kind.states:
            if "\n" in state:
                raise InvalidSettings(
                    f"The state {state!r} of the kind {name!r} cannot be stored in Redis.",
                    todo="Choose a name without a line break.",
                    facts={"kind": name, "state": state},
                )


def _table_of(kind: StoredKind) -> tuple[str, str, list[str], list[str]]:
    changes = sorted(f"{source}>{target}" for source, target in kind.paths)
    beginnings = sorted(f">{state}" for state in kind.states if kind.allows("", state))
    paths, ends = beginnings + changes, sorted(kind.ended)
    digest = hashlib.sha256("\n".join((*paths, "", *ends)).encode()).hexdigest()[:16]
    return kind.name, digest, paths, ends


async def _settings(connection: AbstractConnection) -> dict[str, str] | None:
    """Return the settings from CONFIG, or None if it is unavailable.

    Managed servers forbid or rename it.
    """
    settings: dict[str, str] = {}
    try:
        for name in _SETTINGS:
            found = await execute_command(connection, "CONFIG GET", name)
            settings |= {found[0].decode(): found[1].decode()} if found else {}
    except ResponseError:
        return None
    return settings
