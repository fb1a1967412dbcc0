"""A machine as Graphviz text, for the layout of `dot`."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from interlock.machine.draw.geometry import notes_of
from interlock.machine.draw.plan import spine_of
from interlock.machine.draw.text import first_sentence
from interlock.machine.draw.theme import LIGHT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from interlock.machine.blueprint import Blueprint, TransitionSheet

_FONT = "Helvetica,Arial,sans-serif"
_SPINE_WEIGHT = 20


def draw_dot(blueprint: Blueprint) -> str:
    """Return the machine as a digraph, with the colours of the SVG."""
    start = _quoted(max((s.name for s in blueprint.states), key=len) + " start")
    lines = [
        f"label={_shown(_caption(blueprint))}; labelloc=t; labeljust=l; rankdir=TB;",
        f'fontname="{_FONT}"; nodesep=0.5; ranksep=0.6;',
        f'node [shape=box, style="rounded,filled", fontname="{_FONT}", fontsize=12];',
        f'node [fillcolor="{LIGHT.box}", color="{LIGHT.edge}"];',
        f'edge [fontname="{_FONT}", fontsize=10, arrowsize=0.7];',
        f"{{ rank=source; {start} [shape=point, width=0.14]; }}",
        *_nodes(blueprint),
        f"{start} -> {_quoted(blueprint.initial)} [weight={_SPINE_WEIGHT}];",
        *_edges(blueprint),
    ]
    inside = "\n".join(f"  {line}" for line in lines)
    return f"digraph {_quoted(blueprint.machine)} {{\n{inside}\n}}\n"


def _caption(blueprint: Blueprint) -> str:
    return "\n".join(filter(None, (blueprint.machine, first_sentence(blueprint.doc))))


def _nodes(blueprint: Blueprint) -> Iterator[str]:
    spine = spine_of(blueprint)
    for state in blueprint.states:
        facts = {"label": "\n".join((state.name, *notes_of(blueprint, state)))}
        if state.terminal:
            facts["peripheries"] = "2"
        if state.resting:
            facts["style"] = "rounded,filled,dashed"
        if state.name in spine:
            facts |= {"group": "spine", "fillcolor": LIGHT.box_spine}
        yield f"{_quoted(state.name)} [{_listed(facts)}];"


def _edges(blueprint: Blueprint) -> Iterator[str]:
    happy = set(pairwise(spine_of(blueprint)))
    colours = {owner: LIGHT.owners[i % len(LIGHT.owners)] for i, owner in enumerate(blueprint.owners)}
    merged: dict[tuple[str, str, str], list[TransitionSheet]] = {}
    for t in blueprint.transitions:
        merged.setdefault((t.source, t.target, t.owner), []).append(t)
    for (source, target, owner), found in merged.items():
        events = "\n".join(dict.fromkeys(_worded(t) for t in found))
        facts = {"label": events, "color": colours[owner], "fontcolor": colours[owner]}
        facts["tooltip"] = f"by {owner}"
        if (source, target) in happy:
            facts |= {"weight": str(_SPINE_WEIGHT), "penwidth": "2"}
        yield f"{_quoted(source)} -> {_quoted(target)} [{_listed(facts)}];"


def _worded(t: TransitionSheet) -> str:
    return f"{t.event} [{' & '.join(t.guards)}]" if t.guards else t.event


def _listed(facts: dict[str, str]) -> str:
    return ", ".join(f"{key}={_shown(value)}" for key, value in facts.items())


def _shown(words: str) -> str:
    """Return a displayed string with ampersands escaped for Graphviz."""
    return _quoted(words.replace("&", "&amp;"))


def _quoted(words: str) -> str:
    """Return a quoted Graphviz string, with backslashes doubled."""
    safe = words.replace("\0", "\ufffd").replace("\\", "\\\\").replace('"', '\\"')
    return '"' + safe.replace("\r", "").replace("\n", "\\n") + '"'
