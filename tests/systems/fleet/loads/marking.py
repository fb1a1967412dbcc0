"""A workload that notes when it was first called, by the clock that all processes of a host share."""

from __future__ import annotations

import os
import time
from pathlib import Path

# Async, because lanes of threads pace themselves with `time.sleep`, and libfaketime bends that by the skew.
NOTED: list[int] = []


async def mark(folder: str) -> None:
    """Write the instant of the first call."""
    NOTED.append(time.monotonic_ns())
    if len(NOTED) == 1:
        (Path(folder) / str(os.getpid())).write_text(str(NOTED[0]))
