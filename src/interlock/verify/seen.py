"""Which states were met before, in twelve bytes each.

A state is known by 64 bits of its hash. Two of five million states share one with a probability
below one in a million; in return five million of them fit into a hundred megabytes.
"""

from __future__ import annotations

from array import array

_FIRST_SIZE = 1 << 16
_ALL_64 = (1 << 64) - 1
_FOR_ZERO = 0x9E3779B97F4A7C15
"""An empty place holds a zero, so a hash of zero is taken for this."""


class Seen:
    """From the hash of a state to its number, in the order in which states were met."""

    __slots__ = ("_hashes", "_limit", "_mask", "_numbers", "count")

    def __init__(self) -> None:
        self.count = 0
        self._resize(_FIRST_SIZE)

    def number(self, hashed: int) -> int:
        """The number of a state; a new one has the number that `count` was before."""
        hashed = hashed & _ALL_64 or _FOR_ZERO
        hashes, mask = self._hashes, self._mask
        place = (hashed ^ hashed >> 29) & mask
        while found := hashes[place]:
            if found == hashed:
                return self._numbers[place]
            place = place + 1 & mask
        hashes[place] = hashed
        number = self._numbers[place] = self.count
        self.count = number + 1
        if number > self._limit:
            self._grow()
        return number

    def find(self, hashed: int) -> int | None:
        """The number of a state that was met; None for any other."""
        hashed = hashed & _ALL_64 or _FOR_ZERO
        place = (hashed ^ hashed >> 29) & self._mask
        while found := self._hashes[place]:
            if found == hashed:
                return self._numbers[place]
            place = place + 1 & self._mask
        return None

    def _resize(self, size: int) -> None:
        self._hashes = array("Q", bytes(8 * size))
        self._numbers = array("I", bytes(4 * size))
        self._mask = size - 1
        self._limit = size * 5 // 8

    def _grow(self) -> None:
        old, numbers = self._hashes, self._numbers
        self._resize(2 * len(old))
        hashes, kept, mask = self._hashes, self._numbers, self._mask
        for before, hashed in enumerate(old):
            if hashed:
                place = (hashed ^ hashed >> 29) & mask
                while hashes[place]:
                    place = place + 1 & mask
                hashes[place], kept[place] = hashed, numbers[before]
