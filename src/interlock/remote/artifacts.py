"""Files that attempts have left behind, fetched from a server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import quote

from interlock.remote.http_client import ApiClient
from interlock.systems.orchestrator.artifacts import unknown_artifact
from interlock.wire.artifacts import ArtifactList, ArtifactView, newest


class HttpArtifacts:
    """What attempts have left behind."""

    def __init__(self, asker: ApiClient) -> None:
        self._asker = asker

    async def list(self, job_id: str) -> tuple[ArtifactView, ...]:
        """Everything that the attempts of a job have left behind, oldest first."""
        return (await self._asker.get(f"/api/jobs/{quote(job_id)}/artifacts", ArtifactList)).artifacts

    @asynccontextmanager
    async def opened(
        self, job_id: str, name: str, attempt: str = ""
    ) -> AsyncIterator[tuple[ArtifactView, AsyncIterator[bytes]]]:
        """One of them, and what it says."""
        view = newest(await self.list(job_id), name, attempt)
        if view is None:
            raise unknown_artifact(job_id, name, attempt)
        path = f"/api/jobs/{quote(job_id)}/artifacts/{quote(name)}"
        async with self._asker.download(path, attempt=f"{view.shard}.{view.attempt}") as pieces:
            yield view, pieces
