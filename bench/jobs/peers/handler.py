"""The two functions that every contender's workers execute.

    tick(number)    ticks its number off in a file, so that a job that ran twice or never is found out
    touch(number)   says at once at which moment it began

Before its first `tick` a worker process stops at a gate until the bench opens it. By then it has been
started, is connected and has taken its first jobs; so no contender's start is part of its time, and
all begin at one moment. Nothing here needs more than Python itself, because it is imported next to
every contender's own packages.
"""

from __future__ import annotations

import mmap
import os
import socket
import struct
import threading
import time

GATE, SEEN, TOUCHED = "BENCH_GATE", "BENCH_SEEN", "BENCH_TOUCHED"
"""Names in the environment: a socket to wait at, a file with a byte for each job, a socket to tell."""

MOMENT = struct.Struct("<qq")
"""The number of a job, and the monotonic clock of this machine in nanoseconds."""

opened = threading.Event()
"""Set once this process is past the gate."""

_seen: mmap.mmap | None = None
_entering = threading.Lock()
_telling: socket.socket | None = None


def tick(number: int) -> None:
    """Do nothing, once."""
    seen = _seen or _past_the_gate()
    seen[number] += 1


def touch(number: int) -> None:
    """Tell that this job has begun."""
    global _telling  # noqa: PLW0603 - a worker process has one
    now = time.monotonic_ns()
    if _telling is None:
        _telling = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        _telling.connect(os.environ[TOUCHED])
    _telling.send(MOMENT.pack(number, now))


def _past_the_gate() -> mmap.mmap:
    """Wait for the gate; every thread of the process does, and so does its event loop."""
    global _seen  # noqa: PLW0603 - a worker process has one
    with _entering:
        if _seen is None:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as gate:
                gate.connect(os.environ[GATE])
                gate.recv(1)
            with open(os.environ[SEEN], "r+b") as file:  # noqa: PTH123 - as light as it can be
                _seen = mmap.mmap(file.fileno(), 0)
            opened.set()
        return _seen
