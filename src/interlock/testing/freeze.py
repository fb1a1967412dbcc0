"""Stopping a process as a closed laptop stops it, but not in the middle of a write to SQLite.

Who is stopped there keeps the lock of the file: everybody else waits until it goes on, and no program can
take it away. That is a limit of one file for many processes, and is said in `docs/reliability.md`. It is no
answer to what a test asks when it stops a worker past its lease, so such a moment is let pass.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import time
from contextlib import closing
from pathlib import Path

_LOCK_S = 2.0
"""Who is running is done with a write long before."""
_TRIES = 20


class NeverOutsideAWrite(Exception):
    """It held the lock each time it was stopped."""


def freeze(pid: int, store_url: str) -> None:
    """SIGSTOP, between two writes if the store is SQLite; `os.kill(pid, SIGCONT)` lets it go on."""
    for attempt in range(_TRIES):
        os.kill(pid, signal.SIGSTOP)
        while not is_frozen(pid):  # each of its threads stops when it is next to run
            time.sleep(0.001)
        if not store_url.startswith("sqlite:///") or _can_write(store_url.removeprefix("sqlite:///")):
            return
        os.kill(pid, signal.SIGCONT)
        time.sleep(0.01 * (attempt + 1))
    raise NeverOutsideAWrite(f"Process {pid} held the lock of {store_url} each of {_TRIES} times.")


def is_frozen(pid: int) -> bool:
    """Whether all threads of a process have stopped; raises when there is no such process."""
    return all(map(_is_stopped, list(Path(f"/proc/{pid}/task").iterdir())))


def _is_stopped(thread: Path) -> bool:
    """Linux tells it behind the name, which is in brackets. Of one that has just ended it is not known."""
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
