"""The position of each state, before any pixel: the spine, the two side columns, and the shared lines.

    left column │ left channel │ spine │ right channel │ right column
    (and a channel outside of each column)

The happy path is the spine. Other states that are connected with each other stay on one side, so no line has
to cross the spine. Transitions with the same event, owner and target share one line (a net), and so do events
with the same sources and targets.

Orders are searched with one move: take one out, put it back where it costs least. The result is not optimal,
but the search is fast and deterministic, and machines are small.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from interlock.machine.blueprint import Blueprint, TransitionSheet


_T = TypeVar("_T")
_PULL_OF_A_LINK = 0.4
_FAR, _PER_STEP, _UPWARDS = 3.0, 1.0, 0.6
_ROUNDS = 8


def side_orders(
    blueprint: Blueprint, spine: tuple[str, ...], wishes: Mapping[object, int]
) -> tuple[dict[int, tuple[str, ...]], dict[object, int]]:
    """Return the states left (-1) and right (1) of the spine, from the top.

    The side of each group comes with them. Connected states are one group, named by its first state; `wishes`
    may give its side.
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
    """Return groups of connected states."""
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
    """Assign each group to the lighter side, the heaviest first."""
    dealt: dict[object, int] = {}
    load = {-1: 0.0, 1: 0.0}
    weights = [len(g) + _PULL_OF_A_LINK * sum(len(pulls[s]) for s in g) for g in groups]
    for index in sorted(range(len(groups)), key=lambda i: -weights[i]):
        name = groups[index][0]
        dealt[name] = wishes.get(name, 1 if load[1] <= load[-1] else -1)
        load[dealt[name]] += weights[index]
    return dealt


def _ordered(states: list[str], pulls: dict[str, list[int]], links: list[tuple[str, str]]) -> tuple[str, ...]:
    """Order states near their spine states, and chained ones downwards."""
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
    """Return how much two states should change places, by crossed lines."""
    crossings = sum(1 for a in upper for b in lower if a > b)
    return crossings / max(1.0, math.sqrt(len(upper) * len(lower)))


def best_order(start: Sequence[_T], cost: Callable[[Sequence[_T]], float]) -> list[_T]:
    """Move one after another to its best place until nothing improves."""
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


LEFT, SPINE, RIGHT = -1, 0, 1


@dataclass(frozen=True, slots=True, order=True)
class SideChannel:
    """The space on one side of a column; `depth` 0 borders the spine, 1 lies outside."""

    side: int
    depth: int

    @property
    def inner(self) -> int:
        """The column between this channel and the spine, or the spine."""
        return self.side if self.depth else SPINE

    @property
    def outer(self) -> int | None:
        """The column on the far side, if there can be one."""
        return None if self.depth else self.side


@dataclass(frozen=True, slots=True)
class Drop:
    """A straight line between two adjacent states of a column."""

    column: int
    source: str
    target: str
    transitions: tuple[TransitionSheet, ...]


@dataclass(frozen=True, slots=True)
class Net:
    """Transitions that share one line, in one channel, into one target."""

    channel: SideChannel
    owner: str
    target: str
    transitions: tuple[TransitionSheet, ...]

    @property
    def sources(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(t.source for t in self.transitions))

    @property
    def is_loop(self) -> bool:
        return self.sources == (self.target,)


@dataclass(frozen=True, slots=True)
class Arrangement:
    """The arrangement of one machine; `sides` has the groups that could be on either side."""

    columns: Mapping[int, tuple[str, ...]]
    drops: tuple[Drop, ...]
    nets: tuple[Net, ...]
    sides: Mapping[object, int]


def arrange(blueprint: Blueprint, wishes: Mapping[object, int] | None = None) -> Arrangement:
    """Assign a column to every state and a line to every transition.

    Groups of side states and lines between spine states may be on either side. `wishes` gives the side of
    some of them; the others are distributed evenly.
    """
    wishes = wishes or {}
    spine = spine_of(blueprint)
    beside, dealt = side_orders(blueprint, spine, wishes)
    columns = {SPINE: spine, **beside}
    drops = _drops(blueprint, columns)
    dropped = {id(t) for drop in drops for t in drop.transitions}
    rest = [t for t in blueprint.transitions if id(t) not in dropped]
    nets, chosen = _nets(rest, columns, wishes)
    return Arrangement(columns, drops, nets, {**dealt, **chosen})


def spine_of(blueprint: Blueprint) -> tuple[str, ...]:
    """Return the declared happy path, or that of first transitions.

    The latter begins at the start, and has the transitions that are declared first.
    """
    if blueprint.spine:
        return tuple(dict.fromkeys(blueprint.spine))
    ends = {s.name for s in blueprint.states if s.terminal or s.resting}
    way = [blueprint.initial]
    while len(way) == 1 or way[-1] not in ends:
        onward = (t.target for t in blueprint.transitions if t.source == way[-1])
        step = next((target for target in onward if target not in way), None)
        if step is None:
            break
        way.append(step)
    return tuple(way)


def _drops(blueprint: Blueprint, columns: Mapping[int, tuple[str, ...]]) -> tuple[Drop, ...]:
    by_pair: dict[tuple[str, str], list[TransitionSheet]] = defaultdict(list)
    for transition in blueprint.transitions:
        by_pair[transition.source, transition.target].append(transition)
    drops = []
    for column, states in columns.items():
        for upper, lower in pairwise(states):
            for source, target in ((upper, lower), (lower, upper)):
                if found := by_pair.get((source, target)):
                    drops.append(Drop(column, source, target, tuple(found)))
                    break
    return tuple(drops)


def _nets(
    transitions: Iterable[TransitionSheet],
    columns: Mapping[int, tuple[str, ...]],
    wishes: Mapping[object, int],
) -> tuple[tuple[Net, ...], dict[object, int]]:
    column_of = {state: column for column, states in columns.items() for state in states}
    shared: dict[tuple[object, ...], list[TransitionSheet]] = defaultdict(list)
    for t in transitions:
        shared[t.event, t.owner, t.target, t.source == t.target].append(t)
    placed: list[tuple[SideChannel, list[TransitionSheet]]] = []
    chosen: dict[object, int] = {}
    busy = {RIGHT: len(columns[RIGHT]), LEFT: len(columns[LEFT])}
    # Lines with a choice come last, when the load of both sides is known.
    for key in sorted(shared, key=lambda k: all(_free(t, column_of) for t in shared[k])):
        group = shared[key]
        calm = wishes.get(key, _calm_side(group, column_of, busy))
        if any(_free(t, column_of) for t in group):
            chosen[key] = calm
        for channel, members in _by_channel(group, column_of, calm).items():
            busy[channel.side] += (1 + len(members)) * (channel.depth == 0)
            placed.append((channel, members))
    return _with_events_joined(placed), chosen


def _free(t: TransitionSheet, column_of: Mapping[str, int]) -> bool:
    """Return whether a line may run on either side."""
    return column_of[t.source] == column_of[t.target] == SPINE


def _calm_side(group: list[TransitionSheet], column_of: Mapping[str, int], busy: Mapping[int, int]) -> int:
    """Return the side of free members.

    It is that of others of their group if there are any, otherwise the less busy side.
    """
    bound = {column_of[t.source] for t in group if not _free(t, column_of)}
    return min(busy, key=lambda side: (side not in bound, busy[side], -side))


def _by_channel(
    group: list[TransitionSheet], column_of: Mapping[str, int], calm: int
) -> dict[SideChannel, list[TransitionSheet]]:
    """Split the members of a group by where they run."""
    target = column_of[group[0].target]
    from_spine = any(column_of[t.source] == SPINE for t in group)
    channels: dict[SideChannel, list[TransitionSheet]] = defaultdict(list)
    for t in group:
        side = column_of[t.source] or target or calm
        beside = column_of[t.source] == target != SPINE and not from_spine
        channels[SideChannel(side, int(beside))].append(t)
    return channels


def _with_events_joined(
    placed: Iterable[tuple[SideChannel, list[TransitionSheet]]],
) -> tuple[Net, ...]:
    """Join events with the same ends into one line with two names.

    They have one owner, the same sources and the same targets.
    """
    joined: dict[tuple[object, ...], Net] = {}
    for channel, members in placed:
        net = Net(channel, members[0].owner, members[0].target, tuple(members))
        key = (channel, net.owner, net.target, frozenset(net.sources))
        if key in joined:
            net = Net(channel, net.owner, net.target, joined[key].transitions + net.transitions)
        joined[key] = net
    return tuple(joined.values())
