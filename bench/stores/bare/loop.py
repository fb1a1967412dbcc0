"""What the bench asks of a bare loop."""

from __future__ import annotations

from typing import Protocol


class BareLoop(Protocol):
    """A queue of its own on the same server as the store that it is compared with."""

    async def fill(self, names: range) -> None:
        """Make these records ready."""
        ...

    async def drain(self, batches: int) -> None:
        """Claim and complete so many batches."""
        ...

    async def close(self) -> None:
        """Let go of the connection."""
        ...


class Unexpected(Exception):
    """A contender has not done what it was timed for."""
