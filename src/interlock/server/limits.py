"""How much is too much: buckets that fill with time."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable

from interlock.server.problems import TooBusy, TooMany
from interlock.server.settings import Rate, ServerSettings

MAX_REMEMBERED = 10_000


class Crowd:
    """How many requests are being answered, and how many wait for something to happen.

    Long polls and live streams last for as long as there is nothing to say, and cost next to nothing
    while they do: so they have a place of their own, and do not keep others out.
    """

    def __init__(self, settings: ServerSettings) -> None:
        self._most = {True: settings.max_concurrent, False: settings.max_waiting}
        self._inside = {True: 0, False: 0}

    def enter(self, *, bounded: bool) -> None:
        """One more, or too many; whoever has entered leaves as well."""
        most = self._most[bounded]
        if self._inside[bounded] >= most:
            what = "requests to answer" if bounded else "long polls and streams open"
            raise TooBusy(
                f"The server has {most} {what} already.",
                todo="Ask again in a moment, or ask another server.",
                facts={"most": most},
            )
        self._inside[bounded] += 1

    def leave(self, *, bounded: bool) -> None:
        """One fewer."""
        self._inside[bounded] -= 1


class Buckets:
    """One bucket for each name; each request takes a drop, and an empty bucket says when to come back."""

    def __init__(self, rate: Rate, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.rate = rate
        self._monotonic = monotonic
        self._filled: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, name: str) -> None:
        """Take a drop; raises `TooMany` when there is none."""
        level, now = self._level(name)
        if level < 1.0:
            raise TooMany(
                f"{name} asks for more than {self.rate.per_s:g} requests a second.",
                retry_after_s=(1.0 - level) / self.rate.per_s,
                facts={"per_s": self.rate.per_s, "burst": self.rate.burst},
            )
        self._filled[name] = level - 1.0, now
        self._filled.move_to_end(name)
        if len(self._filled) > MAX_REMEMBERED:
            self._filled.popitem(last=False)  # whoever was away the longest has a full one again

    def _level(self, name: str) -> tuple[float, float]:
        now = self._monotonic()
        level, at = self._filled.get(name, (float(self.rate.burst), now))
        return min(level + (now - at) * self.rate.per_s, float(self.rate.burst)), now
