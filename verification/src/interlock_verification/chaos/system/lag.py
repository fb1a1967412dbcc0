"""The scheduling delay of each member of the fleet, as the kernel counts it.

On a busy machine, a runnable process has to wait for a processor. The kernel counts that time for each thread
(the second number of `/proc/PID/schedstat`), and it is sampled here. Only time that was surely inside a
period is counted: from the first sample in it to the last, and only of the main thread. Waiting for a disk,
or for another waiting process, is not included.
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


class DelaySample(msgspec.Struct, frozen=True):
    """The total delay of one process at a time."""

    at: datetime
    pid: int
    waited_s: float


class Lag:
    """The samples of all members by name, and the load of the machine."""

    def __init__(self) -> None:
        self.readings: dict[str, list[DelaySample]] = defaultdict(list)
        self._loads: list[float] = []

    def read(self, at: datetime, pids: Iterable[tuple[str, int]]) -> None:
        """Sample these processes; skip ended ones."""
        self._loads.append(os.getloadavg()[0])
        for name, pid in pids:
            waited_s = _waited_s(pid)
            if waited_s is not None:
                self.readings[name].append(DelaySample(at, pid, waited_s))

    def of(self, name: str, begin: datetime, end: datetime) -> float:
        """Return the certain delay of this member between two times.

        All its lives count.
        """
        readings = self.readings.get(name, [])
        inside = readings[bisect_left(readings, begin, key=_when) : bisect_right(readings, end, key=_when)]
        return sum(
            later.waited_s - (earlier.waited_s if later.pid == earlier.pid else 0.0)
            for earlier, later in pairwise(inside)
        )

    def of_all(self, begin: datetime, end: datetime) -> float:
        """Return the delay of every member between two times: the minimum of all."""
        return min((self.of(name, begin, end) for name in self.readings), default=0.0)

    def remark(self) -> str:
        """Return a summary."""
        least, most = min(self._loads, default=0.0), max(self._loads, default=0.0)
        return f"the load average was {least:.1f} to {most:.1f}, of {os.cpu_count()} processors"


def _when(reading: DelaySample) -> datetime:
    return reading.at


def _waited_s(pid: int) -> float | None:
    try:
        text = Path(f"/proc/{pid}/schedstat").read_text(encoding="ascii")
    except (FileNotFoundError, ProcessLookupError):
        return None
    return int(text.split()[1]) / _NANOSECONDS
