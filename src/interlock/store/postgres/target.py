"""The URL of a PostgreSQL store: the database, and its options."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

import msgspec

from interlock.errors import BadStoreUrl

OPTIONS = ("schema", "listen", "prepared", "pool")
"""Our options; all others are the driver's (host, port, sslmode, …)."""

POOL = 4
"""Default maximum of connections; when idle there is one."""

_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,50}")
_SCHEMES = ("postgresql", "postgres")
_EXAMPLE = "postgresql://user:password@host:5432/database"


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """A database, and how to use it."""

    url: str
    """The URL for the driver, without our options. It may contain a password and is never shown."""
    shown: str
    """The same for people, without a password."""
    schema: str = "interlock"
    listen: bool = True
    """Whether to LISTEN for commits of others; otherwise they are polled."""
    listen_at: tuple[str, int] | None = None
    """Host and port of the server itself, for LISTEN, which a pool in transaction mode loses."""
    pooled: bool = False
    """Whether a pooler (pgbouncer) is in front of the server: sessions do not last."""
    prepared: bool = True
    """Off behind a pooler without support for prepared statements (pgbouncer before 1.21)."""
    pool: int = POOL
    """Maximum number of connections, besides the one for LISTEN."""

    @property
    def channel(self) -> str:
        """The channel of LISTEN and NOTIFY."""
        return f"{self.schema}_journal"

    def __repr__(self) -> str:
        return f"Target({self.shown!r})"


def target_of(url: str) -> Target:
    """Parse a URL; raise an error without its password if it is invalid."""
    try:
        parts = urlsplit(url)
        options = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)))
    except ValueError as error:
        raise _bad(f"The URL of the store cannot be read: {error}.") from None
    if parts.scheme not in _SCHEMES:
        raise _bad(f"{parts.scheme or 'Nothing'!r} is not a scheme of PostgreSQL.")
    _check_places(parts.netloc)
    ours = {name: options.pop(name) for name in OPTIONS if name in options}
    listen, listen_at = _listening(ours.get("listen", "on"))
    pooled = not listen or listen_at is not None
    return Target(
        url=urlunsplit(parts._replace(query=urlencode(options, quote_via=quote))),
        shown=_without_password(url),
        schema=_schema(ours.get("schema", "interlock")),
        listen=listen,
        listen_at=listen_at,
        pooled=pooled,
        # A pooler that loses LISTEN mostly loses prepared statements too.
        prepared=_switch(ours, "prepared", default=not pooled),
        pool=_size(ours.get("pool", str(POOL))),
    )


def _without_password(url: str) -> str:
    parts = urlsplit(url)
    shown = [(name, value) for name, value in parse_qsl(parts.query) if "password" not in name]
    user, _, place = parts.netloc.rpartition("@")
    name = user.partition(":")[0]
    return urlunsplit(
        parts._replace(
            netloc=f"{name}@{place}" if name else place,
            query=urlencode(shown, safe="/", quote_via=quote),
        )
    )


def _check_places(netloc: str) -> None:
    """Check the hosts and ports, of which the driver uses the primary."""
    for place in netloc.rpartition("@")[2].split(","):
        _, colon, port = place.rpartition(":")
        if colon and not place.endswith("]") and not port.isdecimal():
            raise _bad(f"The URL of the store cannot be read: {port!r} is not a port.")


def _schema(name: str) -> str:
    if not _SCHEMA.fullmatch(name) or name.startswith("pg_"):
        raise _bad(f"{name!r} cannot be the name of the schema: use small letters, digits and _.")
    return name


def _listening(text: str) -> tuple[bool, tuple[str, int] | None]:
    """Parse `on`, `off`, or HOST:PORT of the server itself.

    HOST may be the folder of its socket.
    """
    if text in ("on", "off"):
        return text == "on", None
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal():
        raise _bad(f"listen={text} is neither on, off, nor the HOST:PORT of the server itself.")
    return True, (host, int(port))


def _switch(options: dict[str, str], name: str, *, default: bool) -> bool:
    value = options.get(name)
    if value not in (None, "on", "off"):
        raise _bad(f"{name}={value} is neither {name}=on nor {name}=off.")
    return default if value is None else value == "on"


def _size(text: str) -> int:
    if not text.isdecimal() or not 2 <= int(text) <= 1_000:
        raise _bad(f"pool={text} is not a number of connections; at least 2.")
    return int(text)


def _bad(sentence: str) -> BadStoreUrl:
    facts: dict[str, Any] = {"options": list(OPTIONS)}
    return BadStoreUrl(sentence, todo=f"Write it like {_EXAMPLE}?schema=interlock.", facts=facts)
