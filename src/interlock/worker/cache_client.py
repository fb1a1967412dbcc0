"""What jobs keep for later jobs, on its way between a file and the orchestrator.

A cache is a help and nothing more: whatever goes wrong with one is told in the log, and the job goes on.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol

from interlock.errors import NoBlobs, ServerRefused, StoreUnavailable
from interlock.wire.caches import CacheView
from interlock.worker.port import CacheKeeper, OrchestratorPort
from interlock.worker.uploads import UPLOAD_S, pieces_of


class Caching(Protocol):
    """How a context saves files and gets them again."""

    async def fetch(self, token: str, key: str, prefixes: Sequence[str], to: Path) -> CacheView | None:
        """Write what is saved into a file; None when there is nothing."""
        ...

    async def keep(self, token: str, key: str, path: Path) -> CacheView:
        """Save a file."""
        ...


class Caches:
    """The caches as one worker sees them; used on its event loop."""

    def __init__(self, port: Callable[[], OrchestratorPort], runner_id: str) -> None:
        self._port = port
        self._runner_id = runner_id

    async def fetch(self, token: str, key: str, prefixes: Sequence[str], to: Path) -> CacheView | None:
        """Write what is saved into a file, if it is what it should be."""
        async with (
            _in_time(),
            self._keeper().open_cache(token, self._runner_id, key, prefixes) as found,
        ):
            if found is None:
                return None
            view, pieces = found
            digest = hashlib.sha256()
            with to.open("wb") as file:
                async for piece in pieces:
                    digest.update(piece)
                    await asyncio.to_thread(file.write, piece)
        if digest.hexdigest() != view.sha256:
            raise ServerRefused(
                f"What has arrived of the cache {view.key} is not what was saved.",
                todo="Nothing; the job goes on without it.",
                facts={"code": "wrong_digest", "sha256": view.sha256},
            )
        return view

    async def keep(self, token: str, key: str, path: Path) -> CacheView:
        """Save a file."""
        async with _in_time():
            return await self._keeper().keep_cache(token, self._runner_id, key, pieces_of(path))

    def _keeper(self) -> CacheKeeper:
        port = self._port()
        if not isinstance(port, CacheKeeper):
            raise NoBlobs("This orchestrator keeps no caches.", todo="Use one that does.")
        return port


class OwnCaches:
    """The caches as one attempt sees them."""

    def __init__(self, caching: Caching, token: str) -> None:
        self._caching = caching
        self._token = token

    async def fetch(self, key: str, prefixes: Sequence[str], to: Path) -> CacheView | None:
        """Write what an earlier job has saved into a file; None when there is nothing."""
        return await self._caching.fetch(self._token, key, prefixes, to)

    async def keep(self, key: str, path: Path) -> CacheView:
        """Save a file for later jobs."""
        return await self._caching.keep(self._token, key, path)


class NoCaches:
    """For a context without a worker."""

    async def fetch(self, _token: str, _key: str, _prefixes: Sequence[str], _to: Path) -> CacheView | None:
        """Nothing."""
        return None

    async def keep(self, _token: str, key: str, _path: Path) -> CacheView:
        """Refused."""
        raise NoBlobs(
            "There is nobody here who keeps caches.",
            todo="Save it in a job that a worker executes.",
            facts={"key": key},
        )


NO_CACHES = NoCaches()


@asynccontextmanager
async def _in_time() -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(UPLOAD_S):
            yield
    except TimeoutError:
        raise StoreUnavailable(f"The cache took longer than {UPLOAD_S:g} s.") from None
