"""A machine as Mermaid text, for pages that render Mermaid themselves (GitHub does)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from interlock.machine.draw.text import one_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from interlock.machine.blueprint import Blueprint

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Reserved words of Mermaid, in any case.
_TAKEN = re.compile(
    "state|note|end|as|class|classdef|style|direction|default|root|hide|scale|fork|join|choice"
    "|left|right|over|of|tb|bt|rl|lr|empty|description|accdescr|acctitle|click|href|statediagram",
    re.IGNORECASE,
)
# Escape of Mermaid for characters that are part of its syntax.
_CODES = {c: f"#{ord(c)};" for c in "#;:\"'<>&{}[]()|\\`%*_~"}
_CODES_IN_EVENTS = {c: code for c, code in _CODES.items() if c != "_"}


def draw_mermaid(blueprint: Blueprint) -> str:
    """Return a `stateDiagram-v2`, with one line between the same two states."""
    ids = _ids(blueprint)
    lines = ["stateDiagram-v2", *_states(blueprint, ids), f"[*] --> {ids[blueprint.initial]}"]
    for (source, target), events in _merged(blueprint).items():
        lines.append(f"{ids[source]} --> {ids[target]} : {' / '.join(map(_event, events))}")
    ends = [ids[s.name] for s in blueprint.states if s.terminal]
    lines += [f"{end} --> [*]" for end in ends]
    lines.append("classDef terminal stroke-width:3px")
    lines.append("classDef spine fill:#dbe8fb,stroke:#1d5fd1,color:#0f172a")
    if ends:
        lines.append(f"class {','.join(ends)} terminal")
    if spine := [ids[name] for name in blueprint.spine]:
        lines.append(f"class {','.join(spine)} spine")
    return "\n".join([lines[0], *(f"    {line}" for line in lines[1:])]) + "\n"


def _ids(blueprint: Blueprint) -> dict[str, str]:
    """Return the id of each state.

    A plain name is its own id; others get a number that no plain name can be.
    """
    ids, names = {}, {s.name for s in blueprint.states}
    for index, state in enumerate(blueprint.states):
        plain = _PLAIN.fullmatch(state.name) and not _TAKEN.fullmatch(state.name)
        number = f"state_{index}"
        while number in names:
            number += "_"
        ids[state.name] = state.name if plain else number
    return ids


def _states(blueprint: Blueprint, ids: dict[str, str]) -> Iterator[str]:
    for name, identity in ids.items():
        if identity == name:
            yield identity
        else:
            yield f'state "{_coded(name, _CODES)}" as {identity}'
    if blueprint.doc:
        yield f"%% {one_line(blueprint.doc).replace('{', '(').replace('}', ')')}"


def _merged(blueprint: Blueprint) -> dict[tuple[str, str], list[str]]:
    merged: dict[tuple[str, str], list[str]] = {}
    for t in blueprint.transitions:
        events = merged.setdefault((t.source, t.target), [])
        if t.event not in events:
            events.append(t.event)
    return merged


def _event(name: str) -> str:
    return _coded(name, _CODES_IN_EVENTS)


def _coded(words: str, codes: dict[str, str]) -> str:
    return "".join(codes.get(char, char) for char in one_line(words))
