"""Exponential backoff: pauses between tries that grow up to a limit, with jitter where tries would collide.

A loop that knows when it has succeeded has a `Backoff`. Where the number of tries is known, because a record
or the loop counts them, `nth_pause_s` returns the pause and keeps nothing. `jittered_s` spreads a pause.
`tests/tidy/test_backoff_is_written_once.py` refuses a pause that is doubled anywhere else.

Why: decision 0460.
"""

from __future__ import annotations

import zlib

MOST_DOUBLINGS = 64
"""No pause needs a larger exponent, which would overflow."""


def nth_pause_s(number: int, first_s: float, longest_s: float, factor: float = 2.0) -> float:
    """Return the pause after the nth failure, counted from 1.

    It is `first_s` at first, and at most `longest_s`.
    """
    return min(first_s * factor ** min(max(number - 1, 0), MOST_DOUBLINGS), longest_s)


def jittered_s(pause_s: float, salt: str, *, least: float = 1.0, span: float) -> float:
    """Return the pause times a share that the salt decides.

    The share is between `least` and `least + span`. A random number would make deciders impure: the same salt
    always has the same share.
    """
    return pause_s * (least + span * (zlib.crc32(salt.encode()) / 2**32))


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

    __slots__ = ("_failures", "_first_s", "_longest_s")

    def __init__(self, first_s: float, longest_s: float) -> None:
        self._first_s = first_s
        self._longest_s = longest_s
        self._failures = 0

    def next_s(self) -> float:
        """Return the pause before the next try; the one after it is twice as long."""
        self._failures += 1
        return nth_pause_s(self._failures, self._first_s, self._longest_s)

    def reset(self) -> None:
        """Begin with the first pause again."""
        self._failures = 0
