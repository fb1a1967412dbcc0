"""How long each member of the fleet has waited for a processor, as the kernel counts it.

On a machine with other work, a process that could go on has to wait until it is let. The kernel counts that
time for each thread (the second number of `/proc/PID/schedstat`), and it is read here beside everything else.
Only what was surely inside a span of time is told of it: from the first reading in it to the last, and of the
main thread alone. What a process waits for a disk, or for somebody else who waits, is not in it.
"""

from __future__ import annotations

import os
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime
from itertools import pairwise
from pathlib import Path

import msgspec

_NANOSECONDS = 1e9


class Reading(msgspec.Struct, frozen=True):
    """What one process had waited in all, at a moment."""

    at: datetime
    pid: int
    waited_s: float


class Lag:
    """The readings of everybody, by name, and how busy the machine was."""

    def __init__(self) -> None:
        self.readings: dict[str, list[Reading]] = defaultdict(list)
        self._loads: list[float] = []

    def read(self, at: datetime, pids: Iterable[tuple[str, int]]) -> None:
        """Look at each of these processes; one that is gone says nothing."""
        self._loads.append(os.getloadavg()[0])
        for name, pid in pids:
            waited_s = _waited_s(pid)
            if waited_s is not None:
                self.readings[name].append(Reading(at, pid, waited_s))

    def of(self, name: str, begin: datetime, end: datetime) -> float:
        """What this member has surely waited between two moments, in all its lives."""
        told = self.readings.get(name, [])
        inside = told[bisect_left(told, begin, key=_when) : bisect_right(told, end, key=_when)]
        return sum(
            later.waited_s - (earlier.waited_s if later.pid == earlier.pid else 0.0)
            for earlier, later in pairwise(inside)
        )

    def of_all(self, begin: datetime, end: datetime) -> float:
        """What every member has waited between two moments: as much as the one that has waited least."""
        return min((self.of(name, begin, end) for name in self.readings), default=0.0)

    def remark(self) -> str:
        """For people."""
        least, most = min(self._loads, default=0.0), max(self._loads, default=0.0)
        return f"the load average was {least:.1f} to {most:.1f}, of {os.cpu_count()} processors"


def _when(reading: Reading) -> datetime:
    return reading.at


def _waited_s(pid: int) -> float | None:
    try:
        words = Path(f"/proc/{pid}/schedstat").read_text(encoding="ascii")
    except (FileNotFoundError, ProcessLookupError):
        return None
    return int(words.split()[1]) / _NANOSECONDS
