"""Types of the fields of a YAML file: single values, lists, mappings, and objects with known keys.

Each type can read a node, and describe itself as JSON Schema. Reading never raises: a fault is added with its
place, and a harmless value is returned, so that the rest of the file is checked as well.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from interlock.systems.runs.workflows.expressions import (
    ConditionError,
    ParsedCondition,
    Scope,
    Template,
    TemplateError,
    fault_of,
    literal,
    read_condition,
    read_text,
)
from interlock.systems.runs.workflows.yaml_nodes import (
    BOOL,
    INT,
    NULL,
    FileFaults,
    FilePosition,
    pairs,
    place_of,
    plain,
)
from interlock.text import nearest, read_duration

MAX_TEXT = 65_536
LONGEST_S = 366 * 86_400.0

Schema = dict[str, Any]


class FieldType(Protocol):
    """A type of value: reads a node, and describes itself as JSON Schema."""

    def read(self, node: Node, faults: FileFaults) -> Any:
        """Return the value of a node; add faults."""
        ...

    def schema(self) -> Schema:
        """Return the JSON Schema of the type."""
        ...


@dataclass(frozen=True, slots=True)
class PlacedTemplate:
    """A template, and its place in the file."""

    template: Template
    node: ScalarNode


@dataclass(frozen=True, slots=True)
class PlainText:
    """Text without placeholders."""

    what: str = "text"
    pattern: str = ""
    one_of: tuple[str, ...] = ()
    most: int = 200

    def read(self, node: Node, faults: FileFaults) -> str:
        """Return the text as it was written; a number is taken as its digits."""
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
        """Return the schema of text."""
        if self.one_of:
            return {"enum": list(self.one_of)}
        made: Schema = {"type": ["string", "number"], "maxLength": self.most}
        return made | {"pattern": f"^(?:{self.pattern})$"} if self.pattern else made


@dataclass(frozen=True, slots=True)
class TemplateText:
    """Text with placeholders `${{ … }}`."""

    scope: Scope = Scope.MATRIX
    most: int = MAX_TEXT

    def read(self, node: Node, faults: FileFaults) -> PlacedTemplate:
        """Return the parsed text."""
        text = scalar_text(node, "text", faults)
        if text is None or not isinstance(node, ScalarNode):
            return PlacedTemplate(literal(""), ScalarNode("", "", node.start_mark, node.end_mark))
        if len(text) > self.most or "\0" in text:
            faults.add(place_of(node), f"this is longer than {self.most:,} characters, or holds a zero byte")
        try:
            return PlacedTemplate(read_text(text, self.scope), node)
        except TemplateError as error:
            faults.add(inside(node, error.offset), error.sentence, allowed=error.allowed)
            return PlacedTemplate(literal(text), node)

    def schema(self) -> Schema:
        """Return the schema of text."""
        return {"type": ["string", "number", "boolean"], "maxLength": self.most}


@dataclass(frozen=True, slots=True)
class Flag:
    """A boolean."""

    def read(self, node: Node, faults: FileFaults) -> bool:
        """Return the boolean."""
        if not isinstance(node, ScalarNode) or node.tag != BOOL:
            faults.add(place_of(node), f"this has to be true or false, not {shape(node)}")
            return False
        return bool(node.value == "true")

    def schema(self) -> Schema:
        """Return the schema of a boolean."""
        return {"type": "boolean"}


@dataclass(frozen=True, slots=True)
class WholeNumber:
    """A whole number."""

    least: int
    most: int

    def read(self, node: Node, faults: FileFaults) -> int:
        """Return the number."""
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
        """Return the schema of a number with its limits."""
        return {"type": "integer", "minimum": self.least, "maximum": self.most}


@dataclass(frozen=True, slots=True)
class DurationText:
    """A duration: `90s`, `15m`, or a number of seconds."""

    def read(self, node: Node, faults: FileFaults) -> float:
        """Return the seconds."""
        text = scalar_text(node, "a duration", faults) or ""
        try:
            seconds = (
                float(text) if re.fullmatch(r"\d+(\.\d+)?", text) else read_duration(text).total_seconds()
            )
        except ValueError as error:
            faults.add(place_of(node), str(error))
            return 1.0
        if not 0 < seconds <= LONGEST_S:
            faults.add(place_of(node), "a duration is more than 0 and less than a year")
        return seconds

    def schema(self) -> Schema:
        """Return the schema: a number, or text with a unit."""
        return {
            "oneOf": [
                {"type": "number", "exclusiveMinimum": 0, "maximum": LONGEST_S},
                {"type": "string", "pattern": r"^\d+(\.\d+)?[smhdw]?$"},
            ]
        }


@dataclass(frozen=True, slots=True)
class Pattern:
    """A pattern for branches, tags or paths."""

    def read(self, node: Node, faults: FileFaults) -> str:
        """Return the pattern."""
        text = scalar_text(node, "a pattern", faults) or "*"
        if fault := fault_of(text):
            faults.add(place_of(node), fault)
        return text

    def schema(self) -> Schema:
        """Return the schema of text."""
        return {"type": "string", "minLength": 1}


@dataclass(frozen=True, slots=True)
class Need:
    """A job that another one needs."""

    name: str
    place: FilePosition


@dataclass(frozen=True, slots=True)
class NeededJob:
    """The name of a job."""

    def read(self, node: Node, faults: FileFaults) -> Need:
        """Return the name of the job, and its place."""
        text = scalar_text(node, "the name of a job", faults) or ""
        return Need(text, place_of(node))

    def schema(self) -> Schema:
        """Return the schema of text."""
        return {"type": "string", "minLength": 1}


@dataclass(frozen=True, slots=True)
class If:
    """A condition."""

    def read(self, node: Node, faults: FileFaults) -> tuple[ParsedCondition, Node]:
        """Return the parsed condition."""
        text = scalar_text(node, "a condition", faults) or "true"
        try:
            return read_condition(text), node
        except ConditionError as error:
            guess = nearest(error.name, error.allowed) if error.name else None
            end = f"; did you mean {guess}?" if guess else ""
            place = inside(node, error.offset)
            faults.add(place, f"in the condition: {error.sentence}{end}", allowed=error.allowed)
            return read_condition("true"), node

    def schema(self) -> Schema:
        """Return the schema of text."""
        return {"type": ["string", "boolean"]}


@dataclass(frozen=True, slots=True)
class AnyJson:
    """Any JSON value, such as the input of a task."""

    def read(self, node: Node, faults: FileFaults) -> Any:
        """Return the value as JSON."""
        return plain(node, faults)

    def schema(self) -> Schema:
        """Return the schema of any value."""
        return {}


def scalar_text(node: Node, what: str, faults: FileFaults) -> str | None:
    """Return a scalar as it was written, or None and a fault."""
    if isinstance(node, ScalarNode) and node.tag != NULL:
        return str(node.value)
    faults.add(place_of(node), f"{what} is expected here, not {shape(node)}")
    return None


def inside(node: Node, offset: int) -> FilePosition:
    """Return the place of a character of a scalar.

    It is exact on the first line of a plain or quoted one.
    """
    place = place_of(node)
    style = getattr(node, "style", None)
    if style in ("|", ">"):
        return place
    return place.after(offset + (style in ("'", '"')))


def shape(node: Node) -> str:
    """Return a description of a node for messages."""
    match node:
        case MappingNode():
            return "keys with values"
        case SequenceNode():
            return "a list" if node.value else "an empty list"
        case ScalarNode() if node.tag == NULL:
            return "nothing"
        case _:
            return repr(str(node.value)[:100])


@dataclass(frozen=True, slots=True)
class Several:
    """One value, or a list of values."""

    kind: FieldType
    most: int = 100

    def read(self, node: Node, faults: FileFaults) -> tuple[Any, ...]:
        """Return all values."""
        if not isinstance(node, SequenceNode):
            return (self.kind.read(node, faults),)
        if len(node.value) > self.most:
            faults.add(place_of(node), f"there are {len(node.value):,}, and {self.most:,} is the most")
            return ()
        return tuple(self.kind.read(item, faults) for item in node.value)

    def schema(self) -> Schema:
        """Return the schema: one value, or a list."""
        one = self.kind.schema()
        return {"anyOf": [one, {"type": "array", "items": one, "maxItems": self.most}]}


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list with at least one value."""

    kind: FieldType
    most: int = 100

    def read(self, node: Node, faults: FileFaults) -> tuple[Any, ...]:
        """Return all values."""
        if not isinstance(node, SequenceNode) or not 0 < len(node.value) <= self.most:
            faults.add(place_of(node), f"this has to be a list of 1 to {self.most:,}, not {shape(node)}")
            return ()
        return tuple(self.kind.read(item, faults) for item in node.value)

    def schema(self) -> Schema:
        """Return the schema of a list."""
        return {"type": "array", "items": self.kind.schema(), "minItems": 1, "maxItems": self.most}


@dataclass(frozen=True, slots=True)
class MapOf:
    """A mapping with free keys, and values of one type."""

    kind: FieldType
    noun: str
    pattern: str
    most: int = 200
    keys: tuple[str, ...] = ()
    """The allowed keys, if they are not free."""

    def read(self, node: Node, faults: FileFaults) -> dict[str, Any]:
        """Return the values by key."""
        if not isinstance(node, MappingNode) or len(node.value) > self.most:
            what = f"at most {self.most:,} names with their values"
            faults.add(place_of(node), f"this has to be {what}, not {shape(node)}")
            return {}
        made = {}
        for key, value in pairs(node, faults):
            if self.keys and key.value not in self.keys:
                faults.unknown(place_of(key), self.noun, key.value, self.keys)
            elif not re.fullmatch(self.pattern, key.value, re.ASCII):
                wrong = f"{key.value[:100]!r} is no name of {self.noun}, which is written {self.pattern}"
                faults.add(place_of(key), wrong)
            made[key.value] = self.kind.read(value, faults)
        return made

    def schema(self) -> Schema:
        """Return the schema of the mapping."""
        names: Schema = {"enum": list(self.keys)} if self.keys else {"pattern": f"^(?:{self.pattern})$"}
        return {
            "type": "object",
            "propertyNames": names,
            "additionalProperties": self.kind.schema(),
            "maxProperties": self.most,
        }


@dataclass(frozen=True, slots=True)
class Either:
    """A mapping with a short form."""

    long: FieldType
    """The type of the mapping."""
    short: FieldType
    """The type of the short form."""
    lengthen: Callable[[Any], Any]
    """Converts the short form into the long one."""

    def read(self, node: Node, faults: FileFaults) -> Any:
        """Return the value, from either form."""
        if isinstance(node, MappingNode):
            return self.long.read(node, faults)
        return self.lengthen(self.short.read(node, faults))

    def schema(self) -> Schema:
        """Return the schema of both forms."""
        return {"anyOf": [self.short.schema(), self.long.schema()]}


@dataclass(frozen=True, slots=True)
class Field:
    """One key of an object."""

    name: str
    kind: FieldType
    doc: str
    example: str = ""
    required: bool = False

    @property
    def attribute(self) -> str:
        """The name of its attribute in Python."""
        return {"if": "condition"}.get(self.name, self.name.replace("-", "_"))


@dataclass(frozen=True, slots=True)
class Object:
    """A mapping with known keys."""

    noun: str
    make: Callable[..., Any]
    """Called with the values by attribute name, and with `place`."""
    fields: Sequence[Field]
    doc: str = ""
    exclusive: tuple[tuple[str, ...], ...] = ()
    """Groups of keys of which exactly one is required."""
    elsewhere: Mapping[str, str] | None = None
    """Keys of other tools, each with the equivalent here, or with advice."""

    def read(self, node: Node, faults: FileFaults) -> Any:
        """Return the object; unknown keys are faults."""
        place = place_of(node)
        if isinstance(node, ScalarNode) and node.tag == NULL and not self._required:
            return self.make(place=place)
        if not isinstance(node, MappingNode):
            faults.add(place, f"{self.noun} has to be keys with values, not {shape(node)}")
            return self.make(place=place)
        by_name = {field.name: field for field in self.fields}
        values: dict[str, Any] = {}
        there: list[str] = []
        for key, value in pairs(node, faults):
            field = by_name.get(key.value)
            if field is None:
                self._unknown(place_of(key), key.value, tuple(by_name), faults)
                continue
            there.append(field.name)
            values[field.attribute] = field.kind.read(value, faults)
        self._check(place, there, faults)
        return self.make(place=place, **values)

    def _unknown(self, place: FilePosition, key: str, known: Sequence[str], faults: FileFaults) -> None:
        instead, noun = (self.elsewhere or {}).get(key), f"key of {self.noun}"
        if instead is None:
            faults.unknown(place, noun, key, known)
        else:
            end = f"; did you mean {instead}?" if instead in known else f": {instead}"
            faults.add(place, f"there is no {noun} {key!r}{end}", allowed=known)

    @property
    def _required(self) -> bool:
        return bool(self.exclusive) or any(field.required for field in self.fields)

    def _check(self, place: FilePosition, there: Sequence[str], faults: FileFaults) -> None:
        for field in self.fields:
            if field.required and field.name not in there:
                faults.add(place, f"{self.noun} needs {field.name}")
        for group in self.exclusive:
            named = [name for name in group if name in there]
            if len(named) != 1:
                what = "one of them, not several" if named else "one of them"
                faults.add(place, f"{self.noun} has {' or '.join(group)}: {what}", allowed=group)

    def schema(self) -> Schema:
        """Return the schema of an object without other keys."""
        made: Schema = {
            "type": "object" if self._required else ["object", "null"],
            "additionalProperties": False,
            "properties": {
                field.name: {"description": field.doc, **field.kind.schema()} for field in self.fields
            },
        }
        if required := [field.name for field in self.fields if field.required]:
            made["required"] = required
        if self.exclusive:
            made["allOf"] = [{"oneOf": [{"required": [name]} for name in group]} for group in self.exclusive]
        return made
