"""The pieces of a picture in pixels, the words in them, and how boxes stand in a column; y grows downwards.

Lines keep out of each other's way by arithmetic, not by luck: every line that touches the spine
has a y that is a multiple of `GRID_PX`, every line that touches a side column has one half a step
off. Two lines that face each other in a channel therefore never lie on one another, unless they
are the same line.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import median_low
from typing import TYPE_CHECKING

from interlock.machine.draw.text import cut, format_duration, one_line, width_px, wrap

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from interlock.machine.blueprint import Blueprint, StateSheet, TransitionSheet


GRID_PX = 10
"""The vertical grid."""

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Rect:
    """A rectangle."""

    x: float
    y: float
    w: float
    h: float

    @property
    def right(self) -> float:
        return self.x + self.w

    @property
    def bottom(self) -> float:
        return self.y + self.h

    @property
    def centre_x(self) -> float:
        return self.x + self.w / 2

    def moved(self, dx: float, dy: float) -> Rect:
        return Rect(self.x + dx, self.y + dy, self.w, self.h)


@dataclass(frozen=True, slots=True)
class TextRow:
    """One row of text; `owner` gives an event its colour, a guard has none."""

    text: str
    size_px: float
    height_px: int
    owner: str | None = None


@dataclass(frozen=True, slots=True)
class Words:
    """A block of rows, without a position."""

    rows: tuple[TextRow, ...]
    w: int
    h: int


@dataclass(frozen=True, slots=True)
class Label:
    """A positioned block. A pill lies on its own line; the others are above theirs."""

    words: Words
    place: Rect
    anchor: str
    pill: bool = False

    def moved(self, dx: float, dy: float) -> Label:
        return Label(self.words, self.place.moved(dx, dy), self.anchor, self.pill)


@dataclass(frozen=True, slots=True)
class Box:
    """A positioned state."""

    state: StateSheet
    place: Rect
    notes: tuple[str, ...]
    on_spine: bool

    def moved(self, dx: float, dy: float) -> Box:
        return Box(self.state, self.place.moved(dx, dy), self.notes, self.on_spine)


@dataclass(frozen=True, slots=True)
class TransitionPath:
    """The path of one transition from its source to its target."""

    transition: TransitionSheet
    points: tuple[Point, ...]

    def moved(self, dx: float, dy: float) -> TransitionPath:
        return TransitionPath(self.transition, tuple((x + dx, y + dy) for x, y in self.points))


@dataclass(frozen=True, slots=True)
class Wire:
    """Transitions that share one line into one target, and the label of that line."""

    owner: str
    routes: tuple[TransitionPath, ...]
    label: Label
    on_spine: bool = False

    def moved(self, dx: float, dy: float) -> Wire:
        routes = tuple(route.moved(dx, dy) for route in self.routes)
        return Wire(self.owner, routes, self.label.moved(dx, dy), self.on_spine)


@dataclass(frozen=True, slots=True)
class Picture:
    """The whole picture. `entry` is the arrow to the initial state."""

    width: float
    height: float
    boxes: tuple[Box, ...]
    wires: tuple[Wire, ...]
    entry: tuple[Point, Point]


def up_to_grid(length: float) -> int:
    """Return the next multiple of the grid that is no shorter."""
    return int(-(-length // GRID_PX)) * GRID_PX


NAME_PX, NOTE_PX, EVENT_PX, GUARD_PX = 13.0, 10.5, 11.0, 9.5
NAME_ROW_PX, NOTE_ROW_PX, EVENT_ROW_PX, GUARD_ROW_PX = 18, 14, 14, 12
_GUARD_CHARS = 24
_KEPT_ROOM_PX, _EVENT_ROOM_PX = 180, 260


def notes_of(blueprint: Blueprint, state: StateSheet) -> tuple[str, ...]:
    """Return the notes of a state.

    These are its time limit, its turn, and events accepted without a transition.
    """
    known = []
    if state.within is not None:
        known.append(f"≤ {format_duration(state.within.seconds)}")
    if state.turn:
        known.append(one_line(state.turn))
    kept = list(dict.fromkeys(k.event for k in blueprint.kept if k.state == state.name))
    rows = [" · ".join(known)] if known else []
    if kept:
        rows += wrap("↻ " + ", ".join(map(one_line, kept)), NOTE_PX, _KEPT_ROOM_PX, rows=2)
    return tuple(rows)


def box_size_px(state: StateSheet, notes: Sequence[str]) -> tuple[float, float]:
    """Return the size needed for a state's text."""
    name = width_px(one_line(state.name), NAME_PX, bold=True)
    widest = max([name, *(width_px(note, NOTE_PX) for note in notes)])
    return widest + 32, NAME_ROW_PX + NOTE_ROW_PX * len(notes) + 22


def words_of(transitions: Iterable[TransitionSheet]) -> Words:
    """Return one row for each event, followed by its guard.

    The guard is shown if it is short and the same for all. A guard that all events of the line share is shown
    once, below the last of them.
    """
    guards: dict[tuple[str, str], list[str]] = {}
    for t in transitions:
        guards.setdefault((t.event, t.owner), []).append(" & ".join(t.guards))
    common = len({guard for named in guards.values() for guard in named}) == 1
    rows: list[TextRow] = []
    for index, ((event, owner), named) in enumerate(guards.items()):
        name = cut(one_line(event), EVENT_PX, _EVENT_ROOM_PX)
        shown = named[0] if len(set(named)) == 1 and len(named[0]) <= _GUARD_CHARS else ""
        hidden = any(named) and not shown
        rows.append(TextRow(f"{name} ?" if hidden else name, EVENT_PX, EVENT_ROW_PX, owner))
        if shown and (not common or index == len(guards) - 1):
            rows.append(TextRow(f"[{one_line(shown)}]", GUARD_PX, GUARD_ROW_PX))
    width = max(width_px(row.text, row.size_px) for row in rows)
    return Words(tuple(rows), math.ceil(width), sum(row.height_px for row in rows))


def hover_of(transition: TransitionSheet) -> str:
    """Return the tooltip of a transition."""
    parts = [f"{transition.event}: {transition.source} → {transition.target}"]
    if transition.guards:
        parts.append(f"only if {' and '.join(transition.guards)}")
    parts.append(f"by {transition.owner}")
    if transition.why:
        parts.append(transition.why)
    return "\n".join(parts)


GAP_PX = 30
PILL_PAD_PX = 4
_ARROW_AND_AIR_PX = 30


def gap_px(pill_h_px: int | None, *, entry_below: bool) -> int:
    """Return the space between two boxes, with room for a line's label."""
    gap = GAP_PX if pill_h_px is None else pill_h_px + PILL_PAD_PX + _ARROW_AND_AIR_PX
    return up_to_grid(gap + (GAP_PX if entry_below else 0))


def from_the_top(heights_px: Sequence[int], gaps_px: Sequence[int]) -> list[int]:
    """Return the tops of stacked boxes; `gaps_px[i]` is below box i."""
    tops, y = [], 0
    for height, gap in zip(heights_px, [*gaps_px, 0], strict=False):
        tops.append(y)
        y += height + gap
    return tops


@dataclass(slots=True)
class _Pile:
    """Boxes that touch, and the preferred start of the pile for each of them."""

    size: int
    wishes: list[int]

    @property
    def start(self) -> int:
        return median_low(self.wishes) if self.wishes else 0


def near_wishes(
    heights_px: Sequence[int], gaps_px: Sequence[int], wishes: Mapping[int, Sequence[int]]
) -> list[int]:
    """Return tops as near as possible to the preferred ones.

    They are in order and without overlap. Relative to the closest packing, a preference is a shift, and the
    shifts must not decrease downwards. So boxes that would collide are piled up, and a pile is placed at the
    median of its preferences: most of its lines are then straight.
    """
    packed = from_the_top(heights_px, gaps_px)
    piles: list[_Pile] = []
    for index, top in enumerate(packed):
        mine = [wish - top for wish in wishes.get(index, ())]
        piles.append(_Pile(1, mine))
        while len(piles) > 1 and _collide(piles[-2], piles[-1]):
            lower = piles.pop()
            piles[-1] = _Pile(piles[-1].size + lower.size, piles[-1].wishes + lower.wishes)
    shifts = [pile.start for pile in piles for _ in range(pile.size)]
    return [top + round(shift / GRID_PX) * GRID_PX for top, shift in zip(packed, shifts, strict=True)]


def _collide(upper: _Pile, lower: _Pile) -> bool:
    """Return whether two piles collide.

    A box without preferences joins its neighbour.
    """
    return not lower.wishes or not upper.wishes or upper.start > lower.start
