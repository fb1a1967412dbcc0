"""A workflow file as it was written: what the kinds of the table make of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from yaml.nodes import Node

from interlock.systems.runs.planning.conditions import Condition
from interlock.systems.runs.planning.faults import Place
from interlock.systems.runs.planning.kinds import Need, Placed
from interlock.systems.runs.planning.matrix import Matrix

NOWHERE = Place(1, 1)
"""For what is not in the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trigger:
    """When an event starts the workflow."""

    place: Place
    branches: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class On:
    """Which events start the workflow."""

    place: Place = NOWHERE
    push: Trigger | None = None
    pull_request: Trigger | None = None
    manual: Trigger | None = None
    webhook: Trigger | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """Something that can be given with a request."""

    place: Place
    description: str = ""
    default: str = ""
    required: bool = False
    options: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Concurrency:
    """Which runs a newer one supersedes."""

    place: Place = NOWHERE
    group: Placed | None = None
    cancel: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """How often one class of failure is tried again."""

    place: Place
    retries: int = 0
    first_pause: float | None = None
    factor: int | None = None
    longest_pause: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One command."""

    place: Place
    run: Placed | None = None
    name: Placed | None = None
    env: Mapping[str, Placed] = field(default_factory=dict)
    workdir: Placed | None = None
    timeout: float | None = None
    continue_on_error: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """Files that are kept when the job has ended."""

    place: Place
    name: Placed | None = None
    path: tuple[Placed, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Cache:
    """Files that are kept for later jobs."""

    place: Place
    key: Placed | None = None
    path: tuple[Placed, ...] = ()
    files: tuple[Placed, ...] = ()
    restore_keys: tuple[Placed, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    """What a job has when it does not say otherwise."""

    place: Place = NOWHERE
    runs_on: tuple[Placed, ...] | None = None
    queue: Placed | None = None
    priority: int | None = None
    workdir: Placed | None = None
    checkout: bool | None = None
    checkout_secret: str | None = None
    timeout: float | None = None
    job_timeout: float | None = None
    retries: int | None = None
    retry: Mapping[str, Retry] | None = None
    losses: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Job(Defaults):
    """One job, or with a matrix several."""

    needs: tuple[Need, ...] = ()
    after: tuple[Need, ...] = ()
    condition: tuple[Condition, Node] | None = None
    matrix: Matrix | None = None
    steps: tuple[Step, ...] = ()
    task: str = ""
    input: Any = None
    env: Mapping[str, Placed] = field(default_factory=dict)
    optional: bool = False
    shards: int = 1
    secrets: tuple[str, ...] = ()
    environment: str = ""
    artifacts: tuple[Artifact, ...] = ()
    cache: tuple[Cache, ...] = ()

    @property
    def waits_for(self) -> tuple[Need, ...]:
        """Everything that has to end before it, as far as it is in the plan."""
        return (*self.needs, *self.after)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowFile:
    """A whole file, as it was written."""

    place: Place
    name: str = ""
    on: On | None = None
    inputs: Mapping[str, Input] = field(default_factory=dict)
    concurrency: Concurrency | None = None
    env: Mapping[str, Placed] = field(default_factory=dict)
    defaults: Defaults = Defaults()
    timeout: float | None = None
    fail_fast: bool = True
    jobs: Mapping[str, Job] = field(default_factory=dict)
