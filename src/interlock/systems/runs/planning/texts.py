"""Texts with `${{ … }}` in them, which is replaced when the plan is made.

What a change brings along (its branch, its author) could be written by anybody, so it never becomes
part of a command: in `run` only the values of the matrix are replaced, which are in the file itself.
The steps find all the rest in variables, which a shell takes as text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from interlock.systems.runs.planning.variables import FAMILIES, NAMES, VARIABLE, Known

_HOLE = re.compile(r"\$\{\{(.*?)\}\}", re.DOTALL)
_KEY = re.compile(r"[A-Za-z_][\w-]*", re.ASCII)


class Scope(StrEnum):
    """Which names a text may use."""

    NONE = "none"
    MATRIX = "matrix"
    EVERYTHING = "everything"


@dataclass(frozen=True, slots=True)
class Hole:
    """A name to be replaced, and where it is in the text."""

    name: str
    offset: int


@dataclass(frozen=True, slots=True)
class Template:
    """A text that was understood."""

    parts: tuple[str | Hole, ...]

    def filled(self, known: Known) -> str:
        """The text with what the names stand for."""
        return "".join(part if isinstance(part, str) else known.value(part.name) for part in self.parts)

    @property
    def holes(self) -> Iterator[Hole]:
        """The names that it uses."""
        return (part for part in self.parts if isinstance(part, Hole))


class BadText(Exception):
    """A text that asks for what it cannot have, and where."""

    def __init__(self, sentence: str, offset: int, allowed: tuple[str, ...] = ()) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.offset = offset
        self.allowed = allowed


def fixed(text: str) -> Template:
    """A text in which nothing is replaced."""
    return Template((text,))


def read_text(text: str, scope: Scope) -> Template:
    """Understand a text; raises `BadText`."""
    parts: list[str | Hole] = []
    place = 0
    for found in _HOLE.finditer(text):
        name = found[1].strip()
        if fault := _fault(name, scope):
            raise BadText(fault, found.start(), _allowed(scope))
        parts += [text[place : found.start()], Hole(name, found.start())]
        place = found.end()
    parts.append(text[place:])
    return Template(tuple(part for part in parts if part != ""))


def _fault(name: str, scope: Scope) -> str | None:
    family, dot, key = name.partition(".")
    if family == "secrets":
        return "a secret is a variable of the job: name it under secrets and write $NAME"
    if family == "env":
        return f"a variable is written as the shell writes it: ${key or 'NAME'}"
    known = name in NAMES or (dot and family in FAMILIES and _KEY.fullmatch(key))
    if not known:
        return f"there is no name {name[:100]!r}"
    if scope is Scope.EVERYTHING or (scope is Scope.MATRIX and family == "matrix"):
        return None
    if scope is Scope.NONE:
        return "nothing is replaced here"
    variable = f"INPUT_{key}" if dot else name
    return (
        f"{name} comes with the change and could hold a command; use the variable "
        f"${VARIABLE}{variable.upper().replace('-', '_')}, or put it into env"
    )


def _allowed(scope: Scope) -> tuple[str, ...]:
    if scope is Scope.NONE:
        return ()
    return ("matrix.NAME",) if scope is Scope.MATRIX else (*NAMES, *(f"{name}.NAME" for name in FAMILIES))
