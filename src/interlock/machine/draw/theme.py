"""Colours and the style sheet of a picture.

Colours are plain rules with a second set for dark mode, no CSS variables: a renderer that knows
neither variables nor media queries still shows the light picture. Every text colour has a contrast
of at least 4.5 : 1 on its ground in both modes (held by a test). Every rule begins with the class
of the picture, because the styles of an inline SVG apply to the whole page around it.
"""

from __future__ import annotations

from dataclasses import dataclass

ROOT = "interlock-machine"
FONTS = 'Inter, "Segoe UI", "Helvetica Neue", Arial, sans-serif'


@dataclass(frozen=True, slots=True)
class ColourMode:
    """The colours of one mode. Owners get theirs in the order of the table."""

    paper: str
    box: str
    box_spine: str
    edge: str
    ink: str
    muted: str
    accent: str
    on_accent: str
    visited: str
    owners: tuple[str, ...]


LIGHT = ColourMode(
    paper="#ffffff",
    box="#f8fafc",
    box_spine="#eef4fb",
    edge="#475569",
    ink="#0f172a",
    muted="#5b6779",
    accent="#c2410c",
    on_accent="#ffffff",
    visited="#fff3ea",
    owners=(
        "#1d5fd1",
        "#0f766e",
        "#7c3aed",
        "#be185d",
        "#4d6b0c",
        "#0e7490",
        "#92590a",
        "#475569",
    ),
)
DARK = ColourMode(
    paper="#0d1117",
    box="#161c26",
    box_spine="#18253a",
    edge="#8b98a9",
    ink="#e6edf3",
    muted="#9aa6b5",
    accent="#fb923c",
    on_accent="#1c0f04",
    visited="#2b1b10",
    owners=(
        "#7ab3ff",
        "#4fd1c0",
        "#c4a7ff",
        "#f79ac6",
        "#b5d35c",
        "#67d8ef",
        "#e0b062",
        "#c3cedb",
    ),
)


def owner_class(index: int) -> str:
    """Return the class of the owner at this place; colours repeat after 8."""
    return f"o{index % len(LIGHT.owners)}"


def style_sheet() -> str:
    """Return all rules: shapes, light colours, and dark ones by preference."""
    dark = "\n".join(f"  {rule}" for rule in rules(DARK))
    lines = [*_SHAPES, *rules(LIGHT), "@media (prefers-color-scheme: dark) {", dark, "}"]
    return "\n".join(lines)


def rules(mode: ColourMode) -> list[str]:
    """Return the colours of one mode as rules."""
    colours = {
        ".paper": f"fill: {mode.paper}",
        ".halo": f"stroke: {mode.paper}",
        "text": f"fill: {mode.ink}",
        ".muted": f"fill: {mode.muted}",
        ".box": f"fill: {mode.box}; stroke: {mode.edge}",
        ".spine .box": f"fill: {mode.box_spine}",
        ".inner": f"stroke: {mode.edge}",
        ".pill": f"fill: {mode.paper}",
        ".entry .line": f"stroke: {mode.edge}",
        ".entry .head, .entry .dot": f"fill: {mode.edge}",
    }
    for index, colour in enumerate(mode.owners):
        name = f".o{index}"
        colours[f"{name} .line, {name} .pill, {name}.line"] = f"stroke: {colour}"
        colours[f"{name} .head, {name} .dot, text{name}"] = f"fill: {colour}"
    colours |= {
        ".visited .box": f"fill: {mode.visited}; stroke: {mode.accent}",
        ".visited .inner, .lit .way, .lit .pill": f"stroke: {mode.accent}",
        ".lit .tip, .lit text.event": f"fill: {mode.accent}",
        ".current .box": f"fill: {mode.accent}; stroke: {mode.accent}",
        ".current .inner": f"stroke: {mode.on_accent}",
        ".current text, .current .muted": f"fill: {mode.on_accent}",
        ".glow": f"stroke: {mode.accent}",
    }
    return [f"{_scoped(selector)} {{ {rule} }}" for selector, rule in colours.items()]


def _scoped(selectors: str) -> str:
    return ", ".join(f".{ROOT} {part.strip()}" for part in selectors.split(","))


_SHAPES = [
    f".{ROOT} {{ font-family: {FONTS} }}",
    f".{ROOT} .title {{ font-size: 19px; font-weight: 700 }}",
    f".{ROOT} .doc {{ font-size: 12px }}",
    f".{ROOT} .name {{ font-size: 13px; font-weight: 700 }}",
    f".{ROOT} .note {{ font-size: 10.5px }}",
    f".{ROOT} .event {{ font-size: 11px; font-weight: 500 }}",
    f".{ROOT} .guard {{ font-size: 9.5px; font-style: italic }}",
    f".{ROOT} .key {{ font-size: 11px }}",
    f".{ROOT} .box {{ stroke-width: 1.4 }}",
    f".{ROOT} .spine .box {{ stroke-width: 1.8 }}",
    f".{ROOT} .inner {{ fill: none; stroke-width: 1.1 }}",
    f".{ROOT} .dashed {{ stroke-dasharray: 4 3 }}",
    f".{ROOT} .pill {{ stroke-width: 1 }}",
    f".{ROOT} .line {{ fill: none; stroke-width: 1.6 }}",
    f".{ROOT} .halo {{ fill: none; stroke-width: 6 }}",
    f".{ROOT} .on-spine .line {{ stroke-width: 2.4 }}",
    f".{ROOT} .way {{ fill: none; stroke: none; stroke-width: 9; pointer-events: stroke }}",
    f".{ROOT} .tip {{ fill: none }}",
    f".{ROOT} .lit .way {{ stroke-width: 3.2 }}",
    f".{ROOT} .visited .box {{ stroke-width: 2.4 }}",
    f".{ROOT} .glow {{ fill: none; stroke-width: 9; stroke-opacity: 0.28 }}",
    f".{ROOT} .dim {{ opacity: 0.5 }}",
]
