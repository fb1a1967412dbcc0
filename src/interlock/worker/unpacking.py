"""From a tar that somebody else has made to files in the folder of a job.

Whoever saved it may have been anybody who could change the repository, and the folder that it goes to
was made by whoever wrote the change. So nothing is unpacked where it is wanted: it goes to a folder of our
own, with the filter that Python has for data (nothing outside, no devices, no odd modes), in bounds, and only
what lies below the paths that were asked for. When all of it is there it is moved to its place, whole, and
only to where nothing is.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

from interlock.errors import InvalidArtifact
from interlock.worker.packing import inside

MOST_BYTES = 10 * 1_073_741_824
MOST_MEMBERS = 500_000


def unpack(packed: Path, paths: Sequence[str], staging: Path, base: Path) -> list[str]:
    """Put what the tar has below these paths in their places; answers which were put there."""
    base = base.resolve()
    try:
        with tarfile.open(packed, "r:gz") as tar:
            tar.extractall(staging, members=_wanted(tar, paths), filter="data")
    except (tarfile.TarError, EOFError, OSError, ValueError) as error:
        raise _unusable(str(error) or type(error).__name__) from error
    return [path for path in paths if _put(staging / path, base / path, base)]


def _wanted(tar: tarfile.TarFile, paths: Sequence[str]) -> Iterator[tarfile.TarInfo]:
    tops = [PurePosixPath(path) for path in paths]
    size = 0
    for number, member in enumerate(tar, 1):
        size += member.size
        if size > MOST_BYTES or number > MOST_MEMBERS:
            raise _unusable(f"it has more than {MOST_BYTES:,} bytes, or more than {MOST_MEMBERS:,} files")
        if any(PurePosixPath(member.name).is_relative_to(top) for top in tops):
            yield member


def _put(source: Path, target: Path, base: Path) -> bool:
    """Move it there, unless there is something: what the change brings goes before what was saved."""
    if not source.exists() or target.is_symlink() or target.exists():
        return False
    inside(base, target.parent)
    target.parent.mkdir(parents=True, exist_ok=True)
    source.rename(target)
    return True


def _unusable(why: str) -> InvalidArtifact:
    return InvalidArtifact(
        f"What was saved cannot be unpacked: {why}.", todo="Nothing; the job goes on without it."
    )
