"""The order of the lines on every box, so that few of them cross."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from interlock.machine.draw.draft import CHANNELS
from interlock.machine.draw.ports import other_ends, stacked
from interlock.machine.draw.tracks import tangle

if TYPE_CHECKING:
    from interlock.machine.draw.draft import Draft
    from interlock.machine.draw.ports import Face, Line, Slot

_ROUNDS = 6


def untangled(draft: Draft) -> Draft:
    """Order the lines on every box: first by where they go, then by trying neighbours."""
    faces = {face: _by_direction(draft, face) for face in draft.faces}
    draft = replace(draft, faces=faces)
    lines = draft.lines()
    for channel in CHANNELS:
        mine = [face for face in faces if face[0] == channel and len(faces[face]) > 1]
        price = tangle(draft.trunks(channel, lines))
        for _ in range(_ROUNDS):
            before = price
            for face in mine:
                price = _swap_neighbours(draft, face, faces, lines, price)
            if price == before:
                break
    return replace(draft, faces=faces)


def _by_direction(draft: Draft, face: Face) -> tuple[Slot, ...]:
    _, state = face

    def middle(name: str) -> float:
        return draft.tops[name] + draft.heights[name] / 2

    def heading(slot: Slot) -> float:
        ends = other_ends(draft.plan.nets[slot.net], state)
        return sum(middle(end) for end, _ in ends) / len(ends)

    return tuple(sorted(draft.faces[face], key=heading))


def _swap_neighbours(
    draft: Draft,
    face: Face,
    faces: dict[Face, tuple[Slot, ...]],
    lines: dict[Line, int],
    price: float,
) -> float:
    """Keep every swap of two neighbours that makes the channel cheaper; `faces` is changed."""
    channel, state = face
    place = (draft.tops[state], draft.heights[state], draft.column_of[state])
    for index in range(len(faces[face]) - 1):
        slots = faces[face]
        swapped = (*slots[:index], slots[index + 1], slots[index], *slots[index + 2 :])
        lines |= stacked(swapped, state, *place)
        tried = tangle(draft.trunks(channel, lines))
        if tried < price - 1e-9:
            faces[face], price = swapped, tried
        else:
            lines |= stacked(slots, state, *place)
    return price
