"""One request to an application, without a socket."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Any
from urllib.parse import unquote, urlsplit

import requests


async def exchange(
    app: Any, request: requests.PreparedRequest, bearer: str
) -> tuple[int, dict[str, list[str]], bytes]:
    """One request and its answer; of a stream the beginning."""
    unread = [{"type": "http.request", "body": _bytes(request.body), "more_body": False}]
    enough = asyncio.Event()
    start: dict[str, Any] = {}
    body: list[bytes] = []

    async def receive() -> dict[str, Any]:
        if unread:
            return unread.pop()
        await enough.wait()
        return {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            start.update(message)
        else:
            body.append(message.get("body", b""))
            enough.set()

    await app(_scope(request, bearer), receive, send)
    headers: dict[str, list[str]] = defaultdict(list)
    for name, value in start["headers"]:
        headers[name.decode("latin-1")].append(value.decode("latin-1"))
    return start["status"], headers, b"".join(body)


def _bytes(body: Any) -> bytes:
    return body.encode() if isinstance(body, str) else body or b""


def _scope(request: requests.PreparedRequest, bearer: str) -> dict[str, Any]:
    address = urlsplit(str(request.url))
    headers = [(b"host", b"localhost")]
    headers += [
        (name.lower().encode("latin-1"), _latin(value))
        for name, value in request.headers.items()
        if not bearer or name.lower() != "authorization"
    ]
    headers += [(b"authorization", f"Bearer {bearer}".encode())] if bearer else []
    if any(name == b"cookie" for name, _ in headers):  # a browser sends it, and names the page that asks
        headers.append((b"sec-fetch-site", b"same-origin"))
    return {
        "type": "http",
        "http_version": "1.1",
        "method": request.method,
        "scheme": "http",
        "path": unquote(address.path),
        "raw_path": address.path.encode(),
        "root_path": "",
        "query_string": address.query.encode(),
        "headers": headers,
        "client": ("127.0.0.1", 50_000),
        "server": ("127.0.0.1", 80),
    }


def _latin(value: str | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.encode("latin-1")
