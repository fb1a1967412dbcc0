"""What a server says about itself, and whether it will do."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from interlock.errors import StoreMisconfigured, StoreTooOld

OLDEST = (6, 2)
_NUMBERS = re.compile(r"(\d+)\.(\d+)")


class Server(msgspec.Struct, frozen=True):
    """The facts that promises depend on."""

    name: str
    version: str
    identity: str
    """Of this run of this server, and of the history of its data."""
    replica: bool
    policy: str
    appends: bool


def read_info(text: str) -> Server:
    """A server by its answer to INFO."""
    lines = (line.partition(":") for line in text.splitlines() if ":" in line and not line.startswith("#"))
    facts = {name: value.strip() for name, _, value in lines}
    valkey = facts.get("server_name") == "valkey" or "valkey_version" in facts
    version = facts.get("redis_version", "")
    return Server(
        name=f"Valkey {facts.get('valkey_version', version)}" if valkey else f"Redis {version}",
        version=version,
        identity=f"{facts.get('run_id', '')} {facts.get('master_replid', '')}",
        replica=facts.get("role", "master") != "master",
        policy=facts.get("maxmemory_policy", ""),
        appends=facts.get("aof_enabled") == "1",
    )


_STRETCH = 65_536


def used_memory(text: str) -> int | None:
    """Return the bytes that a server uses for everything it keeps, by its answer to INFO.

    In whole stretches: each command and connection moves the number by some bytes.
    """
    found = re.search(r"^used_memory:(\d+)\s*$", text, re.MULTILINE)
    return int(found[1]) // _STRETCH * _STRETCH if found else None


def check_server(server: Server, shown: str) -> None:
    """Raise unless this server can keep what the store promises."""
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
            "when its memory is full it would throw records away.",
            allowed=("noeviction",),
            todo="Set `maxmemory-policy noeviction` (CONFIG SET, and in redis.conf), or use another server.",
            facts={"url": shown, "maxmemory_policy": server.policy},
        )


def durability_of(server: Server, settings: Mapping[str, str] | None) -> tuple[bool, str]:
    """Whether what was acknowledged survives a crash of the machine, and why.

    `settings` is what CONFIG GET answers; None where that is forbidden, as on managed servers.
    """
    if not server.appends:
        return False, "appendonly no: whatever came after the last snapshot is lost in a crash"
    if settings is None:
        return False, "appendonly yes, appendfsync unknown (CONFIG is forbidden): a crash may lose the latest"
    every = settings.get("appendfsync", "unknown")
    if every == "always" and settings.get("no-appendfsync-on-rewrite") == "yes":
        return False, "appendfsync always, but no-appendfsync-on-rewrite yes: not while the file is rewritten"
    if every == "always":
        return True, "appendonly yes, appendfsync always: on disk before it is acknowledged"
    if every == "everysec":
        return False, "appendonly yes, appendfsync everysec: a crash of the machine may lose the last second"
    return False, f"appendonly yes, appendfsync {every}: a crash of the machine may lose the latest"
