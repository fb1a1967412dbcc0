"""Who stands where, before any pixel: the spine, the two side columns, and the shared lines.

    left column │ left channel │ spine │ right channel │ right column
                                                          (and a channel outside of each column)

The happy path is the spine. Other states that are connected with each other stay on one side, so
no line ever has to cross the spine. Transitions with the same event, owner and target share one
line (a net), and so do events that go the same ways.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from interlock.machine.draw.order import side_orders

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from interlock.machine.blueprint import Blueprint, TransitionSheet

LEFT, SPINE, RIGHT = -1, 0, 1


@dataclass(frozen=True, slots=True, order=True)
class Channel:
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
    """A straight line between two states that stand one above the other."""

    column: int
    source: str
    target: str
    transitions: tuple[TransitionSheet, ...]


@dataclass(frozen=True, slots=True)
class Net:
    """Transitions that share one line, in one channel, into one target."""

    channel: Channel
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
class Plan:
    """The arrangement of one machine; `sides` has what was free to be left or right."""

    columns: Mapping[int, tuple[str, ...]]
    drops: tuple[Drop, ...]
    nets: tuple[Net, ...]
    sides: Mapping[object, int]


def arrange(blueprint: Blueprint, wishes: Mapping[object, int] | None = None) -> Plan:
    """Give every state a column and every transition a line.

    Groups of side states and lines between spine states may stand on either side. `wishes` says
    where some of them should; the others are dealt so that both sides are about as busy.
    """
    wishes = wishes or {}
    spine = spine_of(blueprint)
    beside, dealt = side_orders(blueprint, spine, wishes)
    columns = {SPINE: spine, **beside}
    drops = _drops(blueprint, columns)
    dropped = {id(t) for drop in drops for t in drop.transitions}
    rest = [t for t in blueprint.transitions if id(t) not in dropped]
    nets, chosen = _nets(rest, columns, wishes)
    return Plan(columns, drops, nets, {**dealt, **chosen})


def spine_of(blueprint: Blueprint) -> tuple[str, ...]:
    """The declared happy path, or the way of the first-declared transitions from the start."""
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
    placed: list[tuple[Channel, list[TransitionSheet]]] = []
    chosen: dict[object, int] = {}
    busy = {RIGHT: len(columns[RIGHT]), LEFT: len(columns[LEFT])}
    # Lines with a choice come last, when it is known which side is the less busy one.
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
    """Whether a line may run on either side."""
    return column_of[t.source] == column_of[t.target] == SPINE


def _calm_side(group: list[TransitionSheet], column_of: Mapping[str, int], busy: Mapping[int, int]) -> int:
    """Where free members run: with others of their group if there are any, else the calm side."""
    bound = {column_of[t.source] for t in group if not _free(t, column_of)}
    return min(busy, key=lambda side: (side not in bound, busy[side], -side))


def _by_channel(
    group: list[TransitionSheet], column_of: Mapping[str, int], calm: int
) -> dict[Channel, list[TransitionSheet]]:
    """Split the members of a group by where they run."""
    target = column_of[group[0].target]
    from_spine = any(column_of[t.source] == SPINE for t in group)
    channels: dict[Channel, list[TransitionSheet]] = defaultdict(list)
    for t in group:
        side = column_of[t.source] or target or calm
        beside = column_of[t.source] == target != SPINE and not from_spine
        channels[Channel(side, int(beside))].append(t)
    return channels


def _with_events_joined(
    placed: Iterable[tuple[Channel, list[TransitionSheet]]],
) -> tuple[Net, ...]:
    """Different events of one owner that go exactly the same ways are one line with two names."""
    joined: dict[tuple[object, ...], Net] = {}
    for channel, members in placed:
        net = Net(channel, members[0].owner, members[0].target, tuple(members))
        key = (channel, net.owner, net.target, frozenset(net.sources))
        if key in joined:
            net = Net(channel, net.owner, net.target, joined[key].transitions + net.transitions)
        joined[key] = net
    return tuple(joined.values())
