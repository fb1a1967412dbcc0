"""Functions that agents are made to call, some of them with bad manners."""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path


def count(note: str) -> int:
    """Leaves a byte for each call."""
    with Path(note).open("ab", buffering=0) as file:
        file.write(b".")
    return 7


def verbose(note: str) -> None:
    """Fails at length, each time in another way, so that there is much to tell."""
    count(note)
    raise ValueError(f"{time.monotonic_ns()} {'x' * 1_000}")


def fail() -> None:
    raise ValueError("this never works")


def block(note: str) -> None:
    """Says where it is, and does not come back."""
    Path(note).write_text(f"{os.getpid()}\n")
    time.sleep(3_600)


async def deaf(note: str) -> None:
    """Hears neither a cancel nor SIGTERM, and has a child that hears nothing either."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    child = subprocess.Popen(
        [sys.executable, "-c", "import signal; signal.signal(15, signal.SIG_IGN); signal.pause()"],
        start_new_session=True,
    )
    with Path(note).open("a") as notes:
        notes.write(f"{os.getpid()} {child.pid}\n")
    while True:
        try:
            await asyncio.sleep(3_600)
        except asyncio.CancelledError:
            time.sleep(3_600)


async def stubborn(note: str, let_go: str) -> None:
    """Hears neither a cancel nor SIGTERM, until there is a file that lets it go."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with Path(note).open("a") as notes:
        notes.write(f"{os.getpid()}\n")
    while not Path(let_go).exists():
        try:
            await asyncio.sleep(0.02)
        except asyncio.CancelledError:
            continue


def babble() -> None:
    """Writes into every socket that it finds, one of which is its agent's."""
    for descriptor in range(3, 64):
        try:
            if stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                os.write(descriptor, b"babble\n")
        except OSError:
            continue


class Tidy:
    """Leaves a note when it is closed."""

    def __init__(self, note: str) -> None:
        self._note = Path(note)

    async def __call__(self) -> None:
        await asyncio.sleep(0.01)

    def close(self) -> None:
        self._note.write_text("closed")
