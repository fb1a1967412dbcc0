"""A connection to a store or a server, as the command line needs it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from datetime import datetime
from typing import Protocol

from interlock.remote.interfaces import Services
from interlock.systems.orchestrator.attachments import Chunk
from interlock.systems.settings import Settings


class ServiceConnection(Protocol):
    """A connection to a store or a server."""

    @property
    def settings(self) -> Settings:
        """The settings, as far as they are known here."""
        ...

    @property
    def services(self) -> Services:
        """The connected services."""
        ...

    async def now(self) -> datetime:
        """Return the time of the store, or close to it."""
        ...

    async def recover(self) -> int:
        """Fire due timers of all records, where no other process may do so."""
        ...

    def new_chunks(self, job_id: str) -> Callable[[], AsyncIterator[Chunk]]:
        """Return a function that yields the log's chunks since its last call."""
        ...
