"""The cookie by which a browser is known that has signed in."""

from __future__ import annotations

from collections.abc import Mapping
from http.cookies import CookieError, SimpleCookie

NAME = "interlock_session"


def session_of(headers: Mapping[str, str]) -> str:
    """Return the secret of a session that came with a request; empty where none did."""
    sent = headers.get("cookie", "")
    if NAME not in sent:
        return ""
    try:
        found = SimpleCookie(sent).get(NAME)
    except CookieError:
        return ""
    return found.value if found is not None else ""


def set_cookie(secret: str, lasts_s: int, *, tls: bool) -> str:
    """Return the header by which a browser keeps a session, out of reach of scripts."""
    parts = [f"{NAME}={secret}", "Path=/", f"Max-Age={lasts_s}", "HttpOnly", "SameSite=Strict"]
    return "; ".join([*parts, "Secure"] if tls else parts)
