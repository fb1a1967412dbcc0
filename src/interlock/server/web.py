"""Serve the dashboard: one page for all of its addresses, and the files that the page needs.

The files are built from `web/` and are part of the package. They hold no data: the page loads them from the
API, which requires a token. So the files are served without one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import PurePosixPath

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from interlock.server.routes import Route

FOLDER = "dashboard"
INDEX = "/index.html"
ASSETS = "/assets/"
"""Path of files that are named by a hash of their content."""
ENCODINGS = (("br", ".br"), ("gzip", ".gz"))
"""Encodings of compressed files, best first; they are made when the dashboard is built."""

_MEDIA = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".json": "application/json",
    ".txt": "text/plain; charset=utf-8",
    ".webmanifest": "application/manifest+json",
    ".woff2": "font/woff2",
}
"""Media types are declared here: those of the system differ, and browsers run no script of another type."""
_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "font-src 'self'",
        "connect-src 'self'",
        "worker-src 'self'",
        "manifest-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types interlock",
    )
)
NO_PAGES = "/api/"
"""Beginning of the addresses at which there is neither a page nor a file."""
_FOR_EVER = "public, max-age=31536000, immutable"
_MISSING = b"""<!doctype html><html lang="en"><meta charset="utf-8"><title>Interlock</title>
<h1>The dashboard has not been built</h1>
<p>In a clone of the repository, run <code>make dashboard</code> and start the server again. Packages contain
the built dashboard. The API works without it: <a href="/docs">/docs</a>.</p></html>"""


class File(msgspec.Struct, frozen=True, kw_only=True):
    """One file of the dashboard, plain and compressed."""

    media: str
    cache: str
    bodies: Mapping[str, bytes]
    """Content by encoding; the empty one is plain."""
    tags: Mapping[str, str]
    """The entity tag of each encoding."""


class Web:
    """The files of the dashboard, held in memory: they are small."""

    def __init__(self, files: Mapping[str, File], routes: Sequence[Route]) -> None:
        self._files = files
        self._taken = frozenset({_first(route.path) for route in routes} | {"api", _first(ASSETS)})

    def serves(self, scope: Scope) -> bool:
        """Return whether a request is for a file or for a page of the dashboard."""
        path: str = scope["path"]
        if path.startswith(NO_PAGES) or scope["method"] not in ("GET", "HEAD"):
            return False
        return path in self._files or (self._may_be_page(path) and _wants_page(scope))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request that it serves."""
        found = self._files.get(scope["path"])
        file = found or self._files.get(INDEX)
        if file is None:
            response = Response(_MISSING, status_code=503, media_type="text/html")
        else:
            response = _response(scope, file)
            # At the address of a page, the response depends on the client: a browser, or a program.
            response.headers["Vary"] = (
                "Accept, Accept-Encoding" if file.cache != _FOR_EVER else "Accept-Encoding"
            )
        response.headers["Content-Security-Policy"] = _POLICY
        await response(scope, receive, send)

    def _may_be_page(self, path: str) -> bool:
        """Return whether an address may be a page.

        It is not below an address of the API, and no file at the root. Below the root dots are allowed: names
        of queues and ids of attempts have some.
        """
        first = _first(path)
        return first not in self._taken and "." not in first


def read_files(folder: Traversable) -> dict[str, File]:
    """Return the files of a folder by their addresses.

    It is empty if it does not exist.
    """
    if not folder.is_dir():
        return {}
    bodies = dict(_walk(folder, "/"))
    endings = tuple(ending for _, ending in ENCODINGS)
    return {path: _file(path, bodies) for path in bodies if not path.endswith(endings)}


@cache
def built() -> dict[str, File]:
    """Return the built dashboard; empty if it was not built."""
    return read_files(resources.files("interlock.server").joinpath(FOLDER))


def _walk(folder: Traversable, at: str) -> Iterator[tuple[str, bytes]]:
    for each in folder.iterdir():
        if each.is_dir():
            yield from _walk(each, f"{at}{each.name}/")
        else:
            yield f"{at}{each.name}", each.read_bytes()


def _file(path: str, bodies: Mapping[str, bytes]) -> File:
    found = {"": bodies[path]}
    found |= {name: bodies[path + ending] for name, ending in ENCODINGS if path + ending in bodies}
    return File(
        media=_MEDIA.get(PurePosixPath(path).suffix, "application/octet-stream"),
        cache=_FOR_EVER if path.startswith(ASSETS) else "no-cache",
        bodies=found,
        tags={name: f'"{hashlib.sha256(body).hexdigest()[:32]}"' for name, body in found.items()},
    )


def _response(scope: Scope, file: File) -> Response:
    encoding = _encoding(_header(scope, b"accept-encoding"), file)
    headers = {"Cache-Control": file.cache, "ETag": file.tags[encoding]}
    if _has(_header(scope, b"if-none-match"), file.tags[encoding]):
        return Response(status_code=304, headers=headers)
    if encoding:
        headers["Content-Encoding"] = encoding
    return Response(file.bodies[encoding], headers={**headers, "Content-Type": file.media})


def _first(path: str) -> str:
    return path.lstrip("/").partition("/")[0]


def _header(scope: Scope, name: bytes) -> str:
    return b",".join(value for given, value in scope["headers"] if given == name).decode("latin-1")


def _wants_page(scope: Scope) -> bool:
    return "text/html" in _header(scope, b"accept")


def _has(sent: str, tag: str) -> bool:
    """Return whether the browser has the file.

    A weak comparison, as for every If-None-Match.
    """
    tags = {each.strip().removeprefix("W/") for each in sent.split(",")}
    return tag in tags or "*" in tags


def _encoding(accepted: str, file: File) -> str:
    """Return the best encoding that the browser accepts, or an empty string."""
    words = set()
    for part in accepted.lower().split(","):
        name, *parameters = (word.strip() for word in part.split(";"))
        if all(_is_wanted(parameter) for parameter in parameters):
            words.add(name)
    return next((name for name, _ in ENCODINGS if name in words and name in file.bodies), "")


def _is_wanted(parameter: str) -> bool:
    name, _, value = parameter.partition("=")
    try:
        return name.strip() != "q" or float(value) > 0
    except ValueError:
        return False
