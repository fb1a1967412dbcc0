"""A workload that prepares until a test lets it begin, on the agent that is named by a variable."""

from __future__ import annotations

import os
import time
from pathlib import Path


class Work:
    """It is made before the start; with `LATE` in its environment it waits for a file."""

    def __init__(self, gate: str) -> None:
        while os.environ.get("LATE") and not Path(gate).exists():
            time.sleep(0.02)

    async def __call__(self) -> None:
        """One operation."""
