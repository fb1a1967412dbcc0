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
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

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
    """Remove a folder and all in it, also what was made read-only, following no link out of it."""

    def open_up(function: Callable[..., Any], path: str, _: object) -> None:
        with contextlib.suppress(OSError):
            Path(path).parent.chmod(0o700)
            if not Path(path).is_symlink():
                Path(path).chmod(0o700)
            function(path)

    shutil.rmtree(folder, onerror=open_up)
    if folder.exists():
        shutil.rmtree(folder, ignore_errors=True)  # what was opened up on the way
