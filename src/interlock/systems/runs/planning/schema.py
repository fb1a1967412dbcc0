"""The table of workflow files for others: as JSON Schema for editors, and as rows for the reference page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from interlock.systems.runs.planning.conditions import COMPARING, FUNCTIONS
from interlock.systems.runs.planning.kinds import AnyJson, Kind
from interlock.systems.runs.planning.shapes import Either, Field, ListOf, MapOf, Object, Several
from interlock.systems.runs.planning.table import OBJECTS, WORKFLOW
from interlock.systems.runs.planning.variables import FAMILIES, NAMES


def workflow_schema() -> dict[str, Any]:
    """A JSON Schema of workflow files."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Interlock workflow",
        "description": "A file .interlock/*.yml. Made from the table of its keys by `make docs`.",
        **WORKFLOW.schema(),
    }


def key_rows(described: Object) -> Iterator[tuple[str, str, str, str]]:
    """Each key of an object: its name, how its value is written, what it means, an example."""
    for field in described.fields:
        yield field.name, _written(field), field.doc, field.example


def sections() -> Iterator[tuple[str, Object]]:
    """The objects of a file, in the order in which they are told."""
    yield from OBJECTS.items()


def name_rows() -> Iterator[tuple[str, str]]:
    """Everything that a condition may use, and what it means."""
    yield from ((name, known.doc) for name, known in NAMES.items())
    yield from ((f"{family}.NAME", doc) for family, doc in FAMILIES.items())
    yield from ((f"{name}('PATTERN', …)", doc) for name, doc in FUNCTIONS.items())
    yield from ((sign, doc) for sign, (_, doc) in COMPARING.items())
    yield "and or not ( )", "As usual; `and` binds closer than `or`."


def _written(field: Field) -> str:
    required = ", required" if field.required else ""
    return f"{_kind_words(field.kind)}{required}"


def _kind_words(kind: Kind) -> str:
    match kind:
        case Object():
            return "keys"
        case Several(kind=inner):
            return f"{_kind_words(inner)}, or a list"
        case ListOf():
            return "list"
        case MapOf():
            return "names with values"
        case Either(short=short):
            return f"{_kind_words(short)}, or keys"
        case AnyJson():
            return "anything"
        case _:
            words = {"Word": "text", "Filled": "text", "Flag": "true or false", "Count": "number"}
            words |= {"Duration": "90s, 15m, 2h", "Pattern": "pattern", "If": "condition"}
            words |= {"NeededJob": "name of a job", "Axes": "axes"}
            return words[type(kind).__name__]
