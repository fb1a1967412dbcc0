"""The kinds of single values that a workflow file has. Each can read a node, and say the same as JSON Schema.

Reading never raises: what is wrong goes to the faults, with its place, and something harmless comes
back, so that the rest of the file is looked at as well.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Protocol

from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from interlock.suggestions import nearest
from interlock.systems.runs.planning.conditions import BadCondition, Condition, read_condition
from interlock.systems.runs.planning.faults import Faults, Place
from interlock.systems.runs.planning.nodes import BOOL, INT, NULL, place_of, plain
from interlock.systems.runs.planning.patterns import fault_of
from interlock.systems.runs.planning.texts import BadText, Scope, Template, fixed, read_text
from interlock.wire.durations import read_duration

MAX_TEXT = 65_536
LONGEST_S = 366 * 86_400.0

Schema = dict[str, Any]


class Kind(Protocol):
    """How a value is written."""

    def read(self, node: Node, faults: Faults) -> Any:
        """The value."""
        ...

    def schema(self) -> Schema:
        """The same for an editor."""
        ...


@dataclass(frozen=True, slots=True)
class Placed:
    """A template, and where it is in the file."""

    template: Template
    node: ScalarNode


@dataclass(frozen=True, slots=True)
class Word:
    """Text in which nothing is replaced."""

    what: str = "text"
    pattern: str = ""
    one_of: tuple[str, ...] = ()
    most: int = 200

    def read(self, node: Node, faults: Faults) -> str:
        """The text as it was written; a number is taken as its digits."""
        text = scalar_text(node, self.what, faults)
        if text is None:
            return ""
        if self.one_of and text not in self.one_of:
            faults.unknown(place_of(node), self.what, text, self.one_of)
        elif not 0 < len(text) <= self.most:
            faults.add(place_of(node), f"{self.what} has 1 to {self.most:,} characters, not {len(text):,}")
        elif self.pattern and not re.fullmatch(self.pattern, text, re.ASCII):
            faults.add(place_of(node), f"{text[:100]!r} is no {self.what}, which is written {self.pattern}")
        return text

    def schema(self) -> Schema:
        """Text."""
        if self.one_of:
            return {"enum": list(self.one_of)}
        made: Schema = {"type": ["string", "number"], "maxLength": self.most}
        return made | {"pattern": f"^(?:{self.pattern})$"} if self.pattern else made


@dataclass(frozen=True, slots=True)
class Filled:
    """Text in which `${{ … }}` is replaced."""

    scope: Scope = Scope.MATRIX
    most: int = MAX_TEXT

    def read(self, node: Node, faults: Faults) -> Placed:
        """The text, understood."""
        text = scalar_text(node, "text", faults)
        if text is None or not isinstance(node, ScalarNode):
            return Placed(fixed(""), ScalarNode("", "", node.start_mark, node.end_mark))
        if len(text) > self.most or "\0" in text:
            faults.add(place_of(node), f"this is longer than {self.most:,} characters, or holds a zero byte")
        try:
            return Placed(read_text(text, self.scope), node)
        except BadText as error:
            faults.add(inside(node, error.offset), error.sentence, allowed=error.allowed)
            return Placed(fixed(text), node)

    def schema(self) -> Schema:
        """Text."""
        return {"type": ["string", "number", "boolean"], "maxLength": self.most}


@dataclass(frozen=True, slots=True)
class Flag:
    """Yes or no."""

    def read(self, node: Node, faults: Faults) -> bool:
        """True or false."""
        if not isinstance(node, ScalarNode) or node.tag != BOOL:
            faults.add(place_of(node), f"this has to be true or false, not {shape(node)}")
            return False
        return bool(node.value == "true")

    def schema(self) -> Schema:
        """True or false."""
        return {"type": "boolean"}


@dataclass(frozen=True, slots=True)
class Count:
    """A whole number."""

    least: int
    most: int

    def read(self, node: Node, faults: Faults) -> int:
        """The number."""
        if isinstance(node, ScalarNode) and node.tag == INT and len(node.value) < 20:
            number = int(node.value)
            if self.least <= number <= self.most:
                return number
        faults.add(
            place_of(node),
            f"this has to be a whole number from {self.least:,} to {self.most:,}, not {shape(node)}",
        )
        return self.least

    def schema(self) -> Schema:
        """A number with its limits."""
        return {"type": "integer", "minimum": self.least, "maximum": self.most}


@dataclass(frozen=True, slots=True)
class Duration:
    """A while: `90s`, `15m`, or a number of seconds."""

    def read(self, node: Node, faults: Faults) -> float:
        """The seconds."""
        text = scalar_text(node, "a duration", faults) or ""
        try:
            seconds = (
                float(text) if re.fullmatch(r"\d+(\.\d+)?", text) else read_duration(text).total_seconds()
            )
        except ValueError as error:
            faults.add(place_of(node), str(error))
            return 1.0
        if not 0 < seconds <= LONGEST_S:
            faults.add(place_of(node), "a duration is longer than nothing and shorter than a year")
        return seconds

    def schema(self) -> Schema:
        """A number, or text with a unit."""
        return {
            "oneOf": [
                {"type": "number", "exclusiveMinimum": 0, "maximum": LONGEST_S},
                {"type": "string", "pattern": r"^\d+(\.\d+)?[smhdw]?$"},
            ]
        }


@dataclass(frozen=True, slots=True)
class Pattern:
    """A pattern for branches, tags or paths."""

    def read(self, node: Node, faults: Faults) -> str:
        """The pattern."""
        text = scalar_text(node, "a pattern", faults) or "*"
        if fault := fault_of(text):
            faults.add(place_of(node), fault)
        return text

    def schema(self) -> Schema:
        """Text."""
        return {"type": "string", "minLength": 1}


@dataclass(frozen=True, slots=True)
class Need:
    """A job that another one needs."""

    name: str
    place: Place


@dataclass(frozen=True, slots=True)
class NeededJob:
    """The name of a job."""

    def read(self, node: Node, faults: Faults) -> Need:
        """Which job, and where that is said."""
        text = scalar_text(node, "the name of a job", faults) or ""
        return Need(text, place_of(node))

    def schema(self) -> Schema:
        """Text."""
        return {"type": "string", "minLength": 1}


@dataclass(frozen=True, slots=True)
class If:
    """A condition."""

    def read(self, node: Node, faults: Faults) -> tuple[Condition, Node]:
        """The condition, understood."""
        text = scalar_text(node, "a condition", faults) or "true"
        try:
            return read_condition(text), node
        except BadCondition as error:
            guess = nearest(error.name, error.allowed) if error.name else None
            end = f"; did you mean {guess}?" if guess else ""
            place = inside(node, error.offset)
            faults.add(place, f"in the condition: {error.sentence}{end}", allowed=error.allowed)
            return read_condition("true"), node

    def schema(self) -> Schema:
        """Text."""
        return {"type": ["string", "boolean"]}


@dataclass(frozen=True, slots=True)
class AnyJson:
    """Whatever a task takes."""

    def read(self, node: Node, faults: Faults) -> Any:
        """As JSON."""
        return plain(node, faults)

    def schema(self) -> Schema:
        """Anything."""
        return {}


def scalar_text(node: Node, what: str, faults: Faults) -> str | None:
    """A scalar as it was written; None, with a fault, for anything else and for nothing."""
    if isinstance(node, ScalarNode) and node.tag != NULL:
        return str(node.value)
    faults.add(place_of(node), f"{what} is expected here, not {shape(node)}")
    return None


def inside(node: Node, offset: int) -> Place:
    """The place of a character of a scalar: exact on the line on which a plain or quoted one begins."""
    place = place_of(node)
    style = getattr(node, "style", None)
    if style in ("|", ">"):
        return place
    return place.after(offset + (style in ("'", '"')))


def shape(node: Node) -> str:
    """What a node is, in a sentence about faults."""
    match node:
        case MappingNode():
            return "keys with values"
        case SequenceNode():
            return "a list" if node.value else "an empty list"
        case ScalarNode() if node.tag == NULL:
            return "nothing"
        case _:
            return repr(str(node.value)[:100])
