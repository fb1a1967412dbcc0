"""A matrix: one job for each combination of the values of its axes.

    matrix:
      python: ["3.11", "3.12"]
      system: [linux, macos]
      exclude: [{python: "3.11", system: macos}]
      include: [{python: "3.13", system: linux}, {system: linux, coverage: "yes"}]

An entry of `include` that agrees with combinations on every axis it names adds its other values to
them; one that agrees with none is a combination of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import TypeAlias

MOST_COMBINATIONS = 1_000

Combination: TypeAlias = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Matrix:
    """Axes with their values, and what is different in some combinations."""

    axes: Mapping[str, tuple[str, ...]]
    include: tuple[Combination, ...] = ()
    exclude: tuple[Combination, ...] = ()

    @property
    def size(self) -> int:
        """At most so many combinations, without making them."""
        return (prod(len(values) for values in self.axes.values()) if self.axes else 0) + len(self.include)

    @property
    def names(self) -> tuple[str, ...]:
        """Everything that `matrix.…` can be."""
        return tuple(dict.fromkeys((*self.axes, *(name for entry in self.include for name in entry))))


def combinations(matrix: Matrix) -> list[Combination]:
    """All of them, the last axis changing fastest, those of `include` at the end."""
    axes = matrix.axes
    made = [dict(zip(axes, values, strict=True)) for values in product(*axes.values())] if axes else []
    kept = [one for one in made if not any(_agrees(one, entry) for entry in matrix.exclude)]
    originals = [dict(one) for one in kept]
    own: list[dict[str, str]] = []
    for entry in matrix.include:
        on_axes = {name: value for name, value in entry.items() if name in axes}
        fitting = [place for place, one in enumerate(originals) if _agrees(one, on_axes)]
        for place in fitting:
            kept[place] |= entry
        if not fitting:
            own.append(dict(entry))
    return [*kept, *own]


def useless(matrix: Matrix) -> list[Combination]:
    """Entries of `exclude` that exclude nothing, which is never what somebody meant."""
    return [
        entry
        for entry in matrix.exclude
        if not all(value in matrix.axes.get(name, ()) for name, value in entry.items())
    ]


def leg_name(job: str, combination: Combination, names: Sequence[str]) -> str:
    """`test (3.12, linux)`."""
    values = [combination[name] for name in names if combination.get(name)]
    return f"{job} ({', '.join(values)})" if values else job


def _agrees(one: Combination, entry: Combination) -> bool:
    return all(one.get(name) == value for name, value in entry.items())
