"""A private folder that is gone with this process, and whoever owns it."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
import tempfile
from pathlib import Path

from interlock.testing import watchdog

_NOBODY = "nobody"
_STOP_S = 300.0
"""Removing a large folder takes long when the disk is busy."""


def unprivileged() -> pwd.struct_passwd | None:
    """Whom a server runs as when we are root, because PostgreSQL refuses to be root; else None."""
    return pwd.getpwnam(_NOBODY) if os.geteuid() == 0 else None


class Guard:
    """A private folder, and a watchdog that removes it when this process is gone."""

    def __init__(self) -> None:
        # Not in TMPDIR: that may be closed to others, or too deep for the 107 bytes of a socket's path.
        self.folder = Path(tempfile.mkdtemp(prefix="interlock-", dir="/tmp"))
        if owner := unprivileged():
            os.chown(self.folder, owner.pw_uid, owner.pw_gid)
        pipe, self._orders = os.pipe()
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", watchdog.__file__, str(pipe), str(self.folder)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            pass_fds=(pipe,),
        )
        os.close(pipe)

    def watch(self, pid: int) -> None:
        """This is the process to end; 0 for none."""
        os.write(self._orders, f"{pid}\n".encode())

    def close(self) -> None:
        """End what is watched, and remove the folder."""
        if self._orders < 0:
            return
        os.write(self._orders, watchdog.END.encode())
        os.close(self._orders)
        self._orders = -1
        self._process.wait(_STOP_S)
