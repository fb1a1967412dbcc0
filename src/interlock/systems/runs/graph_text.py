"""The graph of a run as text: layers from left to right, joined by lines.

    ✓ lint 3s ─┬─ ● test (3.11) 8s ─┬─ ◌ pack
    ✓ types 5s ┘  ● test (3.12) 2s ─┘

A line belongs to a net: some jobs and those that need exactly them. Where lines of two nets cross, the
vertical one is drawn through, and the other one passes below it. An ambiguous drawing is not shown: it is
spread out first, and if that does not help, or if the layers do not fit side by side, the jobs are listed
below each other, each with its needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from interlock.systems.runs.graph import (
    Layers,
    Node,
    RunGraph,
    Spot,
    drawn_needs,
    layers_of,
    mark_of,
    shown_name,
)

UP, DOWN, LEFT, RIGHT = 1, 2, 4, 8
_LINES = {
    LEFT | RIGHT: "─",
    UP | DOWN: "│",
    LEFT: "─",
    RIGHT: "─",
    UP: "│",
    DOWN: "│",
    DOWN | RIGHT: "┌",
    DOWN | LEFT: "┐",
    UP | RIGHT: "└",
    UP | LEFT: "┘",
    UP | DOWN | RIGHT: "├",
    UP | DOWN | LEFT: "┤",
    DOWN | LEFT | RIGHT: "┬",
    UP | LEFT | RIGHT: "┴",
    UP | DOWN | LEFT | RIGHT: "┼",
}


@dataclass(slots=True)
class Canvas:
    """The lines between two layers or in one; a character may have one of each direction."""

    across: dict[tuple[int, int], tuple[int, frozenset[int]]] = field(default_factory=dict)
    along: dict[tuple[int, int], tuple[int, frozenset[int]]] = field(default_factory=dict)

    def draw_across(self, net: int, row: int, first: int, last: int) -> None:
        """Draw a line between two columns."""
        for column in range(first, last + 1):
            bits = (LEFT if column > first else 0) | (RIGHT if column < last else 0)
            before, nets = self.across.get((row, column), (0, frozenset()))
            self.across[row, column] = before | bits, nets | {net}

    def draw_along(self, net: int, column: int, one: int, other: int) -> None:
        """Draw a line between two rows."""
        top, bottom = sorted((one, other))
        for row in range(top, bottom + 1):
            bits = (UP if row > top else 0) | (DOWN if row < bottom else 0)
            before, nets = self.along.get((row, column), (0, frozenset()))
            self.along[row, column] = before | bits, nets | {net}

    def joins(self, at: tuple[int, int]) -> bool:
        """Return whether the lines of both directions meet there, or only cross."""
        return not self.across[at][1].isdisjoint(self.along[at][1])

    def character(self, at: tuple[int, int]) -> str:
        """Return the character drawn there."""
        across, along = self.across.get(at), self.along.get(at)
        if across is None or along is None:
            return _LINES.get((across or along or (0, frozenset()))[0], " ")
        return _LINES[across[0] | along[0]] if self.joins(at) else "│"

    def followed(self, start: tuple[int, int]) -> Iterator[tuple[int, int]]:
        """Yield every character that can be reached without turning back.

        Turning back leads to the left.
        """
        seen = {(start, "across")}
        waiting = [(start, "across")]
        while waiting:
            at, way = waiting.pop()
            yield at
            for step in self._steps(at, way):
                if step not in seen:
                    seen.add(step)
                    waiting.append(step)

    def _steps(self, at: tuple[int, int], way: str) -> Iterator[tuple[tuple[int, int], str]]:
        row, column = at
        if at in self.across and at in self.along and self.joins(at):
            yield at, "along" if way == "across" else "across"
        if way == "across" and self.across.get(at, (0, None))[0] & RIGHT:
            yield (row, column + 1), "across"
        if way == "along":
            bits = self.along.get(at, (0, None))[0]
            yield from (((row + step, column), "along") for step, bit in ((-1, UP), (1, DOWN)) if bits & bit)


LEAST_ROOM = 8


@dataclass(frozen=True, slots=True)
class LineSegment:
    """A stretch of a drawn line, and the job that it is about; none for lines between jobs."""

    text: str
    node: Node | None = None


@dataclass(frozen=True, slots=True)
class SpotBundle:
    """Some spots, and the spots of the next layer that need exactly them."""

    number: int
    sources: frozenset[Spot]
    targets: tuple[Spot, ...]


def draw_text(graph: RunGraph, width: int, note: Callable[[Node], str]) -> list[list[LineSegment]]:
    """Return the graph as lines up to `width`, each job with its `note`."""
    labels = {node.name: _label(node, note) for node in graph.nodes}
    layers = layers_of(graph)
    for apart in (False, True):
        drawing = _Drawing(graph, layers, labels, apart=apart)
        if drawing.width > width:
            break
        if drawing.is_true:
            return drawing.lines()
    return _listed(graph, labels, width)


class _Drawing:
    """One attempt at a drawing; `apart` interleaves the rows of neighbouring layers."""

    def __init__(self, graph: RunGraph, layers: Layers, labels: Mapping[str, str], *, apart: bool) -> None:
        self._layers = layers
        self._labels = labels
        self._nodes = {node.name: node for node in graph.nodes}
        self._canvas = Canvas()
        self._texts: dict[tuple[int, int], str] = {}
        self._rows = _rows(layers, apart=apart)
        self.is_true = True
        self.width = 0
        nets = 0
        for place, layer in enumerate(layers.layers):
            wide = max((len(labels[spot.name]) for spot in layer if not spot.passing), default=0)
            for spot in layer:
                if not spot.passing:
                    self._texts[self._rows[place][spot], self.width] = spot.name
            found = self._nets(place, nets)
            nets += len(found)
            self.width = self._join(place, found, self.width, wide)

    def _nets(self, place: int, first: int) -> list[SpotBundle]:
        """Return the nets, those with fewer sources first.

        Lines can be followed unambiguously then.
        """
        if place + 1 == len(self._layers.layers):
            return []
        groups: dict[frozenset[Spot], list[Spot]] = {}
        here = self._rows[place]
        for target in self._layers.layers[place + 1]:
            sources = frozenset(one for one, other in self._layers.lines if other == target and one in here)
            if sources:
                groups.setdefault(sources, []).append(target)
        ordered = sorted(groups.items(), key=lambda group: len(group[0]))
        return [
            SpotBundle(first + number, sources, tuple(targets))
            for number, (sources, targets) in enumerate(ordered)
        ]

    def _join(self, place: int, nets: Sequence[SpotBundle], column: int, wide: int) -> int:
        """Draw the lines to the next layer; return the column where it begins."""
        if place + 1 == len(self._layers.layers):
            return column + wide
        first, gap = column + wide + 2, max(1, 2 * len(nets) - 1)
        after = first + gap + 2
        here, there = self._rows[place], self._rows[place + 1]
        for number, net in enumerate(nets):
            track = first + 2 * number
            for source in net.sources:
                begin = column - 1 if source.passing else column + len(self._labels[source.name]) + 1
                self._canvas.draw_across(net.number, here[source], begin, track)
            for target in net.targets:
                self._canvas.draw_across(net.number, there[target], track, after - 2)
            ends = [*(here[source] for source in net.sources), *(there[target] for target in net.targets)]
            self._canvas.draw_along(net.number, track, min(ends), max(ends))
        self._check(place, nets, first - 1, after - 2)
        return after

    def _check(self, place: int, nets: Sequence[SpotBundle], begin: int, end: int) -> None:
        """Check that following the lines of a job leads exactly to its dependents."""
        here, there = self._rows[place], self._rows[place + 1]
        for source in {one for net in nets for one in net.sources}:
            meant = {there[target] for net in nets if source in net.sources for target in net.targets}
            reached = {row for row, column in self._canvas.followed((here[source], begin)) if column == end}
            self.is_true = self.is_true and reached == meant

    def lines(self) -> list[list[LineSegment]]:
        """Return the drawing, from top to bottom."""
        spots = (*self._canvas.across, *self._canvas.along, *self._texts)
        bottom = max((row for row, _ in spots), default=-1)
        return [self._line(row) for row in range(bottom + 1)]

    def _line(self, row: int) -> list[LineSegment]:
        pieces: list[LineSegment] = []
        column, between = 0, ""
        while column < self.width:
            name = self._texts.get((row, column))
            if name is None:
                between += self._canvas.character((row, column))
                column += 1
            else:
                pieces += [LineSegment(between), LineSegment(self._labels[name], self._nodes[name])]
                between, column = "", column + len(self._labels[name])
        return [piece for piece in (*pieces, LineSegment(between.rstrip())) if piece.text]


def _label(node: Node, note: Callable[[Node], str]) -> str:
    text = note(node)
    return f"{mark_of(node)} {shown_name(node)}" + (f" {text}" if text else "")


def _rows(layers: Layers, *, apart: bool) -> list[dict[Spot, int]]:
    """Return the row of every spot; shorter layers are centred."""
    tallest = max((len(layer) for layer in layers.layers), default=0)
    step = 2 if apart else 1
    return [
        {
            spot: step * (row + (tallest - len(layer)) // 2) + (place % 2 if apart else 0)
            for row, spot in enumerate(layer)
        }
        for place, layer in enumerate(layers.layers)
    ]


def _listed(graph: RunGraph, labels: Mapping[str, str], width: int) -> list[list[LineSegment]]:
    needs = drawn_needs(graph)
    lines = []
    for node in graph.nodes:
        label = labels[node.name]
        rest = f"  ← {', '.join(needs[node.name])}" if needs[node.name] else ""
        room = max(0, width - len(label))
        cut = rest if len(rest) <= room else f"{rest[: max(0, room - 1)]}…"
        lines.append([LineSegment(label, node), *([LineSegment(cut)] if rest and room >= LEAST_ROOM else [])])
    return lines
