"""Which place for blobs belongs to a store."""

from __future__ import annotations

from pathlib import Path

import msgspec

from interlock.store.sqlite.location import path_of
from interlock.systems.blobs.directory import DirectoryBlobs
from interlock.systems.blobs.port import Blobs
from interlock.systems.blobs.settings import BlobSettings

BESIDE = ".blobs"
CACHES = "caches"


def blobs_for(url: str, settings: BlobSettings) -> Blobs | None:
    """The folder that the settings name, or the one beside a database file; None where there is neither."""
    folder = _folder(url, settings)
    return None if folder is None else DirectoryBlobs(folder, settings)


def caches_for(url: str, settings: BlobSettings) -> Blobs | None:
    """The same for caches: apart from the others, because any of them may be removed at any time."""
    folder = _folder(url, settings)
    return None if folder is None else DirectoryBlobs(folder / CACHES, of_caches(settings))


def of_caches(settings: BlobSettings) -> BlobSettings:
    """What holds for caches: a new one comes before old ones have made room for it."""
    most = settings.max_cache_bytes
    largest = min(settings.max_blob_bytes, most)
    return msgspec.structs.replace(settings, max_blob_bytes=largest, max_bytes=most + largest)


def _folder(url: str, settings: BlobSettings) -> Path | None:
    if settings.directory is not None:
        return Path(settings.directory)
    if url.startswith("sqlite:"):
        file = path_of(url)
        return file.with_name(file.name + BESIDE)
    return None
