"""A machine as an SVG that stands alone: no font, script or file from elsewhere.

Every state is a group with `data-state`, every transition a group with `data-event`, `data-from`
and `data-to`; the classes `current`, `visited`, `lit` and `dim` do the lighting, so a page that
shows the picture can light something else by changing classes and nothing more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from interlock.machine.draw.geometry import Rect
from interlock.machine.draw.layout import lay_out
from interlock.machine.draw.legend import Heading, heading_of, legend_of
from interlock.machine.draw.light import Light
from interlock.machine.draw.marks import (
    attributes,
    element,
    escaped,
    number,
    path_of,
    rect,
    slug,
    text,
)
from interlock.machine.draw.routes import HEAD_PX
from interlock.machine.draw.text import first_sentence, one_line
from interlock.machine.draw.texts import NAME_ROW_PX, NOTE_ROW_PX
from interlock.machine.draw.theme import ROOT, owner_class, style_sheet
from interlock.machine.draw.wires import head, hover, wires
from interlock.plurals import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from interlock.machine.blueprint import Blueprint, StateSheet
    from interlock.machine.draw.geometry import Box, Picture

MARGIN_PX = 28
_CORNER_PX = 8
_DOT_PX = 4.5


def draw_svg(blueprint: Blueprint, *, current: str | None = None, path: Sequence[str] = ()) -> str:
    """The picture of a machine; `current` lights a state, `path` the way taken so far."""
    light = Light(blueprint, current, path)
    picture = lay_out(blueprint)
    heading = heading_of(blueprint, picture.width)
    owners = {owner: owner_class(index) for index, owner in enumerate(blueprint.owners)}
    width = max(picture.width, heading.width) + 2 * MARGIN_PX
    legend = legend_of(blueprint, owners, width - 2 * MARGIN_PX)
    legend_y = MARGIN_PX + heading.height + picture.height + MARGIN_PX
    height = legend_y + legend.height + MARGIN_PX / 2
    dx = MARGIN_PX + (width - 2 * MARGIN_PX - picture.width) / 2
    body = [
        *_heading(heading),
        f'<g transform="translate({number(dx)} {number(MARGIN_PX + heading.height)})">',
        *wires(picture, owners, light),
        *_entry(picture),
        *_states(blueprint, picture, light),
        "</g>",
        f'<g class="legend" transform="translate({MARGIN_PX} {number(legend_y)})">',
        *legend.marks,
        "</g>",
    ]
    return _document(blueprint, width, height, body, light)


def _document(blueprint: Blueprint, width: float, height: float, body: list[str], light: Light) -> str:
    name = slug(blueprint.machine)
    opening = attributes(
        {
            "xmlns": "http://www.w3.org/2000/svg",
            "viewBox": f"0 0 {number(width)} {number(height)}",
            "width": number(width),
            "height": number(height),
            "class": ROOT,
            "role": "img",
            "aria-labelledby": f"{name}-title {name}-desc",
            "data-machine": blueprint.machine,
        }
    )
    lines = [
        f"<svg {opening}>",
        f'<title id="{name}-title">{escaped(f"The {blueprint.machine} machine")}</title>',
        f'<desc id="{name}-desc">{escaped(_description(blueprint, light))}</desc>',
        f"<style>\n{style_sheet()}\n</style>",
        rect("paper", Rect(0, 0, width, height), 10),
        *body,
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _description(blueprint: Blueprint, light: Light) -> str:
    """The picture in sentences, for who cannot see it."""
    ends = [s.name for s in blueprint.states if s.terminal]
    parts = [
        first_sentence(blueprint.doc),
        f"{counted(len(blueprint.states), 'state')} and {counted(len(blueprint.transitions), 'transition')}.",
        f"It begins in {blueprint.initial}.",
        f"It ends in {', '.join(ends)}." if ends else "It has no terminal state.",
        f"It is now in {light.current}." if light.current is not None else "",
    ]
    return " ".join(part for part in parts if part)


def _heading(heading: Heading) -> list[str]:
    marks = [text("title", heading.title, MARGIN_PX, MARGIN_PX + 16)]
    for index, row in enumerate(heading.rows):
        marks.append(text("doc muted", row, MARGIN_PX, MARGIN_PX + 36 + 16 * index))
    return marks


def _entry(picture: Picture) -> list[str]:
    """The dot and arrow that come before the initial state."""
    (x, y), tip = picture.entry
    dot = f'<circle class="dot" cx="{number(x)}" cy="{number(y + _DOT_PX)}" r="{_DOT_PX}"/>'
    way = path_of(((x, y + _DOT_PX), tip), short=HEAD_PX - 2)
    return [f'<g class="entry">{dot}<path class="line" d="{way}"/>{head("head", (x, y), tip)}</g>']


def _states(blueprint: Blueprint, picture: Picture, light: Light) -> list[str]:
    ids: dict[str, str] = {}
    for box in picture.boxes:
        wanted = f"{slug(blueprint.machine)}-{slug(box.state.name)}"
        twins = sum(known == wanted or known.startswith(f"{wanted}--") for known in ids.values())
        ids[box.state.name] = f"{wanted}--{twins + 1}" if twins else wanted
    return [_state(box, ids[box.state.name], light) for box in picture.boxes]


def _state(box: Box, name: str, light: Light) -> str:
    sheet, place = box.state, box.place
    kinds = "state" + " spine" * box.on_spine + " terminal" * sheet.terminal
    kinds += " resting" * sheet.resting + light.of_state(sheet.name)
    glow = Rect(place.x - 5, place.y - 5, place.w + 10, place.h + 10)
    inset = Rect(place.x + 4, place.y + 4, place.w - 8, place.h - 8)
    marks = [hover(_about(sheet))]
    if sheet.name == light.current:
        marks.append(rect("glow", glow, _CORNER_PX + 5))
    marks.append(rect("box", place, _CORNER_PX))
    if sheet.terminal or sheet.resting:
        marks.append(rect("inner" + " dashed" * sheet.resting, inset, _CORNER_PX - 3))
    y = place.y + (place.h - NAME_ROW_PX - NOTE_ROW_PX * len(box.notes)) / 2
    marks.append(text("name", one_line(sheet.name), place.centre_x, y + 13.5, anchor="middle"))
    for index, note in enumerate(box.notes):
        row_y = y + NAME_ROW_PX + NOTE_ROW_PX * index + 10.5
        marks.append(text("note muted", note, place.centre_x, row_y, anchor="middle"))
    return element("g", {"class": kinds, "id": name, "data-state": sheet.name}, "".join(marks))


def _about(sheet: StateSheet) -> str:
    parts = [sheet.name, first_sentence(sheet.doc)]
    if sheet.within is not None:
        parts.append(f"at most {sheet.within.seconds:g} s, then {sheet.within.event}")
    return "\n".join(part for part in parts if part)
