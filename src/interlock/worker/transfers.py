"""File transfers of an attempt: uploads of artifacts, and caches for later jobs.

Handlers call these from any thread. A cache is only an optimization: an error is written to the log, and the
job continues.
"""

from __future__ import annotations

import asyncio
import hashlib
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol

from interlock.errors import JobError, NoBlobs, ServerRefused, StoreUnavailable
from interlock.wire.artifacts import ArtifactView, CacheView, checked_name
from interlock.wire.workloads import WorkloadFact
from interlock.worker.archives import PACKED, pack
from interlock.worker.port import ArtifactPort, CachePort, FleetPort, OrchestratorPort

PIECE = 262_144
TRIES = 3
PAUSE_S = 0.5
UPLOAD_S = 900.0
"""Maximum time for one file."""


class Upload(Protocol):
    """Stores a file for a context."""

    def __call__(self, token: str, name: str, path: Path, /) -> Future[ArtifactView]:
        """Start the upload; the future can be awaited in any other thread."""
        ...


class Uploads:
    """The uploads of one worker, on its event loop."""

    def __init__(self, port: Callable[[], OrchestratorPort], runner_id: str) -> None:
        self._port = port
        self._runner_id = runner_id
        self.loop: asyncio.AbstractEventLoop | None = None

    def __call__(self, token: str, name: str, path: Path) -> Future[ArtifactView]:
        """Start to upload a file, or a folder as a tar."""
        if self.loop is None:
            raise StoreUnavailable("The worker has not started yet.", todo="Try again a little later.")
        return asyncio.run_coroutine_threadsafe(self._keep(token, name, path), self.loop)

    def send_facts(self, token: str, facts: Sequence[WorkloadFact]) -> Future[None]:
        """Start to report events of agents."""
        if self.loop is None:
            raise StoreUnavailable("The worker has not started yet.", todo="Try again a little later.")
        return asyncio.run_coroutine_threadsafe(self._report(token, facts), self.loop)

    async def _report(self, token: str, facts: Sequence[WorkloadFact]) -> None:
        port = self._port()
        if isinstance(port, FleetPort):
            await port.report_workloads(token, self._runner_id, facts)

    async def _keep(self, token: str, name: str, path: Path) -> ArtifactView:
        checked_name(name)
        if not await asyncio.to_thread(path.is_dir):
            return await self._upload(token, name, path)
        with tempfile.TemporaryDirectory(prefix="interlock-artifact-") as folder:
            packed = Path(folder) / "packed"
            await asyncio.to_thread(pack, path, [path.resolve()], packed)
            name = name if name.endswith(PACKED) else checked_name(name + PACKED)
            return await self._upload(token, name, packed)

    async def _upload(self, token: str, name: str, path: Path) -> ArtifactView:
        """Upload with retries: the upload is idempotent."""
        for _ in range(TRIES - 1):
            try:
                return await self._try_upload(token, name, path)
            except StoreUnavailable:
                await asyncio.sleep(PAUSE_S)
        return await self._try_upload(token, name, path)

    async def _try_upload(self, token: str, name: str, path: Path) -> ArtifactView:
        port = self._port()
        if not isinstance(port, ArtifactPort):
            raise NoBlobs("This orchestrator does not store artifacts.", todo="Use one that does.")
        try:
            async with asyncio.timeout(UPLOAD_S):
                return await port.keep_artifact(token, self._runner_id, name, pieces_of(path))
        except TimeoutError:
            raise StoreUnavailable(f"The upload took longer than {UPLOAD_S:g} s.") from None


async def pieces_of(path: Path) -> AsyncIterator[bytes]:
    """Yield the content of a file."""
    try:
        file = await asyncio.to_thread(path.open, "rb")
    except OSError as error:
        raise JobError(
            f"The file cannot be read: {error.strerror}: {path}.",
            todo="Name one that is there.",
            facts={"path": str(path)},
        ) from None
    with file:
        while piece := await asyncio.to_thread(file.read, PIECE):
            yield piece


def no_uploads(_: str, name: str, __: Path) -> Future[ArtifactView]:
    """Raise: there is no worker."""
    raise NoBlobs(
        "Artifacts cannot be stored here.",
        todo="Store it in a job that a worker executes.",
        facts={"name": name},
    )


class CacheAccess(Protocol):
    """Saves and restores files for a context."""

    async def fetch(self, token: str, key: str, prefixes: Sequence[str], to: Path) -> CacheView | None:
        """Write a cache into a file; return None if there is none."""
        ...

    async def keep(self, token: str, key: str, path: Path) -> CacheView:
        """Save a file."""
        ...


class CacheTransfers:
    """The caches of one worker, on its event loop."""

    def __init__(self, port: Callable[[], OrchestratorPort], runner_id: str) -> None:
        self._port = port
        self._runner_id = runner_id

    async def fetch(self, token: str, key: str, prefixes: Sequence[str], to: Path) -> CacheView | None:
        """Write a cache into a file, and check its digest."""
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
                f"The download of the cache {view.key} does not match its digest.",
                todo="Nothing; the job continues without it.",
                facts={"code": "wrong_digest", "sha256": view.sha256},
            )
        return view

    async def keep(self, token: str, key: str, path: Path) -> CacheView:
        """Save a file."""
        async with _in_time():
            return await self._keeper().keep_cache(token, self._runner_id, key, pieces_of(path))

    def _keeper(self) -> CachePort:
        port = self._port()
        if not isinstance(port, CachePort):
            raise NoBlobs("This orchestrator does not store caches.", todo="Use one that does.")
        return port


class OwnCaches:
    """The caches of one attempt."""

    def __init__(self, caching: CacheAccess, token: str) -> None:
        self._caching = caching
        self._token = token

    async def fetch(self, key: str, prefixes: Sequence[str], to: Path) -> CacheView | None:
        """Write a cache of an earlier job into a file, or return None."""
        return await self._caching.fetch(self._token, key, prefixes, to)

    async def keep(self, key: str, path: Path) -> CacheView:
        """Save a file for later jobs."""
        return await self._caching.keep(self._token, key, path)


class NoCaches:
    """For a context without a worker."""

    async def fetch(self, _token: str, _key: str, _prefixes: Sequence[str], _to: Path) -> CacheView | None:
        """Return None."""
        return None

    async def keep(self, _token: str, key: str, _path: Path) -> CacheView:
        """Raise: there is no worker."""
        raise NoBlobs(
            "Caches cannot be stored here.",
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
