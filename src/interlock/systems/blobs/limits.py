"""What holds for blobs wherever they are kept."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator

from interlock.errors import ArtifactGone, BlobsFull, TooLarge
from interlock.systems.blobs.settings import BlobSettings

PIECE = 1_048_576
"""How much is written and read in one go."""
COUNTED_FOR_S = 60.0
"""How long it is believed how much there is in all; what this process adds is counted at once."""


def check_size(size: int, settings: BlobSettings) -> None:
    """Raise for one that is too large."""
    most = settings.max_blob_bytes
    if size > most:
        raise TooLarge(
            f"It has more than {most:,} bytes, and that is as many as are kept.",
            todo="Keep less, or raise max_blob_bytes in [blobs].",
            facts={"limit": most},
        )


def check_room(more: int, used: int, settings: BlobSettings) -> None:
    """Raise when there is no room for so much more."""
    most = settings.max_bytes
    if more and used + more > most:
        raise BlobsFull(
            f"There is no room for {more:,} bytes more: {used:,} of {most:,} are used.",
            todo="Raise max_bytes in [blobs], or keep them for fewer days.",
            facts={"bytes": more, "used": used, "limit": most},
        )


def gone(sha256: str) -> ArtifactGone:
    """What was kept is there no more."""
    return ArtifactGone(
        "What it says is not kept any more.",
        todo="Do the job again; see keep_days in [blobs].",
        facts={"sha256": sha256},
    )


async def larger(pieces: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    """The same in fewer pieces: each costs a way to a thread and back."""
    gathered = bytearray()
    async for piece in pieces:
        gathered += piece
        if len(gathered) >= PIECE:
            yield bytes(gathered)
            gathered.clear()
    if gathered:
        yield bytes(gathered)
