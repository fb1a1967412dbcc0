"""A layout on its way: what is decided, and what still moves."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from interlock.machine.draw.columns import from_the_top, gap_px
from interlock.machine.draw.geometry import up_to_grid
from interlock.machine.draw.plan import LEFT, RIGHT, SPINE, Channel
from interlock.machine.draw.ports import faces_of, height_px, other_ends, stacked
from interlock.machine.draw.texts import box_size_px, notes_of, words_of
from interlock.machine.draw.tracks import Trunk, trunk

if TYPE_CHECKING:
    from collections.abc import Mapping

    from interlock.machine.blueprint import Blueprint
    from interlock.machine.draw.geometry import Words
    from interlock.machine.draw.plan import Plan
    from interlock.machine.draw.ports import Face, Line, Slot

CHANNELS = tuple(Channel(side, depth) for side in (LEFT, RIGHT) for depth in (0, 1))


@dataclass(frozen=True, slots=True)
class Draft:
    """The boxes, the order of the lines on each, and where the boxes stand so far."""

    plan: Plan
    words: tuple[Words, ...]
    heights: Mapping[str, int]
    gaps: Mapping[int, tuple[int, ...]]
    column_of: Mapping[str, int]
    faces: Mapping[Face, tuple[Slot, ...]]
    tops: Mapping[str, int]

    def lines(self) -> dict[Line, int]:
        """The y of every line where it touches a box."""
        lines: dict[Line, int] = {}
        for (_, state), slots in self.faces.items():
            place = (self.tops[state], self.heights[state], self.column_of[state])
            lines |= stacked(slots, state, *place)
        return lines

    def trunks(self, channel: Channel, lines: Mapping[Line, int]) -> list[Trunk]:
        """The nets of a channel with the ys of their ends; loops stay beside their box."""
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
        """The ys at which the line in this slot of a side box touches the spine."""
        ends = other_ends(self.plan.nets[slot.net], state)
        return [lines[slot.net, *end] for end in ends if self.column_of[end[0]] == SPINE]


def first_draft(blueprint: Blueprint, plan: Plan) -> Draft:
    """The boxes as tall as they must be, packed closely in their columns."""
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


def _gaps(blueprint: Blueprint, plan: Plan, column: int) -> tuple[int, ...]:
    states = plan.columns[column]
    pill = {frozenset((d.source, d.target)): words_of(d.transitions).h for d in plan.drops}
    return tuple(
        gap_px(pill.get(frozenset((upper, lower))), entry_below=lower == blueprint.initial)
        for upper, lower in pairwise(states)
    )
