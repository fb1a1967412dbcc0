"""Lines, arrow heads and labels as SVG.

A net is one visible path, so that shared parts are painted once. Above it every transition has a
group of its own with an invisible path: it catches the pointer, and becomes visible when lit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from interlock.machine.draw.marks import element, escaped, number, path_of, rect, text
from interlock.machine.draw.routes import HEAD_PX
from interlock.machine.draw.texts import hover_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from interlock.machine.draw.geometry import Label, Picture, Point, Route, Wire
    from interlock.machine.draw.light import Light

_TO_HEAD_PX = HEAD_PX - 2


def wires(picture: Picture, owners: Mapping[str, str], light: Light) -> list[str]:
    """Dark lines first, so that lit ones lie on top of everything they cross; then the labels."""
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
    # Wide and in the colour of the paper: a net that is crossed shows a gap. A lit line is bold
    # enough without, and would cut off the dark rest of its own net.
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


def _way(route: Route, joints: Sequence[Point]) -> str:
    return path_of(route.points, short=_TO_HEAD_PX, sharp=joints)


def _edge(route: Route, owners: Mapping[str, str], joints: Sequence[Point], *, lit: bool) -> str:
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
    """What shows when somebody points at the group that this stands in."""
    return f"<title>{escaped(sentence)}</title>"


def head(kind: str, before: Point, tip: Point) -> str:
    """The head of an arrow that comes from `before`."""
    length = abs(tip[0] - before[0]) + abs(tip[1] - before[1]) or 1
    dx, dy = (tip[0] - before[0]) / length, (tip[1] - before[1]) / length
    x, y = tip[0] - dx * HEAD_PX, tip[1] - dy * HEAD_PX
    corners = [tip, (x - dy * 4, y + dx * 4), (x + dy * 4, y - dx * 4)]
    way = " L".join(f"{number(a)} {number(b)}" for a, b in corners)
    return f'<path class="{kind}" d="M{way} Z"/>'


def junctions(routes: Sequence[Route]) -> list[Point]:
    """The corners at which a line joins one that comes from further away."""
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
