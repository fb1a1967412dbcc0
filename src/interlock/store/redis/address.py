"""From a URL to a server, and what may be shown of it: never a password."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import ParseResult, parse_qsl, urlencode, urlparse

import msgspec
from redis.asyncio.connection import AbstractConnection, Connection, parse_url

from interlock.errors import BadStoreUrl

_SCHEMES = ("redis", "rediss", "unix")
_SECRETS = frozenset({"password", "ssl_password", "username"})
# These are the store's to decide: deadlines are its own, and nothing is repeated behind its back.
_OURS = (
    "max_connections",
    "timeout",
    "retry_on_timeout",
    "health_check_interval",
    "protocol",
    "legacy_responses",
)


class Address(msgspec.Struct, frozen=True):
    """Where a server is reached."""

    shown: str
    """The URL without its password."""
    make_connection: Callable[[], AbstractConnection]
    shown_under: str = ""
    """What keys begin with that are shown to other tools: the option `shown` of the URL."""


def read_address(url: str) -> Address:
    """The server that a URL names."""
    parsed = _parsed(url)
    shown = _without_secrets(parsed)
    try:
        options: dict[str, Any] = dict(parse_url(url))
    except ValueError as error:
        raise _bad(shown, str(error)) from None
    if parsed.scheme == "unix" and not parsed.path:
        raise _bad(shown, "It names no socket.")
    if parsed.scheme != "unix" and not parsed.path.lstrip("/").isdecimal() and parsed.path.lstrip("/"):
        raise _bad(shown, f"The database {parsed.path.lstrip('/')!r} is not a number.")
    for name in _OURS:
        options.pop(name, None)
    shown_under = str(options.pop("shown", ""))
    options |= {"socket_timeout": None, "socket_connect_timeout": None, "protocol": 2}
    kind: type[AbstractConnection] = options.pop("connection_class", Connection)

    def make_connection() -> AbstractConnection:
        try:
            return kind(**options)
        except TypeError:
            raise _bad(shown, "One of its options is not known.") from None

    return Address(shown, make_connection, shown_under)


def _parsed(url: str) -> ParseResult:
    try:
        parsed = urlparse(url)
        _ = parsed.port
    except ValueError:
        raise _bad("", "Its host or port cannot be read.") from None
    if parsed.scheme not in _SCHEMES:
        raise _bad("", "It begins with none of redis://, rediss:// and unix://.")
    return parsed


def _without_secrets(parsed: ParseResult) -> str:
    place = parsed.netloc.rpartition("@")[2]
    options = [(name, value) for name, value in parse_qsl(parsed.query) if name not in _SECRETS]
    query = f"?{urlencode(options)}" if options else ""
    return f"{parsed.scheme}://{place}{parsed.path}{query}"


def _bad(shown: str, why: str) -> BadStoreUrl:
    named = f" {shown}" if shown else ""
    return BadStoreUrl(
        f"The URL{named} names no Redis server. {why}",
        todo="Write redis://[user:password@]host[:port][/database], rediss://… or unix:///path/to/socket.",
        facts={"url": shown},
    )
