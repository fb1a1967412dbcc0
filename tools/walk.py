"""Measure how much code one job meets on its way from submit to done.

    python tools/walk.py           print the figures, and the files in the order of their first visit
    python tools/walk.py --json    print the same as JSON
    python tools/walk.py --calls   print each call in order, a blank line where control moves to another file

A job with one async handler is submitted to a store on SQLite and done by a worker of the same process. Every
call of a function of the package is noted, in all threads, and each time that a suspended one goes on. A move
is a call into another file than the one that was called last: what a reader with an editor does. Jobs are
counted one after the other, and the one with the fewest moves is reported: the worker is at rest before some
of them, and before others still has to do with the one before. Heartbeats and sweeps are so rare that none
falls into the time of a job, which on a busy machine is long. What all of them met (`steady`) does not depend
on the machine: `tests/tidy/test_walk.py` holds it.

The review that set the aim counted 82 files, 471 functions and 766 moves at commit 13ed4bb9. There this tool
counts 80, 398 and 687.

Why: decision 0424.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import groupby
from pathlib import Path
from types import CodeType, FrameType

import msgspec

import interlock
from interlock.systems.settings import Settings
from interlock.testing.at_work import QUICK, at_work
from interlock.worker.tasks import Registry

SOURCES = Path(interlock.__file__).parent
WAIT_S = 60.0
JOBS = 16
BESIDE = {"interlock-supervision", "interlock-watchdog", "interlock-renewer"}
"""Threads of a worker that do not take part in the way of a job."""
SETTINGS = Settings(durations=msgspec.structs.replace(QUICK, heartbeat_every_s=20.0, sweep_every_s=20.0))


@dataclass
class Walk:
    """What a job has met."""

    files: int = 0
    functions: int = 0
    lines: int = 0
    """Lines of the functions that were called, each counted once."""
    calls: int = 0
    moves: int = 0
    returns: int = 0
    """Moves into a file that was met before."""
    visits: dict[str, int] = field(default_factory=dict)
    """How many functions of each file were called, in the order of the first visits."""
    steady_files: int = 0
    steady_functions: int = 0
    """Files and functions that every counted job met."""
    trail: list[str] = field(default_factory=list)
    """Each call in order: the file and the function."""


class Recorder:
    """Notes each call of a function of the package, in the threads on the way of a job."""

    def __init__(self) -> None:
        self.noting = False
        self._called: list[CodeType] = []
        threading.setprofile(self._note)
        sys.setprofile(self._note)

    def _note(self, frame: FrameType, event: str, _: object) -> None:
        if not self.noting or event != "call" or threading.current_thread().name in BESIDE:
            return
        if frame.f_code.co_filename.startswith(str(SOURCES)):
            self._called.append(frame.f_code)

    def walk(self) -> Walk:
        """Return the figures of everything that was noted since the last walk."""
        walk, functions, before = Walk(), set[CodeType](), ""
        visits: Counter[str] = Counter()
        called, self._called = self._called, []
        for code in called:
            if code.co_name.startswith("<"):  # a comprehension or a lambda belongs to its function
                continue
            file = str(Path(code.co_filename).relative_to(SOURCES))
            if file != before:
                walk.moves += 1
                walk.returns += file in visits
            if code not in functions:
                functions.add(code)
                visits[file] += 1
                walk.lines += _length(code)
            walk.calls += 1
            walk.trail.append(f"{file} {code.co_qualname}")
            before = file
        walk.files, walk.functions, walk.visits = len(visits), len(functions), dict(visits)
        return walk


async def measure(jobs: int = JOBS) -> Walk:
    """Let some jobs be done, one after the other, and return what the one with the fewest moves met."""
    recorder, registry = Recorder(), Registry()
    walks: list[Walk] = []

    @registry.task
    async def double(x: int) -> int:
        return 2 * x

    async with at_work(registry, settings=SETTINGS) as il:
        await (await il.submit(double, 1)).result(timeout_s=WAIT_S)
        for _ in range(jobs):
            recorder.noting = True
            assert await (await il.submit(double, 21)).result(timeout_s=WAIT_S) == 42
            recorder.noting = False
            walks.append(recorder.walk())
    quietest = min(walks, key=lambda walk: walk.moves)
    steady = set.intersection(*(set(walk.trail) for walk in walks))
    quietest.steady_files = len({call.split()[0] for call in steady})
    quietest.steady_functions = len(steady)
    return quietest


def _length(code: CodeType) -> int:
    numbers = [line for _, _, line in code.co_lines() if line is not None]
    return max(numbers) - code.co_firstlineno + 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the figures; the answer is the exit code."""
    parser = argparse.ArgumentParser(description="Measure how much code one job meets from submit to done.")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--calls", action="store_true", help="print each call in order")
    options = parser.parse_args(arguments)
    walk = asyncio.run(measure())
    if options.json:
        print(json.dumps(asdict(walk), indent=2))
        return 0
    if options.calls:
        for file, calls in groupby(walk.trail, key=lambda call: call.split()[0]):
            print(file, *(f"    {call.split()[1]}" for call in calls), "", sep="\n")
        return 0
    print(f"{walk.files} files, {walk.functions} functions ({walk.lines} lines), {walk.calls} calls")
    print(f"{walk.moves} moves between files, {walk.returns} of them into a file that was met before")
    print(f"{walk.steady_files} files and {walk.steady_functions} functions are met by every job")
    for file, functions in walk.visits.items():
        print(f"  {functions:3} {file}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
