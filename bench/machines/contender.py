"""What every library has to do, and the record it has to write while doing it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Protocol

from bench.rounds import Work
from interlock.machine import Entry

ENTITY = "a_0123456789ab"
REASON = "measured"
AT = datetime(2025, 1, 1, tzinfo=UTC)
"""One moment for all: reading the clock costs the same everywhere and is not compared."""


class Contender(Protocol):
    """One library. The methods that return a `Work` prepare it; only the work itself is timed."""

    @property
    def name(self) -> str:
        """What the report calls it."""

    def answer(self, state: str, event: str) -> str | None:
        """The state after `event` in `state`, or None where it is refused."""

    def trail(self, events: Iterable[str]) -> tuple[str, int, list[Entry]]:
        """Walk with an audit: the last state, the number of steps on the record, the entries."""

    def bare(self, walks: int) -> Work:
        """Walk the happy path so many times."""

    def audited(self, walks: int) -> Work:
        """The same, but each step changes the record's data and appends an entry to a list."""

    def refusals(self, times: int) -> Work:
        """Send an event that the initial state does not accept, and go on."""

    def creations(self, times: int) -> Work:
        """Make records with an identity and a count of steps, ready for an event; return them."""
