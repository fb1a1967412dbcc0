"""What earlier jobs have saved, fetched from a server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

import httpx2
import msgspec

from interlock.wire.caches import CACHE, CacheView

CACHES = "/api/runner/caches"
READ_S = 60.0
"""How long nothing may come."""
_OK, _NOT_FOUND = 200, 404


class CannotDownload(Exception):
    """The server has answered something else."""

    def __init__(self, response: httpx2.Response) -> None:
        super().__init__(response.status_code)
        self.response = response


@asynccontextmanager
async def downloaded_cache(
    client: httpx2.AsyncClient, headers: Mapping[str, str], key: str, prefixes: Sequence[str]
) -> AsyncIterator[tuple[CacheView, AsyncIterator[bytes]] | None]:
    """A cache and what it says, piece by piece; None when there is none."""
    asked = {"key": key, **({"prefixes": ",".join(prefixes)} if prefixes else {})}
    patience = httpx2.Timeout(READ_S)
    async with client.stream("GET", CACHES, params=asked, headers=headers, timeout=patience) as response:
        if response.status_code == _OK:
            yield msgspec.json.decode(response.headers[CACHE], type=CacheView), response.aiter_bytes()
            return
        await response.aread()
        if response.status_code != _NOT_FOUND or b"unknown_cache" not in response.content:
            raise CannotDownload(response)
        yield None
