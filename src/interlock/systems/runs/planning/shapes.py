"""The shapes that a workflow file has: lists, mappings, and objects with known keys.

Like the kinds of single values, each can read a node and say the same as JSON Schema.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from interlock.systems.runs.planning.faults import Faults, Place
from interlock.systems.runs.planning.kinds import Kind, Schema, shape
from interlock.systems.runs.planning.nodes import NULL, pairs, place_of


@dataclass(frozen=True, slots=True)
class Several:
    """One of a kind, or a list of them."""

    kind: Kind
    most: int = 100

    def read(self, node: Node, faults: Faults) -> tuple[Any, ...]:
        """All of them."""
        if not isinstance(node, SequenceNode):
            return (self.kind.read(node, faults),)
        if len(node.value) > self.most:
            faults.add(place_of(node), f"there are {len(node.value):,}, and {self.most:,} is the most")
            return ()
        return tuple(self.kind.read(item, faults) for item in node.value)

    def schema(self) -> Schema:
        """Either."""
        one = self.kind.schema()
        return {"anyOf": [one, {"type": "array", "items": one, "maxItems": self.most}]}


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list, of which at least one is there."""

    kind: Kind
    most: int = 100

    def read(self, node: Node, faults: Faults) -> tuple[Any, ...]:
        """All of them."""
        if not isinstance(node, SequenceNode) or not 0 < len(node.value) <= self.most:
            faults.add(place_of(node), f"this has to be a list of 1 to {self.most:,}, not {shape(node)}")
            return ()
        return tuple(self.kind.read(item, faults) for item in node.value)

    def schema(self) -> Schema:
        """A list."""
        return {"type": "array", "items": self.kind.schema(), "minItems": 1, "maxItems": self.most}


@dataclass(frozen=True, slots=True)
class MapOf:
    """Names that the file chooses, each with a value of one kind."""

    kind: Kind
    noun: str
    pattern: str
    most: int = 200
    keys: tuple[str, ...] = ()
    """The only ones there are, when they are not free."""

    def read(self, node: Node, faults: Faults) -> dict[str, Any]:
        """The values by their names."""
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
        """An object with keys of a kind."""
        names: Schema = {"enum": list(self.keys)} if self.keys else {"pattern": f"^(?:{self.pattern})$"}
        return {
            "type": "object",
            "propertyNames": names,
            "additionalProperties": self.kind.schema(),
            "maxProperties": self.most,
        }


@dataclass(frozen=True, slots=True)
class Either:
    """A short way of writing something beside the long one."""

    long: Kind
    """A mapping."""
    short: Kind
    """Anything else."""
    lengthen: Callable[[Any], Any]
    """What the short way stands for."""

    def read(self, node: Node, faults: Faults) -> Any:
        """Whichever it is."""
        if isinstance(node, MappingNode):
            return self.long.read(node, faults)
        return self.lengthen(self.short.read(node, faults))

    def schema(self) -> Schema:
        """Either."""
        return {"anyOf": [self.short.schema(), self.long.schema()]}


@dataclass(frozen=True, slots=True)
class Field:
    """One key of an object."""

    name: str
    kind: Kind
    doc: str
    example: str = ""
    required: bool = False

    @property
    def attribute(self) -> str:
        """What it is called in Python."""
        return {"if": "condition"}.get(self.name, self.name.replace("-", "_"))


@dataclass(frozen=True, slots=True)
class Object:
    """A mapping with known keys."""

    noun: str
    make: Callable[..., Any]
    """Takes the values by the names of their attributes, and `place`."""
    fields: Sequence[Field]
    doc: str = ""
    exclusive: tuple[tuple[str, ...], ...] = ()
    """Of each group, exactly one is there."""
    elsewhere: Mapping[str, str] | None = None
    """Keys that other tools have: the one that is here instead, or what to do."""

    def read(self, node: Node, faults: Faults) -> Any:
        """The object; keys that nobody knows are faults."""
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

    def _unknown(self, place: Place, key: str, known: Sequence[str], faults: Faults) -> None:
        instead, noun = (self.elsewhere or {}).get(key), f"key of {self.noun}"
        if instead is None:
            faults.unknown(place, noun, key, known)
        else:
            end = f"; did you mean {instead}?" if instead in known else f": {instead}"
            faults.add(place, f"there is no {noun} {key!r}{end}", allowed=known)

    @property
    def _required(self) -> bool:
        return bool(self.exclusive) or any(field.required for field in self.fields)

    def _check(self, place: Place, there: Sequence[str], faults: Faults) -> None:
        for field in self.fields:
            if field.required and field.name not in there:
                faults.add(place, f"{self.noun} needs {field.name}")
        for group in self.exclusive:
            named = [name for name in group if name in there]
            if len(named) != 1:
                what = "one of them, not several" if named else "one of them"
                faults.add(place, f"{self.noun} has {' or '.join(group)}: {what}", allowed=group)

    def schema(self) -> Schema:
        """An object without other keys."""
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
