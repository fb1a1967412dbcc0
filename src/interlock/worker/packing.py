"""From paths to one file that can be kept: a file as it is, and everything else as a tar of our own.

Only what lies in the folder of the job is taken. A link in it may lead anywhere, to a key of the
worker's as well, so none is followed: one that is named has to lead to something inside, and those
that are found on the way are left out.
"""

from __future__ import annotations

import gzip
import os
import stat
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath

import msgspec

from interlock.errors import InvalidArtifact

PACKED = ".tar.gz"
_MAGIC = frozenset("*?[")


class Found(msgspec.Struct, frozen=True):
    """What some paths mean."""

    paths: tuple[Path, ...]
    plain: bool
    """It is one file, which is kept as it is."""


def found_in(base: Path, patterns: Sequence[str]) -> Found:
    """What is there; raises where a path leads out of the folder."""
    base = base.resolve()
    paths = sorted({inside(base, path) for pattern in patterns for path in _matches(base, pattern)})
    one = len(patterns) == 1 and not _MAGIC & set(patterns[0])
    return Found(tuple(paths), one and len(paths) == 1 and paths[0].is_file())


def _matches(base: Path, pattern: str) -> Iterable[Path]:
    said = PurePosixPath(pattern)
    if not pattern or said.is_absolute() or ".." in said.parts:
        raise _outside(pattern)
    if not _MAGIC & set(pattern):
        return (base / said,) if (base / said).exists() else ()
    return base.glob(str(said))


def inside(base: Path, path: Path) -> Path:
    """The path itself, without links; raises when it is not in the folder."""
    real = path.resolve()
    if not real.is_relative_to(base):
        raise _outside(str(path.relative_to(base)))
    return real


def pack(base: Path, paths: Sequence[Path], target: Path, *, links: bool = False) -> int:
    """Write a tar of these files and folders; answers how many things in them were left out.

    With `links`, those that stay inside are taken along as links.
    """
    base, left_out, seen = base.resolve(), 0, set[Path]()
    with (
        target.open("wb") as raw,
        gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as zipped,  # the same files make the same bytes
        tarfile.open(fileobj=zipped, mode="w|", format=tarfile.PAX_FORMAT) as tar,
    ):
        for path in (each for named in paths for each in _walk(named)):
            if path in seen:
                continue
            seen.add(path)
            added = _add_link(tar, base, path) if links and path.is_symlink() else _add(tar, base, path)
            left_out += not added
    return left_out


def _walk(path: Path) -> Iterator[Path]:
    if not path.is_dir():
        yield path
        return
    for folder, folders, files in os.walk(path):  # which follows no links
        folders.sort()
        links = [name for name in folders if (Path(folder) / name).is_symlink()]
        yield from (Path(folder) / name for name in sorted([*files, *links]))


def _add(tar: tarfile.TarFile, base: Path, path: Path) -> bool:
    """Whether it is a file that can be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    with os.fdopen(descriptor, "rb") as file:
        known = os.fstat(descriptor)
        if not stat.S_ISREG(known.st_mode):
            return False
        member = tarfile.TarInfo(path.relative_to(base).as_posix())
        member.size, member.mtime = known.st_size, int(known.st_mtime)
        member.mode = 0o755 if known.st_mode & stat.S_IXUSR else 0o644
        tar.addfile(member, file)
    return True


def _add_link(tar: tarfile.TarFile, base: Path, path: Path) -> bool:
    """Whether it leads from one place inside to another, whatever the folder is called."""
    target = path.readlink()
    if target.is_absolute() or not path.resolve().is_relative_to(base):
        return False
    member = tarfile.TarInfo(path.relative_to(base).as_posix())
    member.type, member.linkname = tarfile.SYMTYPE, str(target)
    tar.addfile(member)
    return True


def _outside(path: str) -> InvalidArtifact:
    return InvalidArtifact(
        f"{path[:200]!r} is not in the folder of the job.",
        todo="Name files from where the job runs on, without a slash at first and without `..`.",
        facts={"path": path[:200]},
    )
