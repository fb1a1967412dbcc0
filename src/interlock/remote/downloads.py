"""Download of an artifact to this machine."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

from interlock.errors import InvalidArguments, ServerRefused
from interlock.wire.artifacts import ArtifactView, checked_name


def target_of(view: ArtifactView, to: Path) -> Path:
    """Return the path to write to.

    In a directory it has the name of the artifact; otherwise it is the given file.
    """
    if to.is_dir():
        return to / checked_name(view.name)
    if not to.parent.is_dir():
        raise InvalidArguments(
            f"There is no folder {to.parent}, so {view.name} cannot be written to {to}.",
            todo="Name an existing folder, or a file in one.",
            facts={"to": str(to), "artifact": view.name},
        )
    return to


async def saved(view: ArtifactView, pieces: AsyncIterator[bytes], to: Path) -> Path:
    """Write an artifact to a file or directory, after checking its hash."""
    path = target_of(view, to)
    digest = hashlib.sha256()
    descriptor, new = tempfile.mkstemp(prefix=".interlock-", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            async for piece in pieces:
                digest.update(piece)
                file.write(piece)
        if digest.hexdigest() != view.sha256:
            raise ServerRefused(
                f"The download of {view.name} does not match its digest.",
                todo="Fetch it again; nothing was written.",
                facts={"code": "wrong_digest", "sha256": view.sha256},
            )
        Path(new).replace(path)
    finally:
        Path(new).unlink(missing_ok=True)
    return path
