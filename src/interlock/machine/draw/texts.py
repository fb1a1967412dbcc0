"""What is written: the notes inside a box, and the words beside a line."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from interlock.machine.draw.geometry import Row, Words
from interlock.machine.draw.text import cut, humane, one_line, width_px, wrap

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from interlock.machine.blueprint import Blueprint, StateSheet, TransitionSheet

NAME_PX, NOTE_PX, EVENT_PX, GUARD_PX = 13.0, 10.5, 11.0, 9.5
NAME_ROW_PX, NOTE_ROW_PX, EVENT_ROW_PX, GUARD_ROW_PX = 18, 14, 14, 12
_GUARD_CHARS = 24
_KEPT_ROOM_PX, _EVENT_ROOM_PX = 180, 260


def notes_of(blueprint: Blueprint, state: StateSheet) -> tuple[str, ...]:
    """The small print of a state: how long, whose turn, and what it takes without moving."""
    known = []
    if state.within is not None:
        known.append(f"≤ {humane(state.within.seconds)}")
    if state.turn:
        known.append(one_line(state.turn))
    kept = list(dict.fromkeys(k.event for k in blueprint.kept if k.state == state.name))
    rows = [" · ".join(known)] if known else []
    if kept:
        rows += wrap("↻ " + ", ".join(map(one_line, kept)), NOTE_PX, _KEPT_ROOM_PX, rows=2)
    return tuple(rows)


def box_size_px(state: StateSheet, notes: Sequence[str]) -> tuple[float, float]:
    """The room that a state's own words need."""
    name = width_px(one_line(state.name), NAME_PX, bold=True)
    widest = max([name, *(width_px(note, NOTE_PX) for note in notes)])
    return widest + 32, NAME_ROW_PX + NOTE_ROW_PX * len(notes) + 22


def words_of(transitions: Iterable[TransitionSheet]) -> Words:
    """One row for each event, and below it the guard, where that is short and the same for all.

    A guard that all events of the line have in common stands once, below the last of them.
    """
    guards: dict[tuple[str, str], list[str]] = {}
    for t in transitions:
        guards.setdefault((t.event, t.owner), []).append(" & ".join(t.guards))
    common = len({guard for named in guards.values() for guard in named}) == 1
    rows: list[Row] = []
    for index, ((event, owner), named) in enumerate(guards.items()):
        name = cut(one_line(event), EVENT_PX, _EVENT_ROOM_PX)
        shown = named[0] if len(set(named)) == 1 and len(named[0]) <= _GUARD_CHARS else ""
        hidden = any(named) and not shown
        rows.append(Row(f"{name} ?" if hidden else name, EVENT_PX, EVENT_ROW_PX, owner))
        if shown and (not common or index == len(guards) - 1):
            rows.append(Row(f"[{one_line(shown)}]", GUARD_PX, GUARD_ROW_PX))
    width = max(width_px(row.text, row.size_px) for row in rows)
    return Words(tuple(rows), math.ceil(width), sum(row.height_px for row in rows))


def hover_of(transition: TransitionSheet) -> str:
    """Everything about a transition, for whoever points at its line."""
    parts = [f"{transition.event}: {transition.source} → {transition.target}"]
    if transition.guards:
        parts.append(f"only if {' and '.join(transition.guards)}")
    parts.append(f"by {transition.owner}")
    if transition.why:
        parts.append(transition.why)
    return "\n".join(parts)
