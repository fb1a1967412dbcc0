"""Reach files below a folder through descriptors, so that no link leads out of it.

Every component is opened relative to its parent with O_NOFOLLOW. Unlike a check of `realpath`, this cannot be
raced by a process that swaps a folder for a link, and no path is too long for it.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

NO_FOLDER = (errno.ENOTDIR, errno.ELOOP)
"""What the system says of a link or a file where a folder is wanted."""
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
        """Return the descriptor of a folder, valid until the next call; raise OSError if a part is a link."""
        wanted = tuple(parts)
        if wanted != self._last[0]:
            self._forget()
            self._last = (wanted, self._walk(wanted, make=make)) if wanted else ((), self._root)
        return self._last[1]

    def open(self, parts: Sequence[str]) -> BinaryIO:
        """Open a regular file for reading; raise OSError if it is anything else, or behind a link."""
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
    os.fchmod(made, 0o755)  # whatever the umask: the folder around it is closed to others
    return made
