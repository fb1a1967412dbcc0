"""Files of attempts: artifacts of a job, and caches that later jobs restore."""

from __future__ import annotations

import re
from datetime import datetime

import msgspec

from interlock.errors import InvalidArguments, InvalidArtifact
from interlock.wire.views import View

LEASE = "X-Interlock-Lease"
"""The header of an upload that carries the token of the lease."""
RUNNER = "X-Interlock-Runner"
"""The header of an upload that names the runner."""
MAX_NAME = 64

_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*")


class ArtifactView(View, frozen=True, kw_only=True, omit_defaults=False):
    """A file that an attempt has uploaded."""

    job_id: str
    name: str
    shard: int
    attempt: int
    size: int
    """Size in bytes."""
    sha256: str
    created_at: datetime


class ArtifactList(msgspec.Struct, frozen=True):
    """Artifacts of the attempts of a job, oldest first."""

    artifacts: tuple[ArtifactView, ...]


def checked_name(name: str) -> str:
    """Return a name of an artifact.

    Raise `InvalidArtifact` for one that is not safe as a file name.
    """
    if len(name) <= MAX_NAME and _NAME.fullmatch(name):
        return name
    raise InvalidArtifact(
        f"{name[:100]!r} cannot be the name of an artifact.",
        todo=f"Use 1 to {MAX_NAME} letters, digits, dots, dashes and underscores, and no dot at first.",
        facts={"name": name[:100]},
    )


def newest(found: tuple[ArtifactView, ...], name: str, attempt: str = "") -> ArtifactView | None:
    """Return the newest artifact of a name, or that of an attempt (`1.2`)."""
    meant = [one for one in found if one.name == name and attempt in ("", f"{one.shard}.{one.attempt}")]
    return max(meant, key=lambda one: (one.created_at, one.attempt, one.shard), default=None)


MAX_KEY = 200
MAX_PREFIXES = 10
CACHE = "X-Interlock-Cache"
"""The header of a download that describes the cache, as JSON."""

_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:@+/-]*")


class CacheView(View, frozen=True, kw_only=True, omit_defaults=False):
    """A saved cache."""

    key: str
    size: int
    """Size of the archive in bytes."""
    sha256: str
    created_at: datetime


def checked_key(key: str) -> str:
    """Return a key, or a prefix of keys, of a cache.

    Raise `InvalidArguments` for an invalid one.
    """
    if len(key) <= MAX_KEY and _KEY.fullmatch(key):
        return key
    raise InvalidArguments(
        f"{key[:MAX_KEY]!r} cannot be the key of a cache.",
        todo=f"Use 1 to {MAX_KEY} letters, digits and . _ : @ + / -, with a letter or a digit at first.",
        facts={"key": key[:MAX_KEY]},
    )
