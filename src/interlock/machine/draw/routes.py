"""The points where lines touch boxes, the points of every line, and the place of every label.

A face is one side of one box. Every net that touches it gets a slot with its own y, and the slots keep room
for the label above an incoming line. Box heights follow from that.

A channel is divided, from the inside, into room for the labels of lines that end inside, the tracks of the
trunks, and room for the labels of lines that end outside. Trunks never leave their tracks, so no vertical
line meets a label; horizontal lines keep their distance by their ports.

Distances are measured from the middle of the spine outwards, so left and right share one formula.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from interlock.machine.draw.geometry import (
    GRID_PX,
    PILL_PAD_PX,
    Label,
    Rect,
    TransitionPath,
    Wire,
    box_size_px,
    notes_of,
    up_to_grid,
    words_of,
)
from interlock.machine.draw.plan import LEFT, RIGHT, SPINE, SideChannel

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from interlock.machine.blueprint import Blueprint
    from interlock.machine.draw.geometry import Point, Words
    from interlock.machine.draw.plan import Arrangement, Drop, Net


Face = tuple[SideChannel, str]
Line = tuple[int, str, str]
"""The end of a net at a box: (index of the net, state, "in" or "out")."""

_MARGIN_PX = GRID_PX
_HALF_STEP_PX = GRID_PX // 2


@dataclass(frozen=True, slots=True)
class Slot:
    """One net on one face; a loop leaves and returns, so it has two lines."""

    net: int
    role: str
    label_h: int

    def lead_px(self, *, first: bool, bare_px: int = GRID_PX) -> int:
        """Return the distance from the line or margin above to this slot's line."""
        if self.role != "in":
            return 0 if first else bare_px
        # A label of the first slot may be in the gap above the box.
        return max(0, up_to_grid(self.label_h - 20)) if first else up_to_grid(self.label_h + 6)

    @property
    def extent_px(self) -> int:
        """Distance from the first line of this slot to its last."""
        return up_to_grid(self.label_h + 8) if self.role == "loop" else 0


def faces_of(plan: Arrangement, words: Sequence[Words]) -> dict[Face, tuple[Slot, ...]]:
    """Return the slots of every face, in the order of the nets."""
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
    """Return the box height needed for these slots."""
    # The lines of a side box slide to meet their other ends; that takes a step between any two.
    slack = 0 if column == SPINE else GRID_PX * min(len(slots), 3)
    # The first slot saves some room; the order is not known yet, so the smallest saving counts.
    total = max(_total_px((s, *(o for o in slots if o is not s)), GRID_PX) for s in slots)
    return total + 2 * _MARGIN_PX + slack


def _total_px(slots: Sequence[Slot], bare_px: int) -> int:
    leads = sum(s.lead_px(first=not index, bare_px=bare_px) for index, s in enumerate(slots))
    return leads + sum(slot.extent_px for slot in slots)


def stacked(slots: Sequence[Slot], state: str, top_px: int, box_h_px: int, column: int) -> dict[Line, int]:
    """Return the y of every line of a face, as a block in the box's middle."""
    room = box_h_px - 2 * _MARGIN_PX - (0 if column == SPINE else GRID_PX)
    # If there is room, bare lines have the distance of those with a label.
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
    """Return lines of a side box moved to the y of their other end.

    As many as possible are moved. `span` is the top and the bottom of the box, `wishes` has the ys of the
    other ends by net. A line that is not straight keeps half a step away from the grid of the spine, and if
    possible further away from `strangers`. None if not even one can be moved.
    """
    home = stacked(slots, state, span[0], span[1] - span[0], column=1)
    middle = {slot.net: home[slot.net, state, slot.role] for slot in slots}
    wanted = {net: min(ys, key=lambda y: abs(y - middle[net])) for net, ys in wishes.items() if ys}
    while wanted:
        ys = _slid(slots, span, middle, wanted, strangers)
        if ys is not None:
            return {(slot.net, state, slot.role): ys[slot.net] for slot in slots}
        del wanted[max(wanted, key=lambda net: abs(wanted[net] - middle[net]))]
    return None


def _slid(
    slots: Sequence[Slot],
    span: tuple[int, int],
    home: Mapping[int, int],
    wanted: Mapping[int, int],
    strangers: Mapping[int, Sequence[int]],
) -> dict[int, int] | None:
    """Return lines within the box, with the wished ones exactly in place."""
    ys: dict[int, int] = {}
    floor = span[0] + _MARGIN_PX
    for index, slot in enumerate(slots):
        least = floor + slot.lead_px(first=not index)
        most = min(span[1] - _MARGIN_PX - _room_below(slots, index), _next_wish(slots, index, wanted))
        y = wanted.get(slot.net)
        if y is None:
            y = _half_step(least, most, home[slot.net], strangers[slot.net])
        if y is None or not least <= y <= most:
            return None
        ys[slot.net] = floor = y
    return ys


def _half_step(least: int, most: int, home: int, strangers: Sequence[int]) -> int | None:
    """Return the best y off the grid, or None if there is no room.

    It is far from strangers, otherwise near the original.
    """
    first = up_to_grid(least - _HALF_STEP_PX) + _HALF_STEP_PX
    free = range(first, most + 1, GRID_PX)
    return min(free, key=lambda y: (near_misses(y, strangers), abs(y - home)), default=None)


def near_misses(y: int, strangers: Sequence[int]) -> int:
    """Return the number of other lines less than a step away.

    They would be crossed in their bend.
    """
    return sum(abs(y - other) < GRID_PX for other in strangers)


def _room_below(slots: Sequence[Slot], index: int) -> int:
    return sum(slot.lead_px(first=False) for slot in slots[index + 1 :])


def _next_wish(slots: Sequence[Slot], index: int, wanted: Mapping[int, int]) -> int:
    """Return the lowest y that leaves the next line with a wish at its place."""
    room = 0
    for slot in slots[index + 1 :]:
        room += slot.lead_px(first=False)
        if slot.net in wanted:
            return wanted[slot.net] - room
    return 1_000_000


def other_ends(net: Net, state: str) -> tuple[tuple[str, str], ...]:
    """Return the other ends of the line at `state`, as states and roles."""
    if state == net.target:
        return tuple((source, "out") for source in net.sources)
    return ((net.target, "in"),)


HEAD_PX = 8
_TRACK_PX = 12
_LABEL_AWAY_PX = 13
_LABEL_ABOVE_PX = 3
_LABEL_TO_TRACK_PX = 10
_BARE_PX = 18
_LOOP_PX = 10
_LEAST_BOX_PX = 110


@dataclass(frozen=True, slots=True)
class Zone:
    """A channel in pixels: where it begins and ends, and where its tracks begin."""

    start: float
    first_track: float
    end: float


@dataclass(frozen=True, slots=True)
class Frame:
    """The horizontal layout: (x, width) of the columns, and the channels between them."""

    columns: Mapping[int, tuple[float, float]]
    zones: Mapping[SideChannel, Zone]


def frame_of(
    blueprint: Blueprint,
    plan: Arrangement,
    words: Sequence[Words],
    tracks: Mapping[SideChannel, Mapping[int, int]],
) -> Frame:
    """Return the frame with the widths that the texts need."""
    widths = {column: _column_px(blueprint, plan, column) for column in plan.columns}
    columns = {SPINE: (-widths[SPINE] / 2, widths[SPINE])}
    zones = {}
    for side in (LEFT, RIGHT):
        near = _zone(SideChannel(side, 0), widths[SPINE] / 2, plan, words, tracks)
        far_edge = near.end + widths[side]
        columns[side] = (near.end if side == RIGHT else -far_edge, widths[side])
        zones[SideChannel(side, 0)] = near
        zones[SideChannel(side, 1)] = _zone(SideChannel(side, 1), far_edge, plan, words, tracks)
    return Frame(columns, zones)


def _column_px(blueprint: Blueprint, plan: Arrangement, column: int) -> float:
    states = [s for s in blueprint.states if s.name in plan.columns[column]]
    if not states:
        return 0.0
    boxes = [box_size_px(s, notes_of(blueprint, s))[0] for s in states]
    pills = [words_of(d.transitions).w + 24 for d in plan.drops if d.column == column]
    return -(-max([_LEAST_BOX_PX, *boxes, *pills]) // 10) * 10.0


def _zone(
    channel: SideChannel,
    start: float,
    plan: Arrangement,
    words: Sequence[Words],
    tracks: Mapping[SideChannel, Mapping[int, int]],
) -> Zone:
    inside, outside = [0.0], [0.0]
    for index, net in enumerate(plan.nets):
        if net.channel == channel:
            ends_inside = net.target in plan.columns[channel.inner]
            loop = _LOOP_PX if net.is_loop else 0
            (inside if ends_inside else outside).append(_label_zone_px(words[index]) + loop)
    if len(inside) + len(outside) == 2:
        return Zone(start, start, start + (_BARE_PX * 2 if channel.outer else 0))
    first = start + max(_BARE_PX, *inside)
    after = first + _TRACK_PX * (max(tracks[channel].values(), default=-1) + 1)
    bare = _BARE_PX if channel.outer in plan.columns and plan.columns[channel.side] else 0
    return Zone(start, first + _TRACK_PX / 2, after + max(bare, *outside))


def _label_zone_px(words: Words) -> int:
    return _LABEL_AWAY_PX + words.w + _LABEL_TO_TRACK_PX


def net_wires(
    plan: Arrangement,
    words: Sequence[Words],
    frame: Frame,
    lines: Mapping[Line, int],
    tracks: Mapping[SideChannel, Mapping[int, int]],
) -> list[Wire]:
    """Return the lines that run through channels."""
    wires = []
    for index, net in enumerate(plan.nets):
        zone, inner = frame.zones[net.channel], plan.columns[net.channel.inner]
        track = tracks[net.channel].get(index, 0)
        trunk_u = zone.first_track + _TRACK_PX * track
        if net.is_loop:
            trunk_u = zone.start + _label_zone_px(words[index])
        ends = {s: zone.start if s in inner else zone.end for s in (net.target, *net.sources)}
        wires.append(_net_wire(index, net, words[index], lines, ends, trunk_u))
    return wires


def _net_wire(
    index: int,
    net: Net,
    words: Words,
    lines: Mapping[Line, int],
    ends: Mapping[str, float],
    trunk_u: float,
) -> Wire:
    side, last_y = net.channel.side, lines[index, net.target, "in"]
    routes = []
    for t in net.transitions:
        y = lines[index, t.source, "out"]
        start, end = (side * ends[t.source], y), (side * ends[net.target], last_y)
        bends: list[Point] = [(side * trunk_u, y), (side * trunk_u, last_y)]
        routes.append(TransitionPath(t, (start, end) if y == last_y else (start, *bends, end)))
    inwards = trunk_u > ends[net.target]
    near = ends[net.target] + (_LABEL_AWAY_PX if inwards else -_LABEL_AWAY_PX - words.w)
    x = near if side == RIGHT else -near - words.w
    place = Rect(x, last_y - _LABEL_ABOVE_PX - words.h, words.w, words.h)
    anchor = "start" if inwards == (side == RIGHT) else "end"
    return Wire(net.owner, tuple(routes), Label(words, place, anchor))


def drop_wires(plan: Arrangement, places: Mapping[str, Rect]) -> list[Wire]:
    """Return the straight lines between boxes of one column."""
    return [_drop_wire(drop, places[drop.source], places[drop.target]) for drop in plan.drops]


def _drop_wire(drop: Drop, source: Rect, target: Rect) -> Wire:
    words, x = words_of(drop.transitions), source.centre_x
    down = source.y < target.y
    start, end = (source.bottom, target.y) if down else (source.y, target.bottom)
    middle = (start + end - (HEAD_PX if down else -HEAD_PX)) / 2
    w, h = words.w + 16, words.h + PILL_PAD_PX
    label = Label(words, Rect(x - w / 2, middle - h / 2, w, h), "middle", pill=True)
    routes = tuple(TransitionPath(t, ((x, start), (x, end))) for t in drop.transitions)
    return Wire(drop.transitions[0].owner, routes, label, on_spine=drop.column == SPINE)
