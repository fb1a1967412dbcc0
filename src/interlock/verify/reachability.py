"""From which states a goal can still be reached.

The steps are kept as two rows of numbers. Most of them lead forward, so going through the states
from the last to the first settles nearly all of them at once, and a few more rounds the rest.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator


class Graph:
    """The states by their number, the unaided steps between them, and what was seen of each."""

    __slots__ = ("asked", "reached", "starts", "targets")

    def __init__(self) -> None:
        self.starts = array("Q")
        self.targets = array("I")
        self.reached = bytearray()
        self.asked = bytearray()

    def add(self, reached: int, asked: int) -> None:
        """A state: the goals that hold in it, and those that are asked for from here."""
        self.reached.append(reached)
        self.asked.append(asked)

    def begin(self) -> None:
        """The steps of the next state follow."""
        self.starts.append(len(self.targets))

    def lead(self, number: int) -> None:
        """One of them leads to this state."""
        self.targets.append(number)


def stuck(graph: Graph, goals: int) -> Iterator[tuple[int, int]]:
    """Each goal that cannot be reached from somewhere it is asked for, with the first such state."""
    everything = (1 << goals) - 1
    if not everything:
        return
    reached = _spread(graph, everything)
    for goal in range(goals):
        mine = 1 << goal
        for number, asked in enumerate(graph.asked):
            if asked & mine and not reached[number] & mine:
                yield goal, number
                break


def _spread(graph: Graph, everything: int) -> bytearray:
    """Carry the goals back along the steps until nothing changes."""
    reached, targets = bytearray(graph.reached), graph.targets
    starts = array("Q", graph.starts)
    starts.append(len(targets))
    open_ones = array("I", range(len(starts) - 2, -1, -1))
    changed = True
    while changed and open_ones:
        changed, left = False, array("I")
        for number in open_ones:
            mask = before = reached[number]
            for target in targets[starts[number] : starts[number + 1]]:
                mask |= reached[target]
                if mask == everything:
                    break
            if mask != before:
                reached[number] = mask
                changed = True
            if mask != everything:
                left.append(number)
        open_ones = left
    return reached
