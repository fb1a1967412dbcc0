"""Where the boxes beside the spine stand, and how their lines become straight."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

from interlock.machine.draw.columns import near_wishes
from interlock.machine.draw.geometry import GRID_PX
from interlock.machine.draw.plan import LEFT, RIGHT, SPINE, Channel
from interlock.machine.draw.ports import near_misses, stacked, straightened

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from interlock.machine.draw.draft import Draft
    from interlock.machine.draw.ports import Line, Slot

_REACH_PX = 6 * GRID_PX
_JOG_PX = 16
_BEND, _JOG, _NEAR_MISS, _PER_PX, _PER_PX_MOVED = 3.0, 7.0, 1.0, 0.01, 0.004


def with_side_boxes_placed(draft: Draft) -> Draft:
    """Move side boxes to where most of their lines run straight."""
    lines, tops = draft.lines(), dict(draft.tops)
    for side in (LEFT, RIGHT):
        states = draft.plan.columns[side]
        wishes = {i: _wishes(draft, Channel(side, 0), s, lines) for i, s in enumerate(states)}
        if states:
            heights = [draft.heights[state] for state in states]
            placed = near_wishes(heights, draft.gaps[side], wishes)
            tops |= dict(zip(states, placed, strict=True))
    return replace(draft, tops=tops)


def _wishes(draft: Draft, channel: Channel, state: str, lines: Mapping[Line, int]) -> list[int]:
    """For each line to the spine: the top of the box that would make it straight."""
    wishes = []
    for slot in draft.faces.get((channel, state), ()):
        offset = lines[slot.net, state, slot.role] - draft.tops[state]
        if ys := sorted(draft.spine_ends(slot, state, lines)):
            wishes.append(ys[(len(ys) - 1) // 2] - offset)
    return wishes


@dataclass(frozen=True, slots=True)
class _Seat:
    """A side box, and at which ys the spine meets its lines (`ends`) and other ones (`strangers`)."""

    state: str
    side: int
    height: int
    slots: tuple[Slot, ...]
    ends: Mapping[int, list[int]]
    strangers: Mapping[int, list[int]]


def settled(draft: Draft) -> tuple[Draft, dict[Line, int]]:
    """Shift side boxes a little where more lines become straight; the ys of all lines."""
    lines, tops = draft.lines(), dict(draft.tops)
    for side in (LEFT, RIGHT):
        seats = [_seat(draft, side, state, lines) for state in draft.plan.columns[side]]
        placed = _shifted(seats, draft.gaps[side], [tops[seat.state] for seat in seats])
        for seat, top in zip(seats, placed, strict=True):
            tops[seat.state] = top
            lines |= _lines_at(seat, top)
    for (channel, state), slots in draft.faces.items():
        if channel.depth:
            lines |= stacked(slots, state, tops[state], draft.heights[state], channel.side)
    return replace(draft, tops=tops), lines


def _seat(draft: Draft, side: int, state: str, lines: Mapping[Line, int]) -> _Seat:
    channel, nets = Channel(side, 0), draft.plan.nets
    slots = draft.faces.get((channel, state), ())
    on_spine = [
        (net, y)
        for (net, name, _), y in lines.items()
        if nets[net].channel == channel and draft.column_of[name] == SPINE
    ]
    ends = {slot.net: draft.spine_ends(slot, state, lines) for slot in slots}
    strangers = {slot.net: [y for net, y in on_spine if net != slot.net] for slot in slots}
    return _Seat(state, side, draft.heights[state], slots, ends, strangers)


def _shifted(seats: Sequence[_Seat], gaps: Sequence[int], tops: list[int]) -> list[int]:
    """Move boxes alone, with all above them, or with all below them, as long as it pays."""
    count = len(seats)
    blocks = [range(i, i + 1) for i in range(count)]
    blocks += [range(i, count) for i in range(count)] + [range(i + 1) for i in range(count)]

    @cache
    def price(index: int, top: int) -> float:
        return _bends(seats[index], top)

    def best_shift(block: range, now: Sequence[int]) -> int:
        def cost(shift: int) -> float:
            return sum(price(i, now[i] + shift) for i in block) + _PER_PX_MOVED * abs(shift)

        shifts: list[int] = [0, *_free_shifts(seats, gaps, block, now)]
        return min(shifts, key=cost)

    for block in blocks * 2:
        shift = best_shift(block, tops)
        tops = [top + shift if i in block else top for i, top in enumerate(tops)]
    return tops


def _free_shifts(seats: Sequence[_Seat], gaps: Sequence[int], block: range, tops: Sequence[int]) -> range:
    """How far these boxes can move before they meet the next ones."""
    first, last = block[0], block[-1]
    up, down = -_REACH_PX, _REACH_PX
    if first > 0:
        up = max(up, tops[first - 1] + seats[first - 1].height + gaps[first - 1] - tops[first])
    if last + 1 < len(seats):
        down = min(down, tops[last + 1] - gaps[last] - tops[last] - seats[last].height)
    return range(up, down + 1, GRID_PX)


def _bends(seat: _Seat, top: int) -> float:
    """What the lines of a box cost: straight ones nothing, little jogs most."""
    mine, total = _lines_at(seat, top), 0.0
    for slot in seat.slots:
        y = mine[slot.net, seat.state, slot.role]
        away = min((abs(y - end) for end in seat.ends[slot.net]), default=0)
        if away:
            total += (_JOG if away < _JOG_PX else _BEND) + _PER_PX * away
        total += _NEAR_MISS * near_misses(y, seat.strangers[slot.net])
    return total


def _lines_at(seat: _Seat, top: int) -> dict[Line, int]:
    """The ys on the inner face of a side box, if the box stood at `top`."""
    bottom = top + seat.height
    wishes = {net: [y for y in ends if top < y < bottom] for net, ends in seat.ends.items()}
    slid = straightened(seat.slots, seat.state, (top, bottom), wishes, seat.strangers)
    return slid or stacked(seat.slots, seat.state, top, seat.height, seat.side)
