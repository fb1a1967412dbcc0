"""From a blueprint to a picture: every box, line and label gets its place.

    plan       who stands in which column, which transitions share a line
    draft      how tall boxes are, at which y lines touch them (columns, ports)
    untangle   the order of the lines on every box
    settle     where side boxes stand, so that lines are straight
    tracks     which trunk stands nearer to the spine
    routes     the points of every line and the place of every label

The places of side boxes follow from where lines begin on the spine, and the order of lines on a
box follows from where they go. So the middle part runs twice. All of it is quick, so some plans
are tried that turn one thing from left to right, and the calmest picture wins.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from interlock.machine.draw.draft import CHANNELS, first_draft
from interlock.machine.draw.geometry import Box, Picture, Rect
from interlock.machine.draw.plan import LEFT, SPINE, Channel, arrange
from interlock.machine.draw.routes import Frame, drop_wires, frame_of, net_wires
from interlock.machine.draw.settle import settled, with_side_boxes_placed
from interlock.machine.draw.texts import notes_of
from interlock.machine.draw.tracks import cost_of, tracks_of
from interlock.machine.draw.untangle import untangled

if TYPE_CHECKING:
    from collections.abc import Mapping

    from interlock.machine.blueprint import Blueprint
    from interlock.machine.draw.draft import Draft
    from interlock.machine.draw.geometry import Wire
    from interlock.machine.draw.ports import Line

_ENTRY_PX = 26
# A trial costs about the square of the number of transitions; this keeps a picture below 100 ms.
_WORK = 8_000
_WORTH_IT = 2.0
_PER_PX_TALL = 0.02


@dataclass(frozen=True, slots=True)
class Trial:
    """One way to arrange the machine, worked out, and how good it is."""

    draft: Draft
    lines: Mapping[Line, int]
    tracks: Mapping[Channel, Mapping[int, int]]
    price: float


def lay_out(blueprint: Blueprint) -> Picture:
    """The best picture of a machine among those that were tried."""
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
    tracks: Mapping[Channel, Mapping[int, int]],
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
    """Move everything so that the picture begins at (0, 0)."""
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
