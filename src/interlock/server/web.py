"""Serve the dashboard: one page for all of its addresses, and the files that the page needs.

The files are built from `web/` and are part of the package. They hold no data: what they show comes from the
API, which asks for a token. So they are served to everybody.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import resources
from mimetypes import guess_type

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

FOLDER = "dashboard"
INDEX = "/index.html"
ENCODINGS = (("br", ".br"), ("gzip", ".gz"))
"""How a file may be compressed, best first; made once when the dashboard is built."""

_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "worker-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types interlock",
    )
)
_FOR_EVER = "public, max-age=31536000, immutable"
_MISSING = b"""<!doctype html><html lang="en"><meta charset="utf-8"><title>Interlock</title>
<h1>The dashboard has not been built</h1>
<p>Run <code>make</code> in the repository, or install a released package. The API is described at
<a href="/docs">/docs</a>.</p></html>"""


class File(msgspec.Struct, frozen=True, kw_only=True):
    """One file of the dashboard, plain and compressed."""

    media: str
    cache: str
    bodies: Mapping[str, bytes]
    """By encoding; the empty one is plain."""


class Web:
    """The files of the dashboard, held in memory: they are small."""

    def __init__(self, files: Mapping[str, File]) -> None:
        self._files = files

    def serves(self, scope: Scope) -> bool:
        """Return whether a request is for a file or for a page of the dashboard."""
        if scope["method"] not in ("GET", "HEAD"):
            return False
        path: str = scope["path"]
        return path in self._files or (is_page(path) and _wants_page(scope))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request that it serves."""
        file = self._files.get(scope["path"]) or self._files.get(INDEX)
        if file is None:
            response = Response(_MISSING, status_code=503, media_type="text/html")
        else:
            encoding = _encoding(scope, file)
            headers = {"Cache-Control": file.cache, "Vary": "Accept-Encoding"}
            if encoding:
                headers["Content-Encoding"] = encoding
            response = Response(file.bodies[encoding], media_type=file.media, headers=headers)
        response.headers["Content-Security-Policy"] = _POLICY
        await response(scope, receive, send)


def is_page(path: str) -> bool:
    """Return whether an address may be a page: not one of the API's, and not a file's."""
    first, *rest = path.lstrip("/").split("/")
    return first not in _NOT_PAGES and "." not in (rest[-1] if rest else first)


_NOT_PAGES = frozenset({"api", "docs", "metrics", "healthz", "readyz", "assets"})


@cache
def built() -> Web:
    """Return the dashboard as it was built; without files when it was not."""
    folder = resources.files("interlock.server").joinpath(FOLDER)
    if not folder.is_dir():
        return Web({})
    plain = {INDEX: folder.joinpath("index.html"), "/icon.svg": folder.joinpath("icon.svg")}
    plain |= {f"/assets/{file.name}": file for file in folder.joinpath("assets").iterdir()}
    bodies = {path: file.read_bytes() for path, file in plain.items()}
    return Web({path: _file(path, bodies) for path in bodies if not path.endswith((".br", ".gz"))})


def _file(path: str, bodies: Mapping[str, bytes]) -> File:
    media = guess_type(path)[0] or "application/octet-stream"
    found = {name: bodies[path + ending] for name, ending in ENCODINGS if path + ending in bodies}
    lasts = _FOR_EVER if path.startswith("/assets/") else "no-cache"
    return File(media=media, cache=lasts, bodies={"": bodies[path], **found})


def _wants_page(scope: Scope) -> bool:
    return any(name == b"accept" and b"text/html" in value for name, value in scope["headers"])


def _encoding(scope: Scope, file: File) -> str:
    accepted = b",".join(value for name, value in scope["headers"] if name == b"accept-encoding").decode(
        "latin-1"
    )
    words = {
        part.partition(";")[0].strip() for part in accepted.split(",") if "q=0" not in part.replace(" ", "")
    }
    return next((name for name, _ in ENCODINGS if name in words and name in file.bodies), "")
