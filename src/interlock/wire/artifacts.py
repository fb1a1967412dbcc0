"""Files of attempts: artifacts that a job leaves behind, and caches that it keeps for later jobs."""

from __future__ import annotations

import re
from datetime import datetime

import msgspec

from interlock.errors import InvalidArguments, InvalidArtifact
from interlock.wire.views import View

LEASE = "X-Interlock-Lease"
"""The header of an upload that carries the token of the lease."""
RUNNER = "X-Interlock-Runner"
"""The header of an upload that says which runner it comes from."""
MAX_NAME = 64

_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*")


class ArtifactView(View, frozen=True, kw_only=True, omit_defaults=False):
    """One file that an attempt has left behind."""

    job_id: str
    name: str
    shard: int
    attempt: int
    size: int
    """In bytes."""
    sha256: str
    created_at: datetime


class ArtifactList(msgspec.Struct, frozen=True):
    """What the attempts of a job have left behind, oldest first."""

    artifacts: tuple[ArtifactView, ...]


def checked_name(name: str) -> str:
    """The name, if it can be one: it may become the name of a file wherever somebody fetches it."""
    if len(name) <= MAX_NAME and _NAME.fullmatch(name):
        return name
    raise InvalidArtifact(
        f"{name[:100]!r} cannot be the name of an artifact.",
        todo=f"Use 1 to {MAX_NAME} letters, digits, dots, dashes and underscores, and no dot at first.",
        facts={"name": name[:100]},
    )


def newest(found: tuple[ArtifactView, ...], name: str, attempt: str = "") -> ArtifactView | None:
    """The one that is meant: of several attempts the last that has left one, unless one is named (`1.2`)."""
    meant = [one for one in found if one.name == name and attempt in ("", f"{one.shard}.{one.attempt}")]
    return max(meant, key=lambda one: (one.created_at, one.attempt, one.shard), default=None)


MAX_KEY = 200
MAX_PREFIXES = 10
CACHE = "X-Interlock-Cache"
"""The header of a download that says which cache it is, as JSON."""

_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:@+/-]*")


class CacheView(View, frozen=True, kw_only=True, omit_defaults=False):
    """One cache."""

    key: str
    size: int
    """In bytes, packed."""
    sha256: str
    created_at: datetime


def checked_key(key: str) -> str:
    """The key, if it can be one; so can whatever the key of a cache may begin with."""
    if len(key) <= MAX_KEY and _KEY.fullmatch(key):
        return key
    raise InvalidArguments(
        f"{key[:MAX_KEY]!r} cannot be the key of a cache.",
        todo=f"Use 1 to {MAX_KEY} letters, digits and . _ : @ + / -, with a letter or a digit at first.",
        facts={"key": key[:MAX_KEY]},
    )
