"""From a blueprint to a picture: every box, line and label gets its place.

    plan       which state stands in which column, which transitions share a line
    layout     how tall boxes are, and at which y lines touch them (`first_draft`);
               the order of the lines on every box (`untangled`);
               where side boxes stand, so that lines are straight (`settled`);
               which trunk of a line stands nearer to the spine (`tracks_of`)
    routes     the points of every line and the place of every label

The places of side boxes follow from where lines begin on the spine, and the order of lines on a
box follows from where they go. So the middle part runs twice. All of it is quick, so some plans
are tried that turn one thing from left to right, and the calmest picture wins.

Within a channel a line leaves a box, meets its trunk and continues from there. Whether two nets
cross depends only on which trunk stands further in, so the crossings of every pair can be counted
once for each of its two orders, before any x is known.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations, pairwise
from typing import TYPE_CHECKING

from interlock.machine.draw.geometry import (
    GRID_PX,
    Box,
    Picture,
    Rect,
    box_size_px,
    from_the_top,
    gap_px,
    near_wishes,
    notes_of,
    up_to_grid,
    words_of,
)
from interlock.machine.draw.plan import LEFT, RIGHT, SPINE, SideChannel, arrange, best_order
from interlock.machine.draw.routes import (
    Frame,
    drop_wires,
    faces_of,
    frame_of,
    height_px,
    near_misses,
    net_wires,
    other_ends,
    stacked,
    straightened,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from interlock.machine.blueprint import Blueprint
    from interlock.machine.draw.geometry import Wire, Words
    from interlock.machine.draw.plan import Arrangement
    from interlock.machine.draw.routes import Face, Line, Slot


_CROSSING = 10.0
_TRACK_PER_PX = 0.01
_LINE, _TRACK_BEND = 3.0, 1.0
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
    """Return a net with these ends."""
    ends = (*inner, *outer)
    return Trunk(net, tuple(inner), tuple(outer), min(ends), max(ends))


def crossings(near: Trunk, far: Trunk) -> int:
    """Return the number of crossings if `near` is further in than `far`."""
    count = 0
    for y in far.inner:
        count += near.top < y < near.bottom
    for y in near.outer:
        count += far.top < y < far.bottom
    return count


def tangle(trunks: Sequence[Trunk]) -> float:
    """Return the cost of a channel if every pair had its better order.

    Long lines cost a bit.
    """
    total = sum(t.bottom - t.top for t in trunks) * _TRACK_PER_PX
    for one, two in combinations(trunks, 2):
        if one.bottom > two.top and two.bottom > one.top:
            total += _CROSSING * min(crossings(one, two), crossings(two, one))
    return total


def tracks_of(trunks: Sequence[Trunk]) -> dict[int, int]:
    """Return the track of every net with a vertical part, from the inside."""
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
    """Return the visual cost of a channel with all positions known."""
    total = 0.0
    for one in trunks:
        ends = (*one.inner, *one.outer)
        total += _LINE + _TRACK_PER_PX * (one.bottom - one.top)
        total += _TRACK_BEND * (len(ends) - max(ends.count(y) for y in ends))
    for one, two in combinations(trunks, 2):
        inside = tracks.get(one.net, -1) < tracks.get(two.net, -1)
        total += _CROSSING * (crossings(one, two) if inside else crossings(two, one))
    return total


def _touch(one: Trunk, two: Trunk) -> bool:
    return one.bottom + _APART_PX > two.top and two.bottom + _APART_PX > one.top


CHANNELS = tuple(SideChannel(side, depth) for side in (LEFT, RIGHT) for depth in (0, 1))


@dataclass(frozen=True, slots=True)
class Draft:
    """The boxes, the order of the lines on each, and their positions so far."""

    plan: Arrangement
    words: tuple[Words, ...]
    heights: Mapping[str, int]
    gaps: Mapping[int, tuple[int, ...]]
    column_of: Mapping[str, int]
    faces: Mapping[Face, tuple[Slot, ...]]
    tops: Mapping[str, int]

    def lines(self) -> dict[Line, int]:
        """Return the y of every line where it touches a box."""
        lines: dict[Line, int] = {}
        for (_, state), slots in self.faces.items():
            place = (self.tops[state], self.heights[state], self.column_of[state])
            lines |= stacked(slots, state, *place)
        return lines

    def trunks(self, channel: SideChannel, lines: Mapping[Line, int]) -> list[Trunk]:
        """Return the nets of a channel, without loops, with the ys of their ends."""
        found = []
        for index, net in enumerate(self.plan.nets):
            if net.channel == channel and not net.is_loop:
                ends: tuple[list[int], list[int]] = ([], [])
                for state, role in [(net.target, "in"), *((s, "out") for s in net.sources)]:
                    outside = self.column_of[state] != channel.inner
                    ends[outside].append(lines[index, state, role])
                found.append(trunk(index, *ends))
        return found

    def spine_ends(self, slot: Slot, state: str, lines: Mapping[Line, int]) -> list[int]:
        """Return the ys at which this slot's line of a side box meets the spine."""
        ends = other_ends(self.plan.nets[slot.net], state)
        return [lines[slot.net, *end] for end in ends if self.column_of[end[0]] == SPINE]


def first_draft(blueprint: Blueprint, plan: Arrangement) -> Draft:
    """Return the boxes with their minimum heights, packed in their columns."""
    words = tuple(words_of(net.transitions) for net in plan.nets)
    column_of = {state: column for column, states in plan.columns.items() for state in states}
    faces = faces_of(plan, words)
    heights = {}
    for sheet in blueprint.states:
        column = column_of[sheet.name]
        own = box_size_px(sheet, notes_of(blueprint, sheet))[1]
        used = [height_px(slots, column) for (_, name), slots in faces.items() if name == sheet.name]
        heights[sheet.name] = up_to_grid(max([own, *used]))
    gaps = {column: _gaps(blueprint, plan, column) for column in plan.columns}
    tops: dict[str, int] = {}
    for column, states in plan.columns.items():
        packed = from_the_top([heights[s] for s in states], gaps[column])
        tops |= dict(zip(states, packed, strict=True))
    return Draft(plan, words, heights, gaps, column_of, faces, tops)


def _gaps(blueprint: Blueprint, plan: Arrangement, column: int) -> tuple[int, ...]:
    states = plan.columns[column]
    pill = {frozenset((d.source, d.target)): words_of(d.transitions).h for d in plan.drops}
    return tuple(
        gap_px(pill.get(frozenset((upper, lower))), entry_below=lower == blueprint.initial)
        for upper, lower in pairwise(states)
    )


_ROUNDS = 6


def untangled(draft: Draft) -> Draft:
    """Order the lines on every box.

    They are ordered by where they go, and then by trying neighbours.
    """
    faces = {face: _by_direction(draft, face) for face in draft.faces}
    draft = replace(draft, faces=faces)
    lines = draft.lines()
    for channel in CHANNELS:
        mine = [face for face in faces if face[0] == channel and len(faces[face]) > 1]
        price = tangle(draft.trunks(channel, lines))
        for _ in range(_ROUNDS):
            before = price
            for face in mine:
                price = _swap_neighbours(draft, face, faces, lines, price)
            if price == before:
                break
    return replace(draft, faces=faces)


def _by_direction(draft: Draft, face: Face) -> tuple[Slot, ...]:
    _, state = face

    def middle(name: str) -> float:
        return draft.tops[name] + draft.heights[name] / 2

    def heading(slot: Slot) -> float:
        ends = other_ends(draft.plan.nets[slot.net], state)
        return sum(middle(end) for end, _ in ends) / len(ends)

    return tuple(sorted(draft.faces[face], key=heading))


def _swap_neighbours(
    draft: Draft,
    face: Face,
    faces: dict[Face, tuple[Slot, ...]],
    lines: dict[Line, int],
    price: float,
) -> float:
    """Keep in `faces` every swap of neighbours that makes the channel cheaper."""
    channel, state = face
    place = (draft.tops[state], draft.heights[state], draft.column_of[state])
    for index in range(len(faces[face]) - 1):
        slots = faces[face]
        swapped = (*slots[:index], slots[index + 1], slots[index], *slots[index + 2 :])
        lines |= stacked(swapped, state, *place)
        tried = tangle(draft.trunks(channel, lines))
        if tried < price - 1e-9:
            faces[face], price = swapped, tried
        else:
            lines |= stacked(slots, state, *place)
    return price


_REACH_PX = 6 * GRID_PX
_JOG_PX = 16
_BEND, _JOG, _NEAR_MISS, _PER_PX, _PER_PX_MOVED = 3.0, 7.0, 1.0, 0.01, 0.004


def with_side_boxes_placed(draft: Draft) -> Draft:
    """Move side boxes to positions where most of their lines are straight."""
    lines, tops = draft.lines(), dict(draft.tops)
    for side in (LEFT, RIGHT):
        states = draft.plan.columns[side]
        wishes = {i: _wishes(draft, SideChannel(side, 0), s, lines) for i, s in enumerate(states)}
        if states:
            heights = [draft.heights[state] for state in states]
            placed = near_wishes(heights, draft.gaps[side], wishes)
            tops |= dict(zip(states, placed, strict=True))
    return replace(draft, tops=tops)


def _wishes(draft: Draft, channel: SideChannel, state: str, lines: Mapping[Line, int]) -> list[int]:
    """Return the tops of the box that would make its lines straight.

    There is one for each line to the spine.
    """
    wishes = []
    for slot in draft.faces.get((channel, state), ()):
        offset = lines[slot.net, state, slot.role] - draft.tops[state]
        if ys := sorted(draft.spine_ends(slot, state, lines)):
            wishes.append(ys[(len(ys) - 1) // 2] - offset)
    return wishes


@dataclass(frozen=True, slots=True)
class _Seat:
    """A side box, and the ys at which the spine meets its lines (`ends`) and others (`strangers`)."""

    state: str
    side: int
    height: int
    slots: tuple[Slot, ...]
    ends: Mapping[int, list[int]]
    strangers: Mapping[int, list[int]]


def settled(draft: Draft) -> tuple[Draft, dict[Line, int]]:
    """Shift side boxes if more lines become straight; return the ys."""
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
    channel, nets = SideChannel(side, 0), draft.plan.nets
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
    """Move boxes while the cost decreases.

    A box is moved alone, with all above it, or with all below it.
    """
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
    """Return how far these boxes can move before they meet the next ones."""
    first, last = block[0], block[-1]
    up, down = -_REACH_PX, _REACH_PX
    if first > 0:
        up = max(up, tops[first - 1] + seats[first - 1].height + gaps[first - 1] - tops[first])
    if last + 1 < len(seats):
        down = min(down, tops[last + 1] - gaps[last] - tops[last] - seats[last].height)
    return range(up, down + 1, GRID_PX)


def _bends(seat: _Seat, top: int) -> float:
    """Return the cost of a box's lines: none if straight, most for jogs."""
    mine, total = _lines_at(seat, top), 0.0
    for slot in seat.slots:
        y = mine[slot.net, seat.state, slot.role]
        away = min((abs(y - end) for end in seat.ends[slot.net]), default=0)
        if away:
            total += (_JOG if away < _JOG_PX else _BEND) + _PER_PX * away
        total += _NEAR_MISS * near_misses(y, seat.strangers[slot.net])
    return total


def _lines_at(seat: _Seat, top: int) -> dict[Line, int]:
    """Return the ys on the inner face of a side box, if its top were at `top`."""
    bottom = top + seat.height
    wishes = {net: [y for y in ends if top < y < bottom] for net, ends in seat.ends.items()}
    slid = straightened(seat.slots, seat.state, (top, bottom), wishes, seat.strangers)
    return slid or stacked(seat.slots, seat.state, top, seat.height, seat.side)


_ENTRY_PX = 26
# A trial costs about the square of the number of transitions; this keeps a picture below 100 ms.
_WORK = 8_000
_WORTH_IT = 2.0
_PER_PX_TALL = 0.02


@dataclass(frozen=True, slots=True)
class Trial:
    """One evaluated arrangement of the machine, with its cost."""

    draft: Draft
    lines: Mapping[Line, int]
    tracks: Mapping[SideChannel, Mapping[int, int]]
    price: float


def lay_out(blueprint: Blueprint) -> Picture:
    """Return the best picture of a machine among several arrangements."""
    wishes: dict[object, int] = {}
    best = _trial(blueprint, wishes)
    tries = _WORK // (1 + len(blueprint.transitions)) ** 2
    for key in list(best.draft.plan.sides)[:tries]:
        turned = {**wishes, key: -best.draft.plan.sides.get(key, LEFT)}
        other = _trial(blueprint, turned)
        if other.price < best.price - _WORTH_IT:
            best, wishes = other, turned
    return _picture(blueprint, best.draft, best.lines, best.tracks)


def _trial(blueprint: Blueprint, wishes: Mapping[object, int]) -> Trial:
    draft = first_draft(blueprint, arrange(blueprint, wishes))
    for _ in range(2):
        draft = untangled(with_side_boxes_placed(draft))
    draft, lines = settled(with_side_boxes_placed(draft))
    trunks = {channel: draft.trunks(channel, lines) for channel in CHANNELS}
    tracks = {channel: tracks_of(trunks[channel]) for channel in CHANNELS}
    price = sum(cost_of(trunks[channel], tracks[channel]) for channel in CHANNELS)
    tall = [draft.tops[state] + draft.heights[state] for state in draft.tops]
    price += _PER_PX_TALL * (max(tall) - min(draft.tops.values()))
    return Trial(draft, lines, tracks, price)


def _picture(
    blueprint: Blueprint,
    draft: Draft,
    lines: Mapping[Line, int],
    tracks: Mapping[SideChannel, Mapping[int, int]],
) -> Picture:
    frame = frame_of(blueprint, draft.plan, draft.words, tracks)
    boxes = {sheet.name: _box(blueprint, draft, frame, sheet.name) for sheet in blueprint.states}
    wires = [
        *net_wires(draft.plan, draft.words, frame, lines, tracks),
        *drop_wires(draft.plan, {name: box.place for name, box in boxes.items()}),
    ]
    start = boxes[blueprint.initial].place
    alone = blueprint.initial == draft.plan.columns[SPINE][0]
    x = start.centre_x if alone else start.x + 16
    entry = ((x, start.y - _ENTRY_PX), (x, start.y))
    return _framed(tuple(boxes.values()), wires, entry)


def _box(blueprint: Blueprint, draft: Draft, frame: Frame, state: str) -> Box:
    column, sheet = draft.column_of[state], blueprint.state(state)
    x, width = frame.columns[column]
    place = Rect(x, draft.tops[state], width, draft.heights[state])
    return Box(sheet, place, notes_of(blueprint, sheet), column == SPINE)


def _framed(boxes: tuple[Box, ...], wires: list[Wire], entry: tuple[tuple[float, float], ...]) -> Picture:
    """Return the picture, shifted to begin at (0, 0)."""
    places = [*(box.place for box in boxes), *(wire.label.place for wire in wires)]
    points = [*entry, *(p for wire in wires for route in wire.routes for p in route.points)]
    left = min([*(p.x for p in places), *(x for x, _ in points)])
    top = min([*(p.y for p in places), *(y for _, y in points)])
    right = max([*(p.right for p in places), *(x for x, _ in points)])
    bottom = max([*(p.bottom for p in places), *(y for _, y in points)])
    (x1, y1), (x2, y2) = entry
    return Picture(
        right - left,
        bottom - top,
        tuple(box.moved(-left, -top) for box in boxes),
        tuple(wire.moved(-left, -top) for wire in wires),
        ((x1 - left, y1 - top), (x2 - left, y2 - top)),
    )
