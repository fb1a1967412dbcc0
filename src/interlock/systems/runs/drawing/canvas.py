"""Lines on a grid of characters, and what they say to whoever follows them.

A line belongs to a net: some jobs and those that need exactly them. Where lines of two nets cross, the
one that runs up and down is drawn through, and the other one passes below it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

UP, DOWN, LEFT, RIGHT = 1, 2, 4, 8
_LINES = {
    LEFT | RIGHT: "─",
    UP | DOWN: "│",
    LEFT: "─",
    RIGHT: "─",
    UP: "│",
    DOWN: "│",
    DOWN | RIGHT: "┌",
    DOWN | LEFT: "┐",
    UP | RIGHT: "└",
    UP | LEFT: "┘",
    UP | DOWN | RIGHT: "├",
    UP | DOWN | LEFT: "┤",
    DOWN | LEFT | RIGHT: "┬",
    UP | LEFT | RIGHT: "┴",
    UP | DOWN | LEFT | RIGHT: "┼",
}


@dataclass(slots=True)
class Canvas:
    """The lines between two layers or in one; a character may have one of each direction."""

    across: dict[tuple[int, int], tuple[int, frozenset[int]]] = field(default_factory=dict)
    along: dict[tuple[int, int], tuple[int, frozenset[int]]] = field(default_factory=dict)

    def draw_across(self, net: int, row: int, first: int, last: int) -> None:
        """A line from the one column to the other."""
        for column in range(first, last + 1):
            bits = (LEFT if column > first else 0) | (RIGHT if column < last else 0)
            before, nets = self.across.get((row, column), (0, frozenset()))
            self.across[row, column] = before | bits, nets | {net}

    def draw_along(self, net: int, column: int, one: int, other: int) -> None:
        """A line from the one row to the other."""
        top, bottom = sorted((one, other))
        for row in range(top, bottom + 1):
            bits = (UP if row > top else 0) | (DOWN if row < bottom else 0)
            before, nets = self.along.get((row, column), (0, frozenset()))
            self.along[row, column] = before | bits, nets | {net}

    def joins(self, at: tuple[int, int]) -> bool:
        """Whether the lines of both directions meet there, or only cross."""
        return not self.across[at][1].isdisjoint(self.along[at][1])

    def character(self, at: tuple[int, int]) -> str:
        """What is drawn there."""
        across, along = self.across.get(at), self.along.get(at)
        if across is None or along is None:
            return _LINES.get((across or along or (0, frozenset()))[0], " ")
        return _LINES[across[0] | along[0]] if self.joins(at) else "│"

    def followed(self, start: tuple[int, int]) -> Iterator[tuple[int, int]]:
        """Every character that a reader reaches who never turns back to the left."""
        seen = {(start, "across")}
        waiting = [(start, "across")]
        while waiting:
            at, way = waiting.pop()
            yield at
            for step in self._steps(at, way):
                if step not in seen:
                    seen.add(step)
                    waiting.append(step)

    def _steps(self, at: tuple[int, int], way: str) -> Iterator[tuple[tuple[int, int], str]]:
        row, column = at
        if at in self.across and at in self.along and self.joins(at):
            yield at, "along" if way == "across" else "across"
        if way == "across" and self.across.get(at, (0, None))[0] & RIGHT:
            yield (row, column + 1), "across"
        if way == "along":
            bits = self.along.get(at, (0, None))[0]
            yield from (((row + step, column), "along") for step, bit in ((-1, UP), (1, DOWN)) if bits & bit)
