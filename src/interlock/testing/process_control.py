"""Control processes that tests start: a private directory that is removed with its owner, and freezing.

`DirectoryGuard` starts a watchdog, which ends the watched process when its owner has exited. `freeze` stops
a process with SIGSTOP, but not in the middle of a write to SQLite: a process that is stopped there keeps the
lock of the file, and every other process waits until it continues (`docs/reliability.md`).
"""

from __future__ import annotations

import os
import pwd
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

from interlock.testing import watchdog

_NOBODY = "nobody"
_STOP_S = 300.0
"""Removing a large folder takes long when the disk is busy."""


def unprivileged() -> pwd.struct_passwd | None:
    """Return a server's user if this process is root, else None.

    PostgreSQL refuses to run as root.
    """
    return pwd.getpwnam(_NOBODY) if os.geteuid() == 0 else None


class DirectoryGuard:
    """A private directory, and a watchdog that removes it when this process has exited."""

    def __init__(self) -> None:
        # Not in TMPDIR: other users may not be able to read it, and a socket's path has at most 107 bytes.
        self.folder: Path = Path(tempfile.mkdtemp(prefix="interlock-", dir="/tmp"))
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
        """Set the process to end; 0 for none."""
        os.write(self._orders, f"{pid}\n".encode())

    def close(self) -> None:
        """End the watched process, and remove the directory."""
        if self._orders < 0:
            return
        os.write(self._orders, watchdog.END.encode())
        os.close(self._orders)
        self._orders = -1
        self._process.wait(_STOP_S)


_LOCK_S = 2.0
"""Maximum time of a write; a running process completes one long before."""
_TRIES = 20


class NeverOutsideAWrite(Exception):
    """The process held the lock each time it was stopped."""


def freeze(pid: int, store_url: str) -> None:
    """Stop a process with SIGSTOP; SIGCONT continues it.

    If the store is SQLite, it stops between two writes.
    """
    for attempt in range(_TRIES):
        os.kill(pid, signal.SIGSTOP)
        while not is_frozen(pid):  # each thread stops when it is next scheduled
            time.sleep(0.001)
        if not store_url.startswith("sqlite:///") or _can_write(store_url.removeprefix("sqlite:///")):
            return
        os.kill(pid, signal.SIGCONT)
        time.sleep(0.01 * (attempt + 1))
    raise NeverOutsideAWrite(f"Process {pid} held the lock of {store_url} each of {_TRIES} times.")


def is_frozen(pid: int) -> bool:
    """Return whether all threads of a process have stopped.

    Raise when there is no such process.
    """
    return all(map(_is_stopped, list(Path(f"/proc/{pid}/task").iterdir())))


def _is_stopped(thread: Path) -> bool:
    """Return whether a thread is stopped; False for one that has just ended."""
    try:
        return (thread / "stat").read_text().rpartition(")")[2].split()[0] == "T"
    except (FileNotFoundError, ProcessLookupError):
        return False


def _can_write(path: str) -> bool:
    with closing(sqlite3.connect(path, isolation_level=None, timeout=_LOCK_S)) as other:
        try:
            other.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return False
        other.execute("ROLLBACK")
        return True
