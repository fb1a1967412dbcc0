"""How a matrix is written in a workflow file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from yaml.nodes import MappingNode, Node

from interlock.systems.runs.planning.faults import Faults
from interlock.systems.runs.planning.kinds import Schema, Word, shape
from interlock.systems.runs.planning.matrix import (
    MOST_COMBINATIONS,
    Combination,
    Matrix,
    combinations,
    useless,
)
from interlock.systems.runs.planning.nodes import pairs, place_of
from interlock.systems.runs.planning.shapes import ListOf, MapOf

NAME = r"[A-Za-z_][A-Za-z0-9_-]*"
MOST_AXES = 20
_VALUE = Word("value of an axis")
_VALUES = ListOf(_VALUE, most=MOST_COMBINATIONS)
_ENTRIES = ListOf(MapOf(_VALUE, "an axis", NAME, most=MOST_AXES), most=MOST_COMBINATIONS)
_OTHERS = ("include", "exclude")


@dataclass(frozen=True, slots=True)
class Axes:
    """Axes with their values, `include` and `exclude`."""

    def read(self, node: Node, faults: Faults) -> Matrix:
        """The matrix; empty when it makes no sense."""
        if not isinstance(node, MappingNode) or len(node.value) > MOST_AXES:
            faults.add(
                place_of(node), f"a matrix has at most {MOST_AXES} axes with values, not {shape(node)}"
            )
            return Matrix({})
        found: dict[str, Any] = {}
        before = len(faults.found)
        for key, value in pairs(node, faults):
            found[key.value] = (_ENTRIES if key.value in _OTHERS else _VALUES).read(value, faults)
        axes = {name: values for name, values in found.items() if name not in _OTHERS}
        matrix = Matrix(axes, found.get("include", ()), found.get("exclude", ()))
        if len(faults.found) == before:
            _check(matrix, node, faults)
        return matrix if len(faults.found) == before else Matrix(axes)

    def schema(self) -> Schema:
        """Lists of values, and the two keys that are different."""
        return {
            "type": "object",
            "properties": {name: _ENTRIES.schema() for name in _OTHERS},
            "propertyNames": {"pattern": f"^(?:{NAME})$"},
            "additionalProperties": _VALUES.schema(),
            "maxProperties": MOST_AXES,
        }


def _check(matrix: Matrix, node: MappingNode, faults: Faults) -> None:
    places = {key.value: place_of(value) for key, value in pairs(node, faults)}
    for name, values in matrix.axes.items():
        twice = [value for value in dict.fromkeys(values) if values.count(value) > 1]
        if twice:
            faults.add(places[name], f"{twice[0]!r} is there twice")
    if matrix.size > MOST_COMBINATIONS:
        many = f"{matrix.size:,} combinations, and {MOST_COMBINATIONS:,} is the most"
        faults.add(place_of(node), f"the matrix has {many}")
        return
    for entry in useless(matrix):
        faults.add(places["exclude"], f"{_written(entry)} is no combination, so it excludes nothing")
    made = combinations(matrix)
    if not made:
        faults.add(place_of(node), "no combination is left")
    names = [tuple(one.get(name, "") for name in matrix.names) for one in made]
    if len(set(names)) < len(names):
        faults.add(places.get("include", place_of(node)), "two combinations are the same")


def _written(entry: Combination) -> str:
    return "{" + ", ".join(f"{name}: {value}" for name, value in entry.items()) + "}"
