"""Plots as SVG, drawn from numbers alone: curves over whatever lies between 0 and 1, on a scale that fits."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape
from itertools import pairwise

import msgspec

WIDTH, HEIGHT = 920, 250
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 14, 40, 30
_TICKS = 4
_STEPS = (1.0, 1.2, 1.6, 2.0, 2.4, 3.2, 4.0, 6.0, 8.0, 10.0)
"""Where an axis may end so that its quarters are round numbers, too."""
_FAR_APART = 20.0
"""Values that differ by more than this factor are drawn on a logarithmic scale, or the small ones vanish."""


class Curve(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a plot."""

    name: str
    colour: str
    """The name of a CSS variable."""
    values: Sequence[float]
    filled: bool = False


class Mark(msgspec.Struct, frozen=True):
    """A word under the plot."""

    at: float
    text: str


class Plot(msgspec.Struct, frozen=True, kw_only=True):
    """What is drawn; `xs` are where the values of each curve lie, from 0 to 1."""

    title: str
    unit: str
    xs: Sequence[float]
    marks: Sequence[Mark]
    curves: Sequence[Curve]
    notes: Sequence[str] = ()
    """What is told about each place when somebody points at it."""


class Scale(msgspec.Struct, frozen=True, kw_only=True):
    """From values to heights."""

    bottom: float
    top: float
    ticks: Sequence[float]
    logarithmic: bool = False

    def height(self, value: float) -> float:
        """From 0 at the bottom to 1 at the top."""
        if not self.logarithmic:
            return value / self.top
        low, high = math.log10(self.bottom), math.log10(self.top)
        return (math.log10(max(value, self.bottom)) - low) / (high - low)


def plot(drawn: Plot) -> str:
    """The plot."""
    scale = scale_for([value for curve in drawn.curves for value in curve.values])
    return "\n".join(
        (
            f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(drawn.title)}">',
            _title(drawn, scale),
            *_grid(scale),
            *_words_below(drawn.marks),
            *(part for curve in drawn.curves for part in _line(curve, drawn.xs, scale)),
            *_legend(drawn.curves),
            *_places(drawn),
            "</svg>",
        )
    )


def _title(drawn: Plot, scale: Scale) -> str:
    unit = f"{drawn.unit}, logarithmic" if scale.logarithmic else drawn.unit
    words = f'{escape(drawn.title)}<tspan class="unit" dx="8">{escape(unit)}</tspan>'
    return f'<text class="title" x="0" y="16">{words}</text>'


def scale_for(values: Sequence[float]) -> Scale:
    """One that these fit on: linear, unless they are too far apart for that."""
    highest, positive = max(values, default=0.0), [value for value in values if value > 0]
    if positive and len(positive) == len(values) and highest > _FAR_APART * min(positive):
        ticks = _decades(min(positive), highest)
        return Scale(bottom=ticks[0], top=ticks[-1], ticks=ticks, logarithmic=True)
    top = nice(highest)
    return Scale(bottom=0.0, top=top, ticks=[top * tick / _TICKS for tick in range(_TICKS + 1)])


def nice(highest: float) -> float:
    """A round number at least that large, where an axis may end."""
    if highest <= 0:
        return 1.0
    magnitude = 10.0 ** math.floor(math.log10(highest))
    return next(step * magnitude for step in _STEPS if step * magnitude >= highest * (1 - 1e-12))


def _decades(lowest: float, highest: float) -> list[float]:
    """1, 2, 5, 10 … around these; of many only the powers of ten."""
    first, last = math.floor(math.log10(lowest)), math.ceil(math.log10(highest))
    steps = (1.0, 2.0, 5.0) if last - first <= 2 else (1.0,)
    ticks = [step * 10.0**power for power in range(first, last + 1) for step in steps]
    below = [tick for tick in ticks if tick <= lowest]
    above = [tick for tick in ticks if tick >= highest]
    return [tick for tick in ticks if below[-1] <= tick <= above[0]]


def _x(place: float) -> float:
    return _LEFT + (WIDTH - _LEFT - _RIGHT) * place


def _y(height: float) -> float:
    return HEIGHT - _BOTTOM - (HEIGHT - _TOP - _BOTTOM) * height


def _grid(scale: Scale) -> Iterator[str]:
    for tick in scale.ticks:
        y = _y(scale.height(tick))
        yield f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield f'<text class="y" x="{_LEFT - 10}" y="{y + 4:.1f}">{tick:,.4g}</text>'


def _words_below(marks: Sequence[Mark]) -> Iterator[str]:
    for mark in marks:
        yield f'<text class="x" x="{_x(mark.at):.1f}" y="{HEIGHT - 8}">{escape(mark.text)}</text>'


def _line(curve: Curve, xs: Sequence[float], scale: Scale) -> Iterator[str]:
    colour = f"var(--{curve.colour})"
    places = [(_x(x), _y(scale.height(value))) for x, value in zip(xs, curve.values, strict=True)]
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    if len(places) == 1:
        yield f'<circle cx="{places[0][0]:.1f}" cy="{places[0][1]:.1f}" r="3" style="fill:{colour}"/>'
    elif places:
        if curve.filled:
            floor, first, last = _y(0.0), places[0][0], places[-1][0]
            around = f"{first:.1f},{floor:.1f} {points} {last:.1f},{floor:.1f}"
            yield f'<polygon class="area" points="{around}" style="fill:{colour}"/>'
        yield f'<polyline class="curve" points="{points}" style="stroke:{colour}"/>'


def _legend(curves: Sequence[Curve]) -> Iterator[str]:
    """From the right, where nothing else is."""
    if len(curves) < 2:
        return
    x = WIDTH - _RIGHT
    for curve in reversed(curves):
        x -= 8 * len(curve.name)
        yield f'<text class="legend" x="{x}" y="16">{escape(curve.name)}</text>'
        x -= 16
        yield f'<rect x="{x}" y="6" width="10" height="10" rx="3" style="fill:var(--{curve.colour})"/>'
        x -= 14


def _places(drawn: Plot) -> Iterator[str]:
    """A strip for each place, which says what was there."""
    if not drawn.notes:
        return
    middles = [_x(x) for x in drawn.xs]
    edges = [middles[0], *((a + b) / 2 for a, b in pairwise(middles)), middles[-1]]
    for (left, right), note in zip(pairwise(edges), drawn.notes, strict=True):
        yield (
            f'<rect class="place" x="{left:.1f}" y="{_TOP}" width="{max(1.0, right - left):.1f}" '
            f'height="{HEIGHT - _TOP - _BOTTOM}"><title>{escape(note)}</title></rect>'
        )
