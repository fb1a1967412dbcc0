"""Layers: each job one to the right of the last one that it needs, ordered so that few lines cross.

A line that passes a layer has a place in it, like a job: then lines only ever run from one layer to the
next, and whoever draws needs no more than that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from interlock.systems.runs.drawing.graph import Graph, drawn_needs, in_order

SWEEPS = 4


@dataclass(frozen=True, slots=True)
class Spot:
    """A place in a layer: a job, or a line on its way to one."""

    name: str
    """The job, or the one that the line comes from."""
    passing: str = ""
    """For a line: where it goes."""


@dataclass(frozen=True, slots=True)
class Layers:
    """The spots of each layer from the top down, and the lines between neighbours."""

    layers: tuple[tuple[Spot, ...], ...]
    lines: tuple[tuple[Spot, Spot], ...]


def layers_of(graph: Graph) -> Layers:
    """Where everything is."""
    needs = drawn_needs(graph)
    depth: dict[str, int] = {}
    for name in in_order(needs):
        depth[name] = 1 + max((depth.get(need, -1) for need in needs[name]), default=-1)
    layers: list[list[Spot]] = [[] for _ in range(max(depth.values(), default=-1) + 1)]
    for node in graph.nodes:
        layers[depth[node.name]].append(Spot(node.name))
    lines = [line for name in needs for need in needs[name] for line in _line(need, name, depth, layers)]
    return Layers(tuple(map(tuple, _ordered(layers, lines))), tuple(lines))


def _line(
    source: str, target: str, depth: Mapping[str, int], layers: Sequence[list[Spot]]
) -> list[tuple[Spot, Spot]]:
    path = [Spot(source)]
    for layer in range(depth[source] + 1, depth[target]):
        passing = Spot(source, target)
        layers[layer].append(passing)
        path.append(passing)
    path.append(Spot(target))
    return list(pairwise(path))


def _ordered(layers: Sequence[list[Spot]], lines: Sequence[tuple[Spot, Spot]]) -> list[list[Spot]]:
    """Each spot near the middle of those that it is joined with, from the left and from the right in turn."""
    ordered = [list(layer) for layer in layers]
    for sweep in range(SWEEPS):
        forward = sweep % 2 == 0
        places = range(1, len(ordered)) if forward else range(len(ordered) - 2, -1, -1)
        for place in places:
            fixed = ordered[place - 1] if forward else ordered[place + 1]
            ordered[place] = _by_neighbours(ordered[place], fixed, lines, forward=forward)
    return ordered


def _by_neighbours(
    layer: Sequence[Spot], fixed: Sequence[Spot], lines: Sequence[tuple[Spot, Spot]], *, forward: bool
) -> list[Spot]:
    rows = {spot: row for row, spot in enumerate(fixed)}
    joined: dict[Spot, list[int]] = {spot: [] for spot in layer}
    for source, target in lines:
        mine, other = (target, source) if forward else (source, target)
        if mine in joined and other in rows:
            joined[mine].append(rows[other])
    wanted = {
        spot: sum(found) / len(found) if (found := joined[spot]) else float(row)
        for row, spot in enumerate(layer)
    }
    return sorted(layer, key=lambda spot: wanted[spot])
