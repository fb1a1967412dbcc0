"""Blobs: large content that belongs to records, stored under its digest in a directory or a bucket.

The port, its settings and limits, the directory that several processes may share, and the place for a store.
Buckets are in `blob_bucket.py`, which is imported only if one is configured.

Why: decision 0189.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import os
import re
import secrets
import time
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterator
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import BinaryIO, Protocol

import msgspec

from interlock.errors import ArtifactGone, BlobsFull, InvalidSettings, StoreUnavailable, TooLarge
from interlock.store.sqlite.database import path_of

GIB = 1_073_741_824


class BlobSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of blobs; the section `[blobs]` of the project file."""

    directory: str | None = None
    """A folder that every server and every worker on the store itself can write to."""
    url: str | None = None
    """Instead of a folder: a bucket, `s3://BUCKET/PREFIX`."""
    endpoint: str | None = None
    """The endpoint of a bucket outside of Amazon: `https://minio.example.org`."""
    region: str = "us-east-1"
    max_blob_bytes: int = GIB
    max_bytes: int = 20 * GIB
    """Limit of all blobs together."""
    keep_days: float = 30.0
    max_cache_bytes: int = 5 * GIB
    """Additional limit of all caches together; the least recently used are evicted."""
    keep_cache_days: float = 7.0
    """Retention of an unused cache."""


class Blob(msgspec.Struct, frozen=True):
    """A stored blob: its name is its digest."""

    sha256: str
    size: int


class Blobs(Protocol):
    """A place for bytes under their digest."""

    async def put(self, pieces: AsyncIterable[bytes]) -> Blob:
        """Store the content durably and atomically."""
        ...

    async def has(self, sha256: str) -> bool:
        """Return whether the blob exists."""
        ...

    def read(self, sha256: str) -> AsyncIterator[bytes]:
        """Yield the content of a blob; raise `ArtifactGone` if it does not exist."""
        ...

    async def remove(self, sha256: str) -> None:
        """Remove a blob now; readers may get an error."""
        ...

    async def prune(self, older_than: timedelta) -> int:
        """Remove blobs that were not put for this long; return their number."""
        ...


PIECE = 1_048_576
"""Bytes written and read at a time."""
COUNTED_FOR_S = 60.0
"""Time for which the total size is cached; additions of this process count at once."""


def check_size(size: int, settings: BlobSettings) -> None:
    """Raise if a blob is too large."""
    most = settings.max_blob_bytes
    if size > most:
        raise TooLarge(
            f"It has more than {most:,} bytes, which is the limit.",
            todo="Store less, or raise max_blob_bytes in [blobs].",
            facts={"limit": most},
        )


def check_room(more: int, used: int, settings: BlobSettings) -> None:
    """Raise if there is not enough space."""
    most = settings.max_bytes
    if more and used + more > most:
        raise BlobsFull(
            f"There is no room for {more:,} bytes more: {used:,} of {most:,} are used.",
            todo="Raise max_bytes in [blobs], or keep them for fewer days.",
            facts={"bytes": more, "used": used, "limit": most},
        )


def gone(sha256: str) -> ArtifactGone:
    """Return the error of a removed blob."""
    return ArtifactGone(
        "Its content was removed.",
        todo="Retry the job; see keep_days in [blobs].",
        facts={"sha256": sha256},
    )


async def larger(pieces: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    """Join small pieces: each costs a switch to a thread and back."""
    gathered = bytearray()
    async for piece in pieces:
        gathered += piece
        if len(gathered) >= PIECE:
            yield bytes(gathered)
            gathered.clear()
    if gathered:
        yield bytes(gathered)


LEFT_AFTER_S = 86_400.0
"""Age after which files in `incoming` are abandoned."""
INCOMING = "incoming"
PRIVATE = 0o700
"""The mode of folders that are made here."""

_OURS = re.compile(r"[0-9a-f]{2}|incoming")
"""The subfolders of blobs; there may be others, with blobs of another kind."""
_DIGEST = re.compile(r"[0-9a-f]{64}")


class DirectoryBlobs:
    """A folder with blobs."""

    def __init__(
        self, folder: Path, settings: BlobSettings, *, clock: Callable[[], float] = time.time
    ) -> None:
        self.folder = folder
        self._settings = settings
        self._clock = clock
        self._counted: tuple[float, int] | None = None
        self._under_way = 0
        """Bytes of unfinished blobs of this process."""

    def __repr__(self) -> str:
        return f"<blobs in {self.folder}>"

    async def put(self, pieces: AsyncIterable[bytes]) -> Blob:
        """Store the content; it is on disk when this returns."""
        with _disk_errors_translated():
            incoming = await asyncio.to_thread(self._begin)
        try:
            with incoming.file:
                async for piece in larger(pieces):
                    incoming.begun += len(piece)
                    self._under_way += len(piece)
                    self._check_size(incoming.size + len(piece))
                    with _disk_errors_translated():
                        await asyncio.to_thread(incoming.write, piece)
                with _disk_errors_translated():
                    return await asyncio.to_thread(self._finish, incoming)
        finally:
            self._under_way -= incoming.begun
            await asyncio.shield(asyncio.to_thread(incoming.path.unlink, missing_ok=True))

    async def has(self, sha256: str) -> bool:
        """Return whether the blob exists."""
        return await asyncio.to_thread(self._place(sha256).is_file)

    async def read(self, sha256: str) -> AsyncIterator[bytes]:
        """Yield the content of a blob."""
        try:
            file = await asyncio.to_thread(self._place(sha256).open, "rb")
        except FileNotFoundError:
            raise gone(sha256) from None
        with file:
            while piece := await asyncio.to_thread(file.read, PIECE):
                yield piece

    async def remove(self, sha256: str) -> None:
        """Remove a blob now; open readers can finish."""
        await asyncio.to_thread(self._remove, self._place(sha256))

    async def prune(self, older_than: timedelta) -> int:
        """Remove blobs not put for this long, and incomplete files of a crash."""
        return await asyncio.to_thread(self._prune, older_than.total_seconds())

    # In a thread

    def _begin(self) -> BlobWriter:
        place = self.folder / INCOMING
        _make_private(place)
        path = place / secrets.token_hex(16)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        return BlobWriter(path, os.fdopen(descriptor, "wb"))

    def _finish(self, incoming: BlobWriter) -> Blob:
        incoming.file.flush()
        os.fsync(incoming.file.fileno())
        blob = Blob(incoming.digest.hexdigest(), incoming.size)
        place = self._place(blob.sha256)
        place.parent.mkdir(PRIVATE, exist_ok=True)
        with self._locked():
            self._check_room(0 if place.exists() else blob.size)
            os.utime(incoming.path, (self._clock(),) * 2)
            incoming.path.replace(place)
        for folder in (place.parent, self.folder):
            _bring_to_disk(folder)
        return blob

    def _remove(self, place: Path) -> None:
        if place.exists():
            with self._locked():
                place.unlink(missing_ok=True)
            self._counted = None

    def _prune(self, older_than_s: float) -> int:
        if not self.folder.is_dir():
            return 0
        now, removed = self._clock(), 0
        with self._locked():  # so that a blob that was just put again is not removed
            for path, found in self._files():
                age_s = LEFT_AFTER_S if path.parent.name == INCOMING else older_than_s
                if found.st_mtime < now - age_s:
                    path.unlink(missing_ok=True)
                    removed += 1
        self._counted = None
        return removed

    def _check_room(self, more: int) -> None:
        at, total = self._counted or (float("-inf"), 0)
        if self._clock() >= at + COUNTED_FOR_S:
            at = self._clock()
            total = sum(found.st_size for path, found in self._files() if path.parent.name != INCOMING)
        self._counted = (at, total)
        check_room(more, total, self._settings)
        self._counted = (at, total + more)

    def _check_size(self, size: int) -> None:
        check_size(size, self._settings)
        if (
            self._under_way > self._settings.max_bytes + self._settings.max_blob_bytes
        ):  # it is not in place yet
            raise BlobsFull(
                "Concurrent uploads may exceed the free space.",
                todo="Upload it again a little later.",
                facts={"under_way": self._under_way, "limit": self._settings.max_bytes},
            )

    def _files(self) -> Iterator[tuple[Path, os.stat_result]]:
        for folder in self.folder.iterdir():
            for path in folder.iterdir() if folder.is_dir() and _OURS.fullmatch(folder.name) else ():
                with contextlib.suppress(FileNotFoundError):  # another process has finished or removed it
                    yield path, path.lstat()

    def _place(self, sha256: str) -> Path:
        if not _DIGEST.fullmatch(sha256):
            raise gone(sha256[:64])
        return self.folder / sha256[:2] / sha256

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Lock out other processes that put or remove blobs."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(self.folder / ".lock", flags, 0o600), "wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


class BlobWriter:
    """A blob that is being written."""

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self.path: Path = path
        self.file: BinaryIO = file
        self.digest: hashlib._Hash = hashlib.sha256()
        self.size: int = 0
        self.begun: int = 0

    def write(self, piece: bytes) -> None:
        """Write a piece."""
        self.file.write(piece)
        self.digest.update(piece)
        self.size += len(piece)


@contextlib.contextmanager
def _disk_errors_translated() -> Iterator[None]:
    """Translate disk errors into an unavailable store, which may be retried."""
    try:
        yield
    except OSError as error:
        raise StoreUnavailable(
            f"The folder of the blobs cannot be written to: {error.strerror}.",
            todo="Check the disk; nothing was stored.",
            facts={"errno": error.errno},
        ) from error


def _make_private(folder: Path) -> None:
    """Create a folder and missing parents, for their owner only."""
    for each in reversed((folder, *folder.parents)):
        if not each.is_dir():
            each.mkdir(PRIVATE, exist_ok=True)


def _bring_to_disk(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


BESIDE = ".blobs"
CACHES = "caches"


def blobs_for(url: str, settings: BlobSettings) -> Blobs | None:
    """Return the configured blobs, those beside a database file, or None.

    The configured place is a bucket or a folder.
    """
    return _place(url, settings, "")


def caches_for(url: str, settings: BlobSettings) -> Blobs | None:
    """Return the place for caches.

    It is separate because caches may be removed at any time.
    """
    return _place(url, of_caches(settings), CACHES)


def _place(url: str, settings: BlobSettings, apart: str) -> Blobs | None:
    if settings.url is not None:
        return _bucket(settings.url, settings, apart)
    folder = _folder(url, settings)
    return None if folder is None else DirectoryBlobs(folder / apart, settings)


def _bucket(url: str, settings: BlobSettings, apart: str) -> Blobs:
    """Return a bucket; its library is imported only on use."""
    try:
        module = import_module("interlock.systems.blob_bucket")
    except ImportError:
        raise InvalidSettings(
            "Blobs in a bucket need a library that is not installed.",
            todo="Install it: pip install 'interlock[s3]'",
            facts={"extra": "s3"},
        ) from None
    made: Blobs = module.BucketBlobs(url, settings, apart=apart)
    return made


def of_caches(settings: BlobSettings) -> BlobSettings:
    """Return the settings of caches.

    There is room to store a new cache before old ones are evicted.
    """
    most = settings.max_cache_bytes
    largest = min(settings.max_blob_bytes, most)
    return msgspec.structs.replace(settings, max_blob_bytes=largest, max_bytes=most + largest)


def folder_for(url: str, settings: BlobSettings) -> Path | None:
    """Return the folder of the blobs, if they are in one."""
    return None if settings.url is not None else _folder(url, settings)


def _folder(url: str, settings: BlobSettings) -> Path | None:
    if settings.directory is not None:
        return Path(settings.directory)
    if url.startswith("sqlite:"):
        file = path_of(url)
        return file.with_name(file.name + BESIDE)
    return None
