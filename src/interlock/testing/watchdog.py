"""End a server when the process that started it has exited, for any reason.

Run as a program (`python -I watchdog.py <pipe> <folder>`) it reads orders from a pipe whose other end
only the owner holds. When the owner writes `end`, or exits, even by `kill -9`, which closes the pipe,
the watched processes are ended and the directory is removed. `end` is needed because a process that the owner
has forked may still hold the pipe open. It uses only the standard library, because Interlock may not be
installed in the interpreter that runs it.
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
_DYING_S = 60.0
"""Longest wait for processes that were killed: on a busy machine they die when they are next scheduled."""


def main() -> None:
    """Watch until `end` or until the pipe closes.

    Each line names the process to end then.
    """
    pipe, folder = int(sys.argv[1]), Path(sys.argv[2])
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # Ctrl-C goes to the whole terminal
    watched = 0
    with os.fdopen(pipe) as orders:
        while (order := orders.readline()) and order != END:
            watched = int(order)
    if watched:
        end_tree(watched)
    shutil.rmtree(folder, ignore_errors=True)


def end_tree(pid: int) -> None:
    """End a process and its descendants.

    A request lets it tidy up; then they are killed.
    """
    family = {member: began(member) for member in tree(pid)}
    send(family, signal.SIGCONT)
    send([pid], signal.SIGQUIT)
    _wait_until_gone(family, _PATIENCE_S)
    # Meanwhile the id of one that has ended may have been given to another process.
    left = [member for member, start in family.items() if start and began(member) == start]
    if pid in left:
        left += freeze(pid)
    send(left, signal.SIGKILL)
    _wait_until_gone(left, _DYING_S)


def _is_stopped(pid: int) -> bool:
    """Return whether a process is stopped, or has ended."""
    try:
        return _fields(Path(f"/proc/{pid}"))[0] in "TtZX"
    except OSError:
        return True


def _wait_until_gone(pids: Iterable[int], most_s: float) -> None:
    deadline = time.monotonic() + most_s
    while any(map(alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.005)


def tree(pid: int) -> list[int]:
    """Return a process and all its descendants, parents first."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and (parent := _parent_of(entry)):
            children.setdefault(parent, []).append(int(entry.name))
    family = [pid]
    for member in family:
        family.extend(children.get(member, ()))
    return family


def send(pids: Iterable[int], number: signal.Signals) -> None:
    """Send a signal to each process that still exists."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def freeze(pid: int) -> list[int]:
    """Stop a process and its descendants; return all of them.

    Descendants that are started meanwhile are stopped, too.
    """
    family = tree(pid)
    while True:
        send(family, signal.SIGSTOP)
        while not all(map(_is_stopped, family)):
            time.sleep(0.001)
        before, family = family, tree(pid)  # a stopped process starts no others, so it is complete
        if set(family) <= set(before):
            return before


def alive(pid: int) -> bool:
    """Return whether a process is running; a zombie is not."""
    try:
        return _fields(Path(f"/proc/{pid}"))[0] not in "ZX"
    except OSError:
        return False


def began(pid: int) -> str:
    """Return the start time of a process; empty if it has ended."""
    try:
        fields = _fields(Path(f"/proc/{pid}"))
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else fields[19]


def _parent_of(entry: Path) -> int:
    try:
        return int(_fields(entry)[1])
    except OSError:
        return 0


def _fields(entry: Path) -> list[str]:
    """Return the fields after the name: state, parent and so on.

    The name may contain any characters.
    """
    return (entry / "stat").read_text().rpartition(") ")[2].split()


if __name__ == "__main__":
    main()
