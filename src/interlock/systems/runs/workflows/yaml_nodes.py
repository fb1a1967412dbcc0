"""YAML nodes with their lines and columns, and the faults of a file, reported all at once.

No Python objects are constructed from the nodes. Scalars are read as JSON would read them, so that `on` and
`no` are text; and a text field takes a scalar as it was written, so that `3.10` stays `3.10`. A file is
refused if it is large, deep, refers to itself, or grows when its aliases are expanded.

Why: decisions 0178 and 0452.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from interlock.errors import InterlockError, PlanRefused
from interlock.systems.runs.workflows import MAX_BYTES
from interlock.text import counted, nearest

MOST_TOLD = 50
"""Maximum number of faults to list."""


@dataclass(frozen=True, slots=True, order=True)
class FilePosition:
    """A line and a column of a file, counted from 1."""

    line: int
    column: int

    def after(self, offset: int) -> FilePosition:
        """Return the position this many characters further on the same line."""
        return FilePosition(self.line, self.column + offset)


@dataclass(frozen=True, slots=True, order=True)
class FileFault:
    """One fault of a file."""

    place: FilePosition
    sentence: str
    allowed: tuple[str, ...] = ()


@dataclass(slots=True)
class FileFaults:
    """Collects the faults of one file."""

    file: str
    found: list[FileFault] = field(default_factory=list)
    page: str = "docs/reference/workflow.md"
    """The reference page of the file format."""
    error: type[InterlockError] = PlanRefused
    """The error class to raise."""

    def add(self, place: FilePosition, sentence: str, *, allowed: Sequence[str] = ()) -> None:
        """Add a fault; duplicates at the same place are dropped."""
        fault = FileFault(place, sentence, tuple(allowed))
        if fault not in self.found:
            self.found.append(fault)

    def unknown(self, place: FilePosition, noun: str, name: str, known: Sequence[str]) -> None:
        """Add the fault of an unknown name, with the most similar known one."""
        guess = nearest(name, known)
        end = f"; did you mean {guess}?" if guess else f"; there is {listed(known)}" if known else ""
        self.add(place, f"there is no {noun} {name[:100]!r}{end}", allowed=known)

    def refuse_if_any(self) -> None:
        """Raise all faults, in the order of the file."""
        if self.found:
            raise self.refusal()

    def refusal(self) -> InterlockError:
        """Return all faults as one error."""
        faults = sorted(self.found)
        lines = [f"{self.file}:{f.place.line}:{f.place.column}: {f.sentence}" for f in faults[:MOST_TOLD]]
        if len(faults) > MOST_TOLD:
            lines.append(f"… and {len(faults) - MOST_TOLD} more")
        number = counted(len(faults), "fault")
        return self.error(
            "\n".join((f"{self.file} has {number}:", *lines)),
            allowed=faults[0].allowed if len(faults) == 1 else (),
            todo=f"Correct the file; {self.page} lists every key.",
            facts={
                "file": self.file,
                "line": faults[0].place.line,
                "column": faults[0].place.column,
                "faults": [
                    {
                        "line": fault.place.line,
                        "column": fault.place.column,
                        "error": fault.sentence,
                        "allowed": list(fault.allowed),
                    }
                    for fault in faults[:MOST_TOLD]
                ],
            },
        )


def listed(names: Sequence[str]) -> str:
    """Return a few names as part of a sentence."""
    if len(names) == 1:
        return names[0]
    return f"{', '.join(names[:-1])} and {names[-1]}" if names else "none"


MAX_NODES = 20_000
MAX_DEPTH = 30

_CORE = "tag:yaml.org,2002:"
TEXT, INT, FLOAT, BOOL, NULL = (f"{_CORE}{name}" for name in ("str", "int", "float", "bool", "null"))
_KNOWN = frozenset({TEXT, INT, FLOAT, BOOL, NULL, f"{_CORE}map", f"{_CORE}seq"})

YamlValue: TypeAlias = "bool | int | float | str | list[YamlValue] | dict[str, YamlValue] | None"


class _TooMuch(Exception):
    """The file exceeds a limit, or refers to itself."""

    def __init__(self, sentence: str, place: FilePosition) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.place = place


class _Loader(yaml.SafeLoader):
    """The safe loader, with the scalars of JSON and with limits. Only its nodes are used."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - as the class above declares it
    depth = 0
    nodes = 0

    def compose_node(self, parent: Node | None, index: Any) -> Node | None:
        """Compose one node with its children, within the limits."""
        event = self.peek_event()  # type: ignore[no-untyped-call]
        place = FilePosition(event.start_mark.line + 1, event.start_mark.column + 1)
        self.nodes += 1
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise _TooMuch(f"it is nested more than {MAX_DEPTH} levels deep", place)
        if self.nodes > MAX_NODES:
            raise _TooMuch(f"there are more than {MAX_NODES:,} values", place)
        node: Node | None = super().compose_node(parent, index)
        self.depth -= 1
        return node


_Loader.add_implicit_resolver(BOOL, re.compile(r"^(?:true|false)$"), list("tf"))
_Loader.add_implicit_resolver(NULL, re.compile(r"^(?:null|~|)$"), ["n", "~", ""])
_Loader.add_implicit_resolver(INT, re.compile(r"^-?(?:0|[1-9][0-9]*)$"), list("-0123456789"))
_Loader.add_implicit_resolver(
    FLOAT,
    re.compile(r"^-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?$"),
    list("-0123456789"),
)


def compose(text: str, faults: FileFaults) -> Node | None:
    """Return the root node of the only document.

    Return None if there is none, or after a fault.
    """
    size = len(text.encode(errors="replace"))
    if size > MAX_BYTES:
        faults.add(FilePosition(1, 1), f"the file is {size:,} bytes large, and {MAX_BYTES:,} is the most")
        return None
    try:
        # Surrogates and control characters are refused by the constructor of the loader.
        node: Node | None = _Loader(text).get_single_node()
        _refuse_growth(node)
    except _TooMuch as error:
        faults.add(error.place, error.sentence)
        return None
    except yaml.YAMLError as error:
        faults.add(*_position_and_message(error, text))
        return None
    return node


def place_of(node: Node) -> FilePosition:
    """Return the position where a node begins."""
    return FilePosition(node.start_mark.line + 1, node.start_mark.column + 1)


def plain(node: Node, faults: FileFaults) -> YamlValue:
    """Return a node as JSON."""
    match node:
        case ScalarNode():
            return _scalar(node, faults)
        case SequenceNode():
            return [plain(item, faults) for item in node.value]
        case MappingNode():
            return {key.value: plain(value, faults) for key, value in pairs(node, faults)}
        case _:
            raise AssertionError(node)


def pairs(node: MappingNode, faults: FileFaults) -> Iterator[tuple[ScalarNode, Node]]:
    """Yield the keys of a mapping with their values.

    A duplicate key is a fault.
    """
    seen: dict[str, FilePosition] = {}
    for key, value in node.value:
        if not isinstance(key, ScalarNode):
            faults.add(place_of(key), "a key has to be text")
        elif key.value == "<<":
            faults.add(place_of(key), "<< is not merged here; write the keys out, or use defaults and env")
        elif key.value in seen:
            faults.add(place_of(key), f"{key.value!r} is there before, in line {seen[key.value].line}")
        else:
            seen[key.value] = place_of(key)
            yield key, value


def _scalar(node: ScalarNode, faults: FileFaults) -> YamlValue:
    text: str = node.value
    match node.tag:
        case "tag:yaml.org,2002:null":
            return None
        case "tag:yaml.org,2002:bool":
            return text == "true"
        case "tag:yaml.org,2002:int" if len(text) <= len("-9223372036854775808"):
            return int(text)
        case "tag:yaml.org,2002:float" if math.isfinite(number := float(text)):
            return number
        case "tag:yaml.org,2002:int" | "tag:yaml.org,2002:float":
            faults.add(place_of(node), "the number is too large; put it in quotation marks")
    return text


def _refuse_growth(root: Node | None) -> None:
    """Raise if expanding aliases would make the document too large.

    A few lines can stand for billions.
    """
    visited = 0
    inside: set[int] = set()

    def walk(node: Node, place: FilePosition) -> None:
        nonlocal visited
        visited += 1
        if visited > MAX_NODES:
            raise _TooMuch(f"written out, its aliases make more than {MAX_NODES:,} values", place)
        if node.tag not in _KNOWN:
            raise _TooMuch(f"the tag {node.tag.removeprefix(_CORE)!r} means nothing here", place_of(node))
        if isinstance(node, ScalarNode):
            return
        if id(node) in inside:
            raise _TooMuch("it contains itself", place)
        inside.add(id(node))
        below = (
            (part for pair in node.value for part in pair) if isinstance(node, MappingNode) else node.value
        )
        for child in below:
            walk(child, place_of(node))
        inside.remove(id(node))

    if root is not None:
        walk(root, place_of(root))


def _position_and_message(error: yaml.YAMLError, text: str) -> tuple[FilePosition, str]:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        mark = error.problem_mark
        context = f"{error.context}: " if error.context else ""
        return FilePosition(mark.line + 1, mark.column + 1), f"invalid YAML: {context}{error.problem}"
    position = getattr(error, "position", 0)
    before = text[:position]
    column = position - before.rfind("\n")
    return FilePosition(before.count("\n") + 1, column), "there is a character that YAML does not allow"
