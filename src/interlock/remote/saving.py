"""A file that an attempt has left behind, brought to this machine."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

from interlock.errors import ServerRefused
from interlock.wire.artifacts import ArtifactView, checked_name


async def saved(view: ArtifactView, pieces: AsyncIterator[bytes], folder: Path) -> Path:
    """Write it under its name, when all of it is there and it is what was kept."""
    path = folder / checked_name(view.name)
    digest = hashlib.sha256()
    descriptor, new = tempfile.mkstemp(prefix=".interlock-", dir=folder)
    try:
        with os.fdopen(descriptor, "wb") as file:
            async for piece in pieces:
                digest.update(piece)
                file.write(piece)
        if digest.hexdigest() != view.sha256:
            raise ServerRefused(
                f"What has arrived of {view.name} is not what was kept.",
                todo="Fetch it again; nothing was written.",
                facts={"code": "wrong_digest", "sha256": view.sha256},
            )
        Path(new).replace(path)
    finally:
        Path(new).unlink(missing_ok=True)
    return path
