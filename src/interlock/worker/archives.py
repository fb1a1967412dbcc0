"""Pack files of a job's folder: one file unchanged, anything else as a tar.

Only files inside the folder of the job are read. A link in it may lead anywhere, even to a key of the worker,
so every file is reached from the folder through descriptors (`Beneath`): each component is opened relative to
its parent with O_NOFOLLOW. Unlike a check of `realpath`, this cannot be raced by a process that swaps a
folder for a link, and no path is too long for it. A named link has to lead to a file inside; links found on
the way are left out.

Why: decision 0298.
"""

from __future__ import annotations

import errno
import fnmatch
import gzip
import os
import shutil
import stat
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from types import TracebackType
from typing import BinaryIO, Self, TypeAlias

import msgspec

from interlock.errors import InvalidArtifact

NO_FOLDER = (errno.ENOTDIR, errno.ELOOP)
"""Error numbers for a link or a file in place of a folder."""
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Beneath:
    """A folder that is held open; paths are given as their components, of which none may be a link."""

    def __init__(self, folder: Path) -> None:
        self._root = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._last: tuple[tuple[str, ...], int] = ((), self._root)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._forget()
        os.close(self._root)

    def folder(self, parts: Sequence[str], *, make: bool = False) -> int:
        """Return the descriptor of a folder, valid until the next call.

        Raise OSError if a part of the path is a link.
        """
        wanted = tuple(parts)
        if wanted != self._last[0]:
            self._forget()
            self._last = (wanted, self._walk(wanted, make=make)) if wanted else ((), self._root)
        return self._last[1]

    def open(self, parts: Sequence[str]) -> BinaryIO:
        """Open a regular file for reading, without following links.

        Raise OSError for anything else.
        """
        *above, name = parts
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(name, flags, dir_fd=self.folder(above))
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise OSError("it is not a regular file")
        return os.fdopen(descriptor, "rb")

    def _walk(self, parts: Sequence[str], *, make: bool) -> int:
        at = os.dup(self._root)
        for part in parts:
            try:
                below = _opened(part, at, make=make)
            finally:
                os.close(at)
            at = below
        return at

    def _forget(self) -> None:
        if self._last[0]:
            os.close(self._last[1])
        self._last = ((), self._root)


def _opened(name: str, within: int, *, make: bool) -> int:
    try:
        return os.open(name, _FOLDER, dir_fd=within)
    except FileNotFoundError:
        if not make:
            raise
    os.mkdir(name, 0o700, dir_fd=within)
    made = os.open(name, _FOLDER, dir_fd=within)
    os.fchmod(made, 0o755)  # independent of the umask: the folder around it is closed to others
    return made


PACKED = ".tar.gz"
MOST_BYTES = 10 * 1_073_741_824
"""Bytes in a cache, before they are compressed."""
MOST_MEMBERS = 500_000
MOST_NAME = 255
MOST_PATH = 4_096
MOST_DEPTH = 128
_MAGIC = frozenset("*?[")

PathParts: TypeAlias = tuple[str, ...]


class Found(msgspec.Struct, frozen=True):
    """The result of matching some paths."""

    paths: tuple[Path, ...]
    plain: bool
    """Whether it is one file, which is stored unchanged."""


def found_in(base: Path, patterns: Sequence[str]) -> Found:
    """Return the existing files; raise if a path leads out of the folder."""
    base = base.resolve()
    with Beneath(base) as folder:
        named = {resolve_inside(base, path) for each in patterns for path in _matches(folder, base, each)}
    paths = sorted(path for path in named if path.exists())
    one = len(patterns) == 1 and not _MAGIC & set(patterns[0])
    return Found(tuple(paths), one and len(paths) == 1 and paths[0].is_file())


def _matches(folder: Beneath, base: Path, pattern: str) -> Iterable[Path]:
    path = PurePosixPath(pattern)
    if not pattern or path.is_absolute() or ".." in path.parts:
        raise outside_error(pattern)
    if not _MAGIC & set(pattern):
        return (base / path,)
    return _Pattern(folder, base, path.parts).matches((), 0)


class _Pattern:
    """One pattern, matched without reading a folder that is reached through a link out.

    `pathlib` is not used: the links that it follows differ between versions of Python.
    """

    def __init__(self, folder: Beneath, base: Path, pattern: PathParts) -> None:
        self._folder = folder
        self._base = base
        self._pattern = pattern
        self._seen: set[tuple[PathParts, int]] = set()

    def matches(self, at: PathParts, index: int) -> Iterator[Path]:
        """Match the pattern from one of its parts on, below a real folder."""
        if (at, index) in self._seen:
            return
        self._seen.add((at, index))
        if index == len(self._pattern):
            yield self._base.joinpath(*at)
            return
        part = self._pattern[index]
        if part == "**":
            yield from self.matches(at, index + 1)
        for name, is_folder in _listed(self._folder, at):
            if part == "**":
                yield from self.matches((*at, name), index) if is_folder else ()
            elif fnmatch.fnmatchcase(name, part):
                yield from self._matched((*at, name), index + 1, is_folder)

    def _matched(self, at: PathParts, index: int, is_folder: bool) -> Iterator[Path]:
        path = self._base.joinpath(*at)
        if index == len(self._pattern):
            yield path
        elif is_folder:
            yield from self.matches(at, index)
        elif path.is_symlink() and (real := _real(self._base, path)) is not None:
            yield from self.matches(real.relative_to(self._base).parts, index)
        elif path.is_symlink() and self._pattern[index - 1] == at[-1]:
            raise outside_error("/".join(at))


def _listed(folder: Beneath, at: PathParts) -> list[tuple[str, bool]]:
    """Return the names in a folder, and whether each is a folder.

    There are none if it is not a folder. Folders too deep to be packed are not read.
    """
    if len(at) >= MOST_DEPTH:
        return []
    try:
        with os.scandir(folder.folder(at)) as entries:
            return sorted((entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries)
    except OSError:
        return []


def resolve_inside(base: Path, path: Path) -> Path:
    """Return the path without links; raise when it is not in the folder."""
    real = _real(base, path)
    if real is None:
        raise outside_error(str(path.relative_to(base)))
    return real


def _real(base: Path, path: Path) -> Path | None:
    """Return the path without links; None if it leads outside or in circles."""
    try:
        real = path.resolve()
    except (OSError, RuntimeError):  # RuntimeError is a circle before Python 3.13
        return None
    fits = real.is_relative_to(base) and not real.is_symlink() and not _is_circular(real)
    return real if fits else None


def _is_circular(path: Path) -> bool:
    """Return whether links on the way lead back to themselves.

    Since Python 3.13 `resolve` leaves them.
    """
    try:
        path.stat()
    except OSError as error:
        return error.errno == errno.ELOOP
    return False


def copy(base: Path, path: Path, target: Path) -> None:
    """Copy one regular file; raise OSError if a link is on the way to it."""
    with (
        Beneath(base) as folder,
        folder.open(path.relative_to(base).parts) as file,
        target.open("wb") as copied,
    ):
        shutil.copyfileobj(file, copied, 1_048_576)


def pack(base: Path, paths: Sequence[Path], target: Path, *, cache: bool = False) -> int:
    """Write a tar of these files and folders.

    Return the number of entries left out. In a cache, links that stay inside are kept as links, and its size
    is limited to one that can be unpacked.
    """
    base, left_out, seen = base.resolve(), 0, set[PathParts]()
    with (
        target.open("wb") as raw,
        gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as zipped,  # the same files give the same bytes
        tarfile.open(fileobj=zipped, mode="w|", format=tarfile.PAX_FORMAT) as tar,
        Beneath(base) as folder,
    ):
        packing = _ArchiveWriter(folder, tar, cache=cache)
        for parts in (each for path in paths for each in _walk(folder, path.relative_to(base).parts)):
            if parts not in seen:
                seen.add(parts)
                left_out += not packing.add(parts)
    return left_out


def _walk(folder: Beneath, parts: PathParts) -> Iterator[PathParts]:
    """Yield all paths below that are not folders, without following links.

    A path that is no folder is yielded itself.
    """
    try:
        folder.folder(parts)
    except OSError:
        yield parts
        return
    waiting = [parts]
    while waiting:
        at = waiting.pop()
        if len(at) >= MOST_DEPTH:
            yield at
        listed = _listed(folder, at)
        yield from ((*at, name) for name, is_folder in listed if not is_folder)
        waiting.extend((*at, name) for name, is_folder in reversed(listed) if is_folder)


class _ArchiveWriter:
    """Adds files of a folder to a tar."""

    def __init__(self, folder: Beneath, tar: tarfile.TarFile, *, cache: bool) -> None:
        self._folder = folder
        self._tar = tar
        self._cache = cache
        self._bytes = self._members = 0

    def add(self, parts: PathParts) -> bool:
        """Add a path if it can be unpacked again; return whether it was added.

        That is a readable file, or a link that is kept.
        """
        return fits(parts) and ((self._cache and self._add_link(parts)) or self._add_file(parts))

    def _add_file(self, parts: PathParts) -> bool:
        try:
            file = self._folder.open(parts)
        except OSError:
            return False
        with file:
            known = os.fstat(file.fileno())
            member = tarfile.TarInfo("/".join(parts))
            member.size, member.mtime = known.st_size, int(known.st_mtime)
            member.mode = 0o755 if known.st_mode & stat.S_IXUSR else 0o644
            self._count(member.size)
            self._tar.addfile(member, file)
        return True

    def _add_link(self, parts: PathParts) -> bool:
        try:
            target = os.readlink(parts[-1], dir_fd=self._folder.folder(parts[:-1]))
        except OSError:
            return False
        if climbs(target, len(parts) - 1):
            return False
        member = tarfile.TarInfo("/".join(parts))
        member.type, member.linkname = tarfile.SYMTYPE, target
        self._count(0)
        self._tar.addfile(member)
        return True

    def _count(self, size: int) -> None:
        self._bytes += size
        self._members += 1
        if self._cache and (self._bytes > MOST_BYTES or self._members > MOST_MEMBERS):
            raise InvalidArtifact(
                f"A cache has at most {MOST_BYTES:,} bytes and {MOST_MEMBERS:,} files; this one has more.",
                todo="Name fewer paths, or put them under several keys.",
                facts={"bytes": self._bytes, "files": self._members},
            )


def fits(parts: PathParts) -> bool:
    """Return whether a name is short enough to be unpacked everywhere."""
    sizes = [len(os.fsencode(part)) for part in parts]
    return len(parts) <= MOST_DEPTH and max(sizes) <= MOST_NAME and sum(sizes) + len(sizes) <= MOST_PATH


def climbs(target: str, depth: int) -> bool:
    """Return whether a link at this depth may lead out of the job's folder.

    It cannot if its target is relative and has `..` only at the beginning: the folders above a link are
    no links, so those are climbed as written, and the rest goes down or through links like this one.
    """
    parts = [part for part in target.split("/") if part not in ("", ".")]
    up = next((index for index, part in enumerate(parts) if part != ".."), len(parts))
    return target.startswith("/") or up > depth or ".." in parts[up:]


def outside_error(path: str) -> InvalidArtifact:
    """Return the error for a path that leads out of the folder of the job."""
    return InvalidArtifact(
        f"{path[:200]!r} is not in the folder of the job.",
        todo="Name files from where the job runs on, without a leading slash and without `..`.",
        facts={"path": path[:200]},
    )
