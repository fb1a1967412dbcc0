"""Where lines touch boxes.

A face is one side of one box. Every net that touches it gets a slot with a y of its own, and the
slots keep room for the label that stands above an incoming line. Box heights follow from that.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from interlock.machine.draw.geometry import GRID_PX, up_to_grid
from interlock.machine.draw.plan import SPINE, Channel

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from interlock.machine.draw.geometry import Words
    from interlock.machine.draw.plan import Net, Plan

Face = tuple[Channel, str]
Line = tuple[int, str, str]
"""The end of a net at a box: (index of the net, state, "in" or "out")."""

_MARGIN_PX = GRID_PX
_HALF_STEP_PX = GRID_PX // 2


@dataclass(frozen=True, slots=True)
class Slot:
    """One net on one face; a loop leaves and comes back, so it has two lines."""

    net: int
    role: str
    label_h: int

    def lead_px(self, *, first: bool, bare_px: int = GRID_PX) -> int:
        """From the line above (or the margin) to the first line of this slot."""
        if self.role != "in":
            return 0 if first else bare_px
        # A label of the first slot may stand in the gap above the box.
        return max(0, up_to_grid(self.label_h - 20)) if first else up_to_grid(self.label_h + 6)

    @property
    def extent_px(self) -> int:
        """From the first line of this slot to its last."""
        return up_to_grid(self.label_h + 8) if self.role == "loop" else 0


def faces_of(plan: Plan, words: Sequence[Words]) -> dict[Face, tuple[Slot, ...]]:
    """The slots of every face, in the order in which the nets come."""
    faces: dict[Face, list[Slot]] = defaultdict(list)
    for index, net in enumerate(plan.nets):
        height = words[index].h
        if net.is_loop:
            faces[net.channel, net.target].append(Slot(index, "loop", height))
            continue
        faces[net.channel, net.target].append(Slot(index, "in", height))
        for source in net.sources:
            faces[net.channel, source].append(Slot(index, "out", 0))
    return {face: tuple(slots) for face, slots in faces.items()}


def height_px(slots: Sequence[Slot], column: int) -> int:
    """How tall a box must be for these slots."""
    # The lines of a side box slide to meet their other ends; that takes a step between any two.
    slack = 0 if column == SPINE else GRID_PX * min(len(slots), 3)
    # Whichever slot comes first saves some room; the order is not known yet, so the one that
    # saves least counts.
    total = max(_total_px((s, *(o for o in slots if o is not s)), GRID_PX) for s in slots)
    return total + 2 * _MARGIN_PX + slack


def _total_px(slots: Sequence[Slot], bare_px: int) -> int:
    leads = sum(s.lead_px(first=not index, bare_px=bare_px) for index, s in enumerate(slots))
    return leads + sum(slot.extent_px for slot in slots)


def stacked(slots: Sequence[Slot], state: str, top_px: int, box_h_px: int, column: int) -> dict[Line, int]:
    """The y of every line of a face, as one block in the middle of the box."""
    room = box_h_px - 2 * _MARGIN_PX - (0 if column == SPINE else GRID_PX)
    # Where there is room, bare lines stand as far apart as those with a label.
    bare = 2 * GRID_PX if _total_px(slots, 2 * GRID_PX) <= room else GRID_PX
    spare = (box_h_px - _total_px(slots, bare)) // 2
    y = top_px + spare // GRID_PX * GRID_PX + (0 if column == SPINE else _HALF_STEP_PX)
    lines: dict[Line, int] = {}
    for index, slot in enumerate(slots):
        y += slot.lead_px(first=not index, bare_px=bare)
        lines[slot.net, state, "in" if slot.role == "in" else "out"] = y
        if slot.role == "loop":
            y += slot.extent_px
            lines[slot.net, state, "in"] = y
    return lines


def straightened(
    slots: Sequence[Slot],
    state: str,
    span: tuple[int, int],
    wishes: Mapping[int, Sequence[int]],
    strangers: Mapping[int, Sequence[int]],
) -> dict[Line, int] | None:
    """Lines of a side box moved to the y where their other end is, as many as possible.

    `span` is the top and the bottom of the box, `wishes` has the ys of the other ends by net. A
    line that is not straight keeps half a step away from the grid of the spine, and where it can
    further away from `strangers`. None when not even one can be moved.
    """
    home = stacked(slots, state, span[0], span[1] - span[0], column=1)
    middle = {slot.net: home[slot.net, state, slot.role] for slot in slots}
    asked = {net: min(ys, key=lambda y: abs(y - middle[net])) for net, ys in wishes.items() if ys}
    while asked:
        ys = _slid(slots, span, middle, asked, strangers)
        if ys is not None:
            return {(slot.net, state, slot.role): ys[slot.net] for slot in slots}
        del asked[max(asked, key=lambda net: abs(asked[net] - middle[net]))]
    return None


def _slid(
    slots: Sequence[Slot],
    span: tuple[int, int],
    home: Mapping[int, int],
    asked: Mapping[int, int],
    strangers: Mapping[int, Sequence[int]],
) -> dict[int, int] | None:
    """Fit the lines between top and bottom with the asked ones exactly where asked."""
    ys: dict[int, int] = {}
    floor = span[0] + _MARGIN_PX
    for index, slot in enumerate(slots):
        least = floor + slot.lead_px(first=not index)
        most = min(span[1] - _MARGIN_PX - _room_below(slots, index), _next_asked(slots, index, asked))
        y = asked.get(slot.net)
        if y is None:
            y = _half_step(least, most, home[slot.net], strangers[slot.net])
        if y is None or not least <= y <= most:
            return None
        ys[slot.net] = floor = y
    return ys


def _half_step(least: int, most: int, home: int, strangers: Sequence[int]) -> int | None:
    """The best y off the grid: near to no stranger, and else near to home."""
    first = up_to_grid(least - _HALF_STEP_PX) + _HALF_STEP_PX
    free = range(first, most + 1, GRID_PX)
    return min(free, key=lambda y: (near_misses(y, strangers), abs(y - home)), default=None)


def near_misses(y: int, strangers: Sequence[int]) -> int:
    """How many other lines are less than a step away; they would be crossed right in their bend."""
    return sum(abs(y - other) < GRID_PX for other in strangers)


def _room_below(slots: Sequence[Slot], index: int) -> int:
    return sum(slot.lead_px(first=False) for slot in slots[index + 1 :])


def _next_asked(slots: Sequence[Slot], index: int, asked: Mapping[int, int]) -> int:
    """The lowest y that leaves the next line with a wish where it wants to be."""
    room = 0
    for slot in slots[index + 1 :]:
        room += slot.lead_px(first=False)
        if slot.net in asked:
            return asked[slot.net] - room
    return 1_000_000


def other_ends(net: Net, state: str) -> tuple[tuple[str, str], ...]:
    """Where the line that touches `state` goes on to, as (state, role)."""
    if state == net.target:
        return tuple((source, "out") for source in net.sources)
    return ((net.target, "in"),)
