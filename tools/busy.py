"""Run a command while the machine is kept busy.

    python tools/busy.py make test

Three processes per core compute without end, one writes to the disk and flushes each write, and one
makes the whole load come in waves, so that there are seconds in which the command hardly moves. They
end with the command, and with this process if that is killed.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

PER_CORE = 3
CHUNK = b"\0" * 1_048_576
KEEP_BYTES = 64 * len(CHUNK)
SURGE_EVERY_S, SURGE_S, SURGE_PER_CORE = 30.0, 5.0, 30
_PR_SET_PDEATHSIG = 1


def main() -> int:
    """Keep the machine busy while the command runs; return its exit code."""
    if len(sys.argv) < 2:
        print("Usage: python tools/busy.py COMMAND [ARGUMENT …]", file=sys.stderr)
        return 2
    cores = len(os.sched_getaffinity(0))
    jobs = [*([compute] * PER_CORE * cores), write, surge]
    load = [multiprocessing.Process(target=_with_parent, args=(job, os.getpid())) for job in jobs]
    for process in load:
        process.start()
    began, before = time.monotonic(), os.times()
    try:
        code = subprocess.run(sys.argv[1:], check=False).returncode
    finally:
        for process in load:
            process.kill()
    used_s = sum(os.times()[2:4]) - sum(before[2:4])
    took_s = time.monotonic() - began
    print(f"It took {took_s:.0f} s and {used_s:.0f} s of processor time on {cores} cores, kept busy.")
    return code


def compute() -> None:
    """Use a core for ever."""
    while True:
        sum(range(100_000))


def write() -> None:
    """Write to the disk and flush, for ever; within a bound of space."""
    with tempfile.TemporaryFile() as file:
        while True:
            if file.tell() >= KEEP_BYTES:
                file.seek(0)
            file.write(CHUNK)
            file.flush()
            os.fsync(file.fileno())


def surge() -> None:
    """Now and then let hardly anybody else run for some seconds."""
    cores = len(os.sched_getaffinity(0))
    while True:
        time.sleep(SURGE_EVERY_S)
        crowd = [_forked(compute) for _ in range(SURGE_PER_CORE * cores)]
        time.sleep(SURGE_S)
        for pid in crowd:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def _forked(job: Callable[[], None]) -> int:
    parent = os.getpid()
    pid = os.fork()
    if not pid:
        _with_parent(job, parent)
    return pid


def _with_parent(job: Callable[[], None], parent: int) -> None:
    """Do a job until the parent is gone, however that came about."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the command, and that ends this
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() == parent:
        job()
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
