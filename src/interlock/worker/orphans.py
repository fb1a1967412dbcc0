"""Ended processes that nobody will fetch.

PID 1 inherits every orphan of its container, and one that nobody fetches stays for ever. Whoever has
started a process also wants to know how it ended, so only strangers may be fetched. A child of ours
is in our group or leads its own; who is in a third one was started by somebody else. All others are
left alone until they have waited for so long that nobody can want them any more.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

FORGOTTEN_AFTER_S = 60.0


class Orphans:
    """Fetches them, a round at a time."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic, every_s: float = 1.0) -> None:
        self._monotonic = monotonic
        self._every_s = every_s
        self._looked_at = float("-inf")
        self._since: dict[int, float] = {}

    def fetch(self) -> int:
        """Fetch those that are there, if some time has passed since the last look."""
        now = self._monotonic()
        if now - self._looked_at < self._every_s:
            return 0
        self._looked_at = now
        ended = dict(_ended_children())
        self._since = {pid: self._since.get(pid, now) for pid in ended}
        fetched = 0
        for pid, group in ended.items():
            stranger = group not in (os.getpgrp(), pid)
            if stranger or now - self._since[pid] >= FORGOTTEN_AFTER_S:
                with contextlib.suppress(ChildProcessError):
                    fetched += os.waitpid(pid, os.WNOHANG)[0] == pid
        return fetched


def _ended_children() -> Iterator[tuple[int, int]]:
    """Each child that has ended and was not fetched, with its group."""
    me = str(os.getpid())
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError):
            state, parent, group = (entry / "stat").read_text().rpartition(") ")[2].split()[:3]
            if state == "Z" and parent == me:
                yield int(entry.name), int(group)
