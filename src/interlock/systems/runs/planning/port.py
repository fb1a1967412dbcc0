"""The port of planners: whoever can turn a request into a plan.

A planner may take its time and may be asked twice for one run, because whoever asked first may have
crashed. So it changes nothing outside, and answers the same request with the same plan.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import msgspec

from interlock.wire.runs import Plan, RunSpec


class PlanRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Which run wants a plan, and of what."""

    run_id: str
    spec: RunSpec


class Planner(Protocol):
    """Makes plans of one kind of request."""

    async def plan(self, request: PlanRequest) -> Plan:
        """The plan; raises `PlanRefused` with everything that is wrong with the request."""
        ...


@runtime_checkable
class Historian(Protocol):
    """A planner that knows the history of repositories."""

    async def descends(self, repository: str, sha: str, older: str) -> bool | None:
        """Whether a commit has another one in its history; None where that is not known."""
        ...
