"""The graph for programs that draw it themselves: Mermaid (GitHub does), and dot (Graphviz)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from interlock.systems.runs.drawing.graph import Graph, Node, drawn_needs, mark_of, shown_name

_COLOURS: Mapping[str, str] = {
    "COMPLETED": "#15803d",
    "FAILED": "#b91c1c",
    "CANCELED": "#92590a",
    "STOPPING": "#92590a",
    "RUNNING": "#1d5fd1",
}
# Mermaid's own way to write a character that it would otherwise read as syntax.
_CODES = {character: f"#{ord(character)};" for character in "#;:\"'<>&{}[]()|\\`%*_~"}


def draw_mermaid(graph: Graph, note: Callable[[Node], str]) -> str:
    """A flowchart from the left to the right."""
    ids = {node.name: f"j{number}" for number, node in enumerate(graph.nodes)}
    lines = ["flowchart LR"]
    for node in graph.nodes:
        lines.append(f'    {ids[node.name]}["{_coded(_said(node, note))}"]')
        if colour := _COLOURS.get(node.state):
            lines.append(f"    style {ids[node.name]} stroke:{colour},stroke-width:2px")
    for name, needs in drawn_needs(graph).items():
        lines += [f"    {ids[need]} --> {ids[name]}" for need in needs]
    return "\n".join(lines) + "\n"


def draw_dot(graph: Graph, title: str, note: Callable[[Node], str]) -> str:
    """A digraph from the left to the right."""
    lines = ["digraph run {", f"  label={_quoted(title)};", "  rankdir=LR;"]
    lines.append('  node [shape=box, style=rounded, fontname="sans-serif"];')
    for node in graph.nodes:
        colour = f", color={_quoted(_COLOURS[node.state])}" if node.state in _COLOURS else ""
        lines.append(f"  {_quoted(node.name)} [label={_quoted(_said(node, note))}{colour}];")
    for name, needs in drawn_needs(graph).items():
        lines += [f"  {_quoted(need)} -> {_quoted(name)};" for need in needs]
    return "\n".join([*lines, "}"]) + "\n"


def _said(node: Node, note: Callable[[Node], str]) -> str:
    return " ".join(filter(None, (mark_of(node), shown_name(node), note(node))))


def _coded(text: str) -> str:
    return "".join(_CODES.get(character, character) for character in text)


def _quoted(text: str) -> str:
    inside = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{inside}"'
