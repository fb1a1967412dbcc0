"""A machine as a standalone SVG, without external fonts, scripts or files.

Every state is a group with `data-state`, every transition a group with `data-event`, `data-from` and
`data-to`; the classes `current`, `visited`, `lit` and `dim` highlight, so a page that shows the picture can
highlight something else only by changing classes.

A net is one visible path, so that shared parts are painted once. Above it every transition has a group with
an invisible path: it catches the pointer, and becomes visible when lit.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

from interlock.errors import UnknownState
from interlock.machine.draw.geometry import NAME_ROW_PX, NOTE_ROW_PX, Rect, hover_of
from interlock.machine.draw.layout import lay_out
from interlock.machine.draw.routes import HEAD_PX
from interlock.machine.draw.text import cut, first_sentence, one_line, width_px, wrap
from interlock.machine.draw.theme import ROOT, owner_class, style_sheet
from interlock.text import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from interlock.machine.blueprint import Blueprint, StateSheet
    from interlock.machine.draw.geometry import Box, Label, Picture, Point, TransitionPath, Wire


_ROUND_PX = 6.0
# XML 1.0 cannot represent these characters, not even escaped.
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_QUOTES = {'"': "&quot;", "'": "&#39;", "\t": "&#9;", "\n": "&#10;", "\r": "&#13;"}


def escaped(words: str) -> str:
    """Return escaped text for element content."""
    return escape(_NOT_XML.sub("\ufffd", words), {"\r": "&#13;"})


def attributes(facts: Mapping[str, str]) -> str:
    """Return the attributes of a tag."""
    pairs = ((key, escape(_NOT_XML.sub("\ufffd", value), _QUOTES)) for key, value in facts.items())
    return " ".join(f'{key}="{value}"' for key, value in pairs)


def element(tag: str, facts: Mapping[str, str], inside: str) -> str:
    """Return one element; `inside` is markup."""
    return f"<{tag} {attributes(facts)}>{inside}</{tag}>"


def number(value: float) -> str:
    """Return a number with at most two decimals."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


def slug(name: str) -> str:
    """Return a name for use in an id."""
    return re.sub(r"[^A-Za-z0-9_]+", "-", name).strip("-") or "x"


def rect(kind: str, place: Rect, corner_px: float) -> str:
    """Return a rectangle with round corners."""
    spot = f'x="{number(place.x)}" y="{number(place.y)}"'
    size = f'width="{number(place.w)}" height="{number(place.h)}"'
    return f'<rect class="{kind}" {spot} {size} rx="{number(corner_px)}"/>'


def text(kind: str, words: str, x: float, y: float, *, anchor: str = "start") -> str:
    """Return one row of text.

    The anchor is an attribute, because it is geometry, not style.
    """
    at = "" if anchor == "start" else f' text-anchor="{anchor}"'
    spot = f'x="{number(x)}" y="{number(y)}"'
    return f'<text class="{kind}" {spot}{at}>{escaped(words)}</text>'


def path_of(points: Sequence[Point], *, short: float = 0.0, sharp: Sequence[Point] = ()) -> str:
    """Return a path through the points, ending `short` pixels before the last.

    Corners are round, except the `sharp` ones, where another line continues.
    """
    way = [f"M{_coordinates(points[0])}"]
    for before, corner, after in zip(points, points[1:], points[2:], strict=False):
        radius = min(_ROUND_PX, _length(before, corner) / 2, _length(corner, after) / 2)
        radius = 0.0 if corner in sharp else radius
        way.append(f"L{_coordinates(_point_towards(corner, before, radius))}")
        way.append(f"Q{_coordinates(corner)} {_coordinates(_point_towards(corner, after, radius))}")
    way.append(f"L{_coordinates(_point_towards(points[-1], points[-2], short))}")
    return " ".join(way)


def _length(one: Point, two: Point) -> float:
    return abs(one[0] - two[0]) + abs(one[1] - two[1])


def _point_towards(start: Point, goal: Point, step_px: float) -> Point:
    share = step_px / (_length(start, goal) or 1.0)
    return start[0] + (goal[0] - start[0]) * share, start[1] + (goal[1] - start[1]) * share


def _coordinates(point: Point) -> str:
    return f"{number(point[0])} {number(point[1])}"


class Light:
    """The highlighted parts: a state, the visited states, and the transitions between them."""

    def __init__(self, blueprint: Blueprint, current: str | None, path: Sequence[str]) -> None:
        known = [state.name for state in blueprint.states]
        for name in (*([] if current is None else [current]), *path):
            if name not in known:
                raise UnknownState(name, known, where=blueprint.machine)
        self.current = current
        self.visited: frozenset[str] = frozenset(path)
        self.steps: frozenset[tuple[str, str]] = frozenset(pairwise(path))
        self.dims: bool = bool(path)

    def of_state(self, state: str) -> str:
        """Return the classes of a state's group."""
        here = state == self.current
        if state in self.visited or here:
            return " visited" * (state in self.visited) + " current" * here
        return " dim" * self.dims

    def lights(self, route: TransitionPath) -> bool:
        """Return whether the highlighted path uses this line."""
        return (route.transition.source, route.transition.target) in self.steps


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
    """Marks relative to the position of the legend."""

    marks: tuple[str, ...]
    height: float


def heading_of(blueprint: Blueprint, picture_px: float) -> Heading:
    """Return the machine's name and first sentence, as wide as the picture."""
    room = max(picture_px, _LEAST_PX)
    title = cut(one_line(blueprint.machine), _TITLE_PX * 1.12, room)
    rows = wrap(first_sentence(blueprint.doc), _DOC_PX, room, rows=3)
    return Heading(title, rows, room, 38 + 16 * len(rows))


def legend_of(blueprint: Blueprint, owners: Mapping[str, str], room_px: float) -> Legend:
    """Return signs and their meaning, in as many rows as needed."""
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


_TO_HEAD_PX = HEAD_PX - 2


def wires(picture: Picture, owners: Mapping[str, str], light: Light) -> list[str]:
    """Return unlit lines first, so that lit ones lie on top; then the labels."""
    dark = [mark for wire in picture.wires for mark in _wire(wire, owners, light, lit=False)]
    lit = [mark for wire in picture.wires for mark in _wire(wire, owners, light, lit=True)]
    labels = [_label(wire, owners, light) for wire in picture.wires]
    return [*dark, *lit, *labels]


def _wire(wire: Wire, owners: Mapping[str, str], light: Light, *, lit: bool) -> list[str]:
    routes = [route for route in wire.routes if light.lights(route) == lit]
    if not routes:
        return []
    dim = light.dims and not lit
    classes = ["net", owners[wire.owner], "on-spine" * wire.on_spine, "dim" * dim]
    joints = junctions(wire.routes)
    ways = " ".join(dict.fromkeys(_way(route, joints) for route in routes))
    tips = dict.fromkeys(head("head", *route.points[-2:]) for route in routes)
    dots = (p for p in joints if any(p in route.points for route in routes))
    # Wide and in the colour of the paper: a crossed net shows a gap. A lit line is bold enough without, and
    # would cut off the unlit rest of its own net.
    halo = [] if lit else [f'<path class="halo" d="{ways}"/>']
    return [
        f'<g class="{" ".join(filter(None, classes))}">',
        *halo,
        f'<path class="line" d="{ways}"/>',
        *tips,
        *(f'<circle class="dot" cx="{number(x)}" cy="{number(y)}" r="2.6"/>' for x, y in dots),
        *(_edge(route, owners, joints, lit=lit) for route in routes),
        "</g>",
    ]


def _way(route: TransitionPath, joints: Sequence[Point]) -> str:
    return path_of(route.points, short=_TO_HEAD_PX, sharp=joints)


def _edge(route: TransitionPath, owners: Mapping[str, str], joints: Sequence[Point], *, lit: bool) -> str:
    t = route.transition
    facts = {
        "class": f"edge {owners[t.owner]}{' lit' * lit}",
        "data-event": t.event,
        "data-from": t.source,
        "data-to": t.target,
        "data-owner": t.owner,
    }
    way = f'<path class="way" d="{_way(route, joints)}"/>'
    return element("g", facts, hover(hover_of(t)) + way + head("tip", *route.points[-2:]))


def hover(sentence: str) -> str:
    """Return the tooltip of a group."""
    return f"<title>{escaped(sentence)}</title>"


def head(kind: str, before: Point, tip: Point) -> str:
    """Return the head of an arrow that comes from `before`."""
    length = abs(tip[0] - before[0]) + abs(tip[1] - before[1]) or 1
    dx, dy = (tip[0] - before[0]) / length, (tip[1] - before[1]) / length
    x, y = tip[0] - dx * HEAD_PX, tip[1] - dy * HEAD_PX
    corners = [tip, (x - dy * 4, y + dx * 4), (x + dy * 4, y - dx * 4)]
    way = " L".join(f"{number(a)} {number(b)}" for a, b in corners)
    return f'<path class="{kind}" d="M{way} Z"/>'


def junctions(routes: Sequence[TransitionPath]) -> list[Point]:
    """Return the corners at which a line joins one from further away."""
    bent = list(dict.fromkeys(route.points for route in routes if len(route.points) == 4))
    found = []
    for points in bent:
        joint, last = points[1], points[2][1]
        if any((other[1][1] - joint[1]) * (joint[1] - last) > 0 for other in bent):
            found.append(joint)
    straight = any(len(route.points) == 2 for route in routes)
    both = {points[1][1] > points[2][1] for points in bent}
    if bent and (straight or len(both) == 2):
        found.append(bent[0][2])
    return found


def _label(wire: Wire, owners: Mapping[str, str], light: Light) -> str:
    label = wire.label
    lit = any(light.lights(route) for route in wire.routes)
    state = " lit" if lit else " dim" * light.dims
    events = dict.fromkeys(route.transition.event for route in wire.routes)
    facts = {
        "class": f"label {owners[wire.owner]}{state}",
        "data-events": " ".join(events),
        "data-to": wire.routes[0].transition.target,
    }
    # A dim pill lets its line shine through; the ground below it does not.
    ground = rect("paper", label.place, 9) if label.pill else ""
    shape = rect("pill", label.place, 9) if label.pill else ""
    return ground + element("g", facts, shape + "".join(_label_rows(label, owners)))


def _label_rows(label: Label, owners: Mapping[str, str]) -> list[str]:
    place = label.place
    x = {"start": place.x, "middle": place.centre_x, "end": place.right}[label.anchor]
    y = place.y + (place.h - label.words.h) / 2
    marks = []
    for row in label.words.rows:
        y += row.height_px
        kind = "guard muted" if row.owner is None else f"event {owners[row.owner]}"
        marks.append(text(kind, row.text, x, y - 3.5, anchor=label.anchor))
    return marks


MARGIN_PX = 28
_CORNER_PX = 8
_DOT_PX = 4.5


def draw_svg(blueprint: Blueprint, *, current: str | None = None, path: Sequence[str] = ()) -> str:
    """Return the picture of a machine with the `current` state and the `path`."""
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
    """Return the picture in sentences, for accessibility."""
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
    """Return the dot and arrow before the initial state."""
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
    marks = [hover(_tooltip(sheet))]
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


def _tooltip(sheet: StateSheet) -> str:
    parts = [sheet.name, first_sentence(sheet.doc)]
    if sheet.within is not None:
        parts.append(f"at most {sheet.within.seconds:g} s, then {sheet.within.event}")
    return "\n".join(part for part in parts if part)
