"""The operations that are measured; imported by the process of a workload and by the bare loop alike."""

from __future__ import annotations

import json
import time
from pathlib import Path


class Work:
    """Some arithmetic; says in the end how much processor time its process took from the first call on."""

    def __init__(self, note: str, steps: int) -> None:
        self._note = Path(note)
        self._steps = range(steps)
        self._began_s = 0.0
        self._done = 0

    def __call__(self) -> None:
        if not self._done:
            self._began_s = time.process_time()
        self._done += 1
        total = 0
        for step in self._steps:
            total += step * step

    def close(self) -> None:
        used_s = time.process_time() - self._began_s
        self._note.write_text(json.dumps({"used_s": used_s, "done": self._done}))


def bare(note: str, steps: int, operations: int) -> None:
    """What anybody would write without an agent."""
    work = Work(note, steps)
    for _ in range(operations):
        work()
    work.close()


def steps_for(seconds: float) -> int:
    """How many steps an operation of about that long has here."""
    steps = 1_000
    for _ in range(10):
        work = Work("", steps)
        began_s = time.process_time()
        for _ in range(300):
            work()
        steps = max(1, round(steps * seconds * 300 / (time.process_time() - began_s)))
    return steps
