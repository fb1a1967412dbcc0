"""The vertical parts of lines: which of them stands nearer to the spine.

Within a channel a line leaves a box, meets its trunk and goes on from there. Whether two nets
cross depends only on which trunk stands further in, so the crossings of every pair can be counted
once for each of its two orders, before any x is known.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

from interlock.machine.draw.order import best_order

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_CROSSING = 10.0
_PER_PX = 0.01
_LINE, _BEND = 3.0, 1.0
_APART_PX = 14


@dataclass(frozen=True, slots=True)
class Trunk:
    """A net within its channel: the ys of its lines from the inner and from the outer column."""

    net: int
    inner: tuple[int, ...]
    outer: tuple[int, ...]
    top: int
    bottom: int

    @property
    def is_straight(self) -> bool:
        return self.top == self.bottom


def trunk(net: int, inner: Sequence[int], outer: Sequence[int]) -> Trunk:
    """A net with these ends."""
    ends = (*inner, *outer)
    return Trunk(net, tuple(inner), tuple(outer), min(ends), max(ends))


def crossings(near: Trunk, far: Trunk) -> int:
    """How often the two cross when `near` stands further in than `far`."""
    count = 0
    for y in far.inner:
        count += near.top < y < near.bottom
    for y in near.outer:
        count += far.top < y < far.bottom
    return count


def tangle(trunks: Sequence[Trunk]) -> float:
    """The price of a channel if every pair could have its better order; long lines cost a bit."""
    total = sum(t.bottom - t.top for t in trunks) * _PER_PX
    for one, two in combinations(trunks, 2):
        if one.bottom > two.top and two.bottom > one.top:
            total += _CROSSING * min(crossings(one, two), crossings(two, one))
    return total


def tracks_of(trunks: Sequence[Trunk]) -> dict[int, int]:
    """The track of every net that has a vertical part, counted from the inside."""
    standing = [t for t in trunks if not t.is_straight]
    price = {(a.net, b.net): crossings(a, b) for a in standing for b in standing if a is not b}

    def cost(order: Sequence[Trunk]) -> float:
        return sum(price[near.net, far.net] for near, far in combinations(order, 2))

    order = best_order(sorted(standing, key=lambda t: (t.bottom - t.top, t.top, t.net)), cost)
    tracks: dict[int, int] = {}
    for index, mine in enumerate(order):
        nearer = [tracks[t.net] for t in order[:index] if _touch(t, mine)]
        tracks[mine.net] = max(nearer, default=-1) + 1
    return tracks


def cost_of(trunks: Sequence[Trunk], tracks: Mapping[int, int]) -> float:
    """How restless a channel is, with everything in its place."""
    total = 0.0
    for one in trunks:
        ends = (*one.inner, *one.outer)
        total += _LINE + _PER_PX * (one.bottom - one.top)
        total += _BEND * (len(ends) - max(ends.count(y) for y in ends))
    for one, two in combinations(trunks, 2):
        inside = tracks.get(one.net, -1) < tracks.get(two.net, -1)
        total += _CROSSING * (crossings(one, two) if inside else crossings(two, one))
    return total


def _touch(one: Trunk, two: Trunk) -> bool:
    return one.bottom + _APART_PX > two.top and two.bottom + _APART_PX > one.top
