"""A workflow file as it was written, with its matrix: one job for each combination of values.

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
from dataclasses import dataclass, field
from itertools import product
from math import prod
from typing import Any, TypeAlias

from yaml.nodes import Node

from interlock.systems.runs.workflows.expressions import ParsedCondition
from interlock.systems.runs.workflows.field_types import Need, PlacedTemplate
from interlock.systems.runs.workflows.yaml_nodes import FilePosition

MOST_COMBINATIONS = 1_000

Combination: TypeAlias = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Matrix:
    """Axes with their values, and the included and excluded combinations."""

    axes: Mapping[str, tuple[str, ...]]
    include: tuple[Combination, ...] = ()
    exclude: tuple[Combination, ...] = ()

    @property
    def size(self) -> int:
        """Maximum number of combinations, without building them."""
        return (prod(len(values) for values in self.axes.values()) if self.axes else 0) + len(self.include)

    @property
    def names(self) -> tuple[str, ...]:
        """All keys of `matrix.…`."""
        return tuple(dict.fromkeys((*self.axes, *(name for entry in self.include for name in entry))))


def combinations(matrix: Matrix) -> list[Combination]:
    """Return all combinations, the last axis varying fastest.

    Those of `include` are at the end.
    """
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
    """Return the entries of `exclude` that match no combination.

    That is always a mistake.
    """
    return [
        entry
        for entry in matrix.exclude
        if not all(value in matrix.axes.get(name, ()) for name, value in entry.items())
    ]


def leg_name(job: str, combination: Combination, names: Sequence[str]) -> str:
    """Return the name of a combination: `test (3.12, linux)`."""
    values = [combination[name] for name in names if combination.get(name)]
    return f"{job} ({', '.join(values)})" if values else job


def _agrees(one: Combination, entry: Combination) -> bool:
    return all(one.get(name) == value for name, value in entry.items())


NOWHERE = FilePosition(1, 1)
"""The position of values that are not in the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trigger:
    """The filters of an event that starts the workflow."""

    place: FilePosition
    branches: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class On:
    """The events that start the workflow."""

    place: FilePosition = NOWHERE
    push: Trigger | None = None
    pull_request: Trigger | None = None
    manual: Trigger | None = None
    webhook: Trigger | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowInput:
    """An input of the workflow."""

    place: FilePosition
    description: str = ""
    default: str = ""
    required: bool = False
    options: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Concurrency:
    """The concurrency group of the workflow."""

    place: FilePosition = NOWHERE
    group: PlacedTemplate | None = None
    cancel: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowRetry:
    """The retry rule of one failure class."""

    place: FilePosition
    retries: int = 0
    first_pause: float | None = None
    factor: int | None = None
    longest_pause: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowStep:
    """One step of a job."""

    place: FilePosition
    run: PlacedTemplate | None = None
    name: PlacedTemplate | None = None
    env: Mapping[str, PlacedTemplate] = field(default_factory=dict)
    workdir: PlacedTemplate | None = None
    timeout: float | None = None
    continue_on_error: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowArtifact:
    """Files stored at the end of the job."""

    place: FilePosition
    name: PlacedTemplate | None = None
    path: tuple[PlacedTemplate, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowCache:
    """Files cached for later jobs."""

    place: FilePosition
    key: PlacedTemplate | None = None
    path: tuple[PlacedTemplate, ...] = ()
    files: tuple[PlacedTemplate, ...] = ()
    restore_keys: tuple[PlacedTemplate, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowApproval:
    """A question that a person answers before the job starts."""

    place: FilePosition
    question: PlacedTemplate | None = None
    approvers: tuple[str, ...] = ()
    role: str = ""
    timeout: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    """Defaults for jobs."""

    place: FilePosition = NOWHERE
    runs_on: tuple[PlacedTemplate, ...] | None = None
    queue: PlacedTemplate | None = None
    priority: int | None = None
    workdir: PlacedTemplate | None = None
    checkout: bool | None = None
    checkout_secret: str | None = None
    timeout: float | None = None
    job_timeout: float | None = None
    retries: int | None = None
    retry: Mapping[str, WorkflowRetry] | None = None
    losses: int | None = None
    limits: tuple[PlacedTemplate, ...] | None = None
    weight: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowJob(Defaults):
    """One job, or several with a matrix."""

    needs: tuple[Need, ...] = ()
    after: tuple[Need, ...] = ()
    condition: tuple[ParsedCondition, Node] | None = None
    matrix: Matrix | None = None
    steps: tuple[WorkflowStep, ...] = ()
    task: str = ""
    input: Any = None
    env: Mapping[str, PlacedTemplate] = field(default_factory=dict)
    optional: bool = False
    shards: int = 1
    secrets: tuple[str, ...] = ()
    environment: str = ""
    approval: WorkflowApproval | None = None
    artifacts: tuple[WorkflowArtifact, ...] = ()
    cache: tuple[WorkflowCache, ...] = ()

    @property
    def waits_for(self) -> tuple[Need, ...]:
        """All jobs of the plan that have to end before it."""
        return (*self.needs, *self.after)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowFile:
    """A parsed workflow file."""

    place: FilePosition
    name: str = ""
    on: On | None = None
    inputs: Mapping[str, WorkflowInput] = field(default_factory=dict)
    concurrency: Concurrency | None = None
    env: Mapping[str, PlacedTemplate] = field(default_factory=dict)
    defaults: Defaults = Defaults()
    timeout: float | None = None
    fail_fast: bool = True
    jobs: Mapping[str, WorkflowJob] = field(default_factory=dict)
