"""What shell jobs keep for later ones, as runners speak of it."""

from __future__ import annotations

import re
from datetime import datetime

from interlock.errors import InvalidArguments, JobError
from interlock.wire.views import View

MAX_KEY = 200
MAX_PREFIXES = 10
CACHE = "X-Interlock-Cache"
"""The header of a download that says which cache it is, as JSON."""

_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:@+/-]*")


class UnknownCache(JobError):
    """Nothing is saved under that key, nor under one that begins like it."""

    code = "unknown_cache"
    status = 404


class CacheRefused(JobError):
    """What is saved is used by others, so not everybody may save something."""

    code = "cache_refused"
    status = 409


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
