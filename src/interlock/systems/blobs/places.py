"""Which place for blobs belongs to a store."""

from __future__ import annotations

from pathlib import Path

from interlock.store.sqlite.location import path_of
from interlock.systems.blobs.directory import DirectoryBlobs
from interlock.systems.blobs.port import Blobs
from interlock.systems.blobs.settings import BlobSettings

BESIDE = ".blobs"


def blobs_for(url: str, settings: BlobSettings) -> Blobs | None:
    """The folder that the settings name, or the one beside a database file; None where there is neither."""
    if settings.directory is not None:
        return DirectoryBlobs(Path(settings.directory), settings)
    if url.startswith("sqlite:"):
        file = path_of(url)
        return DirectoryBlobs(file.with_name(file.name + BESIDE), settings)
    return None
