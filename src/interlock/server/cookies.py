"""The cookie of a browser that has signed in.

Under TLS its name begins with `__Host-`: browsers accept that only from this very host and over an encrypted
connection, so a sibling domain or a plain connection cannot plant a session.
"""

from __future__ import annotations

from collections.abc import Mapping

from interlock.systems.access.principals import NotSignedIn

PLAIN = "interlock_session"
HOST = f"__Host-{PLAIN}"


def session_of(headers: Mapping[str, str], *, tls: bool) -> str:
    """Return the secret of the session that came with a request, or an empty string.

    Cookies are read by hand: parsers of the standard library give up at the first cookie of another program
    that they do not like, and do not report a name that comes twice.
    """
    sent = headers.get("cookie", "")
    if PLAIN not in sent:
        return ""
    pairs = [part.strip().partition("=") for part in sent.split(";")]
    for name in (HOST,) if tls else (HOST, PLAIN):
        values = {value for found, _, value in pairs if found == name}
        if len(values) > 1:
            raise NotSignedIn(
                "Two different sessions came with the request.",
                todo="Delete the cookies of this site in the browser, and sign in again.",
            )
        if values:
            return values.pop()
    return ""


def is_encrypted(headers: Mapping[str, str], *, tls: bool) -> bool:
    """Return whether the browser reaches the server over TLS, also where a proxy ends it."""
    return tls or headers.get("origin") == f"https://{headers.get('host', '')}"


def set_cookie(secret: str, lasts_s: int, *, encrypted: bool) -> str:
    """Return the header by which a browser keeps a session, out of reach of scripts."""
    name = HOST if encrypted else PLAIN
    parts = [f"{name}={secret}", "Path=/", f"Max-Age={lasts_s}", "HttpOnly", "SameSite=Strict"]
    return "; ".join([*parts, "Secure"] if encrypted else parts)


def cleared_cookie(headers: Mapping[str, str], *, tls: bool) -> str:
    """Return the header by which a browser forgets the session that it sent."""
    return set_cookie("", 0, encrypted=tls or HOST in headers.get("cookie", ""))
