"""How many workers there shall be, and how long one that keeps dying is waited for. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator

import msgspec

from interlock.errors import InvalidSettings

MAX_WORKERS = 1_000


class PoolSettings(msgspec.Struct, frozen=True, kw_only=True):
    """A pool; each setting with the default that we run with."""

    name: str
    """Its workers are called this, and a number."""
    least: int = 1
    """So many are always kept."""
    most: int = 1
    """So many at most, when there is much to do."""
    slots: int = 10
    """How many tasks one worker executes at once."""
    first_pause_s: float = 0.5
    longest_pause_s: float = 30.0
    lived_s: float = 60.0
    """Who has lived for so long has not died of its start."""
    shrink_after_s: float = 30.0
    """How long there has to be less to do before somebody is sent home."""
    look_every_s: float = 1.0
    end_s: float = 35.0
    """How long workers may take to end, once asked."""

    def __post_init__(self) -> None:
        if faults := list(self._faults()):
            raise InvalidSettings(
                "The pool cannot be made like this: " + "; ".join(faults) + ".",
                todo="Change the numbers so that each of these holds.",
                facts={"faults": faults},
            )

    def _faults(self) -> Iterator[str]:
        if not 1 <= self.least <= MAX_WORKERS:
            yield f"there are {self.least} workers and must be 1 to {MAX_WORKERS}"
        if not self.least <= self.most <= MAX_WORKERS:
            yield f"there are {self.most} at most and must be {self.least} to {MAX_WORKERS}"
        if not self.name or "#" in self.name:
            yield f"name is {self.name!r} and must be a word without '#'"
        if self.slots < 1:
            yield f"slots is {self.slots} and must be at least 1"


class Size:
    """How many there shall be: as many as the work needs, at once; fewer only after a while."""

    def __init__(self, settings: PoolSettings) -> None:
        self._settings = settings
        self.wanted = settings.least
        self._less_since: float | None = None

    def look(self, unfinished: int | None, now: float) -> int:
        """The number for so many jobs that have not ended; None when nobody knows how many there are."""
        if unfinished is None:
            return self.wanted
        settings = self._settings
        needed = min(max(math.ceil(unfinished / settings.slots), settings.least), settings.most)
        if needed >= self.wanted:
            self.wanted, self._less_since = needed, None
        elif self._less_since is None:
            self._less_since = now
        elif now - self._less_since >= settings.shrink_after_s:
            self.wanted, self._less_since = needed, None
        return self.wanted


class Luck:
    """How one place in the pool fares: who dies young again and again is started more seldom."""

    def __init__(self, settings: PoolSettings) -> None:
        self._settings = settings
        self.deaths = 0

    def died(self, lived_s: float) -> float:
        """One has died after so long; how long to wait before the next is started."""
        settings = self._settings
        self.deaths = 1 if lived_s >= settings.lived_s else self.deaths + 1
        doublings = min(self.deaths - 1, 20)
        return min(settings.first_pause_s * 2.0**doublings, settings.longest_pause_s)
