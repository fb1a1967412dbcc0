"""What is needed of a place for blobs. A folder is one; another one may be a service."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator
from datetime import timedelta
from typing import Protocol

import msgspec


class Blob(msgspec.Struct, frozen=True):
    """What is known of something that is kept: its name follows from what it says."""

    sha256: str
    size: int


class Blobs(Protocol):
    """A place where bytes are kept under their digest. Nobody else names anything in it."""

    async def put(self, pieces: AsyncIterable[bytes]) -> Blob:
        """Keep what the pieces say. It is there as a whole, on disk, or not at all."""
        ...

    async def has(self, sha256: str) -> bool:
        """Whether it is there."""
        ...

    def read(self, sha256: str) -> AsyncIterator[bytes]:
        """What it says, piece by piece; raises `ArtifactGone` when it is not there."""
        ...

    async def remove(self, sha256: str) -> None:
        """Let go of it now; whoever reads it may be told that it is gone."""
        ...

    async def prune(self, older_than: timedelta) -> int:
        """Remove what nobody has put for so long; answers how much there was."""
        ...
