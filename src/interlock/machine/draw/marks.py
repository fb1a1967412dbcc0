"""SVG as text: escaping, numbers, and the few shapes that a picture is made of."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from interlock.machine.draw.geometry import Point, Rect

_ROUND_PX = 6.0
# XML 1.0 has no way at all to write these characters, not even escaped.
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_QUOTES = {'"': "&quot;", "'": "&#39;", "\t": "&#9;", "\n": "&#10;", "\r": "&#13;"}


def escaped(words: str) -> str:
    """Text as it may stand between tags."""
    return escape(_NOT_XML.sub("\ufffd", words), {"\r": "&#13;"})


def attributes(facts: Mapping[str, str]) -> str:
    """Facts as the inside of a tag."""
    pairs = ((key, escape(_NOT_XML.sub("\ufffd", value), _QUOTES)) for key, value in facts.items())
    return " ".join(f'{key}="{value}"' for key, value in pairs)


def element(tag: str, facts: Mapping[str, str], inside: str) -> str:
    """One element; `inside` is markup already."""
    return f"<{tag} {attributes(facts)}>{inside}</{tag}>"


def number(value: float) -> str:
    """At most two decimals, and none where there are none."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


def slug(name: str) -> str:
    """A name as it may stand in an id."""
    return re.sub(r"[^A-Za-z0-9_]+", "-", name).strip("-") or "x"


def rect(kind: str, place: Rect, corner_px: float) -> str:
    """A rectangle with round corners."""
    spot = f'x="{number(place.x)}" y="{number(place.y)}"'
    size = f'width="{number(place.w)}" height="{number(place.h)}"'
    return f'<rect class="{kind}" {spot} {size} rx="{number(corner_px)}"/>'


def text(kind: str, words: str, x: float, y: float, *, anchor: str = "start") -> str:
    """One row of words; the anchor is an attribute, because it is geometry and not taste."""
    at = "" if anchor == "start" else f' text-anchor="{anchor}"'
    spot = f'x="{number(x)}" y="{number(y)}"'
    return f'<text class="{kind}" {spot}{at}>{escaped(words)}</text>'


def path_of(points: Sequence[Point], *, short: float = 0.0, sharp: Sequence[Point] = ()) -> str:
    """A line through the points, ending `short` pixels before the last.

    Corners are round, except the `sharp` ones: there another line goes on.
    """
    way = [f"M{_at(points[0])}"]
    for before, corner, after in zip(points, points[1:], points[2:], strict=False):
        radius = min(_ROUND_PX, _length(before, corner) / 2, _length(corner, after) / 2)
        radius = 0.0 if corner in sharp else radius
        way.append(f"L{_at(_towards(corner, before, radius))}")
        way.append(f"Q{_at(corner)} {_at(_towards(corner, after, radius))}")
    way.append(f"L{_at(_towards(points[-1], points[-2], short))}")
    return " ".join(way)


def _length(one: Point, two: Point) -> float:
    return abs(one[0] - two[0]) + abs(one[1] - two[1])


def _towards(start: Point, goal: Point, step_px: float) -> Point:
    share = step_px / (_length(start, goal) or 1.0)
    return start[0] + (goal[0] - start[0]) * share, start[1] + (goal[1] - start[1]) * share


def _at(point: Point) -> str:
    return f"{number(point[0])} {number(point[1])}"
