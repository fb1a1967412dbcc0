"""Curves over time as SVG: one plot with its axes, drawn from numbers alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

import msgspec

WIDTH, HEIGHT = 860, 240
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 16, 30, 30
_TICKS = 4


class Curve(msgspec.Struct, frozen=True):
    """One line of a plot."""

    name: str
    colour: str
    """The name of a CSS variable."""
    values: Sequence[float]


def plot(title: str, unit: str, seconds: Sequence[int], curves: Sequence[Curve]) -> str:
    """A plot of curves over the seconds of a workload."""
    top = nice(max((value for curve in curves for value in curve.values), default=0.0))
    last = max(seconds, default=0) or 1
    parts = [
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">',
        f'<text class="title" x="{_LEFT}" y="16">{escape(title)}</text>',
        *_grid(top, unit, last),
        *(_line(curve, seconds, top, last) for curve in curves),
        *_legend(curves),
        "</svg>",
    ]
    return "\n".join(parts)


def nice(highest: float) -> float:
    """A round number at least that large, where an axis may end."""
    if highest <= 0:
        return 1.0
    magnitude = 10.0 ** math.floor(math.log10(highest))
    return next(step * magnitude for step in (1, 2, 2.5, 5, 10) if step * magnitude >= highest * (1 - 1e-12))


def _x(second: float, last: int) -> float:
    return _LEFT + (WIDTH - _LEFT - _RIGHT) * second / last


def _y(value: float, top: float) -> float:
    return HEIGHT - _BOTTOM - (HEIGHT - _TOP - _BOTTOM) * value / top


def _grid(top: float, unit: str, last: int) -> list[str]:
    parts = []
    for tick in range(_TICKS + 1):
        value = top * tick / _TICKS
        y = _y(value, top)
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text class="y" x="{_LEFT - 8}" y="{y + 4:.1f}">{value:,.4g}</text>')
    step = max(1, round(nice(last / 8)))
    for second in range(0, last + 1, step):
        x = _x(second, last)
        parts.append(f'<text class="x" x="{x:.1f}" y="{HEIGHT - 10}">{second} s</text>')
    parts.append(f'<text class="unit" x="{WIDTH - _RIGHT}" y="16">{escape(unit)}</text>')
    return parts


def _line(curve: Curve, seconds: Sequence[int], top: float, last: int) -> str:
    points = " ".join(
        f"{_x(second, last):.1f},{_y(value, top):.1f}"
        for second, value in zip(seconds, curve.values, strict=True)
    )
    style = f'style="stroke:var(--{curve.colour})"'
    if len(seconds) == 1:
        x, y = points.split(",")
        return f'<circle cx="{x}" cy="{y}" r="3" style="fill:var(--{curve.colour})"/>'
    return f'<polyline class="curve" points="{points}" {style}><title>{escape(curve.name)}</title></polyline>'


def _legend(curves: Sequence[Curve]) -> list[str]:
    parts, x = [], WIDTH // 2
    for curve in curves:
        parts.append(f'<rect x="{x}" y="8" width="10" height="10" style="fill:var(--{curve.colour})"/>')
        parts.append(f'<text class="legend" x="{x + 14}" y="17">{escape(curve.name)}</text>')
        x += 24 + 8 * len(curve.name)
    return parts
