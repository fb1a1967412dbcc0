"""Ends a server when whoever started it is gone, however that came about.

Run as a program (`python -I watchdog.py <pipe> <folder>`) it reads orders from a pipe whose other end
only the owner holds. When the owner says `end`, or ends itself, even by `kill -9`, which closes the pipe,
the watched processes are ended and the folder is removed. `end` is said because a process that the owner
has forked may still hold the pipe open. It needs nothing but the standard library,
because the interpreter that runs it may be one that nobody has installed Interlock in.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterable
from pathlib import Path

END = "end\n"
_PATIENCE_S = 3.0


def main() -> None:
    """Watch until told to end or until the pipe closes; each line names the process to end then."""
    pipe, folder = int(sys.argv[1]), Path(sys.argv[2])
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # Ctrl-C goes to the whole terminal; this is needed last
    watched = 0
    with os.fdopen(pipe) as orders:
        while (order := orders.readline()) and order != END:
            watched = int(order)
    if watched:
        end_tree(watched)
    shutil.rmtree(folder, ignore_errors=True)


def end_tree(pid: int) -> None:
    """End a process and its descendants: by request, so that it can tidy up, and then by force."""
    family = tree(pid)
    send(family, signal.SIGCONT)
    send([pid], signal.SIGQUIT)
    deadline = time.monotonic() + _PATIENCE_S
    while any(alive(member) for member in family) and time.monotonic() < deadline:
        time.sleep(0.005)
    send(family, signal.SIGKILL)


def tree(pid: int) -> list[int]:
    """A process and all its descendants, parents first."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and (parent := _parent_of(entry)):
            children.setdefault(parent, []).append(int(entry.name))
    family = [pid]
    for member in family:
        family.extend(children.get(member, ()))
    return family


def send(pids: Iterable[int], number: signal.Signals) -> None:
    """Signal each of them that still exists."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and was not fetched yet does not."""
    try:
        return _fields(Path(f"/proc/{pid}"))[0] not in "ZX"
    except OSError:
        return False


def _parent_of(entry: Path) -> int:
    try:
        return int(_fields(entry)[1])
    except OSError:
        return 0


def _fields(entry: Path) -> list[str]:
    """State, parent and so on: what follows the name, which may hold anything."""
    return (entry / "stat").read_text().rpartition(") ")[2].split()


if __name__ == "__main__":
    main()
