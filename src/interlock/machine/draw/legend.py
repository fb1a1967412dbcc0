"""The words above and below a picture: its name, and what its signs mean."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from interlock.machine.draw.geometry import Rect
from interlock.machine.draw.marks import number, rect, text
from interlock.machine.draw.text import cut, first_sentence, one_line, width_px, wrap

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from interlock.machine.blueprint import Blueprint

_TITLE_PX, _DOC_PX, _KEY_PX = 19.0, 12.0, 11.0
_LEAST_PX = 360.0
_ROW_PX, _SIGN_PX, _BETWEEN_PX = 22, 34, 22


@dataclass(frozen=True, slots=True)
class Heading:
    """The title and the rows of the doc below it."""

    title: str
    rows: tuple[str, ...]
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Legend:
    """Marks relative to the place of the legend."""

    marks: tuple[str, ...]
    height: float


def heading_of(blueprint: Blueprint, picture_px: float) -> Heading:
    """The machine's name and the first sentence about it, as wide as the picture."""
    room = max(picture_px, _LEAST_PX)
    title = cut(one_line(blueprint.machine), _TITLE_PX * 1.12, room)
    rows = wrap(first_sentence(blueprint.doc), _DOC_PX, room, rows=3)
    return Heading(title, rows, room, 38 + 16 * len(rows))


def legend_of(blueprint: Blueprint, owners: Mapping[str, str], room_px: float) -> Legend:
    """Signs and their meaning, in as many rows as it takes."""
    marks: list[str] = []
    x, y = 0.0, 0
    for sign, sign_px, words in _keys(blueprint, owners):
        name = cut(words, _KEY_PX, room_px - sign_px)
        width = sign_px + width_px(name, _KEY_PX)
        if x and x + width > room_px:
            x, y = 0.0, y + _ROW_PX
        inside = sign + text("key muted", name, sign_px, 14)
        marks.append(f'<g transform="translate({number(x)} {y})">{inside}</g>')
        x += width + _BETWEEN_PX
    return Legend(tuple(marks), y + _ROW_PX)


def _keys(blueprint: Blueprint, owners: Mapping[str, str]) -> Iterator[tuple[str, int, str]]:
    moving = {t.owner for t in blueprint.transitions}
    for owner, name in owners.items():
        if owner in moving:
            line = '<path class="line" d="M0 10 L18 10"/><path class="head" d="M26 10 L18 6 L18 14 Z"/>'
            yield f'<g class="{name}">{line}</g>', _SIGN_PX, f"by {one_line(owner)}"
    if any(s.terminal for s in blueprint.states):
        yield _little_box("inner"), _SIGN_PX, "terminal"
    if any(s.resting for s in blueprint.states):
        yield _little_box("inner dashed"), _SIGN_PX, "at rest"
    if blueprint.kept:
        yield text("key muted", "↻", 0, 14), 14, "accepted, stays here"
    if any(s.within for s in blueprint.states):
        yield text("key muted", "≤", 0, 14), 14, "at most this long"


def _little_box(kind: str) -> str:
    outer = rect("box", Rect(1, 2, 25, 16), 4)
    return outer + rect(kind, Rect(4, 5, 19, 10), 2)
