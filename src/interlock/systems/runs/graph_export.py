"""The graph of a run for other programs: SVG (light and dark), Mermaid (for GitHub), and dot (Graphviz)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from xml.sax.saxutils import escape

from interlock.machine import Tone
from interlock.machine.draw.theme import DARK, FONTS, LIGHT, ColourMode
from interlock.systems.runs.graph import (
    TONES,
    Layers,
    Node,
    RunGraph,
    Spot,
    drawn_needs,
    layers_of,
    mark_of,
    shown_name,
)

ROOT = "interlock-run"
HEIGHT, APART, GAP, MARGIN, HEADING = 40.0, 14.0, 56.0, 20.0, 44.0
LETTER, LEAST, MOST = 7.2, 90.0, 320.0
TITLE_LETTER = 8.6
_COLOURS: Mapping[Tone, tuple[str, str]] = {
    Tone.GOOD: ("#15803d", "#4ade80"),
    Tone.BAD: ("#b91c1c", "#f87171"),
    Tone.STOPPED: ("#92590a", "#e0b062"),
    Tone.ACTIVE: ("#1d5fd1", "#7ab3ff"),
}
"""Colours by tone, in light and in dark mode; waiting nodes are muted."""


def draw_svg(graph: RunGraph, title: str, note: Callable[[Node], str]) -> str:
    """Return the graph as SVG; `note` adds a line below a name."""
    layers = layers_of(graph)
    places, width, height = _places(graph, layers)
    width = max(width, 2 * MARGIN + len(title) * TITLE_LETTER)
    nodes = {node.name: node for node in graph.nodes}
    body = [
        *(_line(places[one], places[other]) for one, other in layers.lines),
        *(_line_through_layer(place) for spot, place in places.items() if spot.passing),
        *(_box(nodes[spot.name], place, note) for spot, place in places.items() if not spot.passing),
    ]
    size = f'viewBox="0 0 {width:g} {height:g}" width="{width:g}" height="{height:g}"'
    return "\n".join(
        (
            f'<svg class="{ROOT}" xmlns="http://www.w3.org/2000/svg" role="img" {size}>',
            f"<title>{escape(title)}</title>",
            f"<style>{_style()}</style>",
            f'<rect class="paper" width="{width:g}" height="{height:g}"/>',
            f'<text class="title" x="{MARGIN:g}" y="{MARGIN + 12:g}">{escape(title)}</text>',
            *body,
            "</svg>\n",
        )
    )


def _places(graph: RunGraph, layers: Layers) -> tuple[dict[Spot, tuple[float, float, float]], float, float]:
    """Return the places of the spots, and the size of the picture.

    A place is the left edge, the middle and the width of a spot.
    """
    nodes = {node.name: node for node in graph.nodes}
    tallest = max((len(layer) for layer in layers.layers), default=1)
    places: dict[Spot, tuple[float, float, float]] = {}
    left = MARGIN
    for layer in layers.layers:
        longest = max((len(shown_name(nodes[s.name])) for s in layer if not s.passing), default=0)
        wide = min(MOST, max(LEAST, longest * LETTER + 48))
        top = HEADING + (tallest - len(layer)) * (HEIGHT + APART) / 2
        for row, spot in enumerate(layer):
            places[spot] = left, top + row * (HEIGHT + APART) + HEIGHT / 2, wide
        left += wide + GAP
    return places, left - GAP + MARGIN, HEADING + tallest * (HEIGHT + APART) + MARGIN / 2


def _line(one: tuple[float, float, float], other: tuple[float, float, float]) -> str:
    x, y, wide = one
    begin, end = x + wide, other[0]
    middle = (begin + end) / 2
    return (
        f'<path class="line" d="M {begin:g} {y:g} C {middle:g} {y:g} {middle:g} {other[1]:g} '
        f'{end:g} {other[1]:g}"/>'
    )


def _line_through_layer(place: tuple[float, float, float]) -> str:
    """Return the part of a line that crosses a layer."""
    left, middle, wide = place
    return f'<path class="line" d="M {left:g} {middle:g} H {left + wide:g}"/>'


def _box(node: Node, place: tuple[float, float, float], note: Callable[[Node], str]) -> str:
    left, middle, wide = place
    room = int((wide - 40) / LETTER) + 1
    name = shown_name(node)
    shown = name if len(name) <= room else f"{name[: room - 1]}…"
    text = note(node)
    below = f'<text class="note" x="{left + 30:g}" y="{middle + 13:g}">{escape(text)}</text>' if text else ""
    up = 2.0 if text else -4.0
    dashed = "" if node.required else " optional"
    told_whole, top = f"{name}: {node.state}. {node.why}", middle - HEIGHT / 2
    return (
        f'<g class="job {escape(node.state)}{dashed}"><title>{escape(told_whole)}</title>'
        f'<rect class="box" x="{left:g}" y="{top:g}" width="{wide:g}" height="{HEIGHT:g}" rx="6"/>'
        f'<text class="mark" x="{left + 10:g}" y="{middle + 5:g}">{mark_of(node)}</text>'
        f'<text class="name" x="{left + 30:g}" y="{middle - up:g}">{escape(shown)}</text>{below}</g>'
    )


def _style() -> str:
    shapes = (
        f".{ROOT} {{ font-family: {FONTS} }}",
        f".{ROOT} .title {{ font-size: 15px; font-weight: 700 }}",
        f".{ROOT} .name {{ font-size: 12.5px; font-weight: 600 }}",
        f".{ROOT} .note {{ font-size: 10.5px }}",
        f".{ROOT} .mark {{ font-size: 14px }}",
        f".{ROOT} .line {{ fill: none; stroke-width: 1.5 }}",
        f".{ROOT} .box {{ stroke-width: 1.5 }}",
        f".{ROOT} .optional .box {{ stroke-dasharray: 4 3 }}",
    )
    dark = " ".join(_rules(DARK, 1))
    return "\n".join((*shapes, *_rules(LIGHT, 0), f"@media (prefers-color-scheme: dark) {{ {dark} }}"))


def _rules(mode: ColourMode, which: int) -> Iterator[str]:
    yield f".{ROOT} .paper {{ fill: {mode.paper} }}"
    yield f".{ROOT} text {{ fill: {mode.ink} }}"
    yield f".{ROOT} .note, .{ROOT} .mark {{ fill: {mode.muted} }}"
    yield f".{ROOT} .line {{ stroke: {mode.edge} }}"
    yield f".{ROOT} .box {{ fill: {mode.box}; stroke: {mode.edge} }}"
    for state, tone in TONES.items():
        if tone in _COLOURS:
            yield f".{ROOT} .{state} .box {{ stroke: {_COLOURS[tone][which]} }}"
            yield f".{ROOT} .{state} .mark {{ fill: {_COLOURS[tone][which]} }}"


def _stroke(node: Node) -> str:
    """Return the colour of a node in light mode; empty where it is muted."""
    return _COLOURS.get(TONES.get(node.state, Tone.WAITING), ("", ""))[0]


# Escape of Mermaid for characters that are part of its syntax.
_CODES = {character: f"#{ord(character)};" for character in "#;:\"'<>&{}[]()|\\`%*_~"}


def draw_mermaid(graph: RunGraph, note: Callable[[Node], str]) -> str:
    """Return a Mermaid flowchart from left to right."""
    ids = {node.name: f"j{number}" for number, node in enumerate(graph.nodes)}
    lines = ["flowchart LR"]
    for node in graph.nodes:
        lines.append(f'    {ids[node.name]}["{_coded(_label(node, note))}"]')
        if colour := _stroke(node):
            lines.append(f"    style {ids[node.name]} stroke:{colour},stroke-width:2px")
    for name, needs in drawn_needs(graph).items():
        lines += [f"    {ids[need]} --> {ids[name]}" for need in needs]
    return "\n".join(lines) + "\n"


def draw_dot(graph: RunGraph, title: str, note: Callable[[Node], str]) -> str:
    """Return a dot digraph from left to right."""
    lines = ["digraph run {", f"  label={_quoted(title)};", "  rankdir=LR;"]
    lines.append('  node [shape=box, style=rounded, fontname="sans-serif"];')
    for node in graph.nodes:
        colour = f", color={_quoted(stroke)}" if (stroke := _stroke(node)) else ""
        lines.append(f"  {_quoted(node.name)} [label={_quoted(_label(node, note))}{colour}];")
    for name, needs in drawn_needs(graph).items():
        lines += [f"  {_quoted(need)} -> {_quoted(name)};" for need in needs]
    return "\n".join([*lines, "}"]) + "\n"


def _label(node: Node, note: Callable[[Node], str]) -> str:
    return " ".join(filter(None, (mark_of(node), shown_name(node), note(node))))


def _coded(text: str) -> str:
    return "".join(_CODES.get(character, character) for character in text)


def _quoted(text: str) -> str:
    inside = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{inside}"'
