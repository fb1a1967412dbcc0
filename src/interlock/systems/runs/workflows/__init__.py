"""Workflow files, flows and planners: from a request to a plan, a graph of jobs with their reasons.

    workflow.py     workflow files, `.interlock/*.yml`: read and checked
    flow.py         Python functions decorated with `@flow`, and their planner
    git.py          workflow files as they are in a git repository at some commit, and their planner
    planner.py      from a workflow and a change to a plan
    schema.py       the table of workflow files; `model.py` is the result of reading
    field_types.py  the types of values in that table; `yaml_nodes.py` reads YAML with lines and columns
    expressions.py  variables, patterns, `if:` conditions and `${{ … }}`

This module is the interface of planners. A planner may take its time, and may be asked twice for one run,
because the process that asked first may have crashed. So it changes nothing outside, and answers the same
request with the same plan.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import msgspec

from interlock.wire.runs import Plan, RunSpec

MAX_BYTES = 1_000_000
"""Maximum size of a workflow file."""


class PlanRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The run to plan, and its spec."""

    run_id: str
    spec: RunSpec


@dataclass(frozen=True, slots=True)
class Clone:
    """The address for runners, if it differs from the source."""

    url: str = ""
    secret: str = ""
    """The name of the secret used to fetch it."""


@dataclass(frozen=True, slots=True)
class WorkflowText:
    """A workflow file of a commit."""

    path: str
    text: bytes


class Planner(Protocol):
    """Makes plans of one kind of request."""

    async def plan(self, request: PlanRequest) -> Plan:
        """Return the plan; raise `PlanRefused` with all faults of the request."""
        ...


@runtime_checkable
class Historian(Protocol):
    """A planner that can read the history of repositories."""

    async def descends(self, repository: str, sha: str, older: str) -> bool | None:
        """Return whether a commit has another one in its history; None if unknown."""
        ...
