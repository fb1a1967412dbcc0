"""CORS: the headers by which browsers let pages of named origins use the API.

A page of another origin may send a request and read its response only if the response names the origin. For
everything but the plainest requests, browsers first send a preflight, `OPTIONS` without a token. Only the
origins of `--allow-origin` are named, exactly; never `*`, and never with cookies.

Why: decision 0630.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

from starlette.responses import Response

from interlock.wire.artifacts import CACHE, LEASE, RUNNER

Headers: TypeAlias = tuple[tuple[bytes, bytes], ...]

METHODS: Final = ("GET", "HEAD", "POST", "PUT")
"""Methods of the routes."""
SENT: Final = ("Authorization", "Content-Type", "Idempotency-Key", "Last-Event-ID", LEASE, RUNNER)
"""Headers of requests that the API reads."""
RETURNED: Final = (
    "X-Request-ID",
    "Retry-After",
    "Allow",
    "WWW-Authenticate",
    "Content-Disposition",
    "ETag",
    CACHE,
)
"""Headers of responses that a page may read, besides those that every page may."""
PREFLIGHT_VALID_S: Final = 600
"""Time for which browsers keep the response to a preflight."""

_VARY = (b"vary", b"Origin")


class CrossOrigin:
    """The origins whose pages may use the API, each with the headers that say so."""

    def __init__(self, origins: Iterable[str]) -> None:
        exposed = (b"access-control-expose-headers", ", ".join(RETURNED).encode())
        self._headers: dict[str | None, Headers] = {
            origin: ((b"access-control-allow-origin", origin.encode()), exposed, _VARY) for origin in origins
        }

    def headers_for(self, sent: Mapping[str, str]) -> Headers:
        """Return the headers of every response to a request."""
        if not self._headers:
            return ()
        return self._headers.get(sent.get("origin"), (_VARY,))

    def preflight(self, method: str, sent: Mapping[str, str]) -> Response | None:
        """Return the response to a preflight of a named origin, else None."""
        if method != "OPTIONS" or sent.get("origin") not in self._headers:
            return None
        if "access-control-request-method" not in sent:
            return None
        return Response(
            status_code=204,
            headers={
                "Access-Control-Allow-Methods": ", ".join(METHODS),
                "Access-Control-Allow-Headers": ", ".join(SENT),
                "Access-Control-Max-Age": str(PREFLIGHT_VALID_S),
            },
        )
