"""Which states stand on which side of the spine, and in which order.

Two orders are searched with the same small move: take one out, put it back where it costs least.
It is no optimum, but it is quick, it is the same every time, and machines are small.
"""

from __future__ import annotations

import math
from collections import defaultdict
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from interlock.machine.blueprint import Blueprint

_T = TypeVar("_T")
_PULL_OF_A_LINK = 0.4
_FAR, _PER_STEP, _UPWARDS = 3.0, 1.0, 0.6
_ROUNDS = 8


def side_orders(
    blueprint: Blueprint, spine: tuple[str, ...], wishes: Mapping[object, int]
) -> tuple[dict[int, tuple[str, ...]], dict[object, int]]:
    """The states left (-1) and right (1) of the spine from top to bottom, and who was dealt where.

    Connected states are one group, known by its first state; `wishes` may name a side for it.
    """
    rank = {state: index for index, state in enumerate(spine)}
    links = list(dict.fromkeys((t.source, t.target) for t in blueprint.transitions))
    pulls: dict[str, list[int]] = defaultdict(list)
    for source, target in links:
        if source in rank and target not in rank:
            pulls[target].append(rank[source])
        elif target in rank and source not in rank:
            pulls[source].append(rank[target])
    aside = [s.name for s in blueprint.states if s.name not in rank]
    groups = _groups(aside, links)
    dealt = _balance(groups, pulls, wishes)
    columns = {}
    for side in (-1, 1):
        states = [state for group in groups if dealt[group[0]] == side for state in group]
        columns[side] = _ordered(states, pulls, links)
    return columns, dealt


def _groups(states: Sequence[str], links: Iterable[tuple[str, str]]) -> list[list[str]]:
    """States that are connected among each other."""
    group_of = {state: [state] for state in states}
    for source, target in links:
        if source in group_of and target in group_of and group_of[source] is not group_of[target]:
            group_of[source] += group_of[target]
            for member in group_of[target]:
                group_of[member] = group_of[source]
    return list({id(group): group for group in group_of.values()}.values())


def _balance(
    groups: list[list[str]], pulls: dict[str, list[int]], wishes: Mapping[object, int]
) -> dict[object, int]:
    """Deal the groups to the two sides, the heaviest first, each to the lighter side."""
    dealt: dict[object, int] = {}
    load = {-1: 0.0, 1: 0.0}
    weights = [len(g) + _PULL_OF_A_LINK * sum(len(pulls[s]) for s in g) for g in groups]
    for index in sorted(range(len(groups)), key=lambda i: -weights[i]):
        name = groups[index][0]
        dealt[name] = wishes.get(name, 1 if load[1] <= load[-1] else -1)
        load[dealt[name]] += weights[index]
    return dealt


def _ordered(states: list[str], pulls: dict[str, list[int]], links: list[tuple[str, str]]) -> tuple[str, ...]:
    """Beside the spine states they are connected to, and chained ones below each other."""
    chained = [(a, b) for a, b in links if a in states and b in states and a != b]
    height = {s: sum(pulls[s]) / len(pulls[s]) for s in states if pulls[s]}
    for _ in states:
        for a, b in chained:
            if a in height:
                height.setdefault(b, height[a] + 0.01)
    start = sorted(states, key=lambda s: height.get(s, float("inf")))
    pairs = [(a, b, _tangle(pulls[a], pulls[b])) for a in states for b in states if a != b]
    tangled = [pair for pair in pairs if pair[2]]

    def cost(order: Sequence[str]) -> float:
        place = {state: index for index, state in enumerate(order)}
        total = 0.0
        for upper, lower, price in tangled:
            if place[upper] < place[lower]:
                total += price
        for a, b in chained:
            steps = place[b] - place[a]
            total += 0.0 if steps == 1 else _FAR + _PER_STEP * abs(steps)
            total -= (_FAR + _PER_STEP - _UPWARDS) * (steps == -1 and (b, a) not in chained)
        return total

    return tuple(best_order(start, cost))


def _tangle(upper: list[int], lower: list[int]) -> float:
    """How much two states want to change places: lines that cross, and lines that grow."""
    crossings = sum(1 for a in upper for b in lower if a > b)
    return crossings / max(1.0, math.sqrt(len(upper) * len(lower)))


def best_order(start: Sequence[_T], cost: Callable[[Sequence[_T]], float]) -> list[_T]:
    """Move one after another to its best place until nothing gets better."""
    order, lowest = list(start), cost(start)
    for _ in range(_ROUNDS):
        before = lowest
        for index in range(len(order)):
            rest = order[:index] + order[index + 1 :]
            for place in range(len(order)):
                tried = [*rest[:place], order[index], *rest[place:]]
                if (price := cost(tried)) < lowest - 1e-9:
                    order, lowest = tried, price
                    break
        if lowest == before:
            break
    return order
