"""Choose a store by URL.

memory:                                 not persistent; for tests
sqlite:///interlock.db                  a file, relative to here; sqlite:////var/lib/… from the root
postgresql://user:password@host/name    PostgreSQL 13 or newer
redis://host:6379/0                     Redis 6.2 or newer, or Valkey; also rediss:// and unix://
./interlock.db                          a path alone is a file of SQLite
"""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib import import_module

from interlock.errors import BadStoreUrl
from interlock.store.catalogue import Catalogue
from interlock.store.contract import Store
from interlock.store.memory import MemoryStore
from interlock.store.validation import TIMEOUT_S

_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*:")
_SUFFIXES = (".db", ".sqlite", ".sqlite3")

EXAMPLES = (
    "memory:",
    "sqlite:///interlock.db",
    "postgresql://user@host/name",
    "redis://host:6379/0",
)


def store_for(url: str, catalogue: Catalogue, *, timeout_s: float = TIMEOUT_S) -> Store:
    """Return the store of a URL, not yet open."""
    url = url_of(url)
    scheme, colon, _ = url.partition(":")
    if not colon or scheme not in _STORES:
        raise BadStoreUrl(
            f"{_without_password(url)!r} is not the URL of a store.",
            allowed=EXAMPLES,
            todo=f"Use one of: {', '.join(EXAMPLES)}, http://host:8088 for a server, or the path of a file "
            "for SQLite.",
            facts={"url": _without_password(url)},
        )
    return _STORES[scheme](url, catalogue, timeout_s)


def url_of(place: str) -> str:
    """Return the URL of a store; a path becomes that of a SQLite file."""
    is_path = place.startswith(("./", "../", "/")) or place.endswith(_SUFFIXES)
    return f"sqlite:///{place}" if is_path and not _SCHEME.match(place) else place


def _memory(_: str, catalogue: Catalogue, __: float) -> Store:
    return MemoryStore(catalogue, yields=True)  # a caller in a loop does not keep out all others


def _driver(module: str, name: str, extra: str | None) -> Callable[[str, Catalogue, float], Store]:
    """Return a function that imports a driver on use.

    Unused drivers need not be installed.
    """

    def make(url: str, catalogue: Catalogue, timeout_s: float) -> Store:
        try:
            kind = getattr(import_module(module), name)
        except ModuleNotFoundError as error:
            if error.name is None or error.name.startswith("interlock"):
                raise
            raise BadStoreUrl(
                f"The driver for {url.partition(':')[0]} is not installed: {error.name} is missing.",
                todo=f"Install it with: pip install 'interlock[{extra}]'.",
                facts={"missing": error.name},
            ) from None
        store: Store = kind(url, catalogue, timeout_s=timeout_s)
        return store

    return make


def _without_password(url: str) -> str:
    head, at, tail = url.rpartition("@")
    scheme, slashes, user = head.partition("://")
    return f"{scheme}{slashes}{user.partition(':')[0]}@{tail}" if at and slashes else url


_STORES: dict[str, Callable[[str, Catalogue, float], Store]] = {
    "memory": _memory,
    "sqlite": _driver("interlock.store.sqlite", "SqliteStore", None),
    "postgresql": _driver("interlock.store.postgres", "PostgresStore", "postgres"),
    "postgres": _driver("interlock.store.postgres", "PostgresStore", "postgres"),
    "redis": _driver("interlock.store.redis", "RedisStore", "redis"),
    "rediss": _driver("interlock.store.redis", "RedisStore", "redis"),
    "unix": _driver("interlock.store.redis", "RedisStore", "redis"),
}
