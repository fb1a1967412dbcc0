"""A fresh folder for one attempt, which is gone with it.

Each is locked by whoever works in it. A worker that was killed leaves its folder behind, unlocked:
the next one to make a folder in the same place removes it. The lock tells a living neighbour's from a
dead one's wherever both can see the folder, also from two containers.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import secrets
import tempfile
import time
from pathlib import Path

PREFIX = "interlock-workspace-"
YOUNG_S = 60.0
"""A folder that is younger may not be locked yet."""


class Workspace:
    """A folder that exists while one is inside."""

    def __init__(self, under: Path | None = None) -> None:
        self._under = Path(tempfile.gettempdir()) if under is None else under
        self._folder: Path | None = None
        self._lock = -1

    async def __aenter__(self) -> Path:
        await asyncio.to_thread(remove_left, self._under)
        self._folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=self._under))
        self._lock = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        return self._folder

    async def __aexit__(self, *_: object) -> None:
        assert self._folder is not None
        try:
            await asyncio.shield(asyncio.to_thread(remove, self._folder))
        finally:
            os.close(self._lock)


def remove_left(under: Path) -> None:
    """Remove the folders whose workers are gone."""
    oldest = time.time() - YOUNG_S  # compared with what the file system says
    for folder in under.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            if folder.lstat().st_mtime > oldest or folder.is_symlink():
                continue
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                remove(folder)
            finally:
                os.close(lock)


def remove(folder: Path) -> None:
    """Remove a folder and all in it, also what was made read-only, following no link out of it.

    Folders in it are moved up into it before they are emptied, so that neither depth nor the length of a
    path matters. Everything is reached through descriptors: a process that a step has left behind may swap a
    folder for a link meanwhile.
    """
    with contextlib.suppress(OSError):
        around = os.open(folder.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            within = _entered(folder.name, around)
            try:
                _empty(within)
            finally:
                os.close(within)
            os.rmdir(folder.name, dir_fd=around)
        finally:
            os.close(around)


def _empty(root: int) -> None:
    folders = _without_files(root, root)
    while folders:
        name = folders.pop()
        with contextlib.suppress(OSError):
            within = _entered(name, root)
            try:
                folders += _without_files(within, root)
            finally:
                os.close(within)
            os.rmdir(name, dir_fd=root)


def _without_files(within: int, root: int) -> list[str]:
    """Remove the files of a folder and move its folders up; return what these are called there."""
    with os.scandir(within) as entries:
        found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    folders = []
    for name, is_folder in found:
        with contextlib.suppress(OSError):
            if is_folder and within == root:
                folders.append(name)
            elif is_folder:
                os.close(_entered(name, within))  # only what can be written to can be moved
                moved = f"removed-{secrets.token_hex(16)}"
                os.rename(name, moved, src_dir_fd=within, dst_dir_fd=root)
                folders.append(moved)
            else:
                os.unlink(name, dir_fd=within)
    return folders


def _entered(name: str, within: int) -> int:
    """Open a folder, whatever its mode; OSError if it is a link."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        place = os.open(name, flags, dir_fd=within)
    except PermissionError:
        # Never for root. For others a link could be changed instead, of a process with the same rights.
        os.chmod(name, 0o700, dir_fd=within)
        place = os.open(name, flags, dir_fd=within)
    with contextlib.suppress(OSError):
        os.fchmod(place, 0o700)
    return place
