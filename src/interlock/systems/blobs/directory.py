"""Blobs in a folder that several processes may share.

    incoming/<random>     what is being written; nobody reads it
    ab/ab34…              what is there, under its digest
    caches/…              the same again, for what may go whenever room is needed

A name is never taken from anybody: it is the digest, or it is random. A blob is written beside the
others, brought to the disk, and renamed into its place, so that it is seen as a whole or not at all;
what a crash leaves in `incoming` is swept away later. Putting the same again makes it young again, and
only what is old is removed, so that whoever has put something can rely on it for as long as it is kept.
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
from pathlib import Path
from typing import BinaryIO

from interlock.errors import BlobsFull, StoreUnavailable
from interlock.systems.blobs.limits import COUNTED_FOR_S, PIECE, check_room, check_size, gone, larger
from interlock.systems.blobs.port import Blob
from interlock.systems.blobs.settings import BlobSettings

LEFT_AFTER_S = 86_400.0
"""After so long nobody writes any more what is in `incoming`."""
INCOMING = "incoming"
PRIVATE = 0o700
"""The mode of folders that are made here."""

_OURS = re.compile(r"[0-9a-f]{2}|incoming")
"""The folders in it that hold blobs; there may be others, with blobs of another kind."""
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
        """How many bytes of unfinished ones this process has written."""

    def __repr__(self) -> str:
        return f"<blobs in {self.folder}>"

    async def put(self, pieces: AsyncIterable[bytes]) -> Blob:
        """Keep what the pieces say; it is on disk when this returns."""
        with _said():
            incoming = await asyncio.to_thread(self._begin)
        try:
            with incoming.file:
                async for piece in larger(pieces):
                    incoming.begun += len(piece)
                    self._under_way += len(piece)
                    self._check_size(incoming.size + len(piece))
                    with _said():
                        await asyncio.to_thread(incoming.write, piece)
                with _said():
                    return await asyncio.to_thread(self._finish, incoming)
        finally:
            self._under_way -= incoming.begun
            await asyncio.shield(asyncio.to_thread(incoming.path.unlink, missing_ok=True))

    async def has(self, sha256: str) -> bool:
        """Whether it is there."""
        return await asyncio.to_thread(self._place(sha256).is_file)

    async def read(self, sha256: str) -> AsyncIterator[bytes]:
        """What it says, piece by piece."""
        try:
            file = await asyncio.to_thread(self._place(sha256).open, "rb")
        except FileNotFoundError:
            raise gone(sha256) from None
        with file:
            while piece := await asyncio.to_thread(file.read, PIECE):
                yield piece

    async def remove(self, sha256: str) -> None:
        """Let go of it now; whoever has it open reads on."""
        await asyncio.to_thread(self._remove, self._place(sha256))

    async def prune(self, older_than: timedelta) -> int:
        """Remove what nobody has put for so long, and what a crash has left half written."""
        return await asyncio.to_thread(self._prune, older_than.total_seconds())

    # In a thread

    def _begin(self) -> Incoming:
        place = self.folder / INCOMING
        _make_private(place)
        path = place / secrets.token_hex(16)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        return Incoming(path, os.fdopen(descriptor, "wb"))

    def _finish(self, incoming: Incoming) -> Blob:
        incoming.file.flush()
        os.fsync(incoming.file.fileno())
        blob = Blob(incoming.digest.hexdigest(), incoming.size)
        place = self._place(blob.sha256)
        place.parent.mkdir(PRIVATE, exist_ok=True)
        with self._alone():
            self._check_room(0 if place.exists() else blob.size)
            os.utime(incoming.path, (self._clock(),) * 2)
            incoming.path.replace(place)
        for folder in (place.parent, self.folder):
            _bring_to_disk(folder)
        return blob

    def _remove(self, place: Path) -> None:
        if place.exists():
            with self._alone():
                place.unlink(missing_ok=True)
            self._counted = None

    def _prune(self, older_than_s: float) -> int:
        if not self.folder.is_dir():
            return 0
        now, removed = self._clock(), 0
        with self._alone():  # so that nothing is removed that was put again a moment ago
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
        ):  # none of it is in its place yet
            raise BlobsFull(
                "So much is being uploaded at once that there may be no room for it.",
                todo="Upload it again a little later.",
                facts={"under_way": self._under_way, "limit": self._settings.max_bytes},
            )

    def _files(self) -> Iterator[tuple[Path, os.stat_result]]:
        for folder in self.folder.iterdir():
            for path in folder.iterdir() if folder.is_dir() and _OURS.fullmatch(folder.name) else ():
                with contextlib.suppress(FileNotFoundError):  # somebody else has finished or removed it
                    yield path, path.lstat()

    def _place(self, sha256: str) -> Path:
        if not _DIGEST.fullmatch(sha256):
            raise gone(sha256[:64])
        return self.folder / sha256[:2] / sha256

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """No other process puts anything in its place or removes it."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(self.folder / ".lock", flags, 0o600), "wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


class Incoming:
    """Something that is being written."""

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self.path, self.file = path, file
        self.digest = hashlib.sha256()
        self.size = self.begun = 0

    def write(self, piece: bytes) -> None:
        """One piece more."""
        self.file.write(piece)
        self.digest.update(piece)
        self.size += len(piece)


@contextlib.contextmanager
def _said() -> Iterator[None]:
    """A disk that fails is a store that is away: it may be tried again."""
    try:
        yield
    except OSError as error:
        raise StoreUnavailable(
            f"The folder of the blobs cannot be written to: {error.strerror}.",
            todo="See to the disk; nothing was kept.",
            facts={"errno": error.errno},
        ) from error


def _make_private(folder: Path) -> None:
    """Make a folder and those above it that are missing, for their owner alone."""
    for each in reversed((folder, *folder.parents)):
        if not each.is_dir():
            each.mkdir(PRIVATE, exist_ok=True)


def _bring_to_disk(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
