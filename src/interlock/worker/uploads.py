"""Brings files of attempts to where the orchestrator keeps them, from whichever thread they are left."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Protocol

from interlock.errors import JobError, NoBlobs, StoreUnavailable
from interlock.wire.artifacts import ArtifactView, checked_name
from interlock.wire.workloads import WorkloadFact
from interlock.worker.archives import PACKED, pack
from interlock.worker.port import FleetBook, Keeper, OrchestratorPort

PIECE = 262_144
TRIES = 3
PAUSE_S = 0.5
UPLOAD_S = 900.0
"""How long one file may take."""


class Upload(Protocol):
    """How a context has a file kept."""

    def __call__(self, token: str, name: str, path: Path, /) -> Future[ArtifactView]:
        """Begin; it may be waited for in any thread but the one that does it."""
        ...


class Uploads:
    """The uploads of one worker; they are done on its event loop."""

    def __init__(self, port: Callable[[], OrchestratorPort], runner_id: str) -> None:
        self._port = port
        self._runner_id = runner_id
        self.loop: asyncio.AbstractEventLoop | None = None

    def __call__(self, token: str, name: str, path: Path) -> Future[ArtifactView]:
        """Begin to upload a file, or a folder as a tar."""
        if self.loop is None:
            raise StoreUnavailable("The worker has not begun yet.", todo="Try again a little later.")
        return asyncio.run_coroutine_threadsafe(self._keep(token, name, path), self.loop)

    def tell(self, token: str, facts: Sequence[WorkloadFact]) -> Future[None]:
        """Begin to have it known what was heard of agents."""
        if self.loop is None:
            raise StoreUnavailable("The worker has not begun yet.", todo="Try again a little later.")
        return asyncio.run_coroutine_threadsafe(self._tell(token, facts), self.loop)

    async def _tell(self, token: str, facts: Sequence[WorkloadFact]) -> None:
        port = self._port()
        if isinstance(port, FleetBook):
            await port.tell_workloads(token, self._runner_id, facts)

    async def _keep(self, token: str, name: str, path: Path) -> ArtifactView:
        checked_name(name)
        if not await asyncio.to_thread(path.is_dir):
            return await self._surely(token, name, path)
        with tempfile.TemporaryDirectory(prefix="interlock-artifact-") as folder:
            packed = Path(folder) / "packed"
            await asyncio.to_thread(pack, path, [path.resolve()], packed)
            name = name if name.endswith(PACKED) else checked_name(name + PACKED)
            return await self._surely(token, name, packed)

    async def _surely(self, token: str, name: str, path: Path) -> ArtifactView:
        """Again when it is not known whether it has arrived: the same file is kept once."""
        for _ in range(TRIES - 1):
            try:
                return await self._once(token, name, path)
            except StoreUnavailable:
                await asyncio.sleep(PAUSE_S)
        return await self._once(token, name, path)

    async def _once(self, token: str, name: str, path: Path) -> ArtifactView:
        port = self._port()
        if not isinstance(port, Keeper):
            raise NoBlobs("This orchestrator keeps no artifacts.", todo="Use one that does.")
        try:
            async with asyncio.timeout(UPLOAD_S):
                return await port.keep_artifact(token, self._runner_id, name, pieces_of(path))
        except TimeoutError:
            raise StoreUnavailable(f"The upload took longer than {UPLOAD_S:g} s.") from None


async def pieces_of(path: Path) -> AsyncIterator[bytes]:
    """What a file says."""
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


def nowhere(_: str, name: str, __: Path) -> Future[ArtifactView]:
    """For a context without a worker."""
    raise NoBlobs(
        "There is nobody here who keeps artifacts.",
        todo="Leave it behind in a job that a worker executes.",
        facts={"name": name},
    )
