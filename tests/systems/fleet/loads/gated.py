"""A workload that goes on when a test lets it: so it runs for as long as the test needs, and no longer."""

from __future__ import annotations

import asyncio
from itertools import count
from pathlib import Path

NUMBERS = count(1)


async def work(gate: str, free: int) -> None:
    """Do the first few operations at once, and the others when there is a file."""
    if next(NUMBERS) > free:
        while not Path(gate).exists():
            await asyncio.sleep(0.02)
