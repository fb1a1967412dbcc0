"""How much of the processors was used: what a busy machine does not change.

A turn of a second on a busy machine is mostly waiting for others. The time spent on a processor, by
our process and by the server's, hardly is.
"""

from __future__ import annotations

from pathlib import Path
from time import process_time

_PROC = Path("/proc")


class Used:
    """Counts what this process and a server's have spent on a processor, in seconds."""

    def __init__(self, server: int | None = None) -> None:
        self._server = server
        self._total_s = 0.0
        self._seen: dict[int, float] = {}

    def __call__(self) -> float:
        """Up to now. Only who was there at the last call as well is counted: others did not work for us."""
        if self._server is not None:
            seen = {pid: _own_s(pid) for pid in (self._server, *_children(self._server))}
            self._total_s += sum(
                max(0.0, used - self._seen[pid]) for pid, used in seen.items() if pid in self._seen
            )
            self._seen = seen
        return self._total_s + process_time()


def _own_s(pid: int) -> float:
    try:
        threads = list((_PROC / str(pid) / "task").glob("*/schedstat"))
        return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9
    except OSError:
        return 0.0  # it has just ended, and is not counted from now on


def _children(pid: int) -> list[int]:
    text = (_PROC / str(pid) / "task" / str(pid) / "children").read_text()
    return [int(word) for word in text.split()]
