"""Exponential backoff of a loop: the pauses between tries while something is away."""

from __future__ import annotations


class Backoff:
    """Pauses that double up to a limit, and begin anew after a success.

    backoff = Backoff(0.05, 2.0)
    while True:
        try:
            await work()
            backoff.reset()
        except ConnectionLost:
            await asyncio.sleep(backoff.next_s())
    """

    __slots__ = ("_first_s", "_longest_s", "_pause_s")

    def __init__(self, first_s: float, longest_s: float) -> None:
        self._first_s = first_s
        self._longest_s = longest_s
        self._pause_s = first_s

    def next_s(self) -> float:
        """Return the pause before the next try; the one after it is twice as long."""
        pause_s = self._pause_s
        self._pause_s = min(2 * pause_s, self._longest_s)
        return pause_s

    def reset(self) -> None:
        """Begin with the first pause again."""
        self._pause_s = self._first_s
