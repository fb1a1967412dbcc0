"""Which place for blobs belongs to a store."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import msgspec

from interlock.errors import InvalidSettings
from interlock.store.sqlite.location import path_of
from interlock.systems.blobs.directory import DirectoryBlobs
from interlock.systems.blobs.port import Blobs
from interlock.systems.blobs.settings import BlobSettings

BESIDE = ".blobs"
CACHES = "caches"


def blobs_for(url: str, settings: BlobSettings) -> Blobs | None:
    """The bucket or the folder that the settings name, or the folder beside a database file; else None."""
    return _place(url, settings, "")


def caches_for(url: str, settings: BlobSettings) -> Blobs | None:
    """The same for caches: apart from the others, because any of them may be removed at any time."""
    return _place(url, of_caches(settings), CACHES)


def _place(url: str, settings: BlobSettings, apart: str) -> Blobs | None:
    if settings.url is not None:
        return _bucket(settings.url, settings, apart)
    folder = _folder(url, settings)
    return None if folder is None else DirectoryBlobs(folder / apart, settings)


def _bucket(url: str, settings: BlobSettings, apart: str) -> Blobs:
    """Imported when it is asked for: nobody needs a library for what they do not use."""
    try:
        module = import_module("interlock.systems.blobs.bucket")
    except ImportError:
        raise InvalidSettings(
            "Blobs in a bucket need a library that is not installed.",
            todo="Install it: pip install 'interlock[s3]'",
            facts={"extra": "s3"},
        ) from None
    made: Blobs = module.BucketBlobs(url, settings, apart=apart)
    return made


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
