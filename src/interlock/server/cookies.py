"""The cookie of a browser that has signed in.

Browsers send the cookies of a host to every port of it. So the name ends with the port of the address that
the browser has opened: two servers on one host do not sign each other out, and servers behind one proxy,
which are opened at one address, share their cookie.

Under TLS its name begins with `__Host-`: browsers accept that only from this very host and over an encrypted
connection, so a sibling domain or a plain connection cannot plant a session.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from interlock.systems.access.principals import NotSignedIn

NAME = "interlock_session"
PREFIX = "__Host-"
_PORT = re.compile(r":([0-9]+)\Z")


def session_of(headers: Mapping[str, str], *, tls: bool) -> str:
    """Return the secret of the session that came with a request, or an empty string.

    Cookies are read by hand: parsers of the standard library give up at the first cookie of another program
    that they do not like, and do not report a name that comes twice.
    """
    sent = headers.get("cookie", "")
    if NAME not in sent:
        return ""
    for encrypted in (True,) if tls else (True, False):
        own = name_of(headers, encrypted=encrypted)
        values = {value for found, value in _pairs(sent) if found == own}
        if len(values) > 1:
            raise NotSignedIn(
                "Two different sessions came with the request.",
                todo="Delete the cookies of this site in the browser, and sign in again.",
            )
        if values:
            return values.pop()
    return ""


def name_of(headers: Mapping[str, str], *, encrypted: bool) -> str:
    """Return the name of the cookie for the address that the browser has opened."""
    port = _PORT.search(headers.get("host", ""))
    return f"{PREFIX if encrypted else ''}{NAME}{f'_{port[1]}' if port else ''}"


def is_encrypted(headers: Mapping[str, str], *, tls: bool) -> bool:
    """Return whether the browser reaches the server over TLS, also where a proxy ends it."""
    return tls or headers.get("origin") == f"https://{headers.get('host', '')}"


def set_cookie(headers: Mapping[str, str], secret: str, lasts_s: int, *, encrypted: bool) -> str:
    """Return the header by which a browser keeps a session, out of reach of scripts."""
    name = name_of(headers, encrypted=encrypted)
    parts = [f"{name}={secret}", "Path=/", f"Max-Age={lasts_s}", "HttpOnly", "SameSite=Strict"]
    return "; ".join([*parts, "Secure"] if encrypted else parts)


def cleared_cookie(headers: Mapping[str, str], *, tls: bool) -> str:
    """Return the header by which a browser forgets the session that it sent."""
    sent = {name for name, _ in _pairs(headers.get("cookie", ""))}
    encrypted = tls or name_of(headers, encrypted=True) in sent
    return set_cookie(headers, "", 0, encrypted=encrypted)


def _pairs(sent: str) -> list[tuple[str, str]]:
    """Return the names and values of all cookies."""
    parts = (part.strip().partition("=") for part in sent.split(";"))
    return [(name, value) for name, _, value in parts]
