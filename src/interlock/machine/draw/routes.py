"""The points of every line and the place of every label.

A channel is divided, seen from the inside, into room for the labels of lines that end inside, the
tracks of the trunks, and room for the labels of lines that end outside. Trunks never leave their
tracks, so nothing vertical ever meets a label; horizontal lines keep their distance by their ports.

Distances are measured from the middle of the spine outwards, so left and right are one formula.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from interlock.machine.draw.columns import PILL_PAD_PX
from interlock.machine.draw.geometry import Label, Rect, Route, Wire
from interlock.machine.draw.plan import LEFT, RIGHT, SPINE, Channel
from interlock.machine.draw.texts import box_size_px, notes_of, words_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from interlock.machine.blueprint import Blueprint
    from interlock.machine.draw.geometry import Point, Words
    from interlock.machine.draw.plan import Drop, Net, Plan
    from interlock.machine.draw.ports import Line

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
    """Everything horizontal: (x, width) of the columns, and the channels between them."""

    columns: Mapping[int, tuple[float, float]]
    zones: Mapping[Channel, Zone]


def frame_of(
    blueprint: Blueprint,
    plan: Plan,
    words: Sequence[Words],
    tracks: Mapping[Channel, Mapping[int, int]],
) -> Frame:
    """Give the columns and channels the widths that their words need."""
    widths = {column: _column_px(blueprint, plan, column) for column in plan.columns}
    columns = {SPINE: (-widths[SPINE] / 2, widths[SPINE])}
    zones = {}
    for side in (LEFT, RIGHT):
        near = _zone(Channel(side, 0), widths[SPINE] / 2, plan, words, tracks)
        far_edge = near.end + widths[side]
        columns[side] = (near.end if side == RIGHT else -far_edge, widths[side])
        zones[Channel(side, 0)] = near
        zones[Channel(side, 1)] = _zone(Channel(side, 1), far_edge, plan, words, tracks)
    return Frame(columns, zones)


def _column_px(blueprint: Blueprint, plan: Plan, column: int) -> float:
    states = [s for s in blueprint.states if s.name in plan.columns[column]]
    if not states:
        return 0.0
    boxes = [box_size_px(s, notes_of(blueprint, s))[0] for s in states]
    pills = [words_of(d.transitions).w + 24 for d in plan.drops if d.column == column]
    return -(-max([_LEAST_BOX_PX, *boxes, *pills]) // 10) * 10.0


def _zone(
    channel: Channel,
    start: float,
    plan: Plan,
    words: Sequence[Words],
    tracks: Mapping[Channel, Mapping[int, int]],
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
    plan: Plan,
    words: Sequence[Words],
    frame: Frame,
    lines: Mapping[Line, int],
    tracks: Mapping[Channel, Mapping[int, int]],
) -> list[Wire]:
    """The lines that run through channels."""
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
        routes.append(Route(t, (start, end) if y == last_y else (start, *bends, end)))
    inwards = trunk_u > ends[net.target]
    near = ends[net.target] + (_LABEL_AWAY_PX if inwards else -_LABEL_AWAY_PX - words.w)
    x = near if side == RIGHT else -near - words.w
    place = Rect(x, last_y - _LABEL_ABOVE_PX - words.h, words.w, words.h)
    anchor = "start" if inwards == (side == RIGHT) else "end"
    return Wire(net.owner, tuple(routes), Label(words, place, anchor))


def drop_wires(plan: Plan, places: Mapping[str, Rect]) -> list[Wire]:
    """The straight lines between boxes of one column."""
    return [_drop_wire(drop, places[drop.source], places[drop.target]) for drop in plan.drops]


def _drop_wire(drop: Drop, source: Rect, target: Rect) -> Wire:
    words, x = words_of(drop.transitions), source.centre_x
    down = source.y < target.y
    start, end = (source.bottom, target.y) if down else (source.y, target.bottom)
    middle = (start + end - (HEAD_PX if down else -HEAD_PX)) / 2
    w, h = words.w + 16, words.h + PILL_PAD_PX
    label = Label(words, Rect(x - w / 2, middle - h / 2, w, h), "middle", pill=True)
    routes = tuple(Route(t, ((x, start), (x, end))) for t in drop.transitions)
    return Wire(drop.transitions[0].owner, routes, label, on_spine=drop.column == SPINE)
