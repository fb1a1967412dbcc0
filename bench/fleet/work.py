"""The operations that are measured, imported by the process of a workload."""

from __future__ import annotations

import json
import time
from pathlib import Path


class InTurns:
    """Some arithmetic, for an agent and bare, in turns of milliseconds in one process and one thread.

    A machine that is busy changes its speed from one second to the next, and processor time with it; two
    turns that follow each other hardly notice. Bare ones are done within one call, so that the agent
    knows nothing of them. What other threads of the process do is told apart: it is the agent's.
    """

    def __init__(self, note: str, steps: int, block: int) -> None:
        self._note = Path(note)
        self._steps = range(steps)
        self._block = block
        self._done = 0
        self._under: list[float] = []
        self._bare: list[float] = []
        self._beside_s = self._process_s = self._thread_s = self._turn_s = 0.0

    def __call__(self) -> None:
        if self._done == self._block:
            self._take_turns()
            return
        self._done += 1
        total = 0
        for step in self._steps:
            total += step * step

    def close(self) -> None:
        measurements = {"under": self._under, "bare": self._bare, "beside_s": self._beside_s}
        self._note.write_text(json.dumps(measurements))

    def _take_turns(self) -> None:
        """A turn of the agent's has ended: note it, and take a bare one. The first only starts the clocks."""
        now_s = time.thread_time()
        if self._turn_s:
            self._under.append((now_s - self._turn_s) / self._block)
        else:
            self._process_s, self._thread_s = time.process_time(), now_s
        self._done = 0
        for _ in range(self._block):
            self()
        self._turn_s = time.thread_time()
        if self._under:
            self._bare.append((self._turn_s - now_s) / self._block)
        self._beside_s = (time.process_time() - self._process_s) - (self._turn_s - self._thread_s)
        self._done = 0


def steps_for(seconds: float) -> int:
    """How many steps an operation of about that long has here."""
    steps = 1_000
    for _ in range(10):
        work = InTurns("", steps, 1_000)
        began_s = time.process_time()
        for _ in range(300):
            work()
        steps = max(1, round(steps * seconds * 300 / (time.process_time() - began_s)))
    return steps
