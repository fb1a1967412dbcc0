"""The pieces of a picture, in pixels; y grows downwards.

Lines keep out of each other's way by arithmetic, not by luck: every line that touches the spine
has a y that is a multiple of `GRID_PX`, every line that touches a side column has one half a step
off. Two lines that face each other in a channel therefore never lie on one another, unless they
are the same line.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from interlock.machine.blueprint import StateSheet, TransitionSheet

GRID_PX = 10
"""The step of everything vertical."""

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Rect:
    """A place on the paper."""

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

    def overlaps(self, other: Rect) -> bool:
        """Whether the two share more than an edge."""
        across = self.x < other.right and other.x < self.right
        return across and self.y < other.bottom and other.y < self.bottom

    def crossed_by(self, start: Point, end: Point) -> bool:
        """Whether a horizontal or vertical line runs through the inside."""
        (x1, y1), (x2, y2) = start, end
        across = min(x1, x2) < self.right and self.x < max(x1, x2)
        down = min(y1, y2) < self.bottom and self.y < max(y1, y2)
        if y1 == y2:
            return across and self.y < y1 < self.bottom
        return down and self.x < x1 < self.right


@dataclass(frozen=True, slots=True)
class Row:
    """One row of words; `owner` gives an event its colour, a guard has none."""

    text: str
    size_px: float
    height_px: int
    owner: str | None = None


@dataclass(frozen=True, slots=True)
class Words:
    """Rows that stand together, before anybody knows where."""

    rows: tuple[Row, ...]
    w: int
    h: int


@dataclass(frozen=True, slots=True)
class Label:
    """Words in their place. A pill lies on its own line; the others stand above theirs."""

    words: Words
    place: Rect
    anchor: str
    pill: bool = False

    def moved(self, dx: float, dy: float) -> Label:
        return Label(self.words, self.place.moved(dx, dy), self.anchor, self.pill)


@dataclass(frozen=True, slots=True)
class Box:
    """A state in its place."""

    state: StateSheet
    place: Rect
    notes: tuple[str, ...]
    on_spine: bool

    def moved(self, dx: float, dy: float) -> Box:
        return Box(self.state, self.place.moved(dx, dy), self.notes, self.on_spine)


@dataclass(frozen=True, slots=True)
class Route:
    """The way of one transition from its source to its target."""

    transition: TransitionSheet
    points: tuple[Point, ...]

    def moved(self, dx: float, dy: float) -> Route:
        return Route(self.transition, tuple((x + dx, y + dy) for x, y in self.points))


@dataclass(frozen=True, slots=True)
class Wire:
    """Transitions that share one line into one target, and the label of that line."""

    owner: str
    routes: tuple[Route, ...]
    label: Label
    on_spine: bool = False

    def moved(self, dx: float, dy: float) -> Wire:
        routes = tuple(route.moved(dx, dy) for route in self.routes)
        return Wire(self.owner, routes, self.label.moved(dx, dy), self.on_spine)


@dataclass(frozen=True, slots=True)
class Picture:
    """Where everything is. `entry` is the arrow that comes from nowhere to the initial state."""

    width: float
    height: float
    boxes: tuple[Box, ...]
    wires: tuple[Wire, ...]
    entry: tuple[Point, Point]


def up_to_grid(length: float) -> int:
    """The next multiple of the grid that is no shorter."""
    return int(-(-length // GRID_PX)) * GRID_PX
