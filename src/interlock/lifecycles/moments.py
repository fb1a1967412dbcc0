"""Events that happen at a moment.

The moment is always the store's: the clock of a client is information, never authority. It is part
of the event, so that deciding stays a pure function and can be replayed.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from interlock.machine import Event


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed(Event):
    """Base of the events that say when."""

    at: datetime
